// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !(goexperiment.simd && amd64)

package kernel

import "unsafe"

// Without vector instructions, all is left to the portable kernels. See simd.go.

func sumFloat32([]unsafe.Pointer, []unsafe.Pointer, int, float32) int  { return 0 }
func sumFloat64([]unsafe.Pointer, []unsafe.Pointer, int, float64) int  { return 0 }
func sumBFloat16([]unsafe.Pointer, []unsafe.Pointer, int, float32) int { return 0 }
func sumFloat16([]unsafe.Pointer, []unsafe.Pointer, int, float32) int  { return 0 }
