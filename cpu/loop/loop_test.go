// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package loop

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/easyparallel/epl/cpu/isa"
)

// interpret computes one element of every value, as Go does.
func interpret(p *Program, operands []float32) []float32 {
	values := append([]float32(nil), operands...)
	for _, in := range p.Instrs {
		x, y := values[in.A], values[in.B]
		var d float32
		switch in.Op {
		case Add:
			d = x + y
		case Sub:
			d = x - y
		case Mul:
			d = x * y
		case Div:
			d = x / y
		case Sqrt:
			d = float32(math.Sqrt(float64(x)))
		case Neg:
			d = -x
		case Abs:
			d = math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
		}
		values = append(values, d)
	}
	return values
}

// random is a program of so many operands, instructions and stores.
func random(r *rand.Rand, streams, scalars, instrs, stores int) *Program {
	p := &Program{}
	for range streams {
		p.Operands = append(p.Operands, Operand{Prefetch: r.IntN(2) == 0})
	}
	for range scalars {
		p.Operands = append(p.Operands, Operand{Scalar: true})
	}
	ops := []Op{Add, Sub, Mul, Div, Sqrt, Neg, Abs}
	for i := range instrs {
		values := streams + scalars + i
		p.Instrs = append(p.Instrs, Instr{ops[r.IntN(len(ops))], r.IntN(values), r.IntN(values)})
	}
	for _, i := range r.Perm(instrs)[:stores] {
		p.Stores = append(p.Stores, Store{streams + scalars + i, r.IntN(2) == 0})
	}
	return p
}

func compileFor(t testing.TB, p *Program) *Func {
	t.Helper()
	if isa.Current() != isa.AVX512 {
		t.Skipf("there are no loops for %s", isa.Current())
	}
	return Compile(p)
}

var special = []float32{0, float32(math.Copysign(0, -1)), 1, -1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 1e-45, -1e-40, math.MaxFloat32}

// TestRandom compares loops of random programs with Go, for rows of all lengths and strides that are longer than a row.
func TestRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	made := 0
	for round := range 600 {
		streams, scalars, instrs := 1+r.IntN(5), r.IntN(6), 1+r.IntN(20)
		stores := 1 + r.IntN(min(instrs, 5))
		p := random(r, streams, scalars, instrs, stores)
		f := compileFor(t, p)
		if f == nil {
			t.Fatalf("%v has no loop", *p)
		}
		made++
		rows, cols := 1+r.IntN(3), r.IntN(70)
		stride := cols + r.IntN(5)
		number := func() float32 {
			if r.IntN(8) == 0 {
				return special[r.IntN(len(special))]
			}
			return float32(r.NormFloat64())
		}
		var x Args
		var in, out [][]float32
		for i, o := range p.Operands {
			s := make([]float32, rows*stride+1)
			for k := range s {
				s[k] = number()
			}
			in = append(in, s)
			x.Pointers[i], x.Strides[i] = uintptr(unsafe.Pointer(&s[0])), 4*stride
			if o.Scalar && r.IntN(2) == 0 {
				x.Strides[i] = 0
			}
		}
		strides := x.Strides
		const untouched = 12345
		for i := range p.Stores {
			s := make([]float32, rows*stride+1)
			for k := range s {
				s[k] = untouched
			}
			out = append(out, s)
			n := len(p.Operands) + i
			x.Pointers[n], x.Strides[n] = uintptr(unsafe.Pointer(&s[0])), 4*stride
		}
		f.Run(&x, rows, cols)
		for row := range rows {
			for col := range stride {
				if col >= cols {
					for i := range out {
						if out[i][row*stride+col] != untouched {
							t.Fatalf("round %d: %v wrote element %d of a row of %d", round, *p, col, cols)
						}
					}
					continue
				}
				var operands []float32
				for i, o := range p.Operands {
					at := row * strides[i] / 4
					if !o.Scalar {
						at += col
					}
					operands = append(operands, in[i][at])
				}
				want := interpret(p, operands)
				for i, v := range p.Stores {
					got := out[i][row*stride+col]
					if math.Float32bits(got) != math.Float32bits(want[v.Value]) && !(got != got && want[v.Value] != want[v.Value]) {
						t.Fatalf("round %d: %v: row %d, element %d, store %d is %g, want %g", round, *p, row, col, i, got, want[v.Value])
					}
				}
			}
		}
	}
	t.Logf("%d loops", made)
}

