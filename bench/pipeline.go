// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
)

// pipelineRows compare a pipeline of two stages that take equally long with its ideal, and with other ways to train the
// same model on the same samples.
func pipelineRows() (rows []Row) {
	small, large := stagedMLP{"mlp-6M", 1024}, stagedMLP{"mlp-25M", 2048}
	for _, micro := range []int{2, 4, 16} {
		rows = append(rows, small.busyRow(micro, "PreferBackward", oneProcess))
	}
	for _, strategy := range []string{"PreferBackward", "PreferForward", "PreferBackwardOptimizer", "Interleaved", "ZeroBubble"} {
		rows = append(rows, small.busyRow(8, strategy, oneProcess))
	}
	for _, m := range []stagedMLP{small, large} {
		rows = append(rows, m.busyRow(8, "PreferBackward", twoWorkers))
	}
	rows = append(rows, large.busyRow(8, "PreferBackward", oneProcess))
	for _, m := range []stagedMLP{small, large} {
		rows = append(rows, m.stepRows()...)
		rows = append(rows, m.sentRow())
	}
	return rows
}

// stagedMLP is six layers, in stages of equally many.
type stagedMLP struct {
	name  string
	width int
}

const (
	// microBatch is the samples of a micro-batch. In smaller ones, adding up gradients weighs more.
	microBatch = 128
	// narrow is the width of inputs and labels. The first layer has no gradient of its input to compute and the last one
	// has a loss: they would make stages unequal if they were wide.
	narrow = 64
)

// build is the model in so many stages.
func (m stagedMLP) build(stages int) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, x *Node) *Node {
		for stage := range stages {
			epl.With(x, epl.Replicate(1), func() {
				if stage == 0 {
					x = layers.Dense(scope.In("first"), x, true, m.width)
				}
				for i := range 6 / stages {
					x = activation.Relu(layers.Dense(scope.In("%d-%d", stage, i), x, true, m.width))
				}
				if stage == stages-1 {
					x = layers.Dense(scope.In("last"), x, true, narrow)
				}
			})
		}
		return x
	}
}

// settings are keys of the configuration.
type settings map[string]string

// perDevice is how many stages a device has under Interleaved: each is one layer.
const perDevice = 3

// stages puts the stages on two devices.
func stages(micro int, strategy string) settings {
	s := settings{"pipeline.num_micro_batch": fmt.Sprint(micro), "pipeline.strategy": strategy}
	if strategy == "Interleaved" {
		s["pipeline.stages_per_device"] = fmt.Sprint(perDevice)
	}
	return s
}

// stages is how many of them the settings deal to two devices.
func (s settings) stages() int {
	if s["pipeline.stages_per_device"] != "" {
		return 2 * perDevice
	}
	return 2
}

// together puts both stages on every device, which makes the devices data parallel.
func together(micro int) settings {
	return settings{"pipeline.num_micro_batch": fmt.Sprint(micro), "cluster.colocate_split_and_replicate": "true"}
}

// oneCore leaves a device one core, as two devices have.
func oneCore(s settings) settings {
	s["cluster.cores_per_device"] = "1"
	return s
}

// environment is the settings as variables.
func (s settings) environment() (vars []string) {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		vars = append(vars, "EPL_"+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))+"="+s[key])
	}
	return vars
}

func (s settings) init(opts ...epl.Option) (*epl.Env, error) {
	params := map[string]any{}
	for key, value := range s {
		params[key] = value
	}
	cfg, err := epl.NewConfig(params)
	if err != nil {
		return nil, err
	}
	return epl.Init(cfg, opts...)
}

// on measures steps on the devices of a process.
func (m stagedMLP) on(s settings, opts ...epl.Option) (side, error) {
	env, err := s.init(opts...)
	if err != nil {
		return side{}, err
	}
	return m.steps(env, s.stages()), nil
}

// steps measures what the environment makes of the model.
func (m stagedMLP) steps(env *epl.Env, stages int) side {
	batch := vectors(microBatch, narrow)
	return trained(env, train.NewTrainer(env.Backend(), newStore(), m.build(stages), loss.MeanSquaredError, epl.Optimizer(sgd()), nil, nil), batch)
}

