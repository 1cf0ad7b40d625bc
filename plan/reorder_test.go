// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"testing"
	"time"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/plan"
)

// On two hosts with a slow link between them, a model with large weights and small activations has the replicas of a stage on one host: gradients stay there, and activations go between
// hosts. With small weights and large activations it is the other way round.
func TestDevicesAreOrderedByLinks(t *testing.T) {
	const slow = "cluster.device_place_prefer_intra_node=false"
	for _, c := range []struct {
		name         string
		width, batch int
		across       bool
	}{
		{"large weights", 2047, 16, true},
		{"large activations", 64, 1 << 15, false},
	} {
		m := equiv.Model{
			Name: c.name,
			Build: func(scope *model.Scope, x *Node) *Node {
				for i := range 8 {
					x = activation.Relu(layers.Dense(scope.In("layer_%d", i), x, true, c.width))
				}
				return layers.Dense(scope.In("out"), x, true, 1)
			},
			Loss: loss.MeanSquaredError, Batch: equiv.Regression(c.batch, c.width),
		}
		cfg, target := onDevices(t, []int{2, 2}, map[string]string{"pipeline.num_stages": "2"})
		v100, err := cost.Find("V100-32")
		if err != nil {
			t.Fatal(err)
		}
		target.Hardware = cost.Uniform(2, 2, v100, *v100.Inside, cost.Link{Latency: 30 * time.Microsecond, Bandwidth: 1e9, Shared: true})
		pl, _, err := plan.Decide(recorded(t, m), cfg, target)
		if err != nil {
			t.Fatal(err)
		}
		w := pl.Ways[0]
		if w.Replicas == 1 || slices.Contains(w.Settings, slow) != c.across {
			t.Errorf("%s: %s", c.name, &w)
		}
		for _, w := range pl.Ways {
			t.Logf("%s: %s: %s %s", c.name, &w, w.Step, w.Why)
		}
	}
}
