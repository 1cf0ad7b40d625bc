// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/checkpoint"
)

// loggedBatches is how many batches can be told apart.
const loggedBatches = 40

// logs are batches that are logged by training itself: each changes a weight of its own, by as much as tells the step.
type logs struct {
	name  string
	epoch int                               // batches of an iteration
	order func(iteration int) func(int) int // of its batches; nil: 0, 1, 2, …
	read  int
	begun int
}

func (d *logs) Name() string { return d.name }

func (d *logs) Iter() iter.Seq2[train.Batch, error] { return d.from(0) }

func (d *logs) from(first int) iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		order := func(i int) int { return i }
		if d.order != nil {
			order = d.order(d.begun)
		}
		d.begun++
		for i := first; i < d.epoch; i++ {
			x := make([]float32, loggedBatches)
			x[order(i)] = 1
			d.read++
			if !yield(train.Batch{Inputs: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, 1, loggedBatches)},
				Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions([]float32{0}, 1, 1)}}, nil) {
				return
			}
		}
	}
}

// skipping is a dataset that skips by itself.
type skipping struct {
	logs
	skip int
}

func (d *skipping) Skip(n int) error {
	d.skip = n
	return nil
}

func (d *skipping) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		first := d.skip
		d.skip = 0
		d.from(first)(yield)
	}
}

// logRun trains by a number of model replicas and of micro-batches, and saves every 4th step.
type logRun struct {
	env   *epl.Env
	store *model.Store
	saver *epl.Checkpoint
	loop  *train.Loop
}

func newLogRun(t *testing.T, dir string, replicas, micro int, build ...func(*epl.CheckpointBuilder)) *logRun {
	t.Helper()
	r := &logRun{env: newEnv(t, map[string]any{"pipeline.num_micro_batch": micro}, epl.WithLocalDevices(replicas)), store: model.NewStore()}
	r.store.SetParam(optimizer.ParamLearningRate, 1.0)
	b := r.env.Checkpoints(r.store).Dir(dir).EverySteps(4)
	for _, f := range build {
		f(b)
	}
	var err error
	if r.saver, err = b.Done(); err != nil {
		t.Fatal(err)
	}
	network := func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Replicate(1), func() {
			zeros := tensors.FromFlatDataAndDimensions(make([]float32, loggedBatches), loggedBatches, 1)
			x = MatMul(x, scope.VariableWithValue("log", zeros).NodeValue(x.Graph()))
		})
		return x
	}
	mean := func(_, predictions []*Node) *Node { return ReduceAllMean(predictions[0]) }
	r.loop = train.NewLoop(train.NewTrainer(r.env.Backend(), r.store, network, mean, epl.Optimizer(optimizer.StochasticGradientDescent().Done()), nil, nil))
	r.loop.OnStep("checkpoints", 100, r.saver.OnStep)
	return r
}

// to trains up to a step, and ends the run as if it were killed then: what was saved before is there.
func (r *logRun) to(t *testing.T, ds train.Dataset, step int) string {
	t.Helper()
	if _, err := r.loop.RunToGlobalStep(r.env.Dataset(ds), step); err != nil {
		t.Fatalf("%+v", err)
	}
	return r.end(t)
}

// end returns the log: the weights, and ends the run.
func (r *logRun) end(t *testing.T) string {
	t.Helper()
	var log string
	for path, x := range values(t, r.store) {
		if strings.HasSuffix(path, "/log") {
			log = x
		}
	}
	if len(log) != 4*loggedBatches {
		t.Fatalf("the weights are %d bytes", len(log))
	}
	if err := r.env.Close(); err != nil {
		t.Fatal(err)
	}
	return log
}

func sameLog(t *testing.T, want, got string) {
	t.Helper()
	sameValues(t, map[string]string{"log": want}, map[string]string{"log": got}, 1e-6)
}

