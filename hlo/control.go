// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

func init() {
	add(map[ir.OpType]rule{
		ir.OpCall:                call,
		ir.OpWhile:               while,
		ir.OpIf:                  ifElse,
		ir.OpSort:                sort,
		ir.OpOptimizationBarrier: func(w *Writer, _ *ir.Op, in []Value) []Value { return w.barrier(in) },
		ir.OpSchedulingBarrier:   func(w *Writer, _ *ir.Op, in []Value) []Value { return w.barrier(in)[:1] },
	})
}

// barrier gives the same values, of which none is there before all are.
func (w *Writer) barrier(in []Value) []Value {
	return w.emit("stablehlo.optimization_barrier", in, nil, nil, shapesOf(in)...)
}

// call calls a function, which is written after main.
func call(w *Writer, op *ir.Op, in []Value) []Value {
	if out := w.kernel(op, in); out != nil {
		return out
	}
	f := op.Funcs[0]
	if _, ok := w.funcs[f]; !ok {
		w.funcs[f] = len(w.called)
		w.called = append(w.called, f)
	}
	return w.emit("func.call", in, []string{fmt.Sprintf("callee = @f%d", w.funcs[f])}, nil, outputs(op)...)
}

// closure is the function of an op as a region. It may use values around it.
func (w *Writer) closure(f *ir.Func) region {
	r := region{body: func(args []Value) []Value {
		for i, p := range f.Params {
			w.values[p] = args[i]
		}
		return w.body(f)
	}}
	for _, p := range f.Params {
		r.params = append(r.params, p.Shape)
	}
	return r
}

func while(w *Writer, op *ir.Op, in []Value) []Value {
	return w.emit("stablehlo.while", in, nil, []region{w.closure(op.Funcs[0]), w.closure(op.Funcs[1])}, outputs(op)...)
}

func ifElse(w *Writer, op *ir.Op, in []Value) []Value {
	return w.emit("stablehlo.if", in, nil, []region{w.closure(op.Funcs[0]), w.closure(op.Funcs[1])}, outputs(op)...)
}

// sort sorts several operands together. In XLA its comparison sees nothing but the elements compared: constants that it uses are
// written inside it again, and other numbers become operands with the same number everywhere.
func sort(w *Writer, op *ir.Op, in []Value) []Value {
	a := op.Attrs.(*ir.Sort)
	f := op.Funcs[0]
	var constants, numbers []*ir.Value
	op.Captures(func(v *ir.Value) {
		switch _, isConst := v.Op.Attrs.(*ir.Constant); {
		case slices.Contains(constants, v) || slices.Contains(numbers, v):
		case isConst:
			constants = append(constants, v)
		case v.Shape.Rank() > 0:
			refuse("its comparison uses %s, which is not a number", v)
		default:
			numbers = append(numbers, v)
		}
	})
	operands, r := slices.Clone(in), w.closure(f)
	for _, v := range numbers {
		operands = append(operands, w.broadcast(w.use([]*ir.Value{v})[0], in[0].dims()))
		r.params = append(r.params, shapes.Make(v.Shape.DType), shapes.Make(v.Shape.DType))
	}
	compare := r.body
	r.body = func(args []Value) []Value {
		outside := w.use(append(slices.Clone(constants), numbers...))
		for i, v := range numbers {
			w.values[v] = args[2*(len(in)+i)]
		}
		for _, v := range constants {
			w.values[v] = w.constant(v.Op.Attrs.(*ir.Constant).Value)
		}
		results := compare(args)
		for i, v := range append(slices.Clone(constants), numbers...) {
			w.values[v] = outside[i]
		}
		return results
	}
	return w.emit("stablehlo.sort", operands, []string{integer("dimension", positive(a.Axis, in[0].rank())), boolean("is_stable", a.IsStable)},
		[]region{r}, shapesOf(operands)...)[:len(in)]
}
