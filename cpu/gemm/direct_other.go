// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package gemm

import (
	"unsafe"

	"github.com/easyparallel/epl/cpu/isa"
)

func useDirect(isa.Level) {}

func copyLines(dst, src unsafe.Pointer, dstStep, srcStep, rows, cols, width, size int) {
	copyLinesPortable(dst, src, dstStep, srcStep, rows, cols, width, size)
}