func TestTrainingGoesOnWithTheNextBatch(t *testing.T) {
	ordered := func() *logs { return &logs{name: "ordered", epoch: loggedBatches} }
	undisturbed := newLogRun(t, t.TempDir(), 4, 1).to(t, ordered(), 7)
	for i := range loggedBatches { // the log is right itself: 4 batches in each of 7 steps
		want := float32(0)
		if i < 28 {
			want = -float32(1 / math.Sqrt(float64(i/4+1)) / 4)
		}
		if got := floatAt(undisturbed, i); math.Abs(float64(got-want)) > 1e-6 {
			t.Errorf("weight %d is %v, not %v", i, got, want)
		}
	}
	for _, c := range []struct {
		name                   string
		replicas, micro, again int
	}{{"same plan", 4, 1, 4}, {"fewer replicas", 4, 1, 2}, {"more replicas", 2, 2, 4}, {"one device", 2, 2, 1}, {"from one device", 1, 4, 2}} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			newLogRun(t, dir, c.replicas, c.micro).to(t, ordered(), 5)
			r := newLogRun(t, dir, c.again, 4/c.again)
			if r.saver.Step() != 4 {
				t.Fatalf("step %d was loaded", r.saver.Step())
			}
			sameLog(t, undisturbed, r.to(t, ordered(), 7))
		})
	}
	for name, replicas := range map[string][2]int{"3 replicas become 2": {3, 2}, "3 replicas become 1": {3, 1}, "2 replicas become 3": {2, 3}, "1 replica becomes 2": {1, 2}} {
		t.Run(name, func(t *testing.T) { // nobody says how many micro-batches they take
			want := newLogRun(t, t.TempDir(), replicas[0], 1).to(t, ordered(), 10)
			dir := t.TempDir()
			newLogRun(t, dir, replicas[0], 1).to(t, ordered(), 5)
			newLogRun(t, dir, replicas[1], 1).to(t, ordered(), 9)
			sameLog(t, want, newLogRun(t, dir, replicas[0], 1).to(t, ordered(), 10))
		})
	}
	t.Run("the configuration says how many", func(t *testing.T) {
		dir := t.TempDir()
		newLogRun(t, dir, 2, 1).to(t, ordered(), 4)
		got := newLogRun(t, dir, 3, 1, func(b *epl.CheckpointBuilder) { b.BatchFromConfig() }).to(t, ordered(), 5)
		if want := -float32(1 / math.Sqrt(5) / 3); math.Abs(float64(floatAt(got, 10)-want)) > 1e-6 || floatAt(got, 11) != 0 {
			t.Errorf("the last step did not take 3 batches: %v, %v", floatAt(got, 10), floatAt(got, 11))
		}
	})
	t.Run("a batch a step", func(t *testing.T) {
		want := newLogRun(t, t.TempDir(), 1, 1).to(t, ordered(), 7)
		dir := t.TempDir()
		newLogRun(t, dir, 1, 1).to(t, ordered(), 6)
		sameLog(t, want, newLogRun(t, dir, 1, 1).to(t, ordered(), 7))
	})
	t.Run("twice", func(t *testing.T) {
		want := newLogRun(t, t.TempDir(), 2, 1).to(t, ordered(), 11)
		dir := t.TempDir()
		for _, step := range []int{5, 9} {
			newLogRun(t, dir, 2, 1).to(t, ordered(), step)
		}
		sameLog(t, want, newLogRun(t, dir, 2, 1).to(t, ordered(), 11))
	})
	t.Run("skipped by the dataset", func(t *testing.T) {
		dir := t.TempDir()
		newLogRun(t, dir, 4, 1).to(t, &skipping{logs: *ordered()}, 5)
		ds := &skipping{logs: *ordered()}
		sameLog(t, undisturbed, newLogRun(t, dir, 4, 1).to(t, ds, 7))
		if ds.read > 1+3*4+6 { // the last one, those of 3 steps, and what is read ahead
			t.Errorf("%d batches were read", ds.read)
		}
	})
}

