// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/shard"
)

// encoder is a transformer, with or without a causal mask, that says something of every word.
func encoder(n, dim, heads, classes, vocabulary int, causal bool) func(scope *model.Scope, x *Node) *Node {
	return func(scope *model.Scope, ids *Node) *Node {
		var x *Node
		epl.With(ids, epl.Split(2, "all"), func() {
			x = layers.Embedding(scope.In("tokens"), ids, dtypes.Float32, vocabulary, dim, false)
			for i := range n {
				s := scope.In("layer_%d", i)
				h := norm.LayerNorm(s.In("ln1"), x, -1).Done()
				x = Add(x, attention.SelfAttention(s.In("att"), h, heads, dim/heads).WithCausalMask(causal).Done())
				h = norm.LayerNorm(s.In("ln2"), x, -1).Done()
				h = activation.Gelu(layers.Dense(s.In("up"), h, true, 4*dim))
				x = Add(x, layers.Dense(s.In("down"), h, true, dim))
			}
			x = layers.Dense(scope.In("out"), norm.LayerNorm(scope.In("ln"), x, -1).Done(), true, classes)
		})
		return x
	}
}

// stepOf records a step of an encoder.
func stepOf(t *testing.T, samples, words, n, dim int, causal bool) *ir.Program {
	return recorded(t, equiv.Model{Build: encoder(n, dim, 4, 11, 11, causal), Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: equiv.Tokens(samples, words, 11)})
}

// kept is how many bytes of forward the first device keeps for backward.
func kept(p *ir.Program) (n int64) {
	seen := map[*ir.Value]bool{}
	for _, op := range p.Main.Ops {
		if op.Phase != ir.Backward || op.Place != 0 {
			continue
		}
		op.Uses(func(v *ir.Value) {
			if !seen[v] && !v.Op.IsLeaf() && v.Op.Phase == ir.Forward && v.Op.Place == 0 {
				seen[v] = true
				n += v.Bytes()
			}
		})
	}
	return n
}

// Keys and values are gathered in each layer, and their gradients scattered. Nothing else travels, but gradients of weights.
func TestLongSequencesAreSharded(t *testing.T) {
	want := map[string]int{"forward all-gather": 2, "backward reduce-scatter": 2}
	for _, causal := range []bool{false, true} {
		for _, samples := range []int{1, 2} {
			whole := stepOf(t, samples, 61, 1, 8, causal)
			for _, k := range []int{2, 3, 4} {
				t.Run(fmt.Sprintf("%v/%d/%d", causal, samples, k), func(t *testing.T) {
					p := split(t, whole, k)
					c, choice := search(t, p)
					line := fmt.Sprintf("input arg0 int32[%d,61] sharded(1): each device computes with its rows where the weights for that are whole", samples)
					if !slices.Contains(c.Lines(), line) {
						t.Errorf("%q is not in %q", line, c.Lines())
					}
					all := kept(p)
					r := compareSplit(t, p, choice, uint64(k))
					if share := float64(kept(p)) * float64(k) / float64(all); share > 1.15 { // keys and values are whole, and the first has 16 words of 61
						t.Errorf("a device keeps %d bytes for backward, %.2f times its share of %d", kept(p), share, all)
					}
					if got := exchanges(p, 0); !maps.Equal(got, want) || len(r.Variables) > 0 || len(r.Gathered) > 0 {
						t.Errorf("%v, %q", got, r.Lines())
					}
				})
			}
		}
	}
}

func TestShortSequencesOfWideModelsAreNot(t *testing.T) {
	whole := stepOf(t, 2, 9, 1, 64, true)
	for _, k := range []int{2, 3, 4} {
		_, c, r := chosen(t, whole, k)
		if len(c.Data) > 0 || len(r.Variables) < 6 {
			t.Errorf("%d devices: %q", k, append(c.Lines(), r.Lines()...))
		}
	}
}

// Where both are large, weights are sharded, and what is between them by words: instead of an all-reduce there are a
// reduce-scatter and an all-gather, of half the bytes each, and each device normalises a part.
func TestLongSequencesOfWideModelsAreShardedBetweenLayers(t *testing.T) {
	_, c, _ := chosen(t, stepOf(t, 1, 256, 1, 128, true), 4)
	if len(c.Data) != 1 || c.Start != "columns, then rows, and sequence" {
		t.Errorf("%q", c.Lines())
	}
	p := split(t, stepOf(t, 3, 13, 2, 8, true), 4)
	choice := shardAs(p, map[string]shard.Placement{"query/dense": by(-1, 2), "key/dense": by(-1, 2), "value/dense": by(-1, 2), "output/dense/weights": by(0, 2),
		"up/dense": by(-1, 1), "down/dense/weights": by(0, 1), "tokens/embeddings": by(0, 1)})
	choice[p.Inputs[0]] = by(1, 1)
	compareSplit(t, p, choice, 1)
	want := map[string]int{"forward reduce-scatter": 5, "forward all-gather": 4, "backward reduce-scatter": 4, "backward all-gather": 4}
	if got := exchanges(p, 0); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
