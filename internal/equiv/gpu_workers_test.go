// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/support/exceptions"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// outside is a test in a process that go test did not start as one.
type outside struct {
	testing.TB
	cleanups []func()
	failed   bool
}

func (o *outside) Helper()                  {}
func (o *outside) Context() context.Context { return context.Background() }
func (o *outside) Cleanup(f func())         { o.cleanups = append(o.cleanups, f) }
func (o *outside) Error(args ...any)        { o.failed = true; fmt.Println(args...) }
func (o *outside) Fatal(args ...any)        { fmt.Println(args...); os.Exit(1) }

func (o *outside) Errorf(format string, args ...any) { o.Error(fmt.Sprintf(format, args...)) }

// end ends the test.
func (o *outside) end() error {
	for _, f := range slices.Backward(o.cleanups) {
		f()
	}
	if o.failed {
		return errors.New("GPUs are not as they should be")
	}
	return nil
}

// gpus makes the backend "xla" of a worker a fake one, until the returned function is called.
func (w *part) gpus(n int) (f *pjrttest.Fake, end func() error) {
	t := &outside{}
	f = pjrttest.New(t, pjrttest.Options{Devices: n})
	exec.Register("xla", func(string) (exec.Kind, error) { return xlatest.Kind(t, f, xla.Options{}), nil })
	return f, t.end
}

func init() {
	parts["GPUs"] = func(w *part) error {
		_, end := w.gpus(2)
		for i, m := range Models()[:2] {
			var runs []*Run
			for _, o := range []struct{ inner, backend string }{{"go", "auto"}, {"xla:fake", "auto"}, {"xla:fake", "nccl"}} {
				env, err := w.init(map[string]any{"communication.backend": o.backend, "communication.fp16": i == 0}, epl.WithInner(o.inner))
				if err != nil {
					return err
				}
				run, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 3)
				if err != nil {
					return err
				}
				if run.Store, err = run.Store.Clone(); err != nil {
					return err
				}
				if err := env.Close(); err != nil {
					return err
				}
				if runs = append(runs, run); len(runs) > 1 {
					if !closeLosses(runs[0], run) { // GPUs add up in another order
						return errors.Errorf("losses are %v on GPUs, not %v", run.Losses, runs[0].Losses)
					}
				}
			}
			w.report(m.Name+":", runs[1])
		}
		return end()
	}
	// GPUs that stop are what is left when a worker is gone: nothing ends any more.
	parts["GPUs that stop"] = func(w *part) error {
		f, _ := w.gpus(1)
		env, err := w.init(map[string]any{"communication.timeout": cmp.Or(os.Getenv(timeoutVariable), "10m")}, epl.WithInner("xla:fake"))
		if err != nil {
			return err
		}
		defer fmt.Println("closed")
		defer env.Close()
		m := regression()
		loop := train.NewLoop(train.NewTrainer(env.Backend(), newStore(), m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil))
		loop.OnStep("stop", 0, func(l *train.Loop, _ []*tensors.Tensor) error {
			if l.LoopStep == 3 {
				f.Hold()
				fmt.Println("stopped")
			}
			return nil
		})
		_, err = loop.RunSteps(env.Dataset(Dataset{m.Batch}), 1<<30)
		return err
	}
	parts["different GPU programs"] = func(w *part) error {
		f, _ := w.gpus(1)
		env, err := w.init(nil, epl.WithInner("xla:fake"))
		if err != nil {
			return err
		}
		defer env.Close()
		m := Models()[env.Cluster().WorkerIndex()]
		_, err = TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 1)
		fmt.Println("compiled:", slices.Contains(f.Called(), "PJRT_Client_Compile"))
		return err
	}
	parts["too few GPUs"] = func(w *part) error {
		w.gpus(1)
		_, err := w.init(nil, epl.WithInner("xla:fake"))
		return err
	}
}

// Model replicas have GPUs of several workers, which evaluate and predict by modules that they run together.
func TestWorkersEvaluateTogetherOnGPUs(t *testing.T) {
	workers{num: 2, devices: 1}.agree(t, "evaluation on GPUs")
}

