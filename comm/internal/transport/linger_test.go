// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

import "testing"

func TestWhoWaitsForAReceiveLingers(t *testing.T) {
	looks := 0
	ready := func() bool { looks++; return looks == 100 }
	if !Linger(&Call{Header: Header{Op: Recv}}, false, ready) || looks != 100 {
		t.Errorf("it stopped after %d looks, when it would be ready after 100", looks)
	}
	if Linger(&Call{Header: Header{Op: Recv}}, false, func() bool { return false }) {
		t.Error("it says that it is ready, which it never is")
	}
}

func TestWhoHasSomethingElseToDoDoesNotLinger(t *testing.T) {
	for _, x := range []struct {
		name    string
		call    Call
		crowded bool
	}{
		{"beside computation", Call{Header: Header{Op: Recv}, Async: true}, false},
		{"a send", Call{Header: Header{Op: Send}}, false},
		{"a collective", Call{Header: Header{Op: AllReduce}}, false},
		{"crowded", Call{Header: Header{Op: Recv}}, true},
	} {
		if Linger(&x.call, x.crowded, func() bool { t.Errorf("%s: it looks", x.name); return true }) {
			t.Errorf("%s: it is ready", x.name)
		}
	}
}
