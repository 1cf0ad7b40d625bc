// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// fn writes a function.
type fn struct {
	p *ir.Program
	f *ir.Func
}

func (b fn) op(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
	op := b.p.NewOp(a, in, s)
	b.f.Append(op)
	return op.Outputs[0]
}

func (b fn) param(s shapes.Shape) *ir.Value { return b.op(&ir.Parameter{Name: "p", Shape: s}, s) }

func (b fn) number(x int32) *ir.Value {
	s := shapes.Make(dtypes.Int32)
	return b.op(&ir.Constant{Value: ir.Literal{Shape: s, Flat: []int32{x}}}, s)
}

func (b fn) closure() fn { return fn{b.p, &ir.Func{Parent: b.f}} }

func (b fn) calls(a ir.Attrs, in []*ir.Value, funcs []fn, outs ...shapes.Shape) []*ir.Value {
	op := b.p.NewOp(a, in, outs...)
	for _, f := range funcs {
		op.Funcs = append(op.Funcs, f.f)
	}
	b.f.Append(op)
	return op.Outputs
}

// controlled is a loop around a choice and a call, all of which capture: x ← ±tanh(x·w), n times, with n an input.
func controlled() *ir.Program {
	p := ir.NewProgram("controlled")
	main := fn{p, p.Main}
	count, matrix, flag := shapes.Make(dtypes.Int32), shapes.Make(dtypes.Float32, 5, 5), shapes.Make(dtypes.Bool)
	n, x, w := main.param(count), main.param(matrix), main.param(matrix)

	squash := fn{p, &ir.Func{Name: "squash"}}
	p.Funcs = append(p.Funcs, squash.f)
	squash.f.Outputs = []*ir.Value{squash.op(&ir.Tanh{}, matrix, squash.param(matrix))}

	cond, body := main.closure(), main.closure()
	i, _ := cond.param(count), cond.param(matrix)
	cond.f.Outputs = []*ir.Value{cond.op(&ir.LessThan{}, flag, i, n)}

	j, y := body.param(count), body.param(matrix)
	dot := body.op(&ir.DotGeneral{LHSContractingAxes: []int{1}, RHSContractingAxes: []int{0}}, matrix, y, w)
	z := body.calls(&ir.Call{}, []*ir.Value{dot}, []fn{squash}, matrix)[0]
	z = body.calls(&ir.Call{}, []*ir.Value{z}, []fn{squash}, matrix)[0]
	even := body.op(&ir.Equal{}, flag, body.op(&ir.Rem{}, count, j, body.number(2)), body.number(0))
	yes, no := body.closure(), body.closure()
	yes.f.Outputs = []*ir.Value{yes.op(&ir.Neg{}, matrix, z)}
	no.f.Outputs = []*ir.Value{no.op(&ir.Add{}, matrix, z, y)}
	chosen := body.calls(&ir.If{}, []*ir.Value{even}, []fn{yes, no}, matrix)[0]
	body.f.Outputs = []*ir.Value{body.op(&ir.Add{}, count, j, body.number(1)), chosen}

	outs := main.calls(&ir.While{}, []*ir.Value{main.number(0), x}, []fn{cond, body}, count, matrix)
	p.Main.Outputs = []*ir.Value{outs[0], main.op(&ir.Exp{}, matrix, outs[1])}
	return p
}

// byHand computes what the program does. GoMLX's backend is no measure here: on a busy machine its loops give other results.
func byHand(n int32, x, w []float32) []any {
	for i := range n {
		next := make([]float32, 25)
		for k := range next {
			var dot float64
			for j := range 5 {
				dot += float64(x[k/5*5+j]) * float64(w[j*5+k%5])
			}
			next[k] = float32(math.Tanh(math.Tanh(dot)))
			if i%2 == 0 {
				next[k] = -next[k]
			} else {
				next[k] += x[k]
			}
		}
		x = next
	}
	out := make([]float32, 25)
	for k := range out {
		out[k] = float32(math.Exp(float64(x[k])))
	}
	return []any{[]int32{n}, out}
}

func TestControlFlowRunsOnTheEngine(t *testing.T) {
	list := engines(t)
	p := controlled()
	numbers := func(f func(i int) float32) []float32 {
		s := make([]float32, 25)
		for i := range s {
			s[i] = f(i)
		}
		return s
	}
	for _, n := range []int32{0, 1, 7} {
		x, w := numbers(func(i int) float32 { return float32(i%7) / 4 }), numbers(func(i int) float32 { return float32(i%5)/8 - 0.2 })
		inputs, want := []any{[]int32{n}, x, w}, byHand(n, x, w)
		var first []any
		for name, b := range list {
			for range 2 {
				got := execute(t, b, p, inputs)
				if first == nil {
					first = got
				}
				for i := range got {
					if err := same(want[i], got[i], 1e-5); err != nil {
						t.Errorf("%s, %d times: output %d: %v", name, n, i, err)
					}
					if err := bits(first[i], got[i]); err != nil {
						t.Errorf("%s, %d times: output %d of another engine: %v", name, n, i, err)
					}
				}
			}
		}
	}
	b := cpu.New(opByOp(t), 1)
	defer b.Finalize()
	l, err := b.Plan(emit.Whole(p))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range l.Steps {
		if s.Kind == emit.Fallback {
			t.Errorf("%s runs on another backend", s.What)
		}
	}
}