// trained measures steps on four batches in turn. They are made before: random numbers for the next step would take a core from a device.
func trained(env *epl.Env, trainer *train.Trainer, batch func(int) (in, labels []*tensors.Tensor)) side {
	var made [4]train.Batch
	for i := range made {
		made[i].Inputs, made[i].Labels = batch(i)
	}
	next, stop := pull(env.Dataset(equiv.Dataset{Batch: func(i int) (in, labels []*tensors.Tensor) {
		b := made[i%len(made)]
		return copies(b.Inputs), copies(b.Labels)
	}}))
	return side{
		once: func() (time.Duration, error) {
			batch, err := next()
			if err != nil {
				return 0, err
			}
			start := time.Now()
			_, err = trainer.TrainStep(batch)
			return time.Since(start), err
		},
		close: func() {
			stop()
			_ = env.Close()
		},
	}
}

// copies of tensors, which who gets them may free.
func copies(all []*tensors.Tensor) (to []*tensors.Tensor) {
	for _, t := range all {
		c, err := t.LocalClone()
		if err != nil {
			panic(err) // its memory is the host's
		}
		to = append(to, c)
	}
	return to
}

// stepRows compare times of a step of 8 micro-batches.
func (m stagedMLP) stepRows() (rows []Row) {
	const micro = 8
	devices := func(n int, s settings, opts ...epl.Option) func() (side, error) {
		return func() (side, error) { return m.on(s, append(opts, epl.WithLocalDevices(n))...) }
	}
	workers := func(s settings) func() (side, error) {
		return func() (side, error) { return steps(m.workers(s)) }
	}
	ours := stages(micro, "PreferBackward")
	for _, x := range []struct {
		name, peer   string
		ours, theirs func() (side, error)
	}{
		{"2-devices/data-parallel", "EPL, 2 devices in data parallel", devices(2, ours), devices(2, together(micro/2))},
		{"2-devices/1-device", "EPL, 1 device on all cores", devices(2, ours), devices(1, together(micro))},
		{"2-devices/one-core", "EPL, 1 device on one core", devices(2, ours), devices(1, oneCore(together(micro)))},
		{"2-workers/data-parallel", "EPL, 2 workers in data parallel", workers(ours), workers(together(micro / 2))},
		{"2-workers/1-device", "EPL, 1 device on all cores", workers(ours), func() (side, error) { return inARow(devices(1, together(micro))()) }},
	} {
		rows = append(rows, Row{Name: fmt.Sprintf("pipeline/step/%s/%s", m.name, x.name), Peer: x.peer, Pairs: 11, Warm: 2, Ours: x.ours, Theirs: x.theirs})
	}
	return rows
}

// sentRow compares how many bytes devices send in a step.
func (m stagedMLP) sentRow() Row {
	const micro = 8
	return Row{Name: "pipeline/sent/" + m.name, Peer: "EPL, 2 devices in data parallel", Pairs: 1, Custom: func(int) (Result, error) {
		ours, err := m.sent("pipeline", stages(micro, "PreferBackward"))
		if err != nil {
			return Result{}, err
		}
		theirs, err := m.sent("data parallel", together(micro/2))
		if err != nil {
			return Result{}, err
		}
		r := float64(theirs) / float64(ours)
		return Result{Ratio: r, Low: r, High: r}, nil
	}}
}

// sent is how many bytes the devices send in a step. It also says of what kind they are.
func (m stagedMLP) sent(name string, s settings) (total int64, err error) {
	env, err := s.init(epl.WithLocalDevices(2))
	if err != nil {
		return 0, err
	}
	return sentBy(name, env, m.steps(env, s.stages()))
}

// sentBy is how many bytes devices send in a step that is measured so.
func sentBy(name string, env *epl.Env, run side) (total int64, err error) {
	defer run.close()
	for range 2 { // the first one also initialises
		env.Stats()
		if _, err := run.once(); err != nil {
			return 0, err
		}
	}
	for i, d := range env.Stats().Devices {
		for _, bytes := range d.Sent {
			total += bytes
		}
		fmt.Fprintf(os.Stderr, "  %s, device %d: sends %v bytes in a step, has at most %d at once\n", name, i, d.Sent, d.PeakBytes)
	}
	return total, nil
}
