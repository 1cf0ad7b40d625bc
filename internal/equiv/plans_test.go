// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/passes"
)

// trainable are the models whose step on one large batch is the mean of steps on its parts: none normalises over the
// batch or drops at random.
func trainable() []Model {
	models := slices.DeleteFunc(Models(), func(m Model) bool {
		return strings.Contains(m.Name, "batchnorm") || strings.HasPrefix(m.Name, "transformer-")
	})
	return append(models,
		Model{"transformer", Transformer0, Models()[1].Loss, Tokens(2, 16, 32)},
		Model{"embedding", func(scope *model.Scope, x *Node) *Node {
			e := layers.Embedding(scope.In("tokens"), x, dtypes.Float32, 32, 8, false)
			return layers.Dense(scope.In("out"), Tanh(e), true, 32)
		}, Models()[1].Loss, Tokens(3, 5, 32)})
}

// Whatever the model, the number of devices and micro-batches, the settings of communication and the passes: one device
// on the same samples ends at the same weights.
func TestRandomPlansGiveTheWeightsOfOneDevice(t *testing.T) {
	for seed := int(*firstSeed); seed < int(*firstSeed)+(*seedCount+3)/4; seed++ {
		r := rand.New(rand.NewSource(int64(seed)))
		m := trainable()[r.Intn(len(trainable()))]
		devices, micro := 1+r.Intn(5), 1+r.Intn(4)
		params := map[string]any{
			"communication.max_splits":        1 + r.Intn(6),
			"communication.num_communicators": 1 + r.Intn(3),
			"communication.sparse_as_dense":   r.Intn(2) == 0,
		}
		spec := "none"
		for _, p := range passes.Table {
			if !p.Needed && r.Intn(2) == 0 {
				spec += "," + p.Name
			}
		}
		t.Run(fmt.Sprintf("%d/%s/%dx%d", seed, m.Name, devices, micro), func(t *testing.T) {
			t.Parallel()
			t.Logf("%v, passes %s", params, spec)
			single := m
			single.Batch = Joined(m.Batch, devices*micro)
			want := train1(t, single, sgd(), 3, nil)
			got := trainParallel(t, newCluster(t, devices, micro, params, epl.WithPasses(spec)), m, sgd(), 3)
			if err := CloseWeights(want, got, 1e-5); err != nil {
				t.Error(err)
			}
			if err := CloseLosses(want, got, 1e-4); err != nil {
				t.Error(err)
			}
		})
	}
}
