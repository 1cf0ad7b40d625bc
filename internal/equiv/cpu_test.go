// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"testing"

	"github.com/easyparallel/epl"
)

// On EPL's own engine for CPUs, on one device and on several, with micro-batches, ZeRO, recompute and mixed precision off, every
// model ends at the weights that it has on GoMLX's backend under the same plan. Sums are taken in another order there, so
// it is rounding that they differ by.
func TestTheCPUEngineGivesTheWeightsOfTheBackend(t *testing.T) {
	plans := []struct {
		devices, micro int
		params         map[string]any
	}{
		{1, 1, nil},
		{2, 1, map[string]any{"zero.level": "v2"}},
		{2, 3, map[string]any{"gradient_checkpoint.type": "auto"}},
		{3, 1, map[string]any{"zero.level": "v1", "offload.level": "v0"}},
	}
	for _, m := range Models() {
		for _, p := range plans {
			t.Run(fmt.Sprintf("%s/%dx%d", m.Name, p.devices, p.micro), func(t *testing.T) {
				train := func(inner string) *Run {
					return trainParallel(t, newCluster(t, p.devices, p.micro, p.params, epl.WithInner(inner)), m, sgd(), 4)
				}
				want, got := train("go"), train("cpu")
				for v := range want.Store.IterVariables() {
					if !v.Trainable {
						continue
					}
					x, y := numbers(v.MustValue()), numbers(got.Store.GetVariable(v.Path()).MustValue())
					if d, n := distance(x, y); d > 1e-5*(n+1e-3) {
						t.Errorf("%s differs by %g at a norm of %g", v.Path(), d, n)
					}
				}
			})
		}
	}
}
