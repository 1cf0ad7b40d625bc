// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"encoding/json"
	"errors"
	"iter"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/easyparallel/epl"
)

func regression() Model {
	return Model{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8, 8)}
}

// noLeak fails the test if goroutines are left when it ends.
func noLeak(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for range 200 { // those that are ending may need a moment
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		stacks := make([]byte, 1<<16)
		t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
	})
}

// custom is a dataset made of a function.
type custom func(yield func(train.Batch, error) bool)

func (custom) Name() string                          { return "custom" }
func (d custom) Iter() iter.Seq2[train.Batch, error] { return iter.Seq2[train.Batch, error](d) }

func batchOf(m Model, i int) train.Batch {
	in, labels := m.Batch(i)
	return train.Batch{Inputs: in, Labels: labels}
}

func mustFail(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Error("there is no error")
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func TestATrainingStepOnPlainBatchesSaysToUseEnvDataset(t *testing.T) {
	noLeak(t)
	m := regression()
	_, err := TrainOn(newCluster(t, 2, 1, nil).Backend(), Dataset{m.Batch}, m, epl.Optimizer(sgd()), 2)
	mustFail(t, err, "2 instances", "env.Dataset")
}

func TestAForgottenOptimizerWrapperIsAnError(t *testing.T) {
	noLeak(t)
	m := regression()
	env := newCluster(t, 2, 1, nil)
	_, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, sgd(), 2)
	mustFail(t, err, "trainable variable", "epl.Optimizer")
}

func TestATrainableVariableSetFromDataAfterTheOptimizerIsAnError(t *testing.T) {
	m := regression()
	build := m.Build
	m.Build = func(scope *model.Scope, x *Node) *Node {
		train.AddPerStepUpdateGraphFn(scope, x.Graph(), func(scope *model.Scope, _ *Graph) {
			scope.Store().GetVariable("/out/dense/biases").SetNodeValue(Reshape(ReduceAllMean(x), 1))
		})
		return build(scope, x)
	}
	env := newCluster(t, 2, 1, nil)
	_, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 2)
	mustFail(t, err, `"/out/dense/biases"`, "epl.Optimizer", "equiv/failure_test.go")
}

func TestAPanicInTheDatasetIsAnError(t *testing.T) {
	noLeak(t)
	m := regression()
	for _, at := range []int{0, 1, 5} {
		env := newCluster(t, 2, 1, nil)
		ds := custom(func(yield func(train.Batch, error) bool) {
			for i := 0; ; i++ {
				if i == at {
					panic("disk on fire")
				}
				if !yield(batchOf(m, i), nil) {
					return
				}
			}
		})
		_, err := TrainOn(env.Backend(), env.Dataset(ds), m, epl.Optimizer(sgd()), 10)
		mustFail(t, err, "panic: disk on fire", "disk on fire")
	}
}

func TestAnErrorOfTheDatasetIsPassedOn(t *testing.T) {
	noLeak(t)
	m := regression()
	for _, at := range []int{0, 1, 5} {
		env := newCluster(t, 2, 2, nil)
		ds := custom(func(yield func(train.Batch, error) bool) {
			for i := 0; ; i++ {
				var err error
				if i == at {
					err = errors.New("file not found")
				}
				if !yield(batchOf(m, i), err) {
					return
				}
			}
		})
		_, err := TrainOn(env.Backend(), env.Dataset(ds), m, epl.Optimizer(sgd()), 10)
		mustFail(t, err, "file not found")
	}
}

func TestAnEmptyDatasetIsAnError(t *testing.T) {
	noLeak(t)
	m := regression()
	env := newCluster(t, 2, 1, nil)
	_, err := TrainOn(env.Backend(), env.Dataset(finite{m.Batch, 0}), m, epl.Optimizer(sgd()), 2)
	mustFail(t, err, "has no batch")
}

func TestStoppingInTheMiddleOfTheDataLeavesNothingRunning(t *testing.T) {
	noLeak(t)
	m := regression()
	env := newCluster(t, 3, 2, nil)
	n := 0
	for _, err := range env.Dataset(Dataset{m.Batch}).Iter() {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 3 {
			break
		}
	}
}

func TestADeviceWithTooLittleMemorySaysWhatItNeedsItFor(t *testing.T) {
	noLeak(t)
	m := regression()
	limit, says := "8KB", "7.8 KiB"
	if *onGPUs { // the fake does not say what modules need for what is inside them
		limit, says = "4KB", "3.9 KiB"
	}
	env := newCluster(t, 2, 2, map[string]any{"cluster.device_memory": limit})
	_, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 2)
	mustFail(t, err, "epl: device ", "cluster.device_memory", "weights", "1.7 KiB", says)
}

