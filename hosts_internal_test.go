// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"testing"

	"github.com/easyparallel/epl/cost"
)

// Workers that a job finds on one machine are connected by what is inside of it.
func TestWorkersOfOneMachineAreConnectedInside(t *testing.T) {
	inside, between := cost.Link{Bandwidth: 2}, cost.Link{Bandwidth: 1}
	c := cost.Uniform(3, 2, cost.Default, inside, between)
	onHosts(c, func(worker int) string { return []string{"a", "b", "a"}[worker] })
	for _, x := range []struct {
		a, b int
		want cost.Link
	}{{0, 1, inside}, {0, 4, inside}, {1, 5, inside}, {0, 2, between}, {3, 4, between}, {2, 3, inside}} {
		if got := c.Link(x.a, x.b); got != x.want {
			t.Errorf("devices %d and %d are connected by %+v", x.a, x.b, got)
		}
	}
}
