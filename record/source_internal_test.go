// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import "testing"

// A function literal of EPL's that the compiler inlines into a user's function has a name of the user's package: its file says whose it is.
func TestInlinedFunctionsAreOfTheirFile(t *testing.T) {
	for file, want := range map[string]frameKind{root + "/clip.go": ownFrame, root + "/clip_test.go": userFrame, root + "/examples/gpt/model.go": userFrame, "/home/me/clip.go": userFrame} {
		if got := kindOf("main.flags.rule.ClipByGlobalNorm.func1", file); got != want {
			t.Errorf("%s: %d, want %d", file, got, want)
		}
	}
}

// below calls f with so many calls more on the stack.
//
//go:noinline
func below(calls int, f func()) {
	if calls == 0 {
		f()
		return
	}
	below(calls-1, f)
}

// Where a stack was seen before, nobody looks at its frames again: it must lead to the same line as if somebody did.
func TestAStackThatWasSeenBeforeHasTheSameLine(t *testing.T) {
	line := func() string {
		user, _ := walk(nil)
		return string(user)
	}
	for _, calls := range []int{0, 1, 20, 61, 62, 63, 64, 65, 200} { // many of them hide the line: only so many frames are looked at
		var first, second, other string
		for _, to := range []*string{&first, &second} {
			below(calls, func() { *to = line() })
		}
		below(calls, func() { other = line() })
		if first != second || first == "" || other == first {
			t.Errorf("%d calls: %q, then %q, and on another line %q", calls, first, second, other)
		}
	}
}

func TestWhatCalledTheOptimizerIsNotRemembered(t *testing.T) {
	f := found{library: "adam.go:1", optimizer: true}
	for _, c := range []caller{{user: "a.go:1"}, {user: "b.go:2"}} {
		if user, library := f.of(&c); user != c.user || library != "adam.go:1" {
			t.Errorf("%q, %q", user, library)
		}
	}
}