func TestNaNGradientsAreSkippedIfTheOptimizerIsToldTo(t *testing.T) {
	m := regression()
	clean := m.Batch
	m.Batch = func(step int) (in, labels []*tensors.Tensor) {
		in, labels = clean(step)
		if step == 5 { // one instance of the second step
			in[0].MustMutableFlatData(func(flat any) { flat.([]float32)[0] = float32(math.NaN()) })
		}
		return in, labels
	}
	build := m.Build
	m.Build = func(scope *model.Scope, x *Node) *Node {
		scope.Store().SetParam("/"+optimizer.ParamClipNaN, true)
		return build(scope, x)
	}
	env := newCluster(t, 2, 2, nil)
	store := newStore()
	trainer := train.NewTrainer(env.Backend(), store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil)
	var losses []float64 // train.Loop would stop at the first NaN
	for batch, err := range env.Dataset(Dataset{m.Batch}).Iter() {
		if err != nil {
			t.Fatal(err)
		}
		metrics, err := trainer.TrainStep(batch)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		if losses = append(losses, float64(tensors.ToScalar[float32](metrics[0]))); len(losses) == 4 {
			break
		}
	}
	for v := range store.IterVariables() {
		if !v.Trainable {
			continue
		}
		for _, x := range numbers(v.MustValue()) {
			if math.IsNaN(x) {
				t.Fatalf("%s has become NaN", v.Path())
			}
		}
	}
	if !math.IsNaN(losses[1]) || math.IsNaN(losses[3]) {
		t.Errorf("the losses are %v", losses)
	}
}

// The order in which a program takes the tensors of a batch is its own.
func TestTheTensorsOfABatchMayBePassedInAnyOrder(t *testing.T) {
	m := regression()
	env := newCluster(t, 2, 2, nil)
	step := func(scope *model.Scope, x, y *Node) *Node {
		loss := ReduceAllMean(Square(Sub(m.Build(scope, x), y)))
		epl.Optimizer(sgd()).UpdateGraph(scope, x.Graph(), loss)
		return loss
	}
	straight := model.MustNewExec(env.Backend(), newStore(), step)
	swapped := model.MustNewExec(env.Backend(), newStore(), func(scope *model.Scope, y, x *Node) *Node { return step(scope, x, y) })
	var losses [2]float32
	for k, exec := range []*model.Exec{straight, swapped} {
		for batch, err := range env.Dataset(Dataset{m.Batch}).Iter() {
			if err != nil {
				t.Fatal(err)
			}
			args := []any{batch.Inputs[0], batch.Labels[0]}
			if k == 1 {
				args[0], args[1] = args[1], args[0]
			}
			results, err := exec.Call(args...)
			if err != nil {
				t.Fatalf("%+v", err)
			}
			losses[k] = tensors.ToScalar[float32](results[0])
			break
		}
	}
	if losses[0] != losses[1] {
		t.Errorf("the losses are %v", losses)
	}
}

func TestVaryingIntegersThatLeaveTheProgramMustAgree(t *testing.T) {
	m := regression()
	env := newCluster(t, 2, 1, nil)
	exec := model.MustNewExec(env.Backend(), newStore(), func(scope *model.Scope, x, y *Node) *Node {
		loss := ReduceAllMean(Square(Sub(m.Build(scope, x), y)))
		epl.Optimizer(sgd()).UpdateGraph(scope, x.Graph(), loss)
		return ConvertDType(MulScalar(ReduceAllSum(x), 1000), 5) // int64
	})
	for batch, err := range env.Dataset(Dataset{m.Batch}).Iter() {
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Call(batch.Inputs[0], batch.Labels[0])
		if err == nil && *onGPUs { // where it comes late
			err = exceptions.TryCatch[error](func() { numbers(out[0]) })
		}
		mustFail(t, err, "differs between instances 0 and 1", "epl.AddToCollection", "equiv/failure_test.go")
		break
	}
}

func TestTheTimelineShowsEveryDeviceRunningWaitingAndCommunicating(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.json")
	t.Setenv("EPL_TRACE", file)
	trainParallel(t, newCluster(t, 3, 2, nil), regression(), sgd(), 4)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []struct {
			Cat string
			Pid int
		}
		OtherData struct{ Step int }
	}
	if err := json.Unmarshal(text, &trace); err != nil {
		t.Fatal(err)
	}
	seen := map[int]map[string]int{0: {}, 1: {}, 2: {}}
	for _, e := range trace.TraceEvents {
		if e.Cat != "" {
			seen[e.Pid][e.Cat]++
		}
	}
	for d := range 3 {
		for _, kind := range []string{"run", "wait", "communicate", "data"} {
			if seen[d][kind] == 0 {
				t.Errorf("device %d shows no %s", d, kind)
			}
		}
	}
	if trace.OtherData.Step != 3 {
		t.Errorf("it shows step %d", trace.OtherData.Step)
	}
}

func TestTheScheduleIsWrittenDownNextToTheProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("EPL_DUMP", dir)
	trainParallel(t, newCluster(t, 2, 2, nil), regression(), sgd(), 1)
	files, err := filepath.Glob(filepath.Join(dir, "*-schedule.txt"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 model replicas, 2 micro-batches", "group 0 of a model replica:", "run instance.0 and sums micro-batch 1", "run once", "free"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
}

func TestStatsTellWhatEveryDeviceDid(t *testing.T) {
	env := newCluster(t, 2, 1, nil)
	trainParallel(t, env, regression(), sgd(), 4)
	s := env.Stats()
	if len(s.Devices) != 2 {
		t.Fatalf("%d devices", len(s.Devices))
	}
	for i, d := range s.Devices {
		if d.Runs < 4 || d.PeakBytes == 0 || d.Sent["all-reduce"] == 0 {
			t.Errorf("device %d: %+v", i, d)
		}
	}
	if again := env.Stats(); again.Devices[0].Runs != 0 {
		t.Errorf("a second look shows %+v", again.Devices[0])
	}
}
