// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"log"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	gomlx "github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/checkpoint/convert"
	"github.com/easyparallel/epl/state"
)

// savedPlan is a way to run one model, hardly a size of which divides by a number of devices.
type savedPlan struct {
	devices  int
	params   map[string]any
	one, two epl.Strategy // of its two parts
}

func (p savedPlan) model(scope *model.Scope, x *Node) *Node {
	epl.With(x, p.one, func() {
		x = activation.Gelu(layers.Dense(scope.In("one"), x, true, 7))
	})
	epl.With(x, p.two, func() {
		x = activation.Gelu(layers.Dense(scope.In("two"), x, true, 9))
		x = layers.Dense(scope.In("out"), x, true, 1)
	})
	return x
}

// savedRun is a training under a plan.
type savedRun struct {
	env   *epl.Env
	store *model.Store
	saver *epl.Checkpoint
	loop  *train.Loop
}

// start makes everything up to the loop, as users do.
func (p savedPlan) start(t *testing.T, dir string, build func(*epl.CheckpointBuilder) *epl.CheckpointBuilder) *savedRun {
	t.Helper()
	params := map[string]any{"cluster.colocate_split_and_replicate": true}
	for k, v := range p.params {
		params[k] = v
	}
	r := &savedRun{env: newEnv(t, params, epl.WithLocalDevices(p.devices)), store: model.NewStore()}
	r.store.SetParam(model.ParamInitialSeed, int64(1<<60+1)) // float64 cannot hold it
	r.store.SetParam(optimizer.ParamLearningRate, 0.01)
	b := r.env.Checkpoints(r.store).Dir(dir)
	if build != nil {
		b = build(b)
	}
	var err error
	if r.saver, err = b.Done(); err != nil {
		t.Fatal(err)
	}
	trainer := train.NewTrainer(r.env.Backend(), r.store, p.model, loss.MeanSquaredError, epl.Optimizer(optimizer.Adam().Done()), nil, nil)
	r.loop = train.NewLoop(trainer)
	r.loop.OnStep("checkpoints", 100, r.saver.OnStep)
	return r
}

// train goes on up to a step.
func (r *savedRun) train(t *testing.T, until int) {
	t.Helper()
	if _, err := r.loop.RunToGlobalStep(r.env.Dataset(savedBatches{}), until); err != nil {
		t.Fatalf("%+v", err)
	}
}

// savedBatches are all the same, so that the number of replicas and micro-batches does not matter.
type savedBatches struct{}

func (savedBatches) Name() string { return "batches" }

func (savedBatches) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		x, y := make([]float32, 6*5), make([]float32, 6)
		for i := range x {
			x[i] = float32(math.Sin(float64(i)))
			y[i/5] += x[i]
		}
		for {
			batch := train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, 6, 5)}, Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, 6, 1)}}
			if !yield(batch, nil) {
				return
			}
		}
	}
}

// values are the bytes of all variables, by path, but for metrics and the learning rate, which GoMLX begins anew.
func values(t *testing.T, store *model.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	for v := range store.IterVariables() {
		if strings.HasPrefix(v.Path(), "/metrics/") || v.Path() == "/optimizers/learning_rate" {
			continue
		}
		if err := v.MustValue().ConstBytes(func(b []byte) { all[v.Path()] = string(b) }); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// sameValues compares bits, or, with a tolerance, float32 numbers.
func sameValues(t *testing.T, want, got map[string]string, tolerance float64) {
	t.Helper()
	if a, b := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)); !slices.Equal(a, b) {
		t.Errorf("variables %v, not %v", b, a)
		return
	}
	for path, x := range want {
		y := got[path]
		same := x == y
		if tolerance > 0 && len(x) == len(y) && !strings.HasSuffix(path, "step") {
			same = true
			for i := 0; i < len(x); i += 4 {
				at := func(s string) float64 {
					return float64(math.Float32frombits(binary.LittleEndian.Uint32([]byte(s[i:]))))
				}
				same = same && math.Abs(at(x)-at(y)) <= tolerance*(math.Abs(at(x))+1)
			}
		}
		if !same {
			t.Errorf("variable %s differs", path)
		}
	}
}

