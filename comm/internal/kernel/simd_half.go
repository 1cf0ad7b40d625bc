// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build goexperiment.simd && amd64

package kernel

import (
	"simd/archsimd"
	"unsafe"
)

// halfStep is how many halves a step of the kernels takes: two vectors of float32.
const halfStep = 32

func sumBFloat16(dst, src []unsafe.Pointer, n int, scale float32) int {
	n &^= halfStep - 1
	if n == 0 || !hasAVX512 {
		return 0
	}
	factor := archsimd.BroadcastFloat32x16(scale)
	for at := uintptr(0); at < uintptr(n)*2; at += 2 * halfStep {
		a, b := loadBFloat16(src[0], at), loadBFloat16(src[0], at+halfStep)
		for _, p := range src[1:] {
			a, b = a.Add(loadBFloat16(p, at)), b.Add(loadBFloat16(p, at+halfStep))
		}
		a, b = a.Mul(factor), b.Mul(factor)
		x, y := toBFloat16(a), toBFloat16(b)
		for _, p := range dst {
			storeHalves(x, p, at)
			storeHalves(y, p, at+halfStep)
		}
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func sumFloat16(dst, src []unsafe.Pointer, n int, scale float32) int {
	n &^= halfStep - 1
	if n == 0 || !hasAVX512 {
		return 0
	}
	factor := archsimd.BroadcastFloat32x16(scale)
	for at := uintptr(0); at < uintptr(n)*2; at += 2 * halfStep {
		a, b := loadFloat16(src[0], at), loadFloat16(src[0], at+halfStep)
		for _, p := range src[1:] {
			a, b = a.Add(loadFloat16(p, at)), b.Add(loadFloat16(p, at+halfStep))
		}
		a, b = a.Mul(factor), b.Mul(factor)
		x, y := toFloat16(a), toFloat16(b)
		for _, p := range dst {
			storeHalves(x, p, at)
			storeHalves(y, p, at+halfStep)
		}
	}
	archsimd.ClearAVXUpperBits()
	return n
}

func loadHalves(p unsafe.Pointer, at uintptr) archsimd.Uint32x16 {
	return archsimd.LoadUint16x16((*[16]uint16)(unsafe.Add(p, at))).ExtendToUint32()
}

func storeHalves(x archsimd.Uint16x16, p unsafe.Pointer, at uintptr) {
	x.Store((*[16]uint16)(unsafe.Add(p, at)))
}

// all returns a constant in every lane. Shifts to the right take their width from such, since Go 1.26 makes an
// instruction of the old kind of ShiftAllRight, which costs a hundred times as much between those of the new.
func all(x uint32) archsimd.Uint32x16 { return archsimd.BroadcastUint32x16(x) }

func loadBFloat16(p unsafe.Pointer, at uintptr) archsimd.Float32x16 {
	return loadHalves(p, at).ShiftAllLeft(16).AsFloat32x16()
}

// toBFloat16 does what narrowBFloat16 does.
func toBFloat16(x archsimd.Float32x16) archsimd.Uint16x16 {
	b := x.AsUint32x16()
	high := b.ShiftRight(all(16))
	rounded := b.Add(all(0x7fff)).Add(high.And(all(1))).ShiftRight(all(16))
	return high.Or(all(1<<6)).Merge(rounded, x.IsNaN()).TruncateToUint16()
}

// loadFloat16 does what widenFloat16 does.
func loadFloat16(p unsafe.Pointer, at uintptr) archsimd.Float32x16 {
	h := loadHalves(p, at)
	b := h.And(all(0x7fff)).ShiftAllLeft(f16Shift).Add(all(f16Rebias))
	special := b.Add(all(f16Rebias)) // infinities and NaNs
	tiny := b.Add(all(1 << 23)).AsFloat32x16().Sub(all(f16Tiny).AsFloat32x16()).AsUint32x16()
	r := tiny.Merge(b, b.Less(all(f16Rebias+1<<23)))
	r = special.Merge(r, b.GreaterEqual(all(f16Inf+f16Rebias)))
	return r.Or(h.And(all(0x8000)).ShiftAllLeft(16)).AsFloat32x16()
}

// toFloat16 does what narrowFloat16 does.
func toFloat16(x archsimd.Float32x16) archsimd.Uint16x16 {
	bits := x.AsUint32x16()
	b := bits.And(all(0x7fffffff))
	tiny := b.AsFloat32x16().Add(all(f16Align).AsFloat32x16()).AsUint32x16().Sub(all(f16Align))
	r := b.Sub(all(f16Rebias - 1<<(f16Shift-1) + 1)).Add(b.ShiftRight(all(f16Shift)).And(all(1))).ShiftRight(all(f16Shift))
	r = tiny.Merge(r, b.Less(all(f16Tiny)))
	r = all(0x7c00).Merge(r, b.GreaterEqual(all(f16Overflow)))
	r = all(0x7e00).Merge(r, x.IsNaN())
	return r.Or(bits.ShiftRight(all(16)).And(all(0x8000))).TruncateToUint16()
}
