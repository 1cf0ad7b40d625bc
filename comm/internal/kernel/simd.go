// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build goexperiment.simd && amd64

package kernel

import (
	"simd/archsimd"
	"unsafe"
)

// The kernels of this file sum the first elements of several inputs with vector instructions and return how many they
// did; the portable kernels do the rest, with the same bits. They take four vectors of each input at a time, so that the
// loops over inputs and outputs cost little, whatever their number: everything is read once and written once.
//
// Go leaves the upper halves of the vector registers dirty, which slows down other code on the same thread (math.Exp 100
// times): the kernels clear them.

var (
	hasAVX2   = archsimd.X86.AVX2()
	hasAVX512 = archsimd.X86.AVX512()
)

func sumFloat32(dst, src []unsafe.Pointer, n int, scale float32) int {
	switch {
	case hasAVX512:
		return sumFloat32x16(dst, src, n, scale)
	case hasAVX2:
		return sumFloat32x8(dst, src, n, scale)
	}
	return 0
}

func sumFloat64(dst, src []unsafe.Pointer, n int, scale float64) int {
	switch {
	case hasAVX512:
		return sumFloat64x8(dst, src, n, scale)
	case hasAVX2:
		return sumFloat64x4(dst, src, n, scale)
	}
	return 0
}

func sumFloat32x16(dst, src []unsafe.Pointer, n int, scale float32) int {
	const step, width = 256, 64 // bytes
	n &^= step/4 - 1
	if n == 0 {
		return 0
	}
	load := func(p unsafe.Pointer, at uintptr) archsimd.Float32x16 {
		return archsimd.LoadFloat32x16((*[16]float32)(unsafe.Add(p, at)))
	}
	store := func(x archsimd.Float32x16, p unsafe.Pointer, at uintptr) { x.Store((*[16]float32)(unsafe.Add(p, at))) }
	factor := archsimd.BroadcastFloat32x16(scale)
	first, rest := src[0], src[1:]
	for at := uintptr(0); at < uintptr(n)*4; at += step {
		a, b, c, d := load(first, at), load(first, at+width), load(first, at+2*width), load(first, at+3*width)
		for _, p := range rest {
			a, b = a.Add(load(p, at)), b.Add(load(p, at+width))
			c, d = c.Add(load(p, at+2*width)), d.Add(load(p, at+3*width))
		}
		a, b, c, d = a.Mul(factor), b.Mul(factor), c.Mul(factor), d.Mul(factor)
		for _, p := range dst {
			store(a, p, at)
			store(b, p, at+width)
			store(c, p, at+2*width)
			store(d, p, at+3*width)
		}
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func sumFloat32x8(dst, src []unsafe.Pointer, n int, scale float32) int {
	const step, width = 128, 32 // bytes
	n &^= step/4 - 1
	if n == 0 {
		return 0
	}
	load := func(p unsafe.Pointer, at uintptr) archsimd.Float32x8 {
		return archsimd.LoadFloat32x8((*[8]float32)(unsafe.Add(p, at)))
	}
	store := func(x archsimd.Float32x8, p unsafe.Pointer, at uintptr) { x.Store((*[8]float32)(unsafe.Add(p, at))) }
	factor := archsimd.BroadcastFloat32x8(scale)
	first, rest := src[0], src[1:]
	for at := uintptr(0); at < uintptr(n)*4; at += step {
		a, b, c, d := load(first, at), load(first, at+width), load(first, at+2*width), load(first, at+3*width)
		for _, p := range rest {
			a, b = a.Add(load(p, at)), b.Add(load(p, at+width))
			c, d = c.Add(load(p, at+2*width)), d.Add(load(p, at+3*width))
		}
		a, b, c, d = a.Mul(factor), b.Mul(factor), c.Mul(factor), d.Mul(factor)
		for _, p := range dst {
			store(a, p, at)
			store(b, p, at+width)
			store(c, p, at+2*width)
			store(d, p, at+3*width)
		}
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func sumFloat64x8(dst, src []unsafe.Pointer, n int, scale float64) int {
	const step, width = 256, 64 // bytes
	n &^= step/8 - 1
	if n == 0 {
		return 0
	}
	load := func(p unsafe.Pointer, at uintptr) archsimd.Float64x8 {
		return archsimd.LoadFloat64x8((*[8]float64)(unsafe.Add(p, at)))
	}
	store := func(x archsimd.Float64x8, p unsafe.Pointer, at uintptr) { x.Store((*[8]float64)(unsafe.Add(p, at))) }
	factor := archsimd.BroadcastFloat64x8(scale)
	first, rest := src[0], src[1:]
	for at := uintptr(0); at < uintptr(n)*8; at += step {
		a, b, c, d := load(first, at), load(first, at+width), load(first, at+2*width), load(first, at+3*width)
		for _, p := range rest {
			a, b = a.Add(load(p, at)), b.Add(load(p, at+width))
			c, d = c.Add(load(p, at+2*width)), d.Add(load(p, at+3*width))
		}
		a, b, c, d = a.Mul(factor), b.Mul(factor), c.Mul(factor), d.Mul(factor)
		for _, p := range dst {
			store(a, p, at)
			store(b, p, at+width)
			store(c, p, at+2*width)
			store(d, p, at+3*width)
		}
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func sumFloat64x4(dst, src []unsafe.Pointer, n int, scale float64) int {
	const step, width = 128, 32 // bytes
	n &^= step/8 - 1
	if n == 0 {
		return 0
	}
	load := func(p unsafe.Pointer, at uintptr) archsimd.Float64x4 {
		return archsimd.LoadFloat64x4((*[4]float64)(unsafe.Add(p, at)))
	}
	store := func(x archsimd.Float64x4, p unsafe.Pointer, at uintptr) { x.Store((*[4]float64)(unsafe.Add(p, at))) }
	factor := archsimd.BroadcastFloat64x4(scale)
	first, rest := src[0], src[1:]
	for at := uintptr(0); at < uintptr(n)*8; at += step {
		a, b, c, d := load(first, at), load(first, at+width), load(first, at+2*width), load(first, at+3*width)
		for _, p := range rest {
			a, b = a.Add(load(p, at)), b.Add(load(p, at+width))
			c, d = c.Add(load(p, at+2*width)), d.Add(load(p, at+3*width))
		}
		a, b, c, d = a.Mul(factor), b.Mul(factor), c.Mul(factor), d.Mul(factor)
		for _, p := range dst {
			store(a, p, at)
			store(b, p, at+width)
			store(c, p, at+2*width)
			store(d, p, at+3*width)
		}
	}
	archsimd.ClearAVXUpperBits()
	return n
}
