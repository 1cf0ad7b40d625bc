// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/rendezvous"
	"github.com/easyparallel/epl/wire"
)

// statusSteps are enough for several reports of what a worker does, one a second.
const statusSteps = 200

// What the launcher shows of a worker is what it does: programs beside its steps are no evaluation, but those after them are.
func TestTheStatusTellsTrainingFromEvaluation(t *testing.T) {
	t.Parallel()
	security := wire.Security{Token: wire.NewToken()}
	hub, err := rendezvous.NewServer("127.0.0.1:0", rendezvous.ServerOptions{Workers: 2, Security: security})
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	folder := t.TempDir()
	w := workers{num: 2, devices: 1, env: []string{rendezvous.EnvURL + "=tcp://" + hub.Addr().String(), rendezvous.EnvToken + "=" + security.Token}}
	results := make(chan error, w.num)
	for i := range w.num {
		cmd := w.command(t, folder, "trains and evaluates", i)
		cmd.Stderr = os.Stderr
		go func() { results <- cmd.Run() }()
	}
	trained, evaluated := false, false
	for running := w.num; running > 0; {
		select {
		case err := <-results:
			if running--; err != nil {
				t.Fatal(err)
			}
			continue
		case <-time.After(20 * time.Millisecond):
		}
		for _, s := range hub.Status() {
			switch {
			case s.Step > 1 && s.Step < statusSteps: // compiled, and not at the end
				trained = true
				if s.Busy == "evaluating" || s.Busy == "saving" {
					t.Fatalf("worker %d is at step %d, and said to be %s", s.Index, s.Step, s.Busy)
				}
			case s.Step == statusSteps && s.Busy == "evaluating" && !evaluated:
				evaluated = true
				if err := os.WriteFile(filepath.Join(folder, "seen"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if !trained || !evaluated {
		t.Errorf("training was seen: %v, evaluation: %v", trained, evaluated)
	}
}

func init() {
	parts["trains and evaluates"] = func(w *part) error {
		cfg, err := epl.NewConfig(w.params(nil))
		if err != nil {
			return err
		}
		env, err := epl.Init(cfg)
		if err != nil {
			return err
		}
		defer env.Close()
		m := regression()
		trainer := train.NewTrainer(env.Backend(), newStore(), m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil)
		data, err := graph.NewExec(env.Backend(), func(x *graph.Node) *graph.Node { return graph.Sqrt(x) })
		if err != nil {
			return err
		}
		loop := train.NewLoop(trainer)
		loop.OnStep("data", 0, func(*train.Loop, []*tensors.Tensor) error {
			time.Sleep(20 * time.Millisecond)
			_, err := data.Call1(float32(2))
			return err
		})
		if _, err := loop.RunSteps(env.Dataset(Dataset{m.Batch}), statusSteps); err != nil {
			return err
		}
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if _, err := trainer.Eval(first(m, 2)); err != nil {
				return err
			}
			if _, err := os.Stat(filepath.Join(w.folder, "seen")); err == nil {
				return nil
			}
		}
		return errors.New("nobody saw the evaluation")
	}
}
