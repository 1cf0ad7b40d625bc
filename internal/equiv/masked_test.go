// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"bytes"
	"fmt"
	"log"
	"math"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/regularizer"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/metric"

	"github.com/easyparallel/epl"
)

// extras are what GoMLX's losses take besides labels.
type extras struct{ mask, weights bool }

func (e extras) String() string { return fmt.Sprintf("mask=%v,weights=%v", e.mask, e.weights) }

// maskedLoss is one of GoMLX's losses, with labels and extras of the shapes that it wants.
type maskedLoss struct {
	name    string
	loss    train.LossFn
	outputs int                                    // of the model, for each of 6 samples
	labels  func(r func() float32) *tensors.Tensor // of a batch
	dims    []int                                  // of mask and weights
	last    func(x *Node) *Node                    // of the model
}

const maskedRows = 6

// GoMLX has no gradient of CategoricalCrossEntropy, which clamps; triplets are made of the samples of a batch, and their losses, with
// several batches, are others than those of one.
func maskedLosses() []maskedLoss {
	floats := func(transform func(float32) float32, dims ...int) func(r func() float32) *tensors.Tensor {
		return func(r func() float32) *tensors.Tensor {
			n := 1
			for _, d := range dims {
				n *= d
			}
			flat := make([]float32, n)
			for i := range flat {
				flat[i] = transform(r())
			}
			return tensors.FromFlatDataAndDimensions(flat, dims...)
		}
	}
	same := func(x float32) float32 { return x }
	positive := func(x float32) float32 {
		if x > 0 {
			return 1
		}
		return 0
	}
	classes := func(r func() float32) *tensors.Tensor {
		flat := make([]int32, maskedRows)
		for i := range flat {
			flat[i] = int32(math.Abs(float64(r()))*100) % 3
		}
		return tensors.FromFlatDataAndDimensions(flat, maskedRows, 1)
	}
	oneHot := func(r func() float32) *tensors.Tensor {
		flat := make([]float32, maskedRows*3)
		for i := range maskedRows {
			flat[i*3+int(math.Abs(float64(r()))*100)%3] = 1
		}
		return tensors.FromFlatDataAndDimensions(flat, maskedRows, 3)
	}
	whole := func(x *Node) *Node { return x }
	flat := func(x *Node) *Node { return Reshape(x, -1) }
	rows := []int{maskedRows}
	return []maskedLoss{
		{"MeanSquaredError", loss.MeanSquaredError, 1, floats(same, maskedRows), rows, flat},
		{"MeanAbsoluteError", loss.MeanAbsoluteError, 2, floats(same, maskedRows, 2), []int{maskedRows, 2}, whole},
		{"BinaryCrossentropy", loss.BinaryCrossentropy, 1, floats(positive, maskedRows), rows, func(x *Node) *Node { return Sigmoid(flat(x)) }},
		{"BinaryCrossentropyLogits", loss.BinaryCrossentropyLogits, 1, floats(positive, maskedRows), rows, flat},
		{"SparseCategoricalCrossEntropyLogits", loss.SparseCategoricalCrossEntropyLogits, 3, classes, rows, whole},
		{"CategoricalCrossEntropyLogits", loss.CategoricalCrossEntropyLogits, 3, oneHot, rows, whole},
		{"Huber", loss.MakeHuberLoss(0.5), 1, floats(same, maskedRows), rows, flat},
		{"AdaptivePower", loss.MakeAdaptivePowerLoss(2, 1, 1, 1), 1, floats(same, maskedRows), rows, flat},
	}
}

// batch has masks that select from none to all of the samples, by step.
func (m maskedLoss) batch(e extras) func(step int) (in, labels []*tensors.Tensor) {
	return func(step int) (in, labels []*tensors.Tensor) {
		in, _ = Regression(maskedRows, 4)(step)
		k := 7 * step
		r := func() float32 { k++; return float32(math.Sin(float64(k) * 1.7)) }
		labels = []*tensors.Tensor{m.labels(r)}
		n := 1
		for _, d := range m.dims {
			n *= d
		}
		if e.mask {
			mask := make([]bool, n)
			for i := range mask {
				mask[i] = step%4 != 3 && i%(1+step%4) == 0 // every fourth has none
			}
			labels = append(labels, tensors.FromFlatDataAndDimensions(mask, m.dims...))
		}
		if e.weights {
			weights := make([]float32, n)
			for i := range weights {
				weights[i] = 0.5 + float32((i+step)%3)
			}
			labels = append(labels, tensors.FromFlatDataAndDimensions(weights, m.dims...))
		}
		return in, labels
	}
}