// TestInPlace: results may lie where operands are.
func TestInPlace(t *testing.T) {
	p := &Program{Operands: []Operand{{}, {Scalar: true}}, Instrs: []Instr{{Mul, 0, 1}, {Add, 2, 0}}, Stores: []Store{{Value: 3}}}
	f := compileFor(t, p)
	a, s := make([]float32, 37), float32(3)
	for i := range a {
		a[i] = float32(i)
	}
	var x Args
	x.Pointers[0], x.Pointers[1], x.Pointers[2] = uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&s)), uintptr(unsafe.Pointer(&a[0]))
	f.Run(&x, 1, len(a))
	for i := range a {
		if a[i] != float32(4*i) {
			t.Fatalf("element %d is %g, want %d", i, a[i], 4*i)
		}
	}
}

// TestUnknown: an op that loops do not have is no loop.
func TestUnknown(t *testing.T) {
	p := &Program{Operands: []Operand{{}}, Instrs: []Instr{{"Exp", 0, 0}}, Stores: []Store{{Value: 1}}}
	if compileFor(t, p) != nil {
		t.Error("Exp has a loop")
	}
}

// TestTooMany: a program that needs more registers than there are has no loop.
func TestTooMany(t *testing.T) {
	for _, n := range []int{maxStreams, maxStreams + 1} {
		p := &Program{Operands: make([]Operand, n-1), Instrs: []Instr{{Neg, 0, 0}}, Stores: []Store{{Value: n - 1}}}
		if f := compileFor(t, p); (f == nil) != (n > maxStreams) {
			t.Errorf("%d streams have a loop: %t", n, f != nil)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	p := random(r, 2, 18, 4, 1)
	for i := range 40 { // all are read again at the end
		p.Instrs = append(p.Instrs, Instr{Op: Add, A: i % 2, B: 2})
	}
	first := len(p.Operands) + 4
	for i := range 40 {
		p.Instrs = append(p.Instrs, Instr{Op: Add, A: first + i, B: first + 39 - i})
	}
	if compileFor(t, p) != nil {
		t.Error("40 values at a time have a loop")
	}
}

// TestOnce: equal programs share their code.
func TestOnce(t *testing.T) {
	a, b := random(rand.New(rand.NewPCG(3, 4)), 2, 2, 4, 2), random(rand.New(rand.NewPCG(3, 4)), 2, 2, 4, 2)
	if f := compileFor(t, a); f == nil || f != Compile(b) {
		t.Error("equal programs have two loops")
	}
}

func BenchmarkAdam(b *testing.B) {
	p := &Program{Operands: []Operand{{Prefetch: true}, {Prefetch: true}, {Prefetch: true}, {Prefetch: true}, {Scalar: true}, {Scalar: true}}}
	v := func(op Op, a, b int) int {
		p.Instrs = append(p.Instrs, Instr{op, a, b})
		return len(p.Operands) + len(p.Instrs) - 1
	}
	m := v(Add, v(Mul, 0, 4), v(Mul, 3, 5))
	w := v(Add, v(Mul, 1, 4), v(Mul, v(Mul, 3, 3), 5))
	u := v(Sub, 2, v(Div, v(Mul, v(Mul, m, 5), 4), v(Add, v(Sqrt, v(Mul, w, 5), 0), 4)))
	p.Stores = []Store{{m, true}, {w, true}, {u, true}}
	f := compileFor(b, p)
	for _, n := range []int{1 << 12, 1 << 22} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var s [4][]float32
			for i := range s {
				s[i] = make([]float32, n)
				for k := range s[i] {
					s[i][k] = 1
				}
			}
			scalar := float32(0.5)
			b.SetBytes(int64(n * 28))
			for b.Loop() {
				var x Args
				for i, at := range []*float32{&s[0][0], &s[1][0], &s[2][0], &s[3][0], &scalar, &scalar, &s[0][0], &s[1][0], &s[2][0]} {
					x.Pointers[i] = uintptr(unsafe.Pointer(at))
				}
				f.Run(&x, 1, n)
			}
		})
	}
}
