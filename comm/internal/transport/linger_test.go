// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

import "testing"

func TestWhoWaitsForAReceiveLingers(t *testing.T) {
	looks := 0
	ready := func() bool { looks++; return looks == 100 }
	if !Linger(&Call{Header: Header{Op: Recv}}, true, ready) || looks != 100 {
		t.Errorf("it stopped after %d looks, when it would be ready after 100", looks)
	}
	if Linger(&Call{Header: Header{Op: Recv}}, true, func() bool { return false }) {
		t.Error("it says that it is ready, which it never is")
	}
}

func TestWhoHasSomethingElseToDoDoesNotLinger(t *testing.T) {
	for _, x := range []struct {
		name string
		call Call
		may  bool
	}{
		{"beside computation", Call{Header: Header{Op: Recv}, Async: true}, true},
		{"a send", Call{Header: Header{Op: Send}}, true},
		{"a collective", Call{Header: Header{Op: AllReduce}}, true},
		{"crowded", Call{Header: Header{Op: Recv}}, false},
	} {
		if Linger(&x.call, x.may, func() bool { t.Errorf("%s: it looks", x.name); return true }) {
			t.Errorf("%s: it is ready", x.name)
		}
	}
}

// A worker may have more ranks than processors, though its host has enough.
func TestRanksThatShareAProcessorDoNotLinger(t *testing.T) {
	for procs, may := range map[int]bool{1: false, 2: false, 3: false, 4: true} {
		w := &World{Procs: procs, Layout: Layout{Workers: []Place{{Host: "a", Ranks: 4}}}}
		if w.Outnumbered() == may {
			t.Errorf("4 ranks on %d processors: outnumbered %v", procs, !may)
		}
		if w.MayLinger() && !may {
			t.Errorf("4 ranks on %d processors may linger", procs)
		}
	}
}
