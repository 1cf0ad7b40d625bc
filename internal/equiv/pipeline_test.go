// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/gomlx/compute"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/metric"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// newPipeline makes EPL on several devices, a TaskGraph on each.
func newPipeline(t testing.TB, devices, micro int, params map[string]any, opts ...epl.Option) *epl.Env {
	t.Helper()
	all := map[string]any{"cluster.colocate_split_and_replicate": false}
	for k, v := range params {
		all[k] = v
	}
	return newCluster(t, devices, micro, all, opts...)
}

// pipelinePlan is how a pipeline runs.
type pipelinePlan struct {
	stages, replicas, micro int
	strategy                string // "": the default one
	perDevice               int    // stages that share a device; 0: none do
}

func (p pipelinePlan) String() string {
	return fmt.Sprintf("%dx%d/%d/%s", p.stages, p.replicas, p.micro, p.strategy)
}

// batches is how many batches a step takes.
func (p pipelinePlan) batches() int { return p.replicas * p.micro }

func (p pipelinePlan) env(t testing.TB, params map[string]any, opts ...epl.Option) *epl.Env {
	t.Helper()
	all := map[string]any{}
	if p.strategy != "" {
		all["pipeline.strategy"] = p.strategy
	}
	devices := p.stages * p.replicas
	if p.perDevice > 0 {
		all["pipeline.stages_per_device"] = p.perDevice
		devices /= p.perDevice
	}
	for k, v := range params {
		all[k] = v
	}
	return newPipeline(t, devices, p.micro, all, opts...)
}

var strategies = []string{"PreferForward", "PreferBackward", "PreferBackwardOptimizer", "ZeroBubble", "Interleaved"}

// allPlans is every number of stages, model replicas and micro-batches, with every strategy.
func allPlans() (plans []pipelinePlan) {
	for _, strategy := range strategies {
		for stages := 2; stages <= 4; stages++ {
			for replicas := 1; replicas <= 2; replicas++ {
				for micro := 1; micro <= 6; micro++ {
					p := pipelinePlan{stages: stages, replicas: replicas, micro: micro, strategy: strategy}
					if strategy == "Interleaved" { // S=2 on one device, 4 on two, 3 on one
						p.perDevice = 2
						if stages == 3 {
							p.perDevice = 3
						}
					}
					plans = append(plans, p)
				}
			}
		}
		if strategy == "Interleaved" {
			plans = append(plans, pipelinePlan{6, 1, 4, strategy, 2}, pipelinePlan{6, 1, 5, strategy, 3}, pipelinePlan{8, 1, 3, strategy, 4})
		}
	}
	return plans
}

// somePlans is a spread of all plans, another one for every seed: as many as the flag for long runs allows.
func somePlans(seed int64) []pipelinePlan {
	n := *seedCount / 12
	if testing.Short() {
		n = 1
	}
	by := map[string][]pipelinePlan{}
	for _, p := range allPlans() {
		by[p.strategy] = append(by[p.strategy], p)
	}
	r := rand.New(rand.NewSource(seed))
	for _, strategy := range strategies {
		r.Shuffle(len(by[strategy]), func(i, j int) { by[strategy][i], by[strategy][j] = by[strategy][j], by[strategy][i] })
	}
	var plans []pipelinePlan
	for i := 0; len(plans) < n && i < len(allPlans()); i++ {
		if all := by[strategies[i%len(strategies)]]; i/len(strategies) < len(all) {
			plans = append(plans, all[i/len(strategies)])
		}
	}
	return plans
}

// train trains the model in stages, on a backend and what it is given.
func (m Staged) train(backend compute.Backend, stages int, ds train.Dataset, opt optimizer.Interface, steps int, metrics ...metric.Interface) (*Run, error) {
	run := &Run{Store: newStore()}
	trainer := train.NewTrainer(backend, run.Store, m.Build(stages), m.Loss, opt, metrics, nil)
	loop := train.NewLoop(trainer)
	loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
		run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
		return nil
	})
	if _, err := loop.RunSteps(ds, steps); err != nil {
		return nil, err
	}
	return run, nil
}

