// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import "runtime"

// panicking tells whether a panic is on its way up: a function that was deferred calls this one, maybe not directly.
func panicking() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if f.Function == "runtime.gopanic" {
			return true
		}
		if !more {
			return false
		}
	}
}
