// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/shard"
)

// tower has one layer after the other, on the devices of a split.
func tower(depth int, layer func(scope *model.Scope, x *Node) *Node) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Split(2, "tower"), func() {
			for i := range depth {
				x = layer(scope.In("layer_%d", i), x)
			}
			x = layers.Dense(scope.In("head"), x, true, 1)
		})
		return x
	}
}

// stack has an embedding, layers, and a head with the same table.
func stack(depth int, layer func(i int, scope *model.Scope, x *Node) *Node) func(scope *model.Scope, ids *Node) *Node {
	return func(scope *model.Scope, ids *Node) *Node {
		var x *Node
		epl.With(ids, epl.Split(2, "stack"), func() {
			table := scope.In("embedding").VariableWithShape("table", f32(16, 12)).NodeValue(ids.Graph())
			x = Gather(table, InsertAxes(ids, -1))
			for i := range depth {
				x = layer(i, scope.In("layer_%d", i), x)
			}
			x = Einsum("bsd,vd->bsv", x, table)
		})
		return x
	}
}

// block is a layer of a transformer; without heads, its second half.
func block(scope *model.Scope, x *Node, heads, hidden int, causal bool) *Node {
	if heads > 0 {
		h := norm.LayerNorm(scope.In("ln1"), x, -1).Done()
		x = Add(x, attention.SelfAttention(scope.In("att"), h, heads, 4).WithCausalMask(causal).Done())
	}
	h := activation.Gelu(layers.Dense(scope.In("up"), norm.LayerNorm(scope.In("ln2"), x, -1).Done(), true, hidden))
	return Add(x, layers.Dense(scope.In("down"), h, true, x.Shape().Dimensions[x.Rank()-1]))
}

// Equal layers that are left out change no estimate, whatever is sharded.
func TestLayersThatAreLeftOutChangeNoEstimate(t *testing.T) {
	const depth = 14
	mse := loss.MeanSquaredError
	for _, m := range []equiv.Model{
		deep(depth),
		layersOf(depth),
		{Name: "mlp", Build: tower(depth, func(scope *model.Scope, x *Node) *Node { return Tanh(layers.Dense(scope, x, true, 8)) }),
			Loss: mse, Batch: equiv.Regression(6, 8)},
		{Name: "skip", Build: tower(depth, func(scope *model.Scope, x *Node) *Node {
			y := layers.Dense(scope.In("in"), norm.LayerNorm(scope, x, -1).Done(), true, 12)
			return Add(x, layers.Dense(scope.In("out"), activation.Gelu(y), false, 8))
		}), Loss: mse, Batch: equiv.Regression(6, 8)},
	} {
		p := recordedWith(t, m, optimizer.Adam().Done())
		for _, k := range []int{2, 3} {
			left, folded, wrong := shard.Folded(split(t, p, k), uint64(k), 20)
			if wrong > 0 {
				t.Errorf("%s on %d devices: %d estimates are others without %d layers", m.Name, k, wrong, left)
			}
			if left < depth/3 || folded == 0 {
				t.Errorf("%s on %d devices: %d of %d layers are left out, in %d estimates", m.Name, k, left, depth, folded)
			}
		}
	}
}

// Nor do they where layers share values and weights, others are in between, or several TaskGraphs have some.
func TestLayersThatShareValuesChangeNoEstimate(t *testing.T) {
	entropy, mse := loss.SparseCategoricalCrossEntropyLogits, loss.MeanSquaredError
	tokens, rows := equiv.Tokens(3, 6, 16), equiv.Regression(6, 8)
	dense := func(scope *model.Scope, x *Node) *Node { return layers.Dense(scope, x, true, 8) }
	shared := func(layer func(scope *model.Scope, x, first, frozen *Node) *Node) func(scope *model.Scope, x *Node) *Node {
		return func(scope *model.Scope, x *Node) *Node {
			var first, frozen *Node
			return tower(14, func(s *model.Scope, x *Node) *Node {
				if first == nil {
					frozen = scope.In("frozen").VariableWithShape("w", f32(8, 8)).SetTrainable(false).NodeValue(x.Graph())
					first = Tanh(x)
				}
				return layer(s, x, first, frozen)
			})(scope, x)
		}
	}
	for i, m := range []equiv.Model{
		{Name: "causal", Build: stack(12, func(i int, s *model.Scope, x *Node) *Node { return block(s, x, 3, 20, true) }), Loss: entropy, Batch: tokens},
		{Name: "dropout", Build: stack(12, func(i int, s *model.Scope, x *Node) *Node {
			return layers.DropoutStatic(s, block(s, x, 0, 20, false), 0.1)
		}),
			Loss: entropy, Batch: tokens},
		{Name: "another one", Build: stack(16, func(i int, s *model.Scope, x *Node) *Node { return block(s, x, 3*min(1, max(i-4, 4-i)), 20, false) }),
			Loss: entropy, Batch: tokens},
		{Name: "two by two", Build: stack(24, func(i int, s *model.Scope, x *Node) *Node { return block(s, x, 0, 20+i%2*8, false) }), Loss: entropy, Batch: tokens},
		{Name: "two back", Build: func(scope *model.Scope, x *Node) *Node {
			before := x
			return tower(22, func(s *model.Scope, x *Node) *Node {
				x, before = Tanh(Add(dense(s, x), before)), x
				return x
			})(scope, x)
		}, Loss: mse, Batch: rows},
		{Name: "frozen weights", Build: shared(func(s *model.Scope, x, first, frozen *Node) *Node { return Add(MatMul(Tanh(dense(s, x)), frozen), x) }), Loss: mse, Batch: rows},
		{Name: "a product of all", Build: shared(func(s *model.Scope, x, first, frozen *Node) *Node {
			return Add(Tanh(dense(s, x)), StopGradient(MatMul(first, frozen)))
		}), Loss: mse, Batch: rows},
		{Name: "sums", Build: tower(16, func(s *model.Scope, x *Node) *Node {
			return Add(Add(dense(s.In("a"), x), dense(s.In("b"), Tanh(x))), Add(dense(s.In("c"), x), x))
		}), Loss: mse, Batch: rows},
		{Name: "linear", Build: tower(14, func(s *model.Scope, x *Node) *Node { return layers.Dense(s, x, false, 8) }), Loss: mse, Batch: rows},
		{Name: "pinned", Build: func(scope *model.Scope, x *Node) *Node {
			for i := range 2 {
				epl.With(x, epl.Split(2, []string{"first", "second"}[i]).Shard("up/dense/weights", 1-i), func() {
					for j := range 10 {
						x = block(scope.In("layer_%d", 10*i+j), x, 0, 12, false)
					}
					if i == 1 {
						x = layers.Dense(scope.In("head"), x, true, 1)
					}
				})
			}
			return x
		}, Loss: mse, Batch: rows},
	} {
		k := 2 + i%3
		p := recordedWith(t, m, optimizer.StochasticGradientDescent())
		q := split(t, p, k)
		if len(p.TaskGraphs) > 1 { // on devices of their own
			q = p.Clone()
			staged(t, q, k, k+1)
		}
		for _, q := range []*ir.Program{q, shard.Unflattened(q)} {
			if q == nil {
				continue
			}
			left, folded, wrong := shard.Folded(q, uint64(k), 10)
			if wrong > 0 || folded == 0 {
				t.Errorf("%s on %d devices: of %d estimates, %d are others without %d layers", m.Name, k, folded, wrong, left)
			}
		}
	}
}
