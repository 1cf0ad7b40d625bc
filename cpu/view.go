// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// view says how a value lies in the memory of another one, its root: strides are in elements, 0 where it is broadcast
// and negative where it is reversed. Reshape, Transpose, BroadcastInDim, Slice and Reverse are views wherever strides can
// say what they do: then nothing is copied.
type view struct {
	root    *ir.Value
	offset  int
	dims    []int
	strides []int
}

func (v view) size() int { return product(v.dims) }

// linear tells whether the view is its root, element by element in the same order.
func (v view) linear() bool {
	d, s := squeeze(v.dims, v.strides)
	return v.offset == 0 && v.size() == v.root.Shape.Size() && (len(d) == 0 || len(d) == 1 && s[0] == 1)
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// rowMajor are the strides of a tensor of these dims.
func rowMajor(dims []int) []int {
	s := make([]int, len(dims))
	n := 1
	for i := len(dims) - 1; i >= 0; i-- {
		s[i] = n
		n *= dims[i]
	}
	return s
}

// squeeze drops dims of size 1 and joins neighbours that one stride can walk.
func squeeze(dims, strides []int) (d, s []int) {
	for i := range dims {
		if dims[i] == 1 {
			continue
		}
		if k := len(d) - 1; k >= 0 && s[k] == strides[i]*dims[i] {
			d[k] *= dims[i]
			s[k] = strides[i]
			continue
		}
		d, s = append(d, dims[i]), append(s, strides[i])
	}
	return d, s
}

// reshaped are the strides of a view with other dims; ok is false if there are none.
func reshaped(dims, strides, to []int) (_ []int, ok bool) {
	d, s := squeeze(dims, strides)
	out := make([]int, len(to))
	k := len(d) - 1 // the dim that is being used up, from behind
	left, step := 1, 1
	if k >= 0 {
		left = d[k]
	}
	for i := len(to) - 1; i >= 0; i-- {
		if to[i] == 1 {
			continue
		}
		if k < 0 || left%to[i] != 0 {
			return nil, false
		}
		out[i] = s[k] * step
		step *= to[i]
		if left /= to[i]; left == 1 {
			k--
			step = 1
			if k >= 0 {
				left = d[k]
			}
		}
	}
	return out, true
}

// cutAt divides dims and strides so that the inner ones have inner elements together; ok is false if that is between
// elements of no dim.
func cutAt(dims, strides []int, inner int) (outerDims, outerStrides, innerDims, innerStrides []int, ok bool) {
	n := 1
	i := len(dims)
	for i > 0 && n < inner {
		if n*dims[i-1] > inner {
			break
		}
		i--
		n *= dims[i]
	}
	outerDims, outerStrides = slices.Clone(dims[:i]), slices.Clone(strides[:i])
	innerDims, innerStrides = slices.Clone(dims[i:]), slices.Clone(strides[i:])
	if n == inner {
		return outerDims, outerStrides, innerDims, innerStrides, true
	}
	if i == 0 || inner%n != 0 || dims[i-1]%(inner/n) != 0 {
		return nil, nil, nil, nil, false
	}
	in, stride := inner/n, strides[i-1]
	outerDims[i-1], outerStrides[i-1] = dims[i-1]/in, stride*in
	return outerDims, outerStrides, append([]int{in}, innerDims...), append([]int{stride}, innerStrides...), true
}

// views finds the view of every value of a segment.
type views map[*ir.Value]view

func dimsOf(v *ir.Value) []int { return v.Shape.Dimensions }

// of returns the view of a value: that of its root if it has none of its own.
func (vs views) of(v *ir.Value) view {
	if w, ok := vs[v]; ok {
		return w
	}
	return view{root: v, dims: dimsOf(v), strides: rowMajor(dimsOf(v))}
}

// add tells whether an op is a view of its input, and if so remembers it.
func (vs views) add(op *ir.Op) bool {
	if len(op.Inputs) == 0 || op.Inputs[0] == nil || !plain(op.Inputs[0]) || !plain(op.Outputs[0]) {
		return false
	}
	in, out := vs.of(op.Inputs[0]), op.Outputs[0]
	w := view{root: in.root, offset: in.offset, dims: dimsOf(out), strides: make([]int, out.Shape.Rank())}
	switch a := op.Attrs.(type) {
	case *ir.Identity, *ir.OptimizationBarrier, *ir.SchedulingBarrier:
		if len(op.Outputs) != 1 || len(op.Inputs) != 1 {
			return false
		}
		w.strides = in.strides
	case *ir.Transpose:
		for i, k := range a.Permutation {
			w.strides[i] = in.strides[k]
		}
	case *ir.Reshape:
		s, ok := reshaped(in.dims, in.strides, w.dims)
		if !ok {
			return false
		}
		w.strides = s
	case *ir.BroadcastInDim:
		for i, k := range a.BroadcastAxes {
			if in.dims[i] == w.dims[k] {
				w.strides[k] = in.strides[i]
			}
		}
	case *ir.Slice:
		for i := range w.dims {
			step := 1
			if len(a.Strides) > 0 {
				step = a.Strides[i]
			}
			w.offset += a.Starts[i] * in.strides[i]
			w.strides[i] = in.strides[i] * step
		}
	case *ir.Reverse:
		copy(w.strides, in.strides)
		for _, k := range a.Axes {
			w.offset += (in.dims[k] - 1) * in.strides[k]
			w.strides[k] = -in.strides[k]
		}
	default:
		return false
	}
	vs[out] = w
	return true
}
