// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/metric"

	"github.com/easyparallel/epl"
)

// poisoned puts a NaN into one batch.
func poisoned(batch func(int) (in, labels []*tensors.Tensor), at int) func(int) (in, labels []*tensors.Tensor) {
	return func(step int) (in, labels []*tensors.Tensor) {
		in, labels = batch(step)
		if step == at {
			in[0].MustMutableFlatData(func(flat any) { flat.([]float32)[0] = float32(math.NaN()) })
		}
		return in, labels
	}
}

// stepByStep trains without train.Loop, which would stop at the first NaN.
func (m Staged) stepByStep(t testing.TB, env *epl.Env, stages, steps int) *Run {
	t.Helper()
	run := &Run{Store: newStore()}
	trainer := train.NewTrainer(env.Backend(), run.Store, m.Build(stages), m.Loss, epl.Optimizer(sgd()), nil, nil)
	for batch, err := range env.Dataset(Dataset{m.Batch}).Iter() {
		if err != nil {
			t.Fatal(err)
		}
		metrics, err := trainer.TrainStep(batch)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		if run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0])); len(run.Losses) == steps {
			break
		}
	}
	return run
}

// batchNormed normalises over the micro-batch in every stage.
func batchNormed() Staged {
	m := stagedMLP()
	m.Build = StagedMLP(func(scope *model.Scope, x *Node) *Node {
		return norm.BatchNorm(scope, x, -1).UseBackendInference(false).Done()
	})
	return m
}

// GoMLX's own accumulation of gradients runs each batch by itself, and so normalises each by itself, too.
func TestBatchNormalisationInStagesIsThatOfEachInstance(t *testing.T) {
	m := batchNormed()
	for _, p := range fewPlans() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			store := newStore()
			trainer := train.NewTrainer(Plain(), store, m.Build(p.stages), m.Loss, sgd(), nil, nil)
			if err := trainer.AccumulateGradients(p.batches()); p.batches() > 1 && err != nil {
				t.Fatal(err)
			}
			for i := range 3 * p.batches() {
				if _, err := trainer.TrainStep(oneBatch(m.Batch, i)); err != nil {
					t.Fatal(err)
				}
			}
			got := m.piped(t, p.env(t, nil), p.stages, sgd(), 3)
			for v := range store.IterVariables() {
				if !v.Trainable {
					continue
				}
				if d, n := distance(numbers(v.MustValue()), numbers(got.Store.GetVariable(v.Path()).MustValue())); d > 1e-5*(n+1e-3) {
					t.Errorf("%s differs by %g at a norm of %g", v.Path(), d, n)
				}
			}
			// The running averages, which plain GoMLX moves with every batch, are those of data parallel training.
			mustBeClose(t, dataParallel(t, m, p, nil, sgd(), 3), got)
		})
	}
}

func TestRunningAveragesOfEveryStageAreTheMeanOverInstances(t *testing.T) {
	m := batchNormed()
	p := pipelinePlan{stages: 3, replicas: 1, micro: 2}
	got := m.piped(t, p.env(t, nil), p.stages, sgd(), 1)
	var each []*Run
	for i := range 2 {
		one := m
		one.Batch = func(int) (in, labels []*tensors.Tensor) { return m.Batch(i) }
		each = append(each, one.alone(t, p.stages, 1, sgd(), 1))
	}
	seen := map[string]bool{}
	for v := range got.Store.IterVariables() {
		if !strings.Contains(v.Path(), "batch_normalization") || v.Trainable {
			continue
		}
		seen[strings.Split(v.Path(), "/")[1]] = true
		a, b := numbers(each[0].Store.GetVariable(v.Path()).MustValue()), numbers(each[1].Store.GetVariable(v.Path()).MustValue())
		for i, x := range numbers(v.MustValue()) {
			if want := (a[i] + b[i]) / 2; math.Abs(x-want) > 1e-6 {
				t.Errorf("%s[%d] is %v, want %v", v.Path(), i, x, want)
			}
		}
	}
	if len(seen) != p.stages {
		t.Errorf("there are running averages of %v", seen)
	}
}

