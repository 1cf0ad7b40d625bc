// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// What would help is found for programs that EPL cuts, too, and beyond a level of ZeRO that is in use.
func TestWhatWouldHelpIsFoundBesideOtherSettings(t *testing.T) {
	m := Model{"deep", func(s *model.Scope, x *Node) *Node {
		for i := range 6 {
			x = activation.Gelu(layers.Dense(s.In("l%d", i), x, true, 32))
		}
		return layers.Dense(s.In("o"), x, true, 1)
	}, loss.MeanSquaredError, Regression(16, 8)}
	for _, c := range []struct {
		name   string
		params map[string]any
		want   []string
		not    []string
	}{
		{"alone", nil, []string{"zero.level=v0", "zero.level=v2", "offload.level=v0"}, nil},
		{"zero v0", map[string]any{"zero.level": "v0"}, []string{"zero.level=v2"}, []string{"zero.level=v0 "}},
		{"zero v2", map[string]any{"zero.level": "v2"}, []string{"offload.level=v0"}, []string{"zero.level=v0", "zero.level=v1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			params := map[string]any{"cluster.device_memory": 20000}
			for k, v := range c.params {
				params[k] = v
			}
			env := newCluster(t, 2, 2, params)
			_, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(optimizer.Adam().Done()), 1)
			mustFail(t, err, append(c.want, "what would help")...)
			for _, not := range c.not {
				if strings.Contains(err.Error(), not) {
					t.Errorf("%s is said to help: %v", not, err)
				}
			}
		})
	}
}