// alone trains on the plain backend, on the batches of k instances at once.
func (m Staged) alone(t testing.TB, stages, k int, opt optimizer.Interface, steps int) *Run {
	t.Helper()
	ds := Dataset{m.Batch}
	if k > 1 {
		ds = Dataset{Joined(m.Batch, k)}
	}
	run, err := m.train(Plain(), stages, ds, opt, steps)
	if err != nil {
		t.Fatalf("plain GoMLX: %v", err)
	}
	return run
}

// piped trains on a pipeline.
func (m Staged) piped(t testing.TB, env *epl.Env, stages int, opt optimizer.Interface, steps int) *Run {
	t.Helper()
	run, err := m.train(env.Backend(), stages, env.Dataset(Dataset{m.Batch}), epl.Optimizer(opt), steps)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// mustBeClose is what equivalence means with SGD.
func mustBeClose(t testing.TB, want, got *Run) {
	t.Helper()
	mustBeWithin(t, want, got, 1e-5)
}

// mustBeWithin compares weights and losses, up to a tolerance.
func mustBeWithin(t testing.TB, want, got *Run, tolerance float64) {
	t.Helper()
	if err := CloseWeights(want, got, tolerance); err != nil {
		t.Error(err)
	}
	if err := CloseLosses(want, got, tolerance); err != nil {
		t.Error(err)
	}
}

// stagedMLP is the simplest of all.
func stagedMLP() Staged {
	same := func(_ *model.Scope, x *Node) *Node { return x }
	return Staged{"mlp", StagedMLP(same), Models()[0].Loss, Regression(4, 8)}
}

func TestAPipelineGivesTheWeightsOfOneDevice(t *testing.T) {
	for _, p := range allPlans() {
		name := p.String()
		if p.micro == 3 && p.stages != 3 { // those that also run under the race detector
			name = "mlp/" + name
		} else if testing.Short() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := stagedMLP()
			mustBeClose(t, m.alone(t, p.stages, p.batches(), sgd(), 3), m.piped(t, p.env(t, nil), p.stages, sgd(), 3))
		})
	}
}

func TestEveryModelInStagesGivesTheWeightsOfOneDevice(t *testing.T) {
	for i, m := range StagedModels() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			for _, p := range somePlans(int64(i)) {
				if m.Name == "reordered" && p.perDevice > 0 {
					continue // is refused
				}
				t.Run(p.String(), func(t *testing.T) {
					mustBeClose(t, m.alone(t, p.stages, p.batches(), sgd(), 3), m.piped(t, p.env(t, nil), p.stages, sgd(), 3))
				})
			}
		})
	}
}

// With one micro-batch and one model replica nothing is added up in another order.
func TestAPipelineWithOneInstanceGivesTheBitsOfOneDevice(t *testing.T) {
	for _, m := range append(StagedModels(), stagedMLP()) {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			for i, passes := range []string{"none", ""} {
				for stages := 2 + i; stages <= 4; stages += 2 - i {
					var opts []epl.Option
					if passes != "" {
						opts = []epl.Option{epl.WithPasses(passes)}
					}
					one := newCluster(t, 1, 1, nil, opts...)
					want := m.piped(t, one, stages, sgd(), 10)
					if passes == "none" {
						if err := SameBits(m.alone(t, stages, 1, sgd(), 10), want); err != nil {
							t.Errorf("one device: %v", err)
						}
					}
					for _, strategy := range strategies[:4] {
						p := pipelinePlan{stages: stages, replicas: 1, micro: 1, strategy: strategy}
						if err := SameBits(want, m.piped(t, p.env(t, nil, opts...), stages, sgd(), 10)); err != nil {
							t.Errorf("passes %q, %d stages, %s: %v", passes, stages, strategy, err)
						}
						if testing.Short() {
							break
						}
					}
				}
			}
		})
	}
}
