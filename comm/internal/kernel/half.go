// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"math"
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// halfFormat is how a float of 16 bits is laid out.
type halfFormat struct {
	widen  func(f []float32, h []uint16)
	narrow func(h []uint16, f []float32) // to nearest, ties to even
}

var (
	bfloat16Format = halfFormat{widenBFloat16, narrowBFloat16}
	float16Format  = halfFormat{WidenFloat16, NarrowFloat16}
)

// reduceHalf reduces in float32 and rounds once.
func reduceHalf(format halfFormat, r transport.Reduction, scale float32, dst, src []unsafe.Pointer, from, n int, acc *Scratch) {
	floats := accumulator[float32](acc, 2*BlockElements)
	halves := view[uint16](unsafe.Pointer(acc), 4*BlockElements, BlockElements) // behind them
	for ; from < n; from += BlockElements {
		k := min(BlockElements, n-from)
		a, x := floats[:k], floats[BlockElements:BlockElements+k]
		format.widen(a, view[uint16](src[0], from, k))
		for _, p := range src[1:] {
			format.widen(x, view[uint16](p, from, k))
			fold(r, a, x)
		}
		if scale != 1 {
			multiply(a, scale)
		}
		format.narrow(halves[:k], a)
		writeAll(dst, from, halves[:k])
	}
}

func widenBFloat16(f []float32, h []uint16) {
	h = h[:len(f)]
	for i := range f {
		f[i] = math.Float32frombits(uint32(h[i]) << 16)
	}
}

func narrowBFloat16(h []uint16, f []float32) {
	h = h[:len(f)]
	for i, x := range f {
		b := math.Float32bits(x)
		if x != x {
			h[i] = uint16(b>>16) | 1<<6 // stays a NaN when its low bits go
			continue
		}
		h[i] = uint16((b + 0x7fff + b>>16&1) >> 16)
	}
}

// Layout of float16: 5 bits of exponent with bias 15, 10 of mantissa. Shifted left by 13 bits, exponent and mantissa
// are where those of a float32 are, with another bias.
const (
	f16Shift    = 13
	f16Rebias   = (127 - 15) << 23      // what a shifted exponent lacks
	f16Inf      = 0x1f << 23            // the shifted exponent of infinities and NaNs
	f16Tiny     = (127 - 14) << 23      // bits of 2⁻¹⁴: below it, float16 has no implicit leading one
	f16Overflow = (127 + 16) << 23      // bits of 2¹⁶: from it on, infinity. Less is rounded there if need be.
	f16Align    = (127 - 24 + 23) << 23 // bits of 2⁻¹: adding it aligns a tiny number's last bit with that of a float32
	f32Inf      = 0xff << 23
)

// WidenFloat16 turns the bits of float16 values into float32. That is exact.
func WidenFloat16(f []float32, h []uint16) {
	h = h[:len(f)]
	for i, x := range h {
		b := uint32(x&0x7fff)<<f16Shift + f16Rebias
		switch {
		case b >= f16Inf+f16Rebias:
			b += f16Rebias
		case b < f16Rebias+1<<23: // no implicit leading one: add it, and subtract it as a float
			b = math.Float32bits(math.Float32frombits(b+1<<23) - math.Float32frombits(f16Tiny))
		}
		f[i] = math.Float32frombits(b | uint32(x&0x8000)<<16)
	}
}

// NarrowFloat16 rounds float32 values to the bits of float16, to nearest, ties to even.
func NarrowFloat16(h []uint16, f []float32) {
	h = h[:len(f)]
	for i, x := range f {
		b := math.Float32bits(x)
		sign := uint16(b>>16) & 0x8000
		b &= 0x7fffffff
		switch {
		case b > f32Inf:
			b = 0x7e00
		case b >= f16Overflow:
			b = 0x7c00
		case b < f16Tiny:
			b = math.Float32bits(math.Float32frombits(b)+math.Float32frombits(f16Align)) - f16Align
		default:
			b = (b - f16Rebias + 1<<(f16Shift-1) - 1 + b>>f16Shift&1) >> f16Shift
		}
		h[i] = uint16(b) | sign
	}
}
