// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import "unsafe"

// strided copies ranges of a view into contiguous memory. Strides and sizes are in bytes.
type strided struct {
	dims, strides []int // outer dims, in bytes
	inner         int   // elements of the innermost dim
	step          int   // bytes between them
	elem          int
}

func newStrided(v view, elem int) *strided {
	d, s := squeeze(v.dims, v.strides)
	x := &strided{inner: 1, elem: elem}
	if k := len(d) - 1; k >= 0 {
		x.inner, x.step = d[k], s[k]*elem
		for i := range k {
			x.dims, x.strides = append(x.dims, d[i]), append(x.strides, s[i]*elem)
		}
	}
	return x
}

// load writes elements start … start+n-1 of the view at src to dst.
func (x *strided) load(dst, src unsafe.Pointer, start, n int) {
	var at [16]int
	index := at[:len(x.dims)]
	skip := start % x.inner
	rest := start / x.inner
	offset := 0
	for i := len(x.dims) - 1; i >= 0; i-- {
		index[i] = rest % x.dims[i]
		rest /= x.dims[i]
		offset += index[i] * x.strides[i]
	}
	for n > 0 {
		run := min(n, x.inner-skip)
		copyStrided(dst, unsafe.Add(src, offset+skip*x.step), run, x.step, x.elem)
		if n -= run; n == 0 {
			return
		}
		dst = unsafe.Add(dst, run*x.elem)
		skip = 0
		for i := len(x.dims) - 1; i >= 0; i-- {
			index[i]++
			offset += x.strides[i]
			if index[i] < x.dims[i] {
				break
			}
			offset -= x.dims[i] * x.strides[i]
			index[i] = 0
		}
	}
}

// copyStrided copies n elements that lie step bytes apart.
func copyStrided(dst, src unsafe.Pointer, n, step, elem int) {
	switch {
	case step == elem:
		copy(unsafe.Slice((*byte)(dst), n*elem), unsafe.Slice((*byte)(src), n*elem))
	case elem == 4:
		gather[uint32](dst, src, n, step)
	case elem == 8:
		gather[uint64](dst, src, n, step)
	case elem == 2:
		gather[uint16](dst, src, n, step)
	default:
		gather[uint8](dst, src, n, step)
	}
}

func gather[T any](dst, src unsafe.Pointer, n, step int) {
	d := unsafe.Slice((*T)(dst), n)
	if step == 0 {
		v := *(*T)(src)
		for i := range d {
			d[i] = v
		}
		return
	}
	at := 0
	for i := range d {
		d[i] = *(*T)(unsafe.Add(src, at))
		at += step
	}
}
