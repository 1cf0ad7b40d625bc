// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugeBytes is from where on memory can have huge pages.
const hugeBytes = 2 << 20

// preferHuge asks the system for huge pages where memory has none yet: products read and write tensors across rows, and ordinary pages are too many for the processor to
// remember where they are. It is a hint, which the system may not follow.
func preferHuge(b []byte) {
	if len(b) < hugeBytes {
		return
	}
	page := os.Getpagesize()
	from := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (page - 1)
	to := from + (len(b)-from)&^(page-1)
	_ = unix.Madvise(b[from:to], unix.MADV_HUGEPAGE)
}
