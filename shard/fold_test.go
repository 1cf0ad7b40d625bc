// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
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