func (m maskedLoss) model(e extras) Model {
	return Model{m.name, func(scope *model.Scope, x *Node) *Node {
		return m.last(layers.Dense(scope.In("out"), Tanh(layers.Dense(scope.In("hidden"), x, true, 5)), true, m.outputs))
	}, m.loss, m.batch(e)}
}

func TestLossesOfGoMLXWithMasksAndWeightsTrainAsOnOneLargeBatch(t *testing.T) {
	for _, m := range maskedLosses() {
		for _, e := range []extras{{mask: true}, {weights: true}, {true, true}} {
			t.Run(m.name+"/"+e.String(), func(t *testing.T) {
				t.Parallel()
				for _, c := range [][2]int{{3, 1}, {1, 4}, {2, 3}} {
					one := m.model(e)
					single := one
					single.Batch = Joined(one.Batch, c[0]*c[1])
					want := train1(t, single, sgd(), 4, nil)
					got := trainParallel(t, newCluster(t, c[0], c[1], nil), one, sgd(), 4)
					if err := CloseWeights(want, got, 1e-5); err != nil {
						t.Errorf("%d devices, %d micro-batches: %v", c[0], c[1], err)
					}
					if err := CloseLosses(want, got, 1e-5); err != nil {
						t.Errorf("%d devices, %d micro-batches: %v", c[0], c[1], err)
					}
				}
			})
		}
	}
}

// ownLosses are losses over what a mask of [rows, tokens] selects, written by a user: of squares [rows, tokens] and the mask.
var ownLosses = map[string]func(x, mask *Node) *Node{
	"ratio": func(x, mask *Node) *Node { return Div(ReduceAllSum(Mul(x, mask)), ReduceAllSum(mask)) },
	"at least one": func(x, mask *Node) *Node {
		return Div(ReduceAllSum(Mul(x, mask)), MaxScalar(ReduceAllSum(mask), 1))
	},
	"epsilon": func(x, mask *Node) *Node {
		return Div(ReduceAllSum(Mul(x, mask)), AddScalar(ReduceAllSum(mask), 1e-6))
	},
	"one instead of zero": func(x, mask *Node) *Node {
		n := ReduceAllSum(mask)
		return Div(ReduceAllSum(Mul(x, mask)), Where(Equal(n, ZerosLike(n)), OnesLike(n), n))
	},
	"normalised weights": func(x, mask *Node) *Node { return ReduceAllSum(Mul(x, Div(mask, ReduceAllSum(mask)))) },
	"reciprocal":         func(x, mask *Node) *Node { return Mul(ReduceAllSum(Mul(x, mask)), Reciprocal(ReduceAllSum(mask))) },
	"ratio of means":     func(x, mask *Node) *Node { return Div(ReduceAllMean(Mul(x, mask)), ReduceAllMean(mask)) },
	"integers": func(x, mask *Node) *Node {
		count := ReduceAllSum(ConvertDType(GreaterThan(mask, ScalarZero(mask.Graph(), mask.DType())), dtypes.Int32))
		return Neg(Div(ReduceAllSum(Mul(x, Neg(mask))), ConvertDType(count, x.DType())))
	},
	"sum of sums": func(x, mask *Node) *Node {
		return MulScalar(Div(ReduceAllSum(ReduceSum(Mul(x, mask), -1)), ReduceAllSum(ReduceSum(mask, -1))), 0.5)
	},
	"kept dims": func(x, mask *Node) *Node {
		return ReduceAllSum(Div(ReduceAndKeep(Mul(x, mask), ReduceSum, 0, 1), ReduceAndKeep(mask, ReduceSum, 0, 1)))
	},
	"few, at least one": func(x, mask *Node) *Node { // less than 1 in all, mostly
		mask = MulScalar(mask, 0.05)
		return Div(ReduceAllSum(Mul(x, mask)), MaxScalar(ReduceAllSum(mask), 1))
	},
	"two terms": func(x, mask *Node) *Node {
		n := MaxScalar(ReduceAllSum(mask), 1)
		return Add(Div(ReduceAllSum(Mul(x, mask)), n), MulScalar(Div(ReduceAllSum(Mul(Sqrt(OnePlus(x)), mask)), n), 0.1))
	},
	"mean of rows": func(x, mask *Node) *Node { // each row has its own divisor: all rows count alike
		return ReduceAllMean(Div(ReduceSum(Mul(x, mask), -1), MaxScalar(ReduceSum(mask, -1), 1)))
	},
	"without": func(x, mask *Node) *Node { return ReduceAllMean(Mul(x, mask)) },
}

