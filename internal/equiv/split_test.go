package equiv

import (
	"fmt"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
)

// splitModel is a model under Split(k).
type splitModel struct {
	name     string
	colocate bool
	build    func(k int) func(scope *model.Scope, x *Node) *Node
	loss     func(labels, predictions []*Node) *Node
	batch    Model
}

func splitModels() []splitModel {
	regression := Model{Batch: Regression(6, 8)}
	whole := func(build func(scope *model.Scope, x *Node) *Node) func(k int) func(scope *model.Scope, x *Node) *Node {
		return func(k int) func(scope *model.Scope, x *Node) *Node {
			return func(scope *model.Scope, x *Node) *Node {
				var y *Node
				epl.With(x, epl.Split(k, "all"), func() { y = build(scope, x) })
				return y
			}
		}
	}
	return []splitModel{
		{"classifier", true, func(k int) func(scope *model.Scope, x *Node) *Node {
			return func(scope *model.Scope, x *Node) *Node {
				epl.With(x, epl.Replicate(k, "trunk"), func() { x = activation.Gelu(layers.Dense(scope.In("trunk"), x, true, 24)) })
				epl.With(x, epl.Split(k, "head"), func() { x = layers.Dense(scope.In("head"), x, true, 19) })
				return x
			}
		}, loss.SparseCategoricalCrossEntropyLogits, Model{Batch: Classes(10, 8, 19)}},
		{"mlp", false, whole(func(scope *model.Scope, x *Node) *Node {
			x = activation.Gelu(layers.Dense(scope.In("up"), x, true, 32))
			x = norm.LayerNorm(scope.In("norm"), x, -1).Done()
			return layers.Dense(scope.In("down"), x, true, 1)
		}), loss.MeanSquaredError, regression},
		{"transformer", false, whole(func(scope *model.Scope, x *Node) *Node {
			return transformer.New(scope).WithVocabSize(32).WithEmbedDim(16).WithNumLayers(2).WithNumHeads(4).WithHeadDim(4).
				WithMaxPosEmbed(16).WithCausalMask(true).Logits(x, transformer.CallOptions{})
		}), loss.SparseCategoricalCrossEntropyLogits, Model{Batch: Tokens(2, 16, 32)}},
	}
}

func TestSplitTaskGraphsGiveTheWeightsOfOneDevice(t *testing.T) {
	for _, s := range splitModels() {
		for _, k := range []int{2, 3, 4, 8} {
			for _, c := range []struct{ replicas, micro int }{{1, 1}, {1, 2}, {2, 2}} {
				t.Run(fmt.Sprintf("%s/%d/%dx%d", s.name, k, c.replicas, c.micro), func(t *testing.T) {
					t.Parallel()
					m := Model{s.name, s.build(k), s.loss, s.batch.Batch}
					single := m
					single.Batch = joined(m.Batch, c.replicas*c.micro)
					want := train1(t, single, sgd(), 3, nil)
					env := newCluster(t, k*c.replicas, c.micro, map[string]any{"cluster.colocate_split_and_replicate": s.colocate})
					got := trainParallel(t, env, m, sgd(), 3)
					if err := CloseWeights(want, got, 1e-5); err != nil {
						t.Error(err)
					}
					if err := CloseLosses(want, got, 1e-5); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}