// valuesOfStages runs one training step that returns a value of every stage, merged as the collections say. Without an
// environment it runs on one batch of the plain backend.
func valuesOfStages(t *testing.T, env *epl.Env, stages int, batch train.Batch) [][]float64 {
	t.Helper()
	backend := Plain()
	if env != nil {
		backend = env.Backend()
	}
	exec := model.MustNewExec(backend, newStore(), func(scope *model.Scope, x, y *Node) []*Node {
		var out []*Node
		for i := range stages {
			stage(x, i, func() {
				x = hidden(scope, x, i, 12)
				// Backward reads both that are no scalars.
				sum, whole, mean, each := ReduceAllSum(x), x, ReduceAllMean(Square(x)), Cos(x)
				epl.AddToCollection(epl.GlobalSum, sum)
				epl.AddToCollection(epl.GlobalConcat, whole)
				epl.AddToCollection(epl.GlobalMean, mean)
				out = append(out, sum, whole, mean, each)
				x = Mul(x, each)
			})
		}
		loss := ReduceAllMean(Square(Sub(layers.Dense(scope.In("out"), x, true, 1), y)))
		epl.Optimizer(sgd()).UpdateGraph(scope, x.Graph(), loss)
		return append(out, loss)
	})
	results, err := exec.Call(batch.Inputs[0], batch.Labels[0])
	if err != nil {
		t.Fatalf("%+v", err)
	}
	var all [][]float64
	for _, r := range results {
		all = append(all, numbers(r))
	}
	return all
}

func TestValuesOfEveryStageAreMergedAsTheirCollectionsSay(t *testing.T) {
	for _, p := range fewPlans() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			env := p.env(t, nil)
			var got [][]float64
			for batch, err := range env.Dataset(Dataset{stagedMLP().Batch}).Iter() {
				if err != nil {
					t.Fatal(err)
				}
				got = valuesOfStages(t, env, p.stages, batch)
				break
			}
			want := make([][]float64, len(got))
			for b := range p.batches() {
				for i, one := range valuesOfStages(t, nil, p.stages, oneBatch(stagedMLP().Batch, b)) {
					switch {
					case i%4 == 1 && i < 4*p.stages: // concatenated
						want[i] = append(want[i], one...)
						continue
					case want[i] == nil:
						want[i] = make([]float64, len(one))
					}
					for j, x := range one {
						if i%4 != 0 || i == 4*p.stages { // means; the others are sums
							x /= float64(p.batches())
						}
						want[i][j] += x
					}
				}
			}
			for i := range want {
				if len(want[i]) != len(got[i]) {
					t.Fatalf("output %d has %d elements, want %d", i, len(got[i]), len(want[i]))
				}
				if d, n := distance(want[i], got[i]); d > 1e-5*(n+1e-3) {
					t.Errorf("output %d of stage %d differs by %g at a norm of %g", i%4, i/4, d, n)
				}
			}
		})
	}
}

// maskedStages has a loss in the last stage whose denominator depends on the data, and is computed in the first or the
// last.
func maskedStages(weighted, late bool) Staged {
	return Staged{"masked", func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x, mask := inputs[0], inputs[1]
			var count *Node
			for i := range stages {
				stage(x, i, func() {
					x = hidden(scope, x, i, 8)
					if i == 0 && !late || i == stages-1 && late {
						count = unrecognised(ReduceAllSum(mask))
					}
				})
			}
			if weighted {
				epl.AddToCollection(epl.InstanceWeight, count)
			}
			y := layers.Dense(scope.In("out"), x, true, 1)
			train.AddMainLoss(Div(ReduceAllSum(Mul(Square(AddScalar(y, 1)), mask)), count))
			return []*Node{y}
		}
	}, nil, maskedBatch}
}

