// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"testing"
	"unsafe"
)

func TestMoveCopiesAllBytesAndNoOthers(t *testing.T) {
	for _, n := range []int{0, 1, moveBytes - 1, moveBytes, moveBytes + 1, 3*moveBytes + 7} {
		from, to := make([]byte, n+2), make([]byte, n+2)
		for i := range from {
			from[i] = byte(1 + i%251)
		}
		Move(unsafe.Pointer(&to[1]), unsafe.Pointer(&from[1]), n)
		if !bytes.Equal(to[1:n+1], from[1:n+1]) || to[0] != 0 || to[n+1] != 0 {
			t.Errorf("%d bytes were not copied as they are", n)
		}
	}
}
