package shard_test

import (
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/shard"
)

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

func BenchmarkEstimate(b *testing.B) {
	p := split(b, recordedWith(b, deep(24), optimizer.Adam().Done()), 4)
	choice := shardAs(p, megatron)
	e, err := shard.NewEstimator(p)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d ops, %d sharded", p.NumOps(), len(choice))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Estimate(choice); err != nil {
			b.Fatal(err)
		}
	}
}
