// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"math"

	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/exec/lower"
)

// halved is float32 values on their way as float16. How large they are is not known before they are there: with a loss scale, or weights
// of hundreds, they may be beyond float16, and without they may be too small for it. So ranks first agree in the largest of each
// value, and scale it accordingly; that takes a call of one number per value.
type halved struct {
	values  []travel
	largest []float32 // by value: of this rank, then of all
	ranks   int       // that are added up
	prefer  float64   // communication.fp16_scale: the scale, where it fits
}

// travel is a value, which may lie in several places, and what goes over the wire for it.
type travel struct {
	from [][]float32
	to   [][]float16.Float16
}

// add puts a value on the list, and returns its index.
func (h *halved) add(t travel) int {
	h.values, h.largest = append(h.values, t), append(h.largest, 0)
	return len(h.values) - 1
}

// agree is the call by which ranks agree in the largest element of each value.
func (h *halved) agree() comm.Call {
	return comm.Call{Op: comm.AllReduce, Buf: h.largest, Reduction: comm.Max, Before: func() {
		for i, v := range h.values {
			for _, x := range v.from {
				h.largest[i] = max(h.largest[i], largestFinite(x))
			}
		}
	}}
}

// narrow makes float16 of a value, when ranks have agreed. It overwrites what it came from.
func (h *halved) narrow(i int) {
	scale := float32(h.scale(i))
	for j, x := range h.values[i].from {
		for k := range x {
			x[k] *= scale
		}
		comm.ToFloat16(h.values[i].to[j], x)
	}
}

// widen makes float32 of float16 that was reduced, times a factor.
func (h *halved) widen(i int, to []float32, from []float16.Float16, factor float64) {
	comm.FromFloat16(to, from)
	down := float32(factor / h.scale(i))
	for k := range to {
		to[k] *= down
	}
}

// scale is what a value is multiplied by on its way: what is preferred, unless the sum over all ranks could be beyond float16, or even
// the largest element would be below 1, where small ones are lost; then the largest power of 2 with which the sum fits.
func (h *halved) scale(i int) float64 {
	largest := float64(h.largest[i])
	sum := largest * float64(h.ranks)
	if largest == 0 || largest*h.prefer >= 1 && sum*h.prefer <= lower.LargestHalf {
		return h.prefer
	}
	_, exponent := math.Frexp(lower.LargestHalf / sum) // in [2^(exponent-1), 2^exponent)
	return math.Ldexp(1, min(exponent-1, 127))         // more is beyond float32
}

// largestFinite is the largest absolute value among those that are numbers: others travel as what they are. As bits without their
// sign, floats have the order of integers, with infinities and NaN above all numbers.
func largestFinite(x []float32) float32 {
	const sign, infinite = 1 << 31, 0xff << 23
	var m [4]uint32 // which do not wait for each other
	k := 0
	for ; k+4 <= len(x); k += 4 {
		y := x[k : k+4 : k+4]
		m[0] = max(m[0], math.Float32bits(y[0])&^sign)
		m[1] = max(m[1], math.Float32bits(y[1])&^sign)
		m[2] = max(m[2], math.Float32bits(y[2])&^sign)
		m[3] = max(m[3], math.Float32bits(y[3])&^sign)
	}
	for _, f := range x[k:] {
		m[0] = max(m[0], math.Float32bits(f)&^sign)
	}
	largest := max(m[0], m[1], m[2], m[3])
	if largest >= infinite { // something is no number: leave it out
		largest = 0
		for _, f := range x {
			if b := math.Float32bits(f) &^ sign; b < infinite {
				largest = max(largest, b)
			}
		}
	}
	return math.Float32frombits(largest)
}
