// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
)

// Model replicas on one host have one copy of the weights that each of them updates a part of. They end where one device does, whatever else happens to the weights: they are
// saved while steps go on, read and set by the user, evaluated, and trained on batches of another size.
func TestReplicasOfAHostTrainOneCopyOfTheWeights(t *testing.T) {
	for name := range commonPlans {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			workers{num: 2, devices: 1}.agree(t, "one copy "+name)
			if !testing.Short() {
				workers{num: 2, devices: 2}.agree(t, "one copy "+name)
			}
		})
	}
}

var commonPlans = map[string]map[string]any{
	"factors":       {},
	"zero v0":       {"zero.level": "v0"},
	"checked":       {"zero.level": "v0", "reliability.check_every": 3}, // each has its own: there is something to compare
	"micro-batches": {"zero.level": "v0", "pipeline.num_micro_batch": 2},
}

// hasCommonMemory tells whether the process has mapped memory that other workers have, too; known: somebody can tell.
func hasCommonMemory() (has, known bool) {
	maps, err := os.ReadFile("/proc/self/maps")
	return strings.Contains(string(maps), "memfd:epl-common"), err == nil
}

func init() {
	for name, params := range commonPlans {
		parts["one copy "+name] = func(w *part) error {
			const steps = 36
			opt := func() optimizer.Interface { return epl.Optimizer(velocity{}) }
			if params["zero.level"] == nil {
				opt = func() optimizer.Interface { return epl.Optimizer(sgd()) } // who keeps nothing computes his part of the gradient only
			}
			m := wideModels()[0]
			env, err := w.init(params)
			if err != nil {
				return err
			}
			defer env.Close()
			k := len(env.Cluster().Devices())
			if n, ok := params["pipeline.num_micro_batch"]; ok {
				k *= n.(int)
			}
			dataset := func(all func(func(int) (in, labels []*tensors.Tensor)) func(int) (in, labels []*tensors.Tensor), perStep int) custom {
				return func(yield func(train.Batch, error) bool) {
					for i := range steps * perStep {
						of := m.Batch
						if i/perStep >= 28 { // batches of another size
							of = Regression(1, 48)
						}
						if !yield(oneBatch(all(of), i), nil) {
							return
						}
					}
				}
			}
			type batches = func(int) (in, labels []*tensors.Tensor)
			dealt, joined := dataset(func(b batches) batches { return b }, k), dataset(func(b batches) batches { return Joined(b, k) }, 1)
			had := false
			happens := func(run *Run, l *train.Loop, backend *train.Trainer) error {
				switch l.LoopStep {
				case 5, 18: // all weights are set, to what they are
					for _, v := range variables(run.Store) {
						if !v.Trainable {
							continue
						}
						old, err := v.Value()
						if err != nil {
							return err
						}
						c, err := old.Clone()
						if err != nil {
							return err
						}
						if err := v.SetValue(c); err != nil {
							return err
						}
					}
				case 9:
					_, err := backend.EvalStep(oneBatch(m.Batch, 1000))
					return err
				}
				return nil
			}
			run := &Run{Store: newStore()}
			trainer := train.NewTrainer(env.Backend(), run.Store, m.Build, m.Loss, opt(), nil, nil)
			saver, err := env.Checkpoints(run.Store).Dir(filepath.Join(w.folder, "checkpoints")).EverySteps(7).Done()
			if err != nil {
				return err
			}
			loop := train.NewLoop(trainer)
			loop.OnStep("save", 100, saver.OnStep)
			loop.OnStep("happens", 101, func(l *train.Loop, metrics []*tensors.Tensor) error {
				has, known := hasCommonMemory()
				had = had || has || !known && params["reliability.check_every"] == nil
				run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
				return happens(run, l, trainer)
			})
			if _, err := loop.RunSteps(env.Dataset(dealt), steps); err != nil {
				return err
			}
			if had == (params["reliability.check_every"] != nil) {
				return errors.Errorf("the process had common memory: %t", had)
			}
			if err := saver.Wait(); err != nil {
				return err
			}
			w.report("trained:", run)
			// What was saved while steps went on is what was there then.
			loaded := &Run{Store: newStore()}
			if saver, err = env.Checkpoints(loaded.Store).Dir(filepath.Join(w.folder, "checkpoints")).Done(); err != nil {
				return err
			}
			if w.index() > 0 { // it has the same
				return nil
			}
			want, err := TrainOn(Plain(), joined, m, opt(), steps)
			if err != nil {
				return err
			}
			if err := trainableWithin(want, run, 1e-4); err != nil {
				return fmt.Errorf("after %d steps: %w", steps, err)
			}
			then, err := TrainOn(Plain(), joined, m, opt(), int(saver.Step()))
			if err != nil {
				return err
			}
			if saver.Step() < 7 {
				return errors.Errorf("the last checkpoint is of step %d", saver.Step())
			}
			return trainableWithin(then, loaded, 1e-4)
		}
	}
}

// Two programs that divide the devices otherwise share weights: what all four replicas of the one have is not what the two replicas of the other agree about.
func TestProgramsThatDivideDevicesOtherwiseShareWeights(t *testing.T) {
	want, got := inTurns(t, ""), inTurns(t, "v1")
	if err := trainableWithin(want, got, 1e-4); err != nil {
		t.Error(err)
	}
}

// inTurns trains two programs with the same weights in turns: each device has a model replica of the first, two devices have one of the second.
func inTurns(t *testing.T, level string) *Run {
	t.Helper()
	env := newCluster(t, 4, 1, map[string]any{"communication.gather_factors": false, "zero.level": level})
	run := &Run{Store: newStore()}
	var loops []*train.Loop
	for _, k := range []int{1, 2} {
		build := func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			epl.With(x, epl.Replicate(k, "all"), func() {
				x = layers.Dense(scope.In("out"), Tanh(layers.Dense(scope.In("first"), x, true, 512)), true, 1)
			})
			return []*Node{x}
		}
		loops = append(loops, train.NewLoop(train.NewTrainer(env.Backend(), run.Store, build, loss.MeanSquaredError, epl.Optimizer(sgd()), nil, nil)))
	}
	had := false
	for range 6 {
		for _, loop := range loops {
			if _, err := loop.RunSteps(env.Dataset(Dataset{Regression(8, 64)}), 1); err != nil {
				t.Fatalf("%+v", err)
			}
			has, known := hasCommonMemory()
			had = had || has || !known
		}
	}
	if !had && level != "" {
		t.Error("no weight came to common memory")
	}
	return run
}
