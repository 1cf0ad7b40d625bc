// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

import "testing"

func TestSequenceNumbersAreCompared(t *testing.T) {
	a, b := &Call{Header: Header{Op: Barrier, Seq: 3}}, &Call{Header: Header{Op: Barrier, Seq: 5}}
	if d := disagreement(a, b); d != "they have made 3 and 5 calls" {
		t.Errorf("the difference is %q", d)
	}
}