func init() {
	parts["evaluation on GPUs"] = func(w *part) error {
		_, end := w.gpus(1)
		os.Setenv("GOMLX_BACKEND", fake)
		p := splitPlan{parts: []int{2, 2}, colocate: true, replicas: 1, micro: 1}
		if err := w.togetherAlike(large(epl.Split(2, "a"), epl.Split(2, "b")), p, 2, nil); err != nil {
			return err
		}
		return end()
	}
}

// All workers learn that their GPUs refuse a step, and why.
func TestGPUsOfSeveralWorkersRefuseAStepWhoseIntegersDiffer(t *testing.T) {
	workers{num: 2, devices: 1}.agree(t, "integers on GPUs")
}

func init() {
	parts["integers on GPUs"] = func(w *part) error {
		_, end := w.gpus(1)
		env, err := w.init(nil, epl.WithInner(fake))
		if err != nil {
			return err
		}
		m := regression()
		exec := model.MustNewExec(env.Backend(), newStore(), func(scope *model.Scope, x, y *graph.Node) []*graph.Node {
			loss := graph.ReduceAllMean(graph.Square(graph.Sub(m.Build(scope, x), y)))
			epl.Optimizer(sgd()).UpdateGraph(scope, x.Graph(), loss)
			return []*graph.Node{loss, graph.ConvertDType(graph.MulScalar(graph.ReduceAllSum(x), 1000), dtypes.Int64)}
		})
		for batch, err := range env.Dataset(Dataset{m.Batch}).Iter() {
			if err != nil {
				return err
			}
			out, err := exec.Call(batch.Inputs[0], batch.Labels[0])
			if err != nil {
				return err
			}
			err = exceptions.TryCatch[error](func() { numbers(out[0]) })
			if err == nil || !strings.Contains(err.Error(), "step 1") || !strings.Contains(err.Error(), "differs between instances 0 and 1") {
				return fmt.Errorf("a step with different integers: %v", err)
			}
			fmt.Println("refused: ok")
			break
		}
		if err := env.Close(); err != nil {
			return err
		}
		return end()
	}
}

// The GPUs of all workers are those of one client, and training gives the bits of the pure-Go backend.
func TestTrainingOnGPUsOfSeveralWorkers(t *testing.T) {
	workers{num: 2, devices: 2}.agree(t, "GPUs")
}

