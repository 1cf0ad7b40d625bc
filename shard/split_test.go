// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/shard"
)

// split returns the step of a model on k devices, with all TaskGraphs of the same kind on them. TaskGraphs called "all" are
// split, if none is.
func split(t testing.TB, whole *ir.Program, k int) *ir.Program {
	t.Helper()
	p := whole.Clone()
	none := true
	for _, tg := range p.TaskGraphs {
		none = none && tg.Kind != ir.Split
	}
	for _, tg := range p.TaskGraphs {
		if tg.Devices = k; none {
			tg.Kind = ir.Split
		}
	}
	staged(t, p, k)
	return p
}

// compareSplit computes a step before and after it is partitioned.
func compareSplit(t *testing.T, p *ir.Program, choice shard.Choice, seed uint64) *shard.Report {
	t.Helper()
	given := draw(p, rand.New(rand.NewPCG(seed, 1)), 10)
	backend := newBackend(t)
	before := evaluate(t, backend, p, given)
	want := map[int]tensor{}
	for i, v := range p.Main.Outputs {
		want[i] = before[v]
	}
	r, err := expanded(p, choice)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(); err != nil {
		t.Fatalf("%v\n%s", err, p)
	}
	after := evaluate(t, backend, p, given)
	for i, o := range p.Outputs {
		if o.Updates == nil {
			same(t, fmt.Sprintf("output %d", i), want[i], after[p.Main.Outputs[i]])
			continue
		}
		same(t, o.Updates.Path, want[i], after[o.Updates.Update])
	}
	return r
}

// recordedWith returns the train step of a model with an optimizer.
func recordedWith(t testing.TB, m equiv.Model, opt optimizer.Interface) *ir.Program {
	t.Helper()
	backend, r := equiv.NewRecorder(nil)
	if _, err := equiv.Train(backend, m, epl.Optimizer(opt), 1); err != nil {
		t.Fatalf("%+v", err)
	}
	for _, p := range r.Programs {
		if p.IsTraining() {
			return p
		}
	}
	t.Fatal("nothing was trained")
	return nil
}

func TestASplitStepGivesTheResultsOfOneDevice(t *testing.T) {
	for _, m := range splitModels() {
		whole := recorded(t, m)
		for _, k := range []int{2, 3, 4, 8} {
			t.Run(fmt.Sprintf("%s/%d", m.Name, k), func(t *testing.T) {
				p := split(t, whole, k)
				_, choice := search(t, p)
				if len(choice) == 0 {
					t.Error("nothing is sharded")
				}
				for _, line := range compareSplit(t, p, choice, uint64(k)).Lines() {
					t.Log(line)
				}
			})
		}
	}
}

// randomChoice shards variables of split TaskGraphs along any dim, in any units, and data along any but the first.
func randomChoice(p *ir.Program, rng *rand.Rand, k int) shard.Choice {
	choice := shard.Choice{}
	for _, x := range p.Variables {
		if x.TaskGraph == nil || x.TaskGraph.Kind != ir.Split || !x.Trainable || x.Param.Shape.Rank() == 0 || rng.IntN(4) == 0 {
			continue
		}
		d := rng.IntN(x.Param.Shape.Rank())
		n := x.Param.Shape.Dimensions[d]
		var units []int
		for u := 1; n/u >= k; u++ {
			if n%u == 0 {
				units = append(units, u)
			}
		}
		if len(units) > 0 {
			choice[x.Param] = shard.Placement{Kind: shard.Sharded, Dim: d, Unit: units[rng.IntN(len(units))]}
		}
	}
	for _, v := range p.Inputs {
		if v.Shape.Rank() < 2 || rng.IntN(2) == 0 {
			continue
		}
		if d := 1 + rng.IntN(v.Shape.Rank()-1); v.Shape.Dimensions[d] >= k {
			choice[v] = shard.Placement{Kind: shard.Sharded, Dim: d, Unit: 1}
		}
	}
	return choice
}

func TestWhateverIsShardedTheResultsAreTheSame(t *testing.T) {
	for i, m := range splitModels() {
		for j, opt := range []optimizer.Interface{optimizer.StochasticGradientDescent(), epl.ClipByGlobalNorm(optimizer.Adam().Done(), 0.1)} {
			whole := recordedWith(t, m, opt)
			for seed := range uint64(4) {
				t.Run(fmt.Sprintf("%s/%d/%d", m.Name, j, seed), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed, uint64(i)))
					k := 2 + rng.IntN(3)
					p := split(t, whole, k)
					compareSplit(t, p, randomChoice(p, rng, k), seed)
				})
			}
		}
	}
}

