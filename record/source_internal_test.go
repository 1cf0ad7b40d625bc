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
