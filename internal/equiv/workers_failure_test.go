// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
)

// running is a worker whose output the test reads while it runs.
type running struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	all strings.Builder
	end chan error
}

// Write implements io.Writer.
func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.Write(p)
}

func (r *running) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.String()
}

// says waits until the worker has printed some words.
func (r *running) says(t *testing.T, within time.Duration, words string) {
	t.Helper()
	for deadline := time.Now().Add(within); !strings.Contains(r.output(), words); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s it has not said %q:\n%s", within, words, r.output())
		}
	}
}

// ends waits until the worker has ended, with an error that says some words.
func (r *running) ends(t *testing.T, within time.Duration, words ...string) {
	t.Helper()
	select {
	case err := <-r.end:
		if err == nil {
			t.Errorf("it ended well:\n%s", r.output())
		}
	case <-time.After(within):
		t.Fatalf("it has not ended after %s:\n%s", within, r.output())
	}
	for _, w := range words {
		if !strings.Contains(r.output(), w) {
			t.Errorf("it does not say %q:\n%s", w, r.output())
		}
	}
}

// start starts the workers. Whatever is left of them when the test ends is killed.
func (w workers) start(t *testing.T, name string) (all []*running) {
	t.Helper()
	folder := t.TempDir()
	for i := range w.num {
		r := &running{cmd: w.command(t, folder, name, i), end: make(chan error, 1)}
		r.cmd.Stdout, r.cmd.Stderr = r, r
		if err := r.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { r.end <- r.cmd.Wait() }()
		t.Cleanup(func() { _ = r.cmd.Process.Signal(syscall.SIGKILL) })
		all = append(all, r)
	}
	return all
}

const timeoutVariable = "EPLTEST_TIMEOUT"

func init() {
	// for ever trains until something happens, and says when the third step is done.
	parts["for ever"] = func(w *part) error {
		timeout := os.Getenv(timeoutVariable)
		if timeout == "" {
			timeout = "10m"
		}
		env, err := w.init(map[string]any{"communication.timeout": timeout})
		if err != nil {
			return err
		}
		defer env.Close()
		m := regression()
		loop := train.NewLoop(train.NewTrainer(env.Backend(), newStore(), m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil))
		loop.OnStep("print", 0, func(l *train.Loop, _ []*tensors.Tensor) error {
			if l.LoopStep == 3 {
				fmt.Println("three steps")
			}
			return nil
		})
		_, err = loop.RunSteps(env.Dataset(Dataset{m.Batch}), 1<<30)
		return err
	}
}

func TestAKilledWorkerIsNamedByTheOthersAtOnce(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 1}, {num: 3, devices: 1, hosts: "a,b,c"}, {num: 4, devices: 1, hosts: "a,a,b,b"}} {
		for _, victim := range []int{0, w.num - 1} {
			t.Run(fmt.Sprintf("%s/%d", w, victim), func(t *testing.T) {
				t.Parallel()
				all := w.start(t, "for ever")
				for _, r := range all {
					r.says(t, time.Minute, "three steps")
				}
				if err := all[victim].cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				for i, r := range all {
					if i != victim {
						r.ends(t, 5*time.Second, fmt.Sprintf("worker %d", victim), "gone")
					}
				}
			})
		}
	}
}

func TestAStoppedWorkerIsReportedSoonAndNamedAfterTheTimeout(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 1}, {num: 2, devices: 1, hosts: "a,b"}} {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			w.env = []string{timeoutVariable + "=7s"}
			all := w.start(t, "for ever")
			for _, r := range all {
				r.says(t, time.Minute, "three steps")
			}
			if err := all[1].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			all[0].says(t, 5*time.Second, "worker 1 ")
			all[0].ends(t, 20*time.Second, "rank 1 did not arrive within 7s in ", "where rank 0 waited", "all-")
		})
	}
}

