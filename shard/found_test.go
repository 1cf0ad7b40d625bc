// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/shard"
)

// by shards a dim in units.
func by(dim, unit int) shard.Placement {
	return shard.Placement{Kind: shard.Sharded, Dim: dim, Unit: unit}
}

// shardAs makes a choice by parts of paths. Dim -1 is the last, as of columns and of what is added to them.
func shardAs(p *ir.Program, as map[string]shard.Placement) shard.Choice {
	choice := shard.Choice{}
	for _, x := range p.Variables {
		for part, pl := range as {
			if strings.Contains(x.Path, part) && x.Trainable {
				if pl.Dim < 0 {
					pl.Dim += x.Param.Shape.Rank()
				}
				choice[x.Param] = pl
			}
		}
	}
	return choice
}

// megatron is how the layers of deep are sharded by hand: columns, then rows.
var megatron = map[string]shard.Placement{"query/dense": by(-1, 4), "key/dense": by(-1, 4), "value/dense": by(-1, 4), "Attention/output/dense/weights": by(0, 4),
	"ff1/dense": by(-1, 1), "ff2/dense/weights": by(0, 1), "token_embed": by(0, 1)}

// deep is GoMLX's language model.
func deep(layers int) equiv.Model {
	return equiv.Model{Name: "deep", Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: equiv.Tokens(2, 4, 16),
		Build: func(scope *model.Scope, x *Node) *Node {
			epl.With(x, epl.Split(4, "all"), func() {
				x = transformer.New(scope).WithVocabSize(16).WithEmbedDim(16).WithNumLayers(layers).WithNumHeads(4).WithHeadDim(4).
					WithMaxPosEmbed(8).WithCausalMask(true).Logits(x, transformer.CallOptions{})
			})
			return x
		}}
}

// exchanges counts the exchanges of an instance that are larger than some bytes, by phase and collective.
func exchanges(p *ir.Program, above int64) map[string]int {
	n := map[string]int{}
	for _, op := range p.Main.Ops {
		if op.IsExchange() && op.Varying && max(op.Inputs[0].Bytes(), op.Outputs[0].Bytes()) > above {
			_, how := op.Change()
			n[op.Phase.String()+" "+how.String()]++
		}
	}
	return n
}

// What is known to be the best way to shard a model is what comes out, given how its variables are sharded.
func TestDevicesExchangeNoMoreThanByHand(t *testing.T) {
	const k = 4
	entropy := loss.SparseCategoricalCrossEntropyLogits
	attention := map[string]shard.Placement{"query/dense": by(-1, 4), "key/dense": by(-1, 4), "value/dense": by(-1, 4), "output/dense/weights": by(0, 4)}
	mlp := map[string]shard.Placement{"up/dense/weights": by(1, 1), "down/dense/weights": by(0, 1)}
	for _, c := range []struct {
		name  string
		m     equiv.Model
		as    map[string]shard.Placement
		above int64 // bytes that do not count
		want  map[string]int
	}{
		{"two layers: columns, then rows; there are two such blocks, and the first needs no gradient of its input",
			equiv.Model{Build: columnsAndRows(40), Loss: loss.MeanSquaredError, Batch: equiv.Regression(7, 10)},
			map[string]shard.Placement{"first/dense/weights": by(1, 1), "second/dense/weights": by(0, 1), "third/dense/weights": by(1, 1), "fourth/dense/weights": by(0, 1)},
			0, map[string]int{"forward all-reduce": 2, "backward all-reduce": 1}},
		{"attention", equiv.Model{Build: transformerBlock(24, 6, 4, 29), Loss: entropy, Batch: equiv.Tokens(3, 5, 29)},
			attention, 0, map[string]int{"forward all-reduce": 1, "backward all-reduce": 1}},
		{"the mlp of a transformer", equiv.Model{Build: transformerBlock(24, 6, 4, 29), Loss: entropy, Batch: equiv.Tokens(3, 5, 29)},
			mlp, 0, map[string]int{"forward all-reduce": 1, "backward all-reduce": 1}},
		{"two layers of a transformer, and the embedding of a sharded vocabulary", deep(2), megatron, 0, map[string]int{"forward all-reduce": 5, "backward all-reduce": 4}},
		{"a classifier exchanges numbers for each sample, and its features", equiv.Model{Build: trunkAndHead(1000), Loss: entropy, Batch: pixels(9, 1000)},
			map[string]shard.Placement{"head/dense": by(-1, 1)}, 9 * 4, map[string]int{"forward all-gather": 1, "backward reduce-scatter": 1}},
		{"experts", equiv.Model{Build: experts(8, 3, 12, 24, 10, false), Loss: entropy, Batch: samples(9, 10, 7, 12)},
			map[string]shard.Placement{"/up/w": by(0, 1), "/down/w": by(0, 1)}, 0, map[string]int{"forward all-to-all": 2, "backward all-to-all": 2}},
		{"experts that are only defined under split", equiv.Model{Build: experts(8, 3, 12, 24, 10, true), Loss: entropy, Batch: samples(9, 10, 7, 12)},
			map[string]shard.Placement{"/up/w": by(0, 1), "/down/w": by(0, 1)}, 0, map[string]int{"forward all-to-all": 2, "backward all-to-all": 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := split(t, recorded(t, c.m), k)
			r := compareSplit(t, p, shardAs(p, c.as), 1)
			got := exchanges(p, c.above)
			for what, n := range c.want {
				if got[what] != n {
					t.Errorf("%d × %s, want %d", got[what], what, n)
				}
				delete(got, what)
			}
			if len(got) > 0 || len(r.Weights) > 0 || len(r.Gathered) > 0 {
				t.Errorf("also %v; %q", got, r.Lines())
			}
		})
	}
}

// The bytes that a classifier exchanges do not grow with its classes.
func TestAClassifierExchangesAsMuchForManyClassesAsForFew(t *testing.T) {
	bytes := func(classes int) (n int64) {
		m := equiv.Model{Build: trunkAndHead(classes), Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: pixels(9, classes)}
		p := split(t, recorded(t, m), 4)
		r, err := expanded(p, shardAs(p, map[string]shard.Placement{"head/dense": by(-1, 1)}))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Exchanges {
			n += e.Bytes
		}
		return n
	}
	if few, many := bytes(100), bytes(5000); few != many || few == 0 {
		t.Errorf("%d bytes for 100 classes, %d for 5000", few, many)
	}
}