func TestAWorkerOnGPUsThatIsKilledIsNamed(t *testing.T) {
	all := workers{num: 2, devices: 1}.start(t, "GPUs that stop")
	for _, r := range all {
		r.says(t, time.Minute, "stopped")
	}
	if err := all[1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	all[0].ends(t, time.Minute, "worker 1 (", "is gone", "closed")
}

func TestAWorkerOnGPUsThatIsStoppedIsNamed(t *testing.T) {
	all := workers{num: 2, devices: 1, env: []string{timeoutVariable + "=4s"}}.start(t, "GPUs that stop")
	all[1].says(t, time.Minute, "stopped")
	if err := all[1].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	all[0].ends(t, time.Minute, "(communication.timeout)", "to read a result of program", "worker 1 (", "it may be stopped", "closed")
}

// What GPUs wait for is not known. If all of them wait for too long, that is said.
func TestGPUsThatWaitForEachOtherEnd(t *testing.T) {
	all := workers{num: 2, devices: 1, env: []string{timeoutVariable + "=2s"}}.start(t, "GPUs that stop")
	for _, r := range all {
		r.ends(t, time.Minute, "(communication.timeout)", "to read a result of program", "closed")
	}
}

func TestDifferentProgramsOnGPUsAreRefusedBeforeTheyAreCompiled(t *testing.T) {
	for _, r := range (workers{num: 2, devices: 1}).start(t, "different GPU programs") {
		r.ends(t, time.Minute, "do not agree on training program 1", "worker 1", "compiled: false")
	}
}

func TestWorkersWithTooFewGPUsSayWho(t *testing.T) {
	for _, r := range (workers{num: 2, devices: 2}).start(t, "too few GPUs") {
		r.ends(t, time.Minute, "worker 0 (", "is to have 2 devices, and has 1 GPU")
	}
}

func init() {
	// Stages on GPUs of several workers, which send to each other without the host if they may.
	parts["stages on GPUs"] = func(w *part) error {
		n, err := strconv.Atoi(os.Getenv(cluster.EnvNumWorkers))
		if err != nil {
			return err
		}
		for _, sends := range []bool{false, true} {
			t := &outside{}
			f := pjrttest.New(t, pjrttest.Options{Devices: 2})
			exec.Register("xla", func(string) (exec.Kind, error) { return xlatest.Kind(t, f, xla.Options{Send: sends}), nil })
			for i, m := range append(StagedModels()[:2], stagedMLP()) { // tied weights, and skip connections
				for j, params := range []map[string]any{nil, {"pipeline.strategy": "PreferForward"}, {"pipeline.strategy": "Interleaved", "pipeline.stages_per_device": 2}} {
					if i != j && (n > 2 || !sends) {
						continue // it takes minutes, all of them
					}
					stages, micro := n, 1+(i+j)%3
					if j == 2 {
						stages, micro = 2*n, 4
					}
					if err := w.stages(m, stages, micro, params, sends); err != nil {
						return errors.WithMessagef(err, "%s, %v, sends %t", m.Name, params, sends)
					}
				}
			}
			if err := t.end(); err != nil {
				return err
			}
		}
		return nil
	}
}

// stages trains on GPUs and on the pure-Go backend, in stages over all workers.
func (w *part) stages(m Staged, stages, micro int, params map[string]any, sends bool) error {
	all := map[string]any{"pipeline.num_micro_batch": micro, "cluster.colocate_split_and_replicate": false}
	maps.Copy(all, params)
	var runs []*Run
	for _, inner := range []string{"go", "xla:fake"} {
		env, err := w.init(all, epl.WithInner(inner))
		if err != nil {
			return err
		}
		run, err := m.train(env.Backend(), stages, env.Dataset(Dataset{m.Batch}), epl.Optimizer(sgd()), 3)
		if err != nil {
			return err
		}
		copied, through := int64(0), int64(0)
		for _, d := range env.Stats().Devices {
			copied, through = copied+d.Sent["copy"], through+d.Sent["send"]
		}
		if inner != "go" && sends && copied == 0 {
			return errors.Errorf("%d bytes are copied, and %d go through the host", copied, through)
		}
		if run.Store, err = run.Store.Clone(); err != nil {
			return err
		}
		if err := env.Close(); err != nil {
			return err
		}
		runs = append(runs, run)
	}
	w.report(fmt.Sprintf("%s, %d micro-batches:", m.Name, micro), runs[1])
	return SameBits(runs[0], runs[1])
}

func init() {
	parts["stages on GPUs that stop"] = func(w *part) error {
		t := &outside{}
		f := pjrttest.New(t, pjrttest.Options{})
		exec.Register("xla", func(string) (exec.Kind, error) { return xlatest.Kind(t, f, xla.Options{Send: true}), nil })
		env, err := w.init(map[string]any{"pipeline.num_micro_batch": 3, "cluster.colocate_split_and_replicate": false}, epl.WithInner("xla:fake"))
		if err != nil {
			return err
		}
		defer fmt.Println("closed")
		defer env.Close()
		m := stagedMLP()
		loop := train.NewLoop(train.NewTrainer(env.Backend(), newStore(), m.Build(2), m.Loss, epl.Optimizer(sgd()), nil, nil))
		loop.OnStep("stop", 0, func(l *train.Loop, _ []*tensors.Tensor) error {
			if l.LoopStep == 3 {
				f.Hold()
				fmt.Println("stopped")
			}
			return nil
		})
		_, err = loop.RunSteps(env.Dataset(Dataset{m.Batch}), 1<<30)
		return err
	}
}

// A copy whose other end is gone never ends, and nobody waits for it.
func TestAWorkerOnGPUsThatIsKilledWhileStagesSendIsNamed(t *testing.T) {
	all := workers{num: 2, devices: 1}.start(t, "stages on GPUs that stop")
	for _, r := range all {
		r.says(t, time.Minute, "stopped")
	}
	if err := all[1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	all[0].ends(t, time.Minute, "worker 1 (", "is gone", "closed")
}

func TestStagesOnGPUsOfSeveralWorkers(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 1, hosts: "a,b"}, {num: 4, devices: 1}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "stages on GPUs") })
	}
}
