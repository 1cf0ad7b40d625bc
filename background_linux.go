// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"runtime"
	"syscall"
)

// background lets the calling goroutine, which must end soon, run mostly when devices leave a core idle: its thread gets a quarter of a core that they use.
func background() {
	runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, syscall.Gettid(), 5)
}
