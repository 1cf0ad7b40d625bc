// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"slices"
	"testing"

	"github.com/easyparallel/epl/comm/internal/transport"
)

func TestTheSharedHeapJoinsWhatIsGivenBack(t *testing.T) {
	p := heapPiece{free: []transport.Span{{From: 64, To: 1024}}}
	var at []int
	for range 3 {
		at = append(at, p.take(320))
	}
	if !slices.Equal(at, []int{64, 384, 704}) || len(p.free) != 0 || p.take(64) != -1 {
		t.Fatalf("taken %d, free %v", at, p.free)
	}
	for _, i := range []int{0, 2, 1} {
		p.give(at[i], 320)
	}
	if !slices.Equal(p.free, []transport.Span{{From: 64, To: 1024}}) {
		t.Errorf("free %v", p.free)
	}
}