func TestInstanceWeightMakesAMaskedLossOfAPipelineThatOfOneLargeBatch(t *testing.T) {
	for _, p := range fewPlans() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			want := maskedStages(false, false).alone(t, p.stages, p.batches(), sgd(), 5)
			for _, late := range []bool{false, true} {
				mustBeClose(t, want, maskedStages(true, late).piped(t, p.env(t, nil), p.stages, sgd(), 5))
			}
			if without := maskedStages(false, false).piped(t, p.env(t, nil), p.stages, sgd(), 5); CloseWeights(want, without, 1e-4) == nil {
				t.Error("the masks are too alike: without weights the result is the same")
			}
		})
	}
}

// A metric of the first stage, weighted by what the last one computes.
func TestMetricsOfAPipelineAreWeightedAsOfDataParallelTraining(t *testing.T) {
	m := maskedStages(true, true)
	plain := m.Build
	m.Build = func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			return append(plain(stages)(scope, inputs), ReduceAllMean(Square(inputs[0])))
		}
	}
	for _, p := range fewPlans() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			var values [2][]float64
			for k, env := range []*epl.Env{newCluster(t, p.replicas, p.micro, nil), p.env(t, nil)} {
				seen := metric.NewBaseMetric("seen", "seen", "seen", func(_ *model.Scope, _, predictions []*Node) *Node { return predictions[1] }, nil)
				trainer := train.NewTrainer(env.Backend(), newStore(), m.Build(p.stages), nil, epl.Optimizer(sgd()), []metric.Interface{seen}, nil)
				loop := train.NewLoop(trainer)
				loop.OnStep("metrics", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
					for _, x := range metrics {
						values[k] = append(values[k], numbers(x)...)
					}
					return nil
				})
				if _, err := loop.RunSteps(env.Dataset(Dataset{m.Batch}), 3); err != nil {
					t.Fatalf("%+v", err)
				}
			}
			if d, n := distance(values[0], values[1]); len(values[0]) != len(values[1]) || d > 1e-5*n {
				t.Errorf("%v and %v", values[0], values[1])
			}
		})
	}
}

func TestAnInstanceWeightThatOnlyTheCollectionReadsCounts(t *testing.T) {
	m := maskedStages(false, false)
	plain := m.Build
	m.Build = func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			epl.AddToCollection(epl.InstanceWeight, ReduceAllSum(MulScalar(inputs[1], 2)))
			return plain(stages)(scope, inputs)
		}
	}
	p := fewPlans()[0]
	want := maskedStages(false, false).alone(t, p.stages, p.batches(), sgd(), 5)
	mustBeClose(t, want, dataParallel(t, m, p, nil, sgd(), 5))
	mustBeClose(t, want, m.piped(t, p.env(t, nil), p.stages, sgd(), 5))
}

func TestMetricsOfAPipelineAreThoseOfOneDevice(t *testing.T) {
	m := stagedModel(t, "tied")
	for _, p := range fewPlans() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			var values [2][]float64
			for i, env := range []*epl.Env{nil, p.env(t, nil)} {
				backend, ds, opt := Plain(), train.Dataset(Dataset{Joined(m.Batch, p.batches())}), sgd()
				if env != nil {
					backend, ds, opt = env.Backend(), env.Dataset(Dataset{m.Batch}), epl.Optimizer(opt)
				}
				metrics := []metric.Interface{
					metric.NewSparseCategoricalAccuracy("accuracy", "acc"),
					metric.NewMovingAverageSparseCategoricalAccuracy("moving", "mov", 0.1),
					metric.NewMeanMetric("size", "size", "size", func(_ *model.Scope, _, predictions []*Node) *Node {
						return ReduceAllMean(Square(predictions[0]))
					}, nil),
				}
				trainer := train.NewTrainer(backend, newStore(), m.Build(p.stages), m.Loss, opt, metrics, nil)
				loop := train.NewLoop(trainer)
				loop.OnStep("metrics", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
					for _, x := range metrics {
						values[i] = append(values[i], numbers(x)...)
					}
					return nil
				})
				if _, err := loop.RunSteps(ds, 4); err != nil {
					t.Fatalf("%+v", err)
				}
			}
			if len(values[0]) != len(values[1]) || len(values[0]) < 4*4 {
				t.Fatalf("%d values and %d", len(values[0]), len(values[1]))
			}
			for i, want := range values[0] {
				if got := values[1][i]; math.Abs(got-want) > 1e-5*(1+math.Abs(want)) {
					t.Errorf("value %d is %v, not %v", i, got, want)
				}
			}
		})
	}
}

