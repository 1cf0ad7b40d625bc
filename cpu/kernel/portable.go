// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package kernel

import "unsafe"

// row is row i of an operand: n elements, or the one that stands for them.
func row[T any](p unsafe.Pointer, stride, i, n int) []T {
	return unsafe.Slice((*T)(unsafe.Add(p, i*stride)), n)
}

// one reads the element that stands for row i.
func one[T any](p unsafe.Pointer, stride, i int) T { return *(*T)(unsafe.Add(p, i*stride)) }

// unary makes a kernel of a function of one element. An operand that is one element per row gives a filled row. Inlined, its loops would be compiled for every function, which they
// call for every element all the same: that triples the time to compile this package.
//
//go:noinline
func unary[A, D any](f func(A) D) map[Form]Func {
	return map[Form]Func{
		0: func(x *Args) {
			for r := range x.Rows {
				d, a := row[D](x.D, x.SD, r, x.Cols), row[A](x.A, x.SA, r, x.Cols)
				for i := range d {
					d[i] = f(a[i])
				}
			}
		},
		ScalarA: func(x *Args) {
			for r := range x.Rows {
				d, v := row[D](x.D, x.SD, r, x.Cols), f(one[A](x.A, x.SA, r))
				for i := range d {
					d[i] = v
				}
			}
		},
	}
}

// binary makes the kernels of a function of two elements.
//
//go:noinline
func binary[A, D any](f func(a, b A) D) map[Form]Func {
	return map[Form]Func{
		0: func(x *Args) {
			for r := range x.Rows {
				d, a, b := row[D](x.D, x.SD, r, x.Cols), row[A](x.A, x.SA, r, x.Cols), row[A](x.B, x.SB, r, x.Cols)
				for i := range d {
					d[i] = f(a[i], b[i])
				}
			}
		},
		ScalarB: func(x *Args) {
			for r := range x.Rows {
				d, a, b := row[D](x.D, x.SD, r, x.Cols), row[A](x.A, x.SA, r, x.Cols), one[A](x.B, x.SB, r)
				for i := range d {
					d[i] = f(a[i], b)
				}
			}
		},
		ScalarA: func(x *Args) {
			for r := range x.Rows {
				d, a, b := row[D](x.D, x.SD, r, x.Cols), one[A](x.A, x.SA, r), row[A](x.B, x.SB, r, x.Cols)
				for i := range d {
					d[i] = f(a, b[i])
				}
			}
		},
	}
}

// where chooses B where A is true, else C.
func where[T any](form Form) Func {
	return func(x *Args) {
		for r := range x.Rows {
			d := row[T](x.D, x.SD, r, x.Cols)
			if form&ScalarA != 0 {
				p, s, scalar := x.C, x.SC, form&ScalarC != 0
				if one[bool](x.A, x.SA, r) {
					p, s, scalar = x.B, x.SB, form&ScalarB != 0
				}
				if scalar {
					v := one[T](p, s, r)
					for i := range d {
						d[i] = v
					}
				} else {
					copy(d, row[T](p, s, r, x.Cols))
				}
				continue
			}
			a := row[bool](x.A, x.SA, r, x.Cols)
			switch form {
			case 0:
				b, c := row[T](x.B, x.SB, r, x.Cols), row[T](x.C, x.SC, r, x.Cols)
				for i := range d {
					v := c[i]
					if a[i] {
						v = b[i]
					}
					d[i] = v
				}
			case ScalarB:
				b, c := one[T](x.B, x.SB, r), row[T](x.C, x.SC, r, x.Cols)
				for i := range d {
					v := c[i]
					if a[i] {
						v = b
					}
					d[i] = v
				}
			case ScalarC:
				b, c := row[T](x.B, x.SB, r, x.Cols), one[T](x.C, x.SC, r)
				for i := range d {
					v := c
					if a[i] {
						v = b[i]
					}
					d[i] = v
				}
			default:
				b, c := one[T](x.B, x.SB, r), one[T](x.C, x.SC, r)
				for i := range d {
					v := c
					if a[i] {
						v = b
					}
					d[i] = v
				}
			}
		}
	}
}

// The loops that matter most on CPUs without kernels in assembly: calling a function for every element would cost more
// than the element.

func add[T number]() map[Form]Func {
	m := binary(func(a, b T) T { return a + b })
	m[0] = func(x *Args) {
		for r := range x.Rows {
			d, a, b := row[T](x.D, x.SD, r, x.Cols), row[T](x.A, x.SA, r, x.Cols), row[T](x.B, x.SB, r, x.Cols)
			for i := range d {
				d[i] = a[i] + b[i]
			}
		}
	}
	m[ScalarB] = func(x *Args) {
		for r := range x.Rows {
			d, a, b := row[T](x.D, x.SD, r, x.Cols), row[T](x.A, x.SA, r, x.Cols), one[T](x.B, x.SB, r)
			for i := range d {
				d[i] = a[i] + b
			}
		}
	}
	return m
}

func sub[T number]() map[Form]Func {
	m := binary(func(a, b T) T { return a - b })
	m[0] = func(x *Args) {
		for r := range x.Rows {
			d, a, b := row[T](x.D, x.SD, r, x.Cols), row[T](x.A, x.SA, r, x.Cols), row[T](x.B, x.SB, r, x.Cols)
			for i := range d {
				d[i] = a[i] - b[i]
			}
		}
	}
	return m
}

func mul[T number]() map[Form]Func {
	m := binary(func(a, b T) T { return a * b })
	m[0] = func(x *Args) {
		for r := range x.Rows {
			d, a, b := row[T](x.D, x.SD, r, x.Cols), row[T](x.A, x.SA, r, x.Cols), row[T](x.B, x.SB, r, x.Cols)
			for i := range d {
				d[i] = a[i] * b[i]
			}
		}
	}
	m[ScalarB] = func(x *Args) {
		for r := range x.Rows {
			d, a, b := row[T](x.D, x.SD, r, x.Cols), row[T](x.A, x.SA, r, x.Cols), one[T](x.B, x.SB, r)
			for i := range d {
				d[i] = a[i] * b
			}
		}
	}
	return m
}