// ownBatch has a mask that selects nothing in every fourth batch.
func ownBatch(rows int) func(step int) (in, labels []*tensors.Tensor) {
	return func(step int) (in, labels []*tensors.Tensor) {
		in, _ = Regression(rows, 4)(step)
		mask := make([]float32, rows*5)
		for i := range mask {
			if step%4 != 2 && i%5 <= (step+i/5)%5 {
				mask[i] = 1
			}
		}
		return append(in[:1:1], tensors.FromFlatDataAndDimensions(mask, rows, 5)), nil
	}
}

func ownModel(name string, rows int, more func(scope *model.Scope, x, mask *Node)) Staged {
	return Staged{name, func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x, mask := inputs[0], inputs[1]
			for i := range stages {
				stage(x, i, func() { x = hidden(scope, x, i, 8) })
			}
			y := layers.Dense(scope.In("out"), x, true, 5)
			train.AddMainLoss(ownLosses[name](Square(AddScalar(y, 1)), mask))
			if more != nil {
				more(scope, y, mask)
			}
			return []*Node{y}
		}
	}, nil, ownBatch(rows)}
}

func TestRatiosOverMasksTrainAsOnOneLargeBatch(t *testing.T) {
	for name := range ownLosses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, rows := range []int{1, 3} {
				m := ownModel(name, rows, nil)
				for _, p := range []pipelinePlan{{stages: 1, replicas: 4, micro: 1}, {stages: 1, replicas: 2, micro: 3}} {
					mustBeClose(t, m.alone(t, 1, p.batches(), sgd(), 3), dataParallel(t, m, p, nil, sgd(), 3))
				}
			}
			m := ownModel(name, 3, nil)
			p := pipelinePlan{stages: 2, replicas: 2, micro: 2, strategy: "PreferBackward"}
			mustBeClose(t, m.alone(t, 2, p.batches(), sgd(), 3), m.piped(t, p.env(t, nil), 2, sgd(), 3))
		})
	}
}

// A masked loss under everything that changes how gradients are merged.
func TestAMaskedLossTrainsAsOnOneLargeBatchUnderEverySetting(t *testing.T) {
	for _, name := range []string{"ratio", "at least one"} {
		m := ownModel(name, 3, nil)
		p := pipelinePlan{stages: 1, replicas: 3, micro: 2}
		want := m.alone(t, 1, p.batches(), sgd(), 3)
		for _, params := range []map[string]any{
			{"zero.level": "v0"}, {"zero.level": "v1"}, {"zero.level": "v2"}, {"optimizer.num_apply_group": 2},
			{"communication.clip_after_allreduce": true}, {"gradient_checkpoint.type": "auto"}, {"offload.level": "v0"},
		} {
			t.Run(fmt.Sprint(name, params), func(t *testing.T) {
				env := newCluster(t, p.replicas, p.micro, params)
				mustBeClose(t, want, m.piped(t, env, 1, sgd(), 3))
				if level := params["zero.level"]; (level == "v1" || level == "v2") && env.Stats().Devices[0].Sent["reduce-scatter"] == 0 {
					t.Error("no gradient was scattered")
				}
			})
		}
	}
}

// A term that does not depend on the data stays what it is, whatever the weights.
func TestRegularisationBesideAMaskedLossKeepsItsSize(t *testing.T) {
	m := ownModel("at least one", 3, func(scope *model.Scope, y, _ *Node) {
		for v := range scope.IterVariables() {
			if v.Trainable {
				regularizer.L2(0.3)(y.Graph(), v)
			}
		}
	})
	p := pipelinePlan{stages: 1, replicas: 2, micro: 2}
	mustBeClose(t, m.alone(t, 1, p.batches(), sgd(), 3), dataParallel(t, m, p, nil, sgd(), 3))
}

