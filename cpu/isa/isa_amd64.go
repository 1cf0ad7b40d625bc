// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package isa

import "golang.org/x/sys/cpu"

// Best is the highest level that this CPU has.
func Best() Level {
	switch x := cpu.X86; {
	case x.HasAVX512F && x.HasAVX512DQ && x.HasAVX512BW && x.HasAVX512VL:
		return AVX512
	case x.HasAVX2 && x.HasFMA:
		return AVX2
	}
	return Portable
}