var savedPlans = map[string]savedPlan{
	"one device":          {1, nil, epl.Replicate(1, "one"), epl.Replicate(1, "two")},
	"replicas":            {3, nil, epl.Replicate(1, "one"), epl.Replicate(1, "two")},
	"ZeRO v0":             {3, map[string]any{"zero.level": "v0"}, epl.Replicate(1, "one"), epl.Replicate(1, "two")},
	"ZeRO v1":             {4, map[string]any{"zero.level": "v1"}, epl.Replicate(1, "one"), epl.Replicate(1, "two")},
	"ZeRO v2":             {8, map[string]any{"zero.level": "v2"}, epl.Replicate(1, "one"), epl.Replicate(1, "two")},
	"split, uneven":       {3, nil, epl.Split(3, "one"), epl.Split(3, "two")},
	"split and ZeRO":      {4, map[string]any{"zero.level": "v2"}, epl.Split(2, "one"), epl.Split(2, "two")},
	"stages":              {2, map[string]any{"cluster.colocate_split_and_replicate": false, "pipeline.num_micro_batch": 2}, epl.Replicate(1, "one"), epl.Replicate(1, "two")},
	"stages and ZeRO":     {4, map[string]any{"cluster.colocate_split_and_replicate": false, "zero.level": "v2"}, epl.Replicate(1, "one"), epl.Replicate(1, "two")},
	"stages, split, ZeRO": {6, map[string]any{"cluster.colocate_split_and_replicate": false, "zero.level": "v2"}, epl.Replicate(1, "one"), epl.Split(2, "two")},
	"offload":             {2, map[string]any{"offload.level": "v0"}, epl.Replicate(1, "one"), epl.Replicate(1, "two")},
}

