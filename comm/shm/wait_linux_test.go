// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shm

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// TestACallThatWaitsLooksSoOftenAndThenSleeps: who waits long costs no processor time.
func TestACallThatWaitsLooksSoOftenAndThenSleeps(t *testing.T) {
	for _, x := range []struct {
		name           string
		async, crowded bool
		p              spinning
	}{{"alone", false, false, spinAlone}, {"crowded", false, true, spinCrowded}, {"beside computation", true, true, spinAsync}} {
		s := &segment{engine: &engine{crowded: x.crowded}, peers: []*segmentPeer{new(segmentPeer)}}
		b := &s.mine().bell
		var here atomic.Bool
		go func() {
			for b.sleepers.Load() == 0 {
				runtime.Gosched()
			}
			here.Store(true)
			b.wakeAll()
		}()
		awake, asleep := 0, 0
		err := s.wait(&transport.Call{Async: x.async}, func() bool {
			if b.sleepers.Load() == 0 {
				awake++
				return false
			}
			asleep++
			return here.Load()
		}, nil)
		if want := x.p.looks * x.p.rounds; err != nil || awake != want {
			t.Errorf("%s: it looks %d times before it sleeps, not %d (error %v)", x.name, awake, want, err)
		}
		if asleep > 4 { // before it sleeps, after, and once more if the bell rang in between
			t.Errorf("%s: it looks %d times more for one ring of the bell", x.name, asleep)
		}
	}
	if a, c := spinAsync.looks*spinAsync.rounds, spinCrowded.looks*spinCrowded.rounds; a > c || c > spinAlone.looks*spinAlone.rounds || spinAsync.greedy+spinCrowded.greedy > 0 {
		t.Error("who has less of a processor must look less, and let others have it")
	}
}