// Each result is weighted by what it is divided by itself, if anything.
func TestMetricsHaveTheWeightsOfTheirOwnMasks(t *testing.T) {
	metrics := []metric.Interface{
		metric.NewBaseMetric("masked", "masked", "m", func(_ *model.Scope, _, p []*Node) *Node { return ownLosses["ratio"](p[0], p[1]) }, nil),
		metric.NewBaseMetric("others", "others", "m", func(_ *model.Scope, _, p []*Node) *Node {
			return ownLosses["at least one"](p[0], OneMinus(p[1]))
		}, nil),
		metric.NewBaseMetric("plain", "plain", "m", func(_ *model.Scope, _, p []*Node) *Node { return ReduceAllMean(p[0]) }, nil),
	}
	m := ownModel("at least one", 3, nil)
	build := m.Build(1)
	values := func(env *epl.Env, k int) (all []float64) {
		backend, ds, opt := Plain(), train.Dataset(Dataset{Joined(m.Batch, k)}), sgd()
		if env != nil {
			backend, ds, opt = env.Backend(), env.Dataset(Dataset{m.Batch}), epl.Optimizer(opt)
		}
		trainer := train.NewTrainer(backend, newStore(), func(scope *model.Scope, inputs []*Node) []*Node {
			return append(build(scope, inputs), inputs[1])
		}, nil, opt, metrics, nil)
		loop := train.NewLoop(trainer)
		loop.OnStep("metrics", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
			for _, x := range metrics {
				all = append(all, numbers(x)...)
			}
			return nil
		})
		if _, err := loop.RunSteps(ds, 3); err != nil {
			t.Fatalf("%+v", err)
		}
		return all
	}
	want, got := values(nil, 4), values(newCluster(t, 2, 2, nil), 4)
	if d, n := distance(want, got); len(want) != len(got) || !(d <= 1e-5*n) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestExplainSaysByWhatInstancesAreWeighted(t *testing.T) {
	env := newCluster(t, 2, 2, nil)
	ownModel("at least one", 3, nil).piped(t, env, 1, sgd(), 1)
	var text bytes.Buffer
	if err := env.Explain(&text); err != nil {
		t.Fatal(err)
	}
	if s := strings.Join(strings.Fields(text.String()), " "); !strings.Contains(s, "the loss is divided by Max") || !strings.Contains(s, "as by an InstanceWeight") {
		t.Errorf("Explain does not say it:\n%s", text.String())
	}
}

// warned are the lines about InstanceWeight that a run logs.
func warned(t *testing.T, run func()) (lines []string) {
	t.Helper()
	var text bytes.Buffer
	before := log.Writer()
	log.SetOutput(&text)
	defer log.SetOutput(before)
	run()
	for line := range strings.SplitSeq(text.String(), "\n") {
		if strings.Contains(line, "InstanceWeight") {
			lines = append(lines, line)
		}
	}
	return lines
}

// What a user must know is said once, however many programs a trainer makes of one model.
func TestALossThatCannotBeTakenApartIsWarnedOfOnce(t *testing.T) {
	notTaken := map[string]func(x, mask *Node) *Node{
		"root of a mean": func(x, mask *Node) *Node { return Sqrt(ownLosses["at least one"](x, mask)) },
		"another divisor": func(x, mask *Node) *Node {
			return Add(ownLosses["at least one"](x, mask), ownLosses["at least one"](x, OneMinus(mask)))
		},
		"another mean": func(x, mask *Node) *Node { return Add(ownLosses["at least one"](x, mask), ReduceAllMean(x)) },
		"no sum": func(x, mask *Node) *Node {
			return Div(ReduceAllSum(Mul(x, mask)), unrecognised(AddScalar(ReduceAllSum(mask), 1)))
		},
	}
	taken := map[string]func(x, mask *Node) *Node{
		"mean of rows": ownLosses["mean of rows"],
		"ratio":        ownLosses["at least one"],
		"data over data": func(x, mask *Node) *Node {
			return ReduceAllMean(Mul(x, Sqrt(Div(mask, AddScalar(ReduceAllSum(mask), 1)))))
		},
		"rest of the model": func(x, mask *Node) *Node { return ReduceAllMean(Square(Div(x, ReduceAllSum(Square(x))))) },
	}
	run := func(loss func(x, mask *Node) *Node, weighted bool, params map[string]any) []string {
		ownLosses := func(rows int) Staged {
			return Staged{"own", func(int) func(scope *model.Scope, inputs []*Node) []*Node {
				return func(scope *model.Scope, inputs []*Node) []*Node {
					y := layers.Dense(scope.In("out"), inputs[0], true, 5)
					train.AddMainLoss(loss(Square(AddScalar(y, 1)), inputs[1]))
					if weighted {
						epl.AddToCollection(epl.InstanceWeight, ReduceAllSum(inputs[1]))
					}
					return []*Node{y}
				}
			}, nil, ownBatch(rows)}
		}
		env := newCluster(t, 2, 1, params)
		return warned(t, func() {
			for _, rows := range []int{2, 3} {
				ownLosses(rows).piped(t, env, 1, sgd(), 1)
			}
		})
	}
	for name, loss := range notTaken {
		if lines := run(loss, false, nil); len(lines) != 1 || !strings.Contains(lines[0], "masked_test.go:") && !strings.Contains(lines[0], "local_test.go:") {
			t.Errorf("%s: %q", name, lines)
		}
		if lines := run(loss, true, nil); len(lines) != 0 {
			t.Errorf("%s, with a weight: %q", name, lines)
		}
		if lines := run(loss, false, map[string]any{"communication.gradients_reduce_method": "sum"}); len(lines) != 0 {
			t.Errorf("%s, summed: %q", name, lines)
		}
	}
	for name, loss := range taken {
		if lines := run(loss, false, nil); len(lines) != 0 {
			t.Errorf("%s: %q", name, lines)
		}
	}
}
