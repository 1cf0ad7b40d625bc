// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"testing"

	"github.com/pkg/errors"
)

func ties() Parted {
	return Parted{Name: "ties", Least: 1, Most: 3, Build: Pooled, Loss: partedModel("classifier").Loss, Batch: repeated(9, 6)}
}

// Rows that are equal stay so on their way through shards, sums over devices and transfers.
func TestEqualRowsTieOnSeveralDevicesAsOnOne(t *testing.T) {
	m := ties()
	for i, parts := range [][]int{{2}, {3}, {4}, {-2}, {-4}, {2, -1}, {3, 2}, {-1, 3}, {4, -2}, {-3, 3}, {2, -3, 2}} {
		p := splitPlan{parts: parts, replicas: 1 + i%2, micro: 1 + i%3}
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			mustBeClose(t, m.measure(t, p, 3), m.under(p).piped(t, p.env(t, nil), 0, sgd(), 3))
		})
	}
}

func TestEqualRowsTieOnSeveralWorkersAsOnOneDevice(t *testing.T) {
	for _, w := range []workers{{num: 2, devices: 2, hosts: "a,b"}, {num: 4, devices: 1, hosts: "a,a,b,b"}} {
		t.Run(w.String(), func(t *testing.T) { w.agree(t, "ties") })
	}
}

func init() {
	parts["ties"] = func(w *part) error {
		for _, p := range []splitPlan{{parts: []int{4}, replicas: 1, micro: 2}, {parts: []int{-1, 3}, replicas: 1, micro: 1}} {
			if err := w.split(ties(), p, nil); err != nil {
				return errors.Wrap(err, p.String())
			}
		}
		return nil
	}
}
