// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt

import (
	"runtime"
	"unsafe"
)

// cPointer makes a pointer of an address that C gave. go vet takes the plain conversion for a mistake.
func cPointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// cSlice is a view of an array of C; it is valid as long as the array is.
func cSlice[T any](p unsafe.Pointer, n uintptr) []T {
	if p == nil || n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(p), n)
}

// cString copies a string of C.
func cString(p unsafe.Pointer, n uintptr) string { return string(cSlice[byte](p, n)) }

// pinned returns a pointer to the first element of s for C, and pins it. It is nil for an empty slice.
func pinned[T any](pin *runtime.Pinner, s []T) unsafe.Pointer {
	if len(s) == 0 {
		return nil
	}
	pin.Pin(&s[0])
	return unsafe.Pointer(&s[0])
}

// pinnedString is pinned of a copy of s, with the zero byte that some plugins look for.
func pinnedString(pin *runtime.Pinner, s string) unsafe.Pointer {
	return pinned(pin, append([]byte(s), 0))
}
