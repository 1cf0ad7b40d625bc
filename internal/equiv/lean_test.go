// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"sync"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
)

// lean is a backend of GoMLX without fused ops, as its XLA is.
type lean struct{ compute.Backend }

var registerLean = sync.OnceFunc(func() {
	compute.Register("lean", func(config string) (compute.Backend, error) {
		b, err := gobackend.New("ops_sequential")
		return lean{b}, err
	})
})

func (b lean) Capabilities() compute.Capabilities {
	c := b.Backend.Capabilities().Clone()
	for _, t := range []compute.OpType{compute.OpTypeFusedSoftmax, compute.OpTypeFusedGelu, compute.OpTypeFusedLayerNorm, compute.OpTypeFusedDense,
		compute.OpTypeFusedAttentionQKVProjection} {
		delete(c.Operations, t)
	}
	return c
}

func (b lean) Builder(name string) compute.Builder { return leanBuilder{b.Backend.Builder(name)} }

type leanBuilder struct{ compute.Builder }

func (b leanBuilder) Main() compute.Function { return leanFunction{b.Builder.Main()} }

type leanFunction struct{ compute.Function }

var errLean = errors.Wrap(compute.ErrNotImplemented, "lean")

func (leanFunction) FusedSoftmax(compute.Value, int) (compute.Value, error) { return nil, errLean }

func (leanFunction) FusedGelu(compute.Value, bool) (compute.Value, error) { return nil, errLean }

func (leanFunction) FusedLayerNorm(compute.Value, []int, float64, compute.Value, compute.Value) (compute.Value, error) {
	return nil, errLean
}

func (leanFunction) FusedDense(_, _, _ compute.Value, _ compute.DenseConfig) (compute.Value, error) {
	return nil, errLean
}

func (leanFunction) FusedAttentionQKVProjection(_, _, _, _, _ compute.Value, _, _ int) (a, b, c compute.Value, err error) {
	return nil, nil, nil, errLean
}

// What an inner backend lacks of fused ops is written out after recording, with gradients and without.
func TestAnInnerBackendWithoutFusedOpsRunsWhatTheyAreWrittenOutAs(t *testing.T) {
	registerLean()
	predict := func(inner, passes string) []float32 {
		env := newCluster(t, 1, 1, nil, epl.WithInner(inner), epl.WithPasses(passes))
		store := model.NewStore()
		exec := model.MustNewExec(env.Backend(), store, func(scope *model.Scope, x *graph.Node) *graph.Node {
			scope = scope.WithInitializer(func(g *graph.Graph, shape shapes.Shape) *graph.Node {
				return graph.DivScalar(graph.IotaFull(g, shape), 32)
			})
			x = activation.Gelu(layers.Dense(scope, x, true, 8))
			return graph.Softmax(norm.LayerNorm(scope, x, -1).Done(), -1)
		})
		out, err := exec.Call1([][]float32{{1, 2, 3, 4}, {-1, 0.5, 2, -3}})
		if err != nil {
			t.Fatalf("%s, passes %q: %v", inner, passes, err)
		}
		return tensors.MustCopyFlatData[float32](out)
	}
	for _, passes := range []string{"", "none"} {
		want, got := predict("go", passes), predict("lean", passes)
		for i := range want {
			if d := want[i] - got[i]; d > 1e-5 || d < -1e-5 {
				t.Errorf("with passes %q, element %d is %g, not %g", passes, i, got[i], want[i])
			}
		}
	}
	m := recordedModels()["transformer"]
	train := func(inner string) *Run {
		return trainParallel(t, newCluster(t, 1, 1, nil, epl.WithInner(inner)), m, sgd(), 2)
	}
	if err := SameBits(train("go"), train("lean")); err != nil {
		t.Error(err)
	}
}
