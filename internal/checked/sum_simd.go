// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build goexperiment.simd && amd64

package checked

import (
	"hash/crc32"
	"simd/archsimd"
	"unsafe"
)

// Package crc32 uses the processor's instruction for CRC-32C, eight bytes at a time. Carry-less multiplication of vectors does
// 64 at a time: data are a polynomial over GF(2), and what is a distance d ahead of other data can be added to them once it is
// multiplied by x^d modulo the CRC's polynomial, which changes the polynomial, but not its remainder. Four vectors at a time
// are folded into the next four, and what is left at the end, 64 bytes with the same CRC as all of them, is given to crc32.

var (
	folds    = archsimd.X86.AVX512() && archsimd.X86.AVX512VPCLMULQDQ()
	foldFour = factors(4 * 512)
	foldOne  = factors(512)
)

// factors are what vectors are multiplied by to be moved by some bits: for the low and the high half of each 128 bits. That
// the bits are in reversed order, and the factors have 32 of 64, accounts for the difference to the distance.
func factors(distance int) (f [8]uint64) {
	for i := range f {
		f[i] = uint64(power(distance + 31 - 64*(i%2)))
	}
	return f
}

// power returns x^n modulo the polynomial, the bits in reversed order.
func power(n int) uint32 {
	p := uint32(1 << 31)
	for range n {
		low := p & 1
		p >>= 1
		if low != 0 {
			p ^= crc32.Castagnoli
		}
	}
	return p
}

// fold adds the first bytes of data to a CRC, if they are many, and returns how many.
func fold(sum uint32, data []byte) (uint32, int) {
	const step, width = 256, 64 // bytes
	if !folds || len(data) < 2*step {
		return sum, 0
	}
	n := len(data) &^ (step - 1)
	p := unsafe.Pointer(unsafe.SliceData(data))
	load := func(at int) archsimd.Uint64x8 { return archsimd.LoadUint64x8((*[8]uint64)(unsafe.Add(p, at))) }
	move := func(x, by archsimd.Uint64x8) archsimd.Uint64x8 {
		return x.CarrylessMultiplyGrouped(0, 0, by).Xor(x.CarrylessMultiplyGrouped(1, 1, by))
	}
	start := [8]uint64{uint64(^sum)}
	a, b, c, d := load(0).Xor(archsimd.LoadUint64x8(&start)), load(width), load(2*width), load(3*width)
	by := archsimd.LoadUint64x8(&foldFour)
	for at := step; at < n; at += step {
		a, b = move(a, by).Xor(load(at)), move(b, by).Xor(load(at+width))
		c, d = move(c, by).Xor(load(at+2*width)), move(d, by).Xor(load(at+3*width))
	}
	by = archsimd.LoadUint64x8(&foldOne)
	b = move(a, by).Xor(b)
	c = move(b, by).Xor(c)
	d = move(c, by).Xor(d)
	var rest [width]byte
	d.Store((*[8]uint64)(unsafe.Pointer(&rest)))
	archsimd.ClearAVXUpperBits() // else other code on this thread becomes slow
	return crc32.Update(^uint32(0), castagnoli, rest[:]), n
}
