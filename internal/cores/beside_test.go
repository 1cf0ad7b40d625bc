// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cores

import (
	"runtime"
	"testing"
)

func TestOneMoreThreadRunsBesideUntilTheLastHasEnded(t *testing.T) {
	for _, procs := range []int{runtime.GOMAXPROCS(0), 3, 5} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		check := func(want int) {
			t.Helper()
			if got := runtime.GOMAXPROCS(0); got != want {
				t.Errorf("GOMAXPROCS is %d, want %d", got, want)
			}
		}
		one := Beside()
		check(procs + 1)
		two := Beside()
		check(procs + 1)
		one()
		one() // is harmless
		check(procs + 1)
		two()
		check(procs)
	}
}
