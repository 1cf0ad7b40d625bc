// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
)

// opModels put a function where half precision meets it in different ways: it reads what is rounded; it reads float32, and a dot
// reads a rounded copy of its result; it reads float32, and so does who reads its result.
func opModels(of func(x *Node) *Node) map[string]func(scope *model.Scope, x *Node) *Node {
	before := func(scope *model.Scope, x *Node) *Node { return layers.Dense(scope.In("before"), x, true, 24) }
	after := func(scope *model.Scope, x *Node) *Node {
		return layers.Dense(scope.In("after"), Reshape(x, 16, -1), true, 1)
	}
	normed := func(scope *model.Scope, x *Node) *Node { return norm.LayerNorm(scope, before(scope, x), -1).Done() }
	return map[string]func(scope *model.Scope, x *Node) *Node{
		"between dots": func(scope *model.Scope, x *Node) *Node { return after(scope, of(before(scope, x))) },
		"after a norm": func(scope *model.Scope, x *Node) *Node { return after(scope, of(normed(scope, x))) },
		"before a loss": func(scope *model.Scope, x *Node) *Node {
			y := of(normed(scope, x))
			return ReduceAndKeep(Reshape(Div(y, OnePlus(Abs(y))), 16, -1), ReduceMean, -1)
		},
	}
}

// noted are the gradient functions that GoMLX calls, by the graph of a test that wants to know.
var noted sync.Map

func init() { // before there are graphs
	for op, vjp := range VJPRegistration {
		VJPRegistration[op] = func(n *Node, v []*Node, s shapes.Shape) []*Node {
			if seen, ok := noted.Load(n.Graph()); ok {
				seen.(*sync.Map).Store(op, true)
			}
			return vjp(n, v, s)
		}
	}
}

// oneStep are the weights after one step of SGD.
func oneStep(t *testing.T, m Model, rate float64, params map[string]any) map[string][]float64 {
	t.Helper()
	env := newCluster(t, 1, 1, params)
	opt := optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(rate).Done()
	run, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(opt), 1)
	if errors.Is(err, compute.ErrNotImplemented) {
		t.Skip("the pure-Go backend lacks it")
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	all := map[string][]float64{}
	for v := range run.Store.IterVariables() {
		if v.Trainable {
			all[v.Path()] = numbers(v.MustValue())
		}
	}
	return all
}

// Half precision must not change which elements a gradient goes to. An op that GoMLX learns to differentiate needs a case.
func TestMixedPrecisionOfEveryOpWithAGradientUpdatesWeightsLikeFloat32(t *testing.T) {
	tolerances := map[string]float64{"bfloat16": 4e-2, "float16": 5e-3}
	var ops []NodeType
	for op := range VJPRegistration {
		if !slices.Contains(inEveryModel, op) {
			ops = append(ops, op)
		}
	}
	slices.Sort(ops)
	for _, op := range ops {
		if len(differentiable[op]) == 0 {
			t.Errorf("GoMLX differentiates %s, and it has no case here", op)
		}
		for _, c := range differentiable[op] {
			for where, build := range opModels(c.of) {
				t.Run(fmt.Sprintf("%s %s/%s", op, c.name, where), func(t *testing.T) {
					t.Parallel()
					var seen sync.Map
					m := Model{"op", func(scope *model.Scope, x *Node) *Node {
						noted.Store(x.Graph(), &seen)
						t.Cleanup(func() { noted.Delete(x.Graph()) })
						y := build(scope, x)
						for _, n := range x.Graph().Nodes() {
							if n.Type() == op && n.StopGradient() { // GoMLX has a gradient of it, and never uses it
								seen.Store(op, true)
							}
						}
						return y
					}, loss.MeanSquaredError, func(int) (in, labels []*tensors.Tensor) { return Regression(16, 8)(2) }}
					start, want := oneStep(t, m, 1e-30, nil), oneStep(t, m, 1, nil)
					if _, ok := seen.Load(op); !ok {
						t.Fatalf("the model has no gradient of %s", op)
					}
					var largest float64
					for path := range want {
						update, _ := distance(start[path], want[path])
						largest = max(largest, update)
					}
					for _, h := range halves {
						got := oneStep(t, m, 1, inHalf(h.name, nil))
						for path := range want {
							update, _ := distance(start[path], want[path])
							if diff, _ := distance(want[path], got[path]); !(diff <= tolerances[h.name]*(update+largest/10)) {
								t.Errorf("in %s the update of %s differs by %.2g, %.2g of its norm", h.name, path, diff, diff/update)
							}
						}
					}
				})
			}
		}
	}
}
