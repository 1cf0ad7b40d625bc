// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
)

// describe writes the description of a cluster of workers whose devices have these speeds.
func describe(folder string, speeds ...string) (file string, err error) {
	text := "workers:\n"
	for _, s := range speeds {
		text += fmt.Sprintf("  - {devices: %d, speed: [%s]}\n", 1+strings.Count(s, ","), s)
	}
	file = filepath.Join(folder, "cluster.yaml")
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// shared tells how micro-batches are shared, in the words of Explain.
func shared(env *epl.Env) (string, error) {
	var w strings.Builder
	if err := env.Explain(&w); err != nil {
		return "", err
	}
	for line := range strings.Lines(w.String()) {
		if strings.Contains(line, "model replicas take") {
			return line, nil
		}
	}
	return "", nil
}

type unequalCase struct {
	model  Model
	speeds string // of the devices
	micro  int    // micro-batches of a model replica, if they share evenly
	params map[string]any
	take   string // what they take
}

// batches are those of a step.
func (c unequalCase) batches() (n int) {
	for _, word := range strings.FieldsFunc(c.take, func(r rune) bool { return r < '0' || r > '9' }) {
		k, _ := strconv.Atoi(word)
		n += k
	}
	return n
}

// Faster devices take more micro-batches. Weights, losses and random numbers are those of equal shares, and of one device.
func TestUnequalSharesGiveTheWeightsOfOneDevice(t *testing.T) {
	dropout, stages := Models()[1], regression() // with random numbers, which only EPL draws for each batch
	stages.Build = wide(1, 1)
	for _, c := range []unequalCase{
		{regression(), "2, 1", 3, nil, "4 and 2"},
		{regression(), "1, 2, 3", 2, nil, "1, 2 and 3"},
		{regression(), "9, 1", 2, nil, "4 and 0"},
		{regression(), "2, 1", 3, map[string]any{"zero.level": "v1"}, "4 and 2"},
		{regression(), "1, 3", 2, map[string]any{"zero.level": "v2", "communication.max_splits": 1}, "1 and 3"},
		{regression(), "2, 1", 3, map[string]any{"communication.fp16": true}, "4 and 2"},
		{stages, "2, 2, 1, 1", 3, map[string]any{"cluster.colocate_split_and_replicate": false}, "4 and 2"},
		{stages, "1, 1, 2, 3", 3, map[string]any{"cluster.colocate_split_and_replicate": false, "zero.level": "v1"}, "1 and 5"},
		{dropout, "3, 1, 2", 4, map[string]any{"gradient_checkpoint.type": "auto"}, "6, 2 and 4"},
	} {
		t.Run(fmt.Sprint(c.model.Name, c.speeds, c.params), func(t *testing.T) {
			t.Parallel()
			file, err := describe(t.TempDir(), c.speeds)
			if err != nil {
				t.Fatal(err)
			}
			var runs []*Run
			devices := 1 + strings.Count(c.speeds, ",")
			for _, description := range []string{"", file} {
				params := map[string]any{"cluster.description": description}
				maps.Copy(params, c.params)
				env := newCluster(t, devices, c.micro, params)
				run, err := TrainOn(env.Backend(), env.Dataset(Dataset{c.model.Batch}), c.model, epl.Optimizer(sgd()), 4)
				if err != nil {
					t.Fatalf("%+v", err)
				}
				runs = append(runs, run)
				line, err := shared(env)
				if want := "model replicas take " + c.take + " micro-batches"; err != nil || strings.Contains(line, want) != (description != "") {
					t.Errorf("described by %q: %q, %v; want %q", description, line, err, want)
				}
			}
			tolerance := 1e-5
			if c.params["communication.fp16"] != nil {
				tolerance = 1e-3
			} else if c.model.Name == regression().Name {
				single := c.model
				single.Batch = Joined(c.model.Batch, c.batches())
				runs = append(runs, train1(t, single, sgd(), 4, nil))
			}
			for _, other := range runs[1:] {
				if err := cmp.Or(CloseWeights(runs[0], other, tolerance), CloseLosses(runs[0], other, tolerance)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Workers of different speeds, of which one feeds more batches than another. The last step lacks some.
func TestUnequalSharesOverSeveralWorkers(t *testing.T) {
	workers{num: 2, devices: 2, hosts: "a,b"}.agree(t, "unequal shares")
}

func init() {
	parts["unequal shares"] = func(w *part) error {
		m := regression()
		file, err := w.described("workers:\n  - {devices: 2, speed: [3, 2]}\n  - {devices: 2, speed: 1}\n")
		if err != nil {
			return err
		}
		for _, params := range []map[string]any{{}, {"zero.level": "v1"}} {
			params["cluster.description"], params["pipeline.num_micro_batch"] = file, 2
			env, err := w.init(params)
			if err != nil {
				return err
			}
			defer env.Close()
			const batches = 8 + 8 + 5
			got := &Run{Store: newStore()}
			loop := train.NewLoop(train.NewTrainer(env.Backend(), got.Store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil))
			if _, err := loop.RunEpochs(env.Dataset(first(m, batches)), 1); err != nil {
				return err
			}
			line, err := shared(env)
			if want := "take 4, 2, 1 and 1"; err != nil || !strings.Contains(line, want) {
				return fmt.Errorf("%q, %v; want %q", line, err, want)
			}
			w.report(fmt.Sprint(params["zero.level"]), got)
			all := samplesOf(m.Batch, 8*batches)
			want, err := oneEpoch(nil, m, all.inBatches(8*8, 8*8, 5*8))
			if err != nil {
				return err
			}
			if err := CloseWeights(want, got, 1e-5); err != nil {
				return err
			}
		}
		return nil
	}
}

// Stages that EPL cuts have as much to do as their devices can.
func TestUnequalStagesGiveTheWeightsOfOneDevice(t *testing.T) {
	t.Parallel()
	file, err := describe(t.TempDir(), "2, 1")
	if err != nil {
		t.Fatal(err)
	}
	m := plainMLP()
	env := newPipeline(t, 2, 3, map[string]any{"auto.auto_parallel": true, "pipeline.num_stages": 2, "cluster.description": file})
	got, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 4)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	var w strings.Builder
	if err := env.Explain(&w); err != nil || !strings.Contains(w.String(), "The devices of the stages have speeds 1 and 0.5, relative to the first") {
		t.Errorf("%v:\n%s", err, &w)
	}
	single := m
	single.Batch = Joined(m.Batch, 3)
	mustBeClose(t, train1(t, single, sgd(), 4, nil), got)
}

// The first stage is on the worker whose device has more memory, so that the first worker feeds nothing.
func TestStagesInTheOrderOfMemory(t *testing.T) {
	workers{num: 2, devices: 1}.agree(t, "stages by memory")
}

func init() {
	parts["stages by memory"] = func(w *part) error {
		file, err := w.described("workers:\n  - {devices: 1, memory: 1GiB}\n  - {devices: 1, memory: 2GiB, speed: 2}\n")
		if err != nil {
			return err
		}
		return w.pipeline(plainMLP().staged(), 0, 2, 3, map[string]any{"auto.auto_parallel": true, "pipeline.num_stages": 2, "cluster.description": file})
	}
}

// described writes the description of the cluster that all workers have.
func (w *part) described(text string) (file string, err error) {
	file = filepath.Join(w.folder, "cluster.yaml")
	own := file + fmt.Sprint(os.Getpid())
	return file, cmp.Or(os.WriteFile(own, []byte(text), 0o600), os.Rename(own, file)) // all write the same
}

// What is measured of devices that are slowed down on purpose decides shares, and changes no weights.
func TestSharesFollowWhatIsMeasured(t *testing.T) {
	t.Setenv(epl.EnvSlow, "0,50")
	m := regression()
	env := newCluster(t, 2, 2, map[string]any{"cluster.measure": true})
	got, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 2)
	if err != nil {
		t.Fatal(err)
	}
	line, err := shared(env)
	if want := "take 4 and 0 micro-batches"; err != nil || !strings.Contains(line, want) {
		t.Errorf("%q, %v; want %q", line, err, want)
	}
	single := m
	single.Batch = Joined(m.Batch, 4)
	mustBeClose(t, train1(t, single, sgd(), 2, nil), got)
}

func TestBadSpeedsAreRefused(t *testing.T) {
	few, err := describe(t.TempDir(), "2, 1, 1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		slow   string
		params map[string]any
		want   []string
	}{
		{"1", nil, []string{"EPL_SLOW=1", "1 numbers and 2 devices"}},
		{"1,-5", nil, []string{"EPL_SLOW=1,-5", `"-5"`, "at least 0"}},
		{"1,fast", nil, []string{`"fast"`}},
		{"", map[string]any{"cluster.description": few}, []string{"cluster.description = ", "[3]", "[2]"}},
		{"", map[string]any{"cluster.description": "nowhere.yaml"}, []string{"cluster.description = nowhere.yaml", "no such file"}},
		{"", map[string]any{"cluster.description": few, "cluster.measure": true}, []string{"cluster.measure", "cluster.description", "leave one of them unset"}},
	} {
		t.Setenv(epl.EnvSlow, c.slow)
		cfg, err := epl.NewConfig(c.params)
		if err == nil {
			_, err = epl.Init(cfg, epl.WithLocalDevices(2))
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("EPL_SLOW=%s, %v: %v; want %q", c.slow, c.params, err, want)
			}
		}
	}
}