func floatAt(log string, i int) float32 {
	b := []byte(log[4*i : 4*i+4])
	return math.Float32frombits(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
}

// Epochs of 10 batches, each in another order, have two steps of 4 batches and one of 2.
func TestTrainingGoesOnInAnyEpoch(t *testing.T) {
	shuffled := func() *logs {
		return &logs{name: "shuffled", epoch: 10, order: func(iteration int) func(int) int {
			order := rand.New(rand.NewPCG(1, uint64(iteration))).Perm(loggedBatches)
			return func(i int) int { return order[i] }
		}}
	}
	epochs := func(r *logRun, ds train.Dataset, until int) {
		t.Helper()
		for r.loop.LoopStep < until {
			if _, err := r.loop.RunEpochs(r.env.Dataset(ds), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := newLogRun(t, t.TempDir(), 4, 1)
	epochs(r, shuffled(), 15)
	want := r.end(t)
	for save := 1; save <= 9; save++ { // the beginning, the middle and the end of epochs
		dir := t.TempDir()
		r := newLogRun(t, dir, 2, 2, func(b *epl.CheckpointBuilder) { b.EverySteps(save).Keep(-1) })
		ds := shuffled()
		epochs(r, ds, save)
		r.end(t)
		r = newLogRun(t, dir, 4, 1)
		if int(r.saver.Step()) < save {
			t.Fatalf("step %d was loaded", r.saver.Step())
		}
		epochs(r, shuffled(), 15)
		sameLog(t, want, r.end(t))
	}
}

// A loop may end with an epoch without seeing its end, and begin the next.
func TestTrainingGoesOnAfterAnEpochThatWasAllConsumed(t *testing.T) {
	dir := t.TempDir()
	r := newLogRun(t, dir, 2, 1)
	whole := &logs{name: "whole", epoch: 8}
	r.to(t, whole, 4)
	want := newLogRun(t, t.TempDir(), 2, 1)
	ds := want.env.Dataset(whole)
	for _, step := range []int{4, 6} {
		if _, err := want.loop.RunToGlobalStep(ds, step); err != nil {
			t.Fatal(err)
		}
	}
	sameLog(t, want.end(t), newLogRun(t, dir, 2, 1).to(t, &logs{name: "whole", epoch: 8}, 6))
}

func TestADatasetThatDoesNotRepeatIsRefused(t *testing.T) {
	dir := t.TempDir()
	newLogRun(t, dir, 2, 1).to(t, &logs{name: "fine", epoch: loggedBatches}, 5)
	for name, c := range map[string]struct {
		ds   *logs
		want string
	}{
		"another order": {&logs{name: "fine", epoch: loggedBatches, order: func(int) func(int) int { return func(i int) int { return loggedBatches - 1 - i } }},
			"batch 7 of the epoch, counted from 0, was the last"},
		"fewer batches": {&logs{name: "fine", epoch: 5}, "which has only 5 now"},
	} {
		r := newLogRun(t, dir, 2, 1)
		_, err := r.loop.RunToGlobalStep(r.env.Dataset(c.ds), 7)
		for _, want := range []string{`the dataset "fine" cannot go on where the checkpoint was saved`, c.want, "DataFromStart()"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: it is not said that %s: %v", name, want, err)
			}
		}
	}
	r := newLogRun(t, dir, 2, 1, func(b *epl.CheckpointBuilder) { b.DataFromStart() })
	r.to(t, &logs{name: "fine", epoch: 6}, 7)
}

// Evaluation takes batches, too, and does not count; nor does a dataset that another run trained on lose its position.
func TestOnlyTrainingHasAPosition(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		dir := t.TempDir()
		r := newLogRun(t, dir, replicas, 1)
		evaluated := r.env.Dataset(&logs{name: "evaluated", epoch: 3})
		trained, later := &logs{name: "numbers", epoch: loggedBatches}, &logs{name: "numbers", epoch: loggedBatches}
		r.loop.OnStep("evaluation", 0, func(*train.Loop, []*tensors.Tensor) error {
			_, err := r.loop.Trainer.Eval(evaluated)
			return err
		})
		if _, err := r.loop.RunToGlobalStep(r.env.Dataset(trained), 2); err != nil {
			t.Fatal(err)
		}
		r.to(t, later, 4)
		want := fmt.Sprintf("[{numbers 0 [{1 %d false}]} {numbers 1 [{1 %d false}]}]", 2*replicas, 2*replicas)
		if got := savedPositions(t, dir); got != want {
			t.Errorf("positions %s, not %s", got, want)
		}
		r = newLogRun(t, dir, replicas, 1) // it trains on one of them only
		r.to(t, &logs{name: "numbers", epoch: loggedBatches}, 8)
		want = fmt.Sprintf("[{numbers 1 [{1 %d false}]} {numbers 0 [{1 %d false}]}]", 2*replicas, 6*replicas)
		if got := savedPositions(t, dir); got != want {
			t.Errorf("positions %s, not %s", got, want)
		}
	}
}

// savedPositions are those of the newest checkpoint, without hashes.
func savedPositions(t *testing.T, dir string) string {
	t.Helper()
	c := newestIn(t, dir)
	defer c.Close()
	type position struct {
		Dataset string
		Number  int
		Epochs  []checkpoint.Epoch
	}
	var all []position
	for _, p := range c.Manifest.Data.Datasets {
		all = append(all, position{p.Dataset, p.Number, p.Epochs})
	}
	return fmt.Sprint(all)
}

// newestIn is the newest checkpoint of a folder.
func newestIn(t *testing.T, dir string) *checkpoint.Checkpoint {
	t.Helper()
	_, newest := checkpointsIn(t, dir)
	c, err := checkpoint.Open(checkpoint.OS, newest)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestACheckpointWithoutAPositionLoads(t *testing.T) {
	dir := t.TempDir()
	ordered := func() *logs { return &logs{name: "ordered", epoch: loggedBatches} }
	newLogRun(t, dir, 2, 1).to(t, ordered(), 4)
	c := newestIn(t, dir)
	c.Manifest.Data = checkpoint.Data{} // as older ones are
	if err := checkpoint.Commit(checkpoint.OS, c.Folder, c.Manifest); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	var r *logRun
	said := logged(func() { r = newLogRun(t, dir, 2, 1) })
	if want := "datasets begin anew, not at the position in the data of the checkpoint of step 4: it does not have it"; !strings.Contains(said, want) {
		t.Errorf("%q is not said: %s", want, said)
	}
	got := r.to(t, ordered(), 5)
	if want := -float32((1 + 1/math.Sqrt(5)) / 2); math.Abs(float64(floatAt(got, 0)-want)) > 1e-6 {
		t.Errorf("the first batch is not taken again: %v, not %v", floatAt(got, 0), want)
	}
}
