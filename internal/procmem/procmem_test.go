// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package procmem

import (
	"runtime"
	"testing"
)

func TestComputingTakesTimeThatIsCounted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc/self/stat, which counts what a process computes: this is not Linux")
	}
	x := uint64(1)
	for before := CPU(); CPU() == before; { // ends when a hundredth of a second has been counted
		for range 1 << 20 {
			x = x*6364136223846793005 + 1
		}
	}
	if x == 0 {
		t.Log(x)
	}
}
