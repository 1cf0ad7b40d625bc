// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
)

// withNothing adds an input without elements.
func withNothing(step int) (inputs, labels []*tensors.Tensor) {
	inputs, labels = Regression(4, 8)(step)
	return append(inputs, tensors.FromShape(shapes.Make(dtypes.Float32, 4, 0))), labels
}

// emptyPart is a layer with values that have no elements, a variable, an input and what is computed from them, unless it is to
// be without. They change nothing. nothing goes on to the next part.
func emptyPart(scope *model.Scope, x, nothing *Node, without bool) (y, next *Node) {
	if !without {
		w := scope.VariableWithShape("nothing", shapes.Make(dtypes.Float32, 0, 8)).NodeValue(x.Graph())
		x = Add(x, MatMul(nothing, w)) // zeros
		x = Add(x, InsertAxes(ReduceSum(w, 0), 0))
		x = Add(x, InsertAxes(ReduceAllSum(Where(GreaterThan(w, ScalarZero(x.Graph(), w.DType())), w, Neg(w))), 0, 0))
		x = Concatenate([]*Node{x, nothing}, 1)
	}
	x = Tanh(layers.Dense(scope, x, true, 8))
	return x, Add(Slice(x, AxisRange(), AxisRange(0, 0)), nothing)
}

func emptyStages(without bool) Staged {
	return Staged{"empty", func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x, nothing := inputs[0], inputs[1]
			for i := range stages {
				stage(x, i, func() { x, nothing = emptyPart(scope.In("part_%d", i), x, nothing, without) })
			}
			epl.AddToCollection(epl.GlobalConcat, nothing)
			return []*Node{layers.Dense(scope.In("out"), x, true, 1), nothing}
		}
	}, loss.MeanSquaredError, withNothing}
}

func emptyParts(without bool) Parted {
	return Parted{Name: "empty", Least: 1, Most: 3, Loss: loss.MeanSquaredError, Batch: withNothing,
		Build: func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
			return func(scope *model.Scope, inputs []*Node) []*Node {
				x, nothing := inputs[0], inputs[1]
				for i := range s {
					epl.With(x, s[i], func() { x, nothing = emptyPart(scope.In("part_%d", i), x, nothing, without) })
				}
				return []*Node{layers.Dense(scope.In("out"), x, true, 1)}
			}
		}}
}

// emptyModel has one input.
func emptyModel(without bool) Model {
	return Model{"empty", func(scope *model.Scope, x *Node) *Node {
		x, _ = emptyPart(scope, x, Slice(x, AxisRange(), AxisRange(0, 0)), without)
		return layers.Dense(scope.In("out"), x, true, 1)
	}, loss.MeanSquaredError, Regression(4, 8)}
}

func TestTensorsWithoutElementsChangeNothing(t *testing.T) {
	plans := func(without bool) []workload {
		s, p := emptyStages(without), emptyParts(without)
		return []workload{
			replicated(s, 1, 1), replicated(s, 3, 2),
			inStages(s, pipelinePlan{stages: 2, replicas: 1, micro: 2}),
			inStages(s, pipelinePlan{stages: 2, replicas: 2, micro: 3, strategy: "ZeroBubble"}),
			inParts(p, splitPlan{parts: []int{2}, replicas: 1, micro: 1}),
			inParts(p, splitPlan{parts: []int{2, -2}, replicas: 2, micro: 2}),
		}
	}
	without := plans(true)
	for i, w := range plans(false) {
		for _, params := range []map[string]any{nil, {"zero.level": "v1"}, {"zero.level": "v2", "communication.max_splits": 1}, {"offload.level": "v0"},
			{"gradient_checkpoint.type": "auto", "optimizer.num_apply_group": 3}, {"amp.level": "O1", "communication.fp16": true}} {
			t.Run(fmt.Sprint(w.name, params), func(t *testing.T) {
				t.Parallel()
				want := without[i].run(t, params, adam(), 2)
				got := w.run(t, params, adam(), 2)
				if !closeLosses(want, got) {
					t.Errorf("the losses are %v, without such tensors %v", got.Losses, want.Losses)
				}
			})
		}
	}
}

func closeLosses(a, b *Run) bool {
	return slices.EqualFunc(a.Losses, b.Losses, func(x, y float32) bool { return math.Abs(float64(x-y)) < 1e-4 })
}

func init() {
	parts["without elements"] = func(w *part) error {
		for _, params := range []map[string]any{nil, {"zero.level": "v2"}} {
			var runs [2]*Run
			for i := range runs {
				env, err := w.init(params)
				if err != nil {
					return err
				}
				m := emptyModel(i == 0)
				runs[i], err = TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 2)
				if closeErr := env.Close(); err != nil || closeErr != nil {
					return cmp.Or(err, closeErr)
				}
			}
			if !closeLosses(runs[0], runs[1]) {
				return fmt.Errorf("the losses are %v, without such tensors %v", runs[1].Losses, runs[0].Losses)
			}
			fmt.Println("losses", runs[1].Losses)
		}
		return nil
	}
}

func TestTensorsWithoutElementsBetweenWorkers(t *testing.T) {
	workers{num: 2, devices: 1}.agree(t, "without elements")
}

func TestOpsWithoutElementsRunOnEPL(t *testing.T) {
	env := newCluster(t, 1, 1, nil)
	for name, op := range map[string]func(x, wide, tall *Node) *Node{ // [4,8], [4,0], [0,8]
		"float32[4,8] a dot over none": func(_, wide, tall *Node) *Node { return MatMul(wide, tall) },
		"float32[0,4] a dot":           func(x, _, tall *Node) *Node { return MatMul(tall, Transpose(x, 0, 1)) },
		"float32[8] a sum over none":   func(_, _, tall *Node) *Node { return ReduceSum(tall, 0) },
		"float32[4,0] where":           func(_, wide, _ *Node) *Node { return Where(GreaterThan(wide, wide), wide, wide) },
		"bool[4,0] a comparison":       func(_, wide, _ *Node) *Node { return GreaterThan(wide, wide) },
		"float32[4,8] a scatter": func(x, _, tall *Node) *Node {
			return ScatterSum(x, ConvertDType(Reshape(Slice(tall, AxisRange(), AxisRange(0, 1)), 0, 1), dtypes.Int32), tall, false, false)
		},
		"float32[1,8] a pad": func(_, _, tall *Node) *Node {
			return Pad(tall, ScalarZero(tall.Graph(), dtypes.Float32), compute.PadAxis{Start: 1}, compute.PadAxis{})
		},
		"float32[0,8] a gradient": func(_, wide, tall *Node) *Node { return Gradient(ReduceAllSum(MatMul(wide, tall)), tall)[0] },
	} {
		outs, err := MustNewExec(env.Backend(), op).Call(tensors.FromShape(shapes.Make(dtypes.Float32, 4, 8)),
			tensors.FromShape(shapes.Make(dtypes.Float32, 4, 0)), tensors.FromShape(shapes.Make(dtypes.Float32, 0, 8)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		outs[0].MustConstFlatData(func(flat any) {
			if x, ok := flat.([]float32); ok && slices.ContainsFunc(x, func(x float32) bool { return x != 0 }) {
				t.Errorf("%s gives %v", name, x)
			}
		})
		if want, _, _ := strings.Cut(name, " "); strings.ToLower(strings.NewReplacer("(", "", ")", "", " ", "").Replace(outs[0].Shape().String())) != want {
			t.Errorf("%s: its shape is %s", name, outs[0].Shape())
		}
	}
}