// What one plan saves, all load: every element of every variable, and the step.
func TestACheckpointOfAnyPlanLoadsUnderAnyOther(t *testing.T) {
	names := make([]string, 0, len(savedPlans))
	for name := range savedPlans {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			from := savedPlans[name].start(t, dir, nil)
			from.train(t, 2)
			if err := from.saver.Save(); err != nil {
				t.Fatal(err)
			}
			want := values(t, from.store)
			if len(want) != 22 { // 6 weights, each with 2 moments; 3 steps and what the optimizer has of its own
				t.Fatalf("%d variables: %v", len(want), slices.Sorted(maps.Keys(want)))
			}
			plain := loadedByGoMLX(t, dir)
			sameValues(t, want, values(t, plain), 0)
			from.train(t, 3)
			next := values(t, from.store)
			for k, other := range []string{name, names[(i+1)%len(names)], names[(i+4)%len(names)]} {
				r := savedPlans[other].start(t, dir, nil)
				if r.saver.Step() != 2 || r.loop.LoopStep != 2 {
					t.Fatalf("%s: loaded step %d, the loop is at %d", other, r.saver.Step(), r.loop.LoopStep)
				}
				if seed, _ := r.store.GetParam(model.ParamInitialSeed); seed != int64(1<<60+1) {
					t.Errorf("%s: the seed is %v", other, seed)
				}
				loaded := func() map[string]string {
					for path := range want { // those that no program has asked for, too
						r.store.GetVariable(path)
					}
					return values(t, r.store)
				}
				if k == 2 { // else the first step reads them, each part straight into its place
					sameValues(t, want, loaded(), 0)
				}
				r.train(t, 3)
				sameValues(t, next, loaded(), []float64{0, 1e-4, 1e-4}[k])
				if err := r.env.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// loadedByGoMLX is a store of plain GoMLX with the newest checkpoint of a folder.
func loadedByGoMLX(t *testing.T, dir string) *model.Store {
	t.Helper()
	_, newest := checkpointsIn(t, dir)
	c, err := checkpoint.Open(checkpoint.OS, newest)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	folder := t.TempDir()
	if err := convert.ToGoMLX(c, folder); err != nil {
		t.Fatal(err)
	}
	store := model.NewStore()
	if _, err := gomlx.Load(store).Dir(folder).Immediate().Done(); err != nil {
		t.Fatal(err)
	}
	return store
}

// checkpointsIn are the checkpoints of a folder, by step.
func checkpointsIn(t *testing.T, dir string) (steps []int64, newest string) {
	t.Helper()
	all, _, _, err := checkpoint.List(checkpoint.OS, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		steps, newest = append(steps, c.Manifest.Step), filepath.Join(dir, c.Name)
	}
	return steps, newest
}

func TestCheckpointsAreSavedInTimeAndOldOnesGo(t *testing.T) {
	p := savedPlans["ZeRO v0"]
	dir := filepath.Join(t.TempDir(), "made", "for it")
	r := p.start(t, dir, func(b *epl.CheckpointBuilder) *epl.CheckpointBuilder { return b.Keep(2).EverySteps(2) })
	if r.saver.Step() != 0 {
		t.Errorf("there is none of step %d", r.saver.Step())
	}
	for until := 1; until <= 7; until++ { // one by one, so that no save is skipped
		r.train(t, until)
		epl.WaitForSave(r.saver)
	}
	if err := r.saver.Close(); err != nil {
		t.Error(err)
	}
	steps, newest := checkpointsIn(t, dir)
	if !slices.Equal(steps, []int64{4, 6}) {
		t.Errorf("checkpoints of steps %v", steps)
	}
	c, err := checkpoint.Open(checkpoint.OS, newest)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if m := c.Manifest; m.Devices != 3 || m.Workers != 1 || !strings.Contains(string(m.Plan), `"replicas"`) || m.EPL == "" || m.Go == "" {
		t.Errorf("%+v", m)
	}
	r.env.Close()

	// By time, and everything kept.
	dir = t.TempDir()
	r = p.start(t, dir, func(b *epl.CheckpointBuilder) *epl.CheckpointBuilder { return b.Keep(-1).Every(time.Nanosecond) })
	for until := 1; until <= 3; until++ {
		r.train(t, until)
		if err := r.saver.Save(); err != nil {
			t.Fatal(err)
		}
	}
	r.env.Close()
	if steps, _ := checkpointsIn(t, dir); len(steps) < 5 || steps[len(steps)-1] != 3 {
		t.Errorf("checkpoints of steps %v", steps)
	}
}

// One rule is about a metric of the trainer, the other about one that the program sets at some steps.
func TestTheBestCheckpointsStay(t *testing.T) {
	dir := t.TempDir()
	r := savedPlans["replicas"].start(t, dir, func(b *epl.CheckpointBuilder) *epl.CheckpointBuilder {
		return b.EverySteps(1).KeepHighest(1, "loss").KeepLowest(2, "dev error")
	})
	said := logged(func() {
		for step, devError := range []float64{1: math.NaN(), 2: 0.2, 3: 0.1, 5: 0.3, 6: math.Inf(-1)} {
			if step == 0 {
				continue
			}
			if step != 4 { // which is not evaluated
				if err := r.saver.SetMetric("dev error", devError); err != nil {
					t.Fatal(err)
				}
			}
			r.train(t, step)
			epl.WaitForSave(r.saver)
		}
	})
	if steps, _ := checkpointsIn(t, dir); !slices.Equal(steps, []int64{1, 2, 3, 6}) { // the loss falls
		t.Errorf("checkpoints of steps %v", steps)
	}
	if want := `the checkpoint of step 4 has no value of KeepLowest(2, "dev error")`; strings.Count(said, "has no value") != 1 || !strings.Contains(said, want) || !strings.Contains(said, "Moving Average Loss") {
		t.Error(said)
	}
	if err := r.saver.SetMetric("dev eror", 1); err == nil || !strings.Contains(err.Error(), `they name ["loss" "dev error"]`) {
		t.Error(err)
	}
}

// logged are the messages while f runs.
func logged(f func()) string {
	var b bytes.Buffer
	log.SetOutput(&b)
	defer log.SetOutput(os.Stderr)
	f()
	return b.String()
}

func TestTwoJobsThatSaveToOneFolderAreToldSoOnce(t *testing.T) {
	dir := t.TempDir()
	save := func(r *savedRun, until int) func() {
		return func() {
			r.train(t, until)
			if err := r.saver.Save(); err != nil {
				t.Error(err)
			}
		}
	}
	one, two := savedPlans["replicas"].start(t, dir, nil), savedPlans["replicas"].start(t, dir, nil)
	if said := logged(save(one, 1)); strings.Contains(said, "another job") {
		t.Errorf("one job alone: %s", said)
	}
	if said := logged(save(two, 2)); !strings.Contains(said, "epl: another job saves to "+dir+", too, and has written n0000000-step-00000001: ") {
		t.Errorf("the other job: %q", said)
	}
	if said := logged(save(two, 3)); strings.Contains(said, "another job") {
		t.Errorf("again: %s", said)
	}
	all, _, _, err := checkpoint.List(checkpoint.OS, dir)
	if err != nil || len(all) != 1 || all[0].Name != "n0000002-step-00000003" {
		t.Errorf("%v: %v", all, err)
	}
}

func TestTrainingGoesOnWhenTheDiskIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	r := savedPlans["one device"].start(t, dir, func(b *epl.CheckpointBuilder) *epl.CheckpointBuilder { return b.EverySteps(1) })
	r.train(t, 1)
	if err := r.saver.Save(); err != nil {
		t.Fatal(err)
	}
	said := logged(func() {
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o666); err != nil { // no folder can be made there
			t.Fatal(err)
		}
		r.train(t, 3)
		if err := r.saver.Save(); err == nil || !strings.Contains(err.Error(), "not a directory") {
			t.Error(err)
		}
	})
	for _, want := range []string{"the checkpoint of step 2 was not saved", "the checkpoint of step 3 was not saved", "not a directory", "Training goes on, n000000", "stays, and the next save is tried"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not said:\n%s", want, said)
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if steps, _ := checkpointsIn(t, dir); !slices.Equal(steps, []int64{1}) {
		t.Errorf("checkpoints of steps %v", steps)
	}
	r.train(t, 4)
	if err := r.saver.Save(); err != nil {
		t.Error(err)
	}
	if steps, _ := checkpointsIn(t, dir); !slices.Equal(steps, []int64{4}) {
		t.Errorf("checkpoints of steps %v", steps)
	}
}

// damage changes a byte in the data of a checkpoint.
func damage(t *testing.T, folder string) {
	t.Helper()
	name := filepath.Join(folder, checkpoint.FileName(0))
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedCheckpointIsPassedOver(t *testing.T) {
	p := savedPlans["replicas"]
	dir := t.TempDir()
	r := p.start(t, dir, func(b *epl.CheckpointBuilder) *epl.CheckpointBuilder { return b.Keep(3) })
	var first string
	for step := 1; step <= 2; step++ {
		r.train(t, step)
		if err := r.saver.Save(); err != nil {
			t.Fatal(err)
		}
		if step == 1 {
			_, first = checkpointsIn(t, dir)
		}
	}
	_, newest := checkpointsIn(t, dir)
	damage(t, newest)
	said := logged(func() {
		if again := p.start(t, dir, nil); again.saver.Step() != 1 {
			t.Errorf("step %d was loaded", again.saver.Step())
		}
	})
	if !strings.Contains(said, filepath.Base(newest)+" is passed over") || !strings.Contains(said, "checksum is wrong") {
		t.Error(said)
	}
	damage(t, first)
	env := newEnv(t, nil)
	if _, err := env.Checkpoints(model.NewStore()).Dir(dir).Done(); err == nil || !strings.Contains(err.Error(), "none can be loaded") || !strings.Contains(err.Error(), "Move them") {
		t.Errorf("it begins anew, as if there were no checkpoints: %v", err)
	}
}

// What no program has asked for is saved again, and can be read when the checkpoint that it came from is gone.
func TestVariablesThatNobodyUsesStay(t *testing.T) {
	dir := t.TempDir()
	r := savedPlans["stages"].start(t, dir, nil)
	r.train(t, 1)
	if err := r.saver.Save(); err != nil {
		t.Fatal(err)
	}
	want := values(t, r.store)
	store := model.NewStore() // of a program that needs one variable only
	env := newEnv(t, nil)
	saver, err := env.Checkpoints(store).Dir(dir).Done()
	if err != nil {
		t.Fatal(err)
	}
	store.GetVariable("/two/dense/weights")
	for range 2 {
		if err := saver.Save(); err != nil {
			t.Fatal(err)
		}
	}
	_, newest := checkpointsIn(t, dir)
	if err := sameAsSaved(newest, want); err != nil {
		t.Error(err)
	}
	for path := range want {
		if v := store.GetVariable(path); v == nil {
			t.Errorf("%s cannot be had any more", path)
		}
	}
	sameValues(t, want, values(t, store), 0)
}

// sameAsSaved returns why a checkpoint does not have these values.
func sameAsSaved(folder string, want map[string]string) error {
	c, err := checkpoint.Open(checkpoint.OS, folder)
	if err != nil {
		return err
	}
	defer c.Close()
	for path, x := range want {
		shape, ok := c.Shape(path)
		got := make([]byte, len(x))
		if err := c.Read(path, state.Whole(shape.Dimensions), got); err != nil || !ok || string(got) != x {
			return fmt.Errorf("variable %s differs: %v", path, err)
		}
	}
	return nil
}

func TestWrongCheckpointSettingsAreRefused(t *testing.T) {
	env := newEnv(t, nil)
	store := model.NewStore()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for want, b := range map[string]*epl.CheckpointBuilder{
		"Checkpoints(nil)": env.Checkpoints(nil).Dir("x"),
		"Dir(":             env.Checkpoints(store),
		"Keep(0)":          env.Checkpoints(store).Dir("x").Keep(0),
		"EverySteps(-1)":   env.Checkpoints(store).Dir("x").EverySteps(-1),
		"KeepLowest(0, ":   env.Checkpoints(store).Dir("x").KeepLowest(0, "loss"),
		`KeepHighest(1, ""): give it the name of a metric`: env.Checkpoints(store).Dir("x").KeepHighest(1, ""),
		`the metric "loss" is named twice`:                 env.Checkpoints(store).Dir("x").KeepLowest(1, "loss").KeepHighest(1, "loss"),
		file:                                               env.Checkpoints(store).Dir(file),
	} {
		if _, err := b.Done(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestVariablesOfACheckpointThatTrainingDoesNotUseAreNamedOnce(t *testing.T) {
	dir := t.TempDir()
	r := savedPlans["one device"].start(t, dir, nil)
	r.train(t, 1)
	if err := r.saver.Save(); err != nil {
		t.Fatal(err)
	}
	same := savedPlans["one device"].start(t, dir, nil)
	if said := logged(func() { same.train(t, 3) }); said != "" {
		t.Errorf("the same model: %s", said)
	}
	same.store.RootScope().In("layer_7").VariableWithValue("weights", []float32{1, 2})
	if err := same.saver.Save(); err != nil {
		t.Fatal(err)
	}
	fewer := savedPlans["one device"].start(t, dir, nil)
	said := logged(func() { fewer.train(t, 6) })
	if strings.Count(said, "does not use") != 1 || !strings.Contains(said, `has 1 variable that this training step does not use, such as "/layer_7/weights"`) {
		t.Errorf("a layer less: %q", said)
	}
}
