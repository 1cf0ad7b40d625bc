// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// fallbacks has products of integers that are added up in another type, which GoMLX's backend computes: one of an input, one of what the engine computes, one of both their results, and
// one of a constant.
func fallbacks() (*ir.Program, []any) {
	p := ir.NewProgram("fallbacks")
	s := shapes.Make(dtypes.Int32, 3, 3)
	op := func(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
		op := p.NewOp(a, in, s)
		p.Main.Append(op)
		return op.Outputs[0]
	}
	dot := &ir.DotGeneral{LHSContractingAxes: []int{1}, RHSContractingAxes: []int{0}, Config: compute.DotGeneralConfig{AccumulatorDType: dtypes.Int64}}
	x := op(&ir.Parameter{Name: "arg0", Shape: s}, s)
	y := op(&ir.Add{}, s, x, op(&ir.Constant{Value: ir.Literal{Shape: shapes.Make(dtypes.Int32), Flat: []int32{1}}}, shapes.Make(dtypes.Int32)))
	given, computed := op(dot, s, x, x), op(dot, s, y, y)
	results := op(dot, s, given, computed)
	constant := op(dot, s, results, op(&ir.Constant{Value: ir.Literal{Shape: s, Flat: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}}}, s))
	p.Main.Outputs = []*ir.Value{op(&ir.Neg{}, s, constant), results}
	return p, []any{[]int32{1, 2, 0, -3, 1, 2, 2, 0, 1}}
}

func TestFallbacksCopyOnlyWhatTheSegmentIsGiven(t *testing.T) {
	p, _ := fallbacks()
	b := cpu.New(opByOp(t), 1)
	defer b.Finalize()
	l, err := b.Plan(emit.Whole(p))
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, s := range l.Steps {
		if s.Kind == emit.Fallback {
			got = append(got, s.Copied)
		}
	}
	if want := fmt.Sprint([]int64{36, 0, 0, 0}); fmt.Sprint(got) != want {
		t.Errorf("fallbacks copy %v bytes, not %v", got, want)
	}
}

func TestFallbacksReadInPlaceRunAfterRun(t *testing.T) {
	oracle, list := opByOp(t), engines(t)
	defer oracle.Finalize()
	p, inputs := fallbacks()
	want := execute(t, oracle, p, inputs)
	for name, b := range list {
		for range 3 {
			for i, got := range execute(t, b, p, inputs) {
				if err := bits(want[i], got); err != nil {
					t.Errorf("%s: output %d: %v", name, i, err)
				}
			}
		}
		// Memory of the other backend comes back as an input, and is lent, not given.
		x, err := emit.Program(b, p)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Finalize()
		in, err := b.BufferFromFlatData(0, inputs[0], p.Main.Params[0].Shape)
		if err != nil {
			t.Fatal(err)
		}
		inner := inputs
		for range 3 {
			outs, err := x.Execute([]compute.Buffer{in}, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			next := make([]int32, 9)
			if err := outs[1].ToFlatData(next); err != nil {
				t.Fatal(err)
			}
			if err := bits(execute(t, oracle, p, inner)[1], next); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			in, inner = outs[1], []any{next}
		}
	}
}