// Stages before and after a split one have other devices.
func TestSplitStagesOfAPipelineGiveTheResultsOfOneDevice(t *testing.T) {
	mse := loss.MeanSquaredError
	for _, m := range []equiv.Model{
		{Name: "convolution and classifier", Build: trunkAndHead(11), Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: pixels(9, 11)},
		{Name: "mlp", Build: equiv.MLP(3, 13, false), Loss: mse, Batch: equiv.Regression(7, 8)},
		{Name: "skip", Build: equiv.Skip, Loss: mse, Batch: equiv.Regression(7, 8)},
		{Name: "gradients of its own", Build: equiv.CustomGradient, Loss: mse, Batch: equiv.Regression(7, 8)},
	} {
		for j, opt := range []optimizer.Interface{optimizer.StochasticGradientDescent(), epl.ClipByGlobalNorm(optimizer.Adam().Done(), 0.1)} {
			whole := recordedWith(t, m, opt)
			for seed := range uint64(6) {
				t.Run(fmt.Sprintf("%s/%d/%d", m.Name, j, seed), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed, 3))
					p := whole.Clone()
					var devices []int
					for _, tg := range p.TaskGraphs {
						tg.Devices, tg.Kind = 1+rng.IntN(4), ir.StrategyKind(rng.IntN(2))
						devices = append(devices, tg.Devices)
					}
					staged(t, p, devices...)
					choice := shard.Choice{}
					for _, tg := range p.TaskGraphs {
						some := randomChoice(p, rng, tg.Devices)
						for _, x := range p.Variables {
							if pl, ok := some[x.Param]; ok && x.TaskGraph == tg && tg.Devices > 1 {
								choice[x.Param] = pl
							}
						}
					}
					variables := len(choice)
					for _, op := range p.Main.Ops { // data of a stage, if another one reads it
						if v := op.Outputs[0]; !op.IsLeaf() && v.Shape.Rank() > 1 && v.Shape.Dimensions[1] > 3 && choice[v].Kind == 0 && rng.IntN(2) == 0 {
							choice[v] = by(1, 1)
						}
					}
					if r := compareSplit(t, p, choice, seed); len(r.Variables) != variables {
						t.Errorf("%d variables are sharded of %d: %q", len(r.Variables), variables, r.Lines())
					}
				})
			}
		}
	}
}

// A device has its part of what the optimizer keeps for a variable, too, and of the variable's gradient.
func TestWhatTheOptimizerKeepsIsShardedAsTheVariable(t *testing.T) {
	const k = 3
	m := equiv.Model{Build: columnsAndRows(13), Loss: loss.MeanSquaredError, Batch: equiv.Regression(7, 10)}
	for _, opt := range []optimizer.Interface{optimizer.Adam().Done(), optimizer.RMSProp().Done(), optimizer.Adam().WeightDecay(0.1).Done(),
		epl.ClipByGlobalNorm(optimizer.Adam().Done(), 0.1)} {
		p := split(t, recordedWith(t, m, opt), k)
		choice := shardAs(p, map[string]shard.Placement{"first/dense/weights": by(1, 1), "second/dense/weights": by(0, 1)})
		compareSplit(t, p, choice, 2)
		slots := 0
		for _, x := range p.Variables {
			if !x.Param.IsPlaced() {
				continue
			}
			if _, chosen := choice[x.Param]; !chosen {
				slots++
			}
			if x.Update.On(ir.Model) != x.Param.On(ir.Model) {
				t.Errorf("%s is %s, its new value %s", x.Path, x.Param.On(ir.Model), x.Update.On(ir.Model))
			}
		}
		if slots < len(choice) || slots%len(choice) != 0 {
			t.Errorf("%d variables of the optimizer are sharded", slots)
		}
	}
}

// An estimate is of what comes out.
func TestEstimatesAreOfWhatIsDone(t *testing.T) {
	for i, m := range splitModels() {
		whole := recordedWith(t, m, epl.ClipByGlobalNorm(optimizer.Adam().Done(), 0.1))
		for seed := range uint64(3) {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			k := 2 + rng.IntN(3)
			p := split(t, whole, k)
			choice := randomChoice(p, rng, k)
			before := p.String()
			estimated := shard.Estimated(p, choice)
			if p.String() != before {
				t.Fatalf("%s: the program was changed", m.Name)
			}
			if _, err := expanded(p, choice); err != nil {
				t.Fatal(err)
			}
			got, merges := map[ir.Collective]int{}, 0
			for _, op := range p.Main.Ops {
				if op.IsExchange() {
					_, how := op.Change()
					got[how]++
				}
				if op.IsMerge() && op.Inputs[0].On(ir.Model).Kind == ir.Partial {
					merges = 1
				}
			}
			got[ir.AllReduceOf] += merges
			for how := ir.AllReduceOf; how <= ir.AllToAllOf; how++ {
				if estimated[how] != got[how] {
					t.Errorf("%s: %d × %s estimated, there are %d", m.Name, estimated[how], how, got[how])
				}
			}
		}
	}
}