func TestAWorkerThatOnlyPausesGoesOn(t *testing.T) {
	t.Parallel()
	w := workers{num: 2, devices: 1}
	all := w.start(t, "for ever")
	for _, r := range all {
		r.says(t, time.Minute, "three steps")
	}
	if err := all[1].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	all[0].says(t, 5*time.Second, "worker 1 ")
	if err := all[1].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	all[0].says(t, 10*time.Second, "again")
	if len(all[0].end)+len(all[1].end) > 0 {
		t.Errorf("a worker ended:\n%s\n%s", all[0].output(), all[1].output())
	}
}

// failing plays a part that must fail on all workers with the same words.
func failing(t *testing.T, w workers, name string, words ...string) {
	t.Helper()
	outputs, errs := w.play(t, name)
	for i, out := range outputs {
		if errs[i] == nil {
			t.Errorf("worker %d ended well:\n%s", i, out)
		}
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("worker %d does not say %q:\n%s", i, word, out)
			}
		}
	}
}

func TestWorkersThatDoNotAgreeStopBeforeTheFirstStep(t *testing.T) {
	for name, words := range map[string][]string{
		"other configuration": {"configuration communication.max_splits", "worker 0", "worker 1", "5", "7"},
		"other passes":        {"passes (EPL_PASSES, WithPasses)", "worker 1"},
		"other plan":          {"pinned plan (EPL_PLAN_FILE, WithPlan)", "worker 1"},
		"other model": {"do not agree on training program 1: ", `variable "/layer_0/dense/weights" is "float32[8,16], trainable, at equiv/models.go:`,
			`on worker 0 and "float32[8,17], trainable, at equiv/models.go:`},
		"other depth":    {`only worker 1 has variable "/layer_2/dense/weights": "float32[16,16], trainable, at equiv/models.go:`},
		"other batch":    {`: input 0 is "float32[8,8]" on worker 0 and "float32[9,8]" on worker 1`},
		"other function": {`: what equiv/workers_failure_test.go:`, `computes is "Tanh float32[8,1]" on worker 0 and "Sin float32[8,1]" on worker 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failing(t, workers{num: 2, devices: 1}, name, words...)
		})
	}
}

// The others do not plan: they hear from the first worker that there is no plan, and why.
func TestAPlanThatTheFirstWorkerRefusesIsRefusedOnAll(t *testing.T) {
	failing(t, workers{num: 2, devices: 1}, "too few devices", "a replica needs 3 devices")
}

// Where a setting comes from is the only thing about a plan that may differ between workers. The plan of the second says where it comes
// from on the first, since it was decided there.
func TestTheFirstWorkerDecidesAndTheOthersApply(t *testing.T) {
	outputs, errs := workers{num: 2, devices: 1}.play(t, "settings from elsewhere")
	for i, out := range outputs {
		if errs[i] != nil || !strings.Contains(out, "communication.max_splits is 3, code\n") {
			t.Errorf("worker %d: %v\n%s", i, errs[i], out)
		}
	}
}

// A process is one worker of a job, and says so before it takes the place of another.
func TestASecondInitInAJobIsRefused(t *testing.T) {
	failing(t, workers{num: 2, devices: 1}, "two inits", "epl: Init at", "has joined the job", "EPL_RDZV=file://")
}

func init() {
	index := func() int { i, _ := strconv.Atoi(os.Getenv("EPL_WORKER_INDEX")); return i }
	parts["other configuration"] = func(w *part) error {
		_, err := w.init(map[string]any{"communication.max_splits": 5 + 2*index()})
		return err
	}
	parts["other passes"] = func(w *part) error {
		_, err := w.init(nil, epl.WithPasses([]string{"all", "-common"}[index()]))
		return err
	}
	parts["other plan"] = func(w *part) error {
		cl, err := cluster.New(cluster.Spec{Devices: []int{1, 1}})
		if err != nil {
			return err
		}
		cfg, err := epl.NewConfig(w.params(nil))
		if err != nil {
			return err
		}
		set, err := passes.Parse("", nil)
		if err != nil {
			return err
		}
		pl, _, err := plan.Decide(ir.NewProgram("none"), cfg, plan.Target{Cluster: cl, Passes: set, AsWritten: true})
		if err != nil {
			return err
		}
		pl.MicroBatches += index()
		file, err := os.Create(filepath.Join(w.folder, fmt.Sprintf("plan%d.json", index())))
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pl.Encode(file); err != nil {
			return err
		}
		_, err = w.init(nil, epl.WithPlan(file.Name()))
		return err
	}
	train := func(w *part, m Model, params map[string]any, steps int) error {
		env, err := w.init(params)
		if err != nil {
			return err
		}
		defer env.Close()
		_, err = TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), steps)
		return err
	}
	parts["other model"] = func(w *part) error {
		return train(w, Model{"mlp", MLP(2, 16+index(), false), Models()[0].Loss, Regression(8, 8)}, nil, 2)
	}
	parts["other depth"] = func(w *part) error {
		return train(w, Model{"mlp", MLP(2+index(), 16, false), Models()[0].Loss, Regression(8, 8)}, nil, 2)
	}
	parts["other batch"] = func(w *part) error {
		return train(w, Model{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(8+index(), 8)}, nil, 2)
	}
	parts["other function"] = func(w *part) error {
		return train(w, Model{"mlp", func(scope *model.Scope, x *Node) *Node {
			return []func(*Node) *Node{Tanh, Sin}[index()](MLP(2, 16, false)(scope, x))
		}, Models()[0].Loss, Regression(8, 8)}, nil, 2)
	}
	parts["too few devices"] = func(w *part) error {
		m := Model{"mlp", MLP(3, 16, false), Models()[0].Loss, Regression(8, 8)}
		return train(w, m, map[string]any{"cluster.colocate_split_and_replicate": false}, 1)
	}
	parts["settings from elsewhere"] = func(w *part) error {
		params := map[string]any{"communication.max_splits": 3}
		if index() == 1 {
			params = nil
			if err := os.Setenv("EPL_COMMUNICATION_MAX_SPLITS", "3"); err != nil {
				return err
			}
		}
		env, err := w.init(params)
		if err != nil {
			return err
		}
		defer env.Close()
		if _, err := TrainOn(env.Backend(), env.Dataset(Dataset{regression().Batch}), regression(), epl.Optimizer(sgd()), 2); err != nil {
			return err
		}
		for _, s := range env.Plan().Settings {
			fmt.Printf("%s is %s, %s\n", s.Key, s.Value, s.Why)
		}
		return nil
	}
	parts["two inits"] = func(w *part) error {
		env, err := w.init(nil)
		if err != nil {
			return err
		}
		defer env.Close()
		_, err = epl.Init(nil) // at the same rendezvous
		return err
	}
	parts["no data"] = func(w *part) error {
		m := regression()
		if index() == 1 {
			m.Batch = func(step int) (in, labels []*tensors.Tensor) {
				if step == 5 {
					panic("the disk is gone")
				}
				return regression().Batch(step)
			}
		}
		return train(w, m, nil, 10)
	}
	parts["fewer batches"] = func(w *part) error {
		env, err := w.init(nil)
		if err != nil {
			return err
		}
		defer env.Close()
		m := regression()
		_, err = TrainOn(env.Backend(), env.Dataset(first(m, 8-index())), m, epl.Optimizer(sgd()), 4)
		return err
	}
	parts["fewer steps"] = func(w *part) error {
		return train(w, regression(), map[string]any{"communication.timeout": "3s"}, 6-4*index())
	}
}

func TestAFailureOfOneWorkerStopsAllWithItsWords(t *testing.T) {
	for name, words := range map[string][]string{
		"no data":       {"of worker 1 failed at batch 5, counted from 0: panic: the disk is gone"},
		"fewer batches": {"worker 0 has 2 batches for this step and worker 1 has 1", "all must read the same data"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failing(t, workers{num: 2, devices: 1}, name, words...)
		})
	}
}

func TestAWorkerThatStopsTrainingEarlyIsNamed(t *testing.T) {
	outputs, errs := workers{num: 2, devices: 1}.play(t, "fewer steps")
	if errs[1] != nil {
		t.Errorf("worker 1: %v\n%s", errs[1], outputs[1])
	}
	if errs[0] == nil || !strings.Contains(outputs[0], "worker 1") {
		t.Errorf("worker 0: %v\n%s", errs[0], outputs[0])
	}
}