// dropped returns the dropout masks of all instances of one step, by stage, from the first that drops.
func dropped(t *testing.T, env *epl.Env, stages, first, instances int) [][][]float64 {
	t.Helper()
	exec := model.MustNewExec(env.Backend(), newStore(), func(scope *model.Scope, x *Node) []*Node {
		scope.Store().SetTraining(x.Graph(), true)
		var out []*Node
		for i := range stages {
			stage(x, i, func() {
				if x = hidden(scope, x, i, 12); i < first {
					return
				}
				mask := layers.DropoutStatic(scope.In("dropout_%d", i), OnesLike(x), 0.5)
				epl.AddToCollection(epl.GlobalConcat, mask)
				out = append(out, mask)
				x = Mul(x, mask)
			})
		}
		epl.Optimizer(sgd()).UpdateGraph(scope, x.Graph(), ReduceAllMean(Square(x)))
		return out
	})
	var masks [][][]float64
	for batch, err := range env.Dataset(Dataset{Regression(4, 8)}).Iter() {
		if err != nil {
			t.Fatal(err)
		}
		results, err := exec.Call(batch.Inputs[0])
		if err != nil {
			t.Fatalf("%+v", err)
		}
		for _, r := range results {
			all := numbers(r)
			n := len(all) / instances
			var of [][]float64
			for i := range instances {
				of = append(of, all[i*n:(i+1)*n])
			}
			masks = append(masks, of)
		}
		break
	}
	return masks
}

func TestDropoutMasksDifferBetweenStagesInstancesAndRepeatBetweenRuns(t *testing.T) {
	for _, p := range fewPlans() {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			for from := range 2 {
				first, second := dropped(t, p.env(t, nil), p.stages, from, p.batches()), dropped(t, p.env(t, nil), p.stages, from, p.batches())
				one := dropped(t, newCluster(t, 1, 1, nil), p.stages, from, 1)
				seen := map[string]string{}
				for s := range first {
					for i, mask := range first[s] {
						what := fmt.Sprintf("instance %d of stage %d", i, from+s)
						if d, _ := distance(mask, second[s][i]); d != 0 {
							t.Errorf("%s has other bits in a second run", what)
						}
						if other := seen[fmt.Sprint(mask)]; other != "" {
							t.Errorf("%s has the mask of %s", what, other)
						}
						seen[fmt.Sprint(mask)] = what
					}
					if d, _ := distance(one[s][0], first[s][0]); d != 0 {
						t.Errorf("the first instance of stage %d has other bits than on one device", from+s)
					}
				}
			}
		})
	}
}

// The same run twice gives the same bits, whatever devices wait for each other; with one instance they are those of one
// device; and with several they are those of data parallel training, but for rounding.
func TestTrainingWithDropoutInStagesIsReproducible(t *testing.T) {
	m := Staged{"dropout", TiedTransformer(0.3), loss.SparseCategoricalCrossEntropyLogits, Tokens(2, 6, 16)}
	for _, p := range append(fewPlans(), pipelinePlan{stages: 3, replicas: 1, micro: 1, strategy: "PreferBackward"}) {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			run := func() *Run { return m.piped(t, p.env(t, nil, epl.WithPasses("none")), p.stages, sgd(), 5) }
			first := run()
			if err := SameBits(first, run()); err != nil {
				t.Error("a second run:", err)
			}
			if p.batches() == 1 {
				if err := SameBits(m.alone(t, p.stages, 1, sgd(), 5), first); err != nil {
					t.Error("one device:", err)
				}
				return
			}
			mustBeClose(t, dataParallel(t, m, p, nil, sgd(), 5), first)
		})
	}
}

// oneBatch is one batch of a function of steps.
func oneBatch(batch func(int) (in, labels []*tensors.Tensor), step int) train.Batch {
	in, labels := batch(step)
	return train.Batch{Inputs: in, Labels: labels}
}
