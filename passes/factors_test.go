// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// A merge has factors if it adds up a product over samples, which may be transposed as a whole.
func TestFactorsOfGradients(t *testing.T) {
	type dims = []int
	for _, c := range []struct {
		name           string
		lhs, rhs       dims
		left, right    dims // contracted
		turn           dims // the transpose; nil: none
		fixed          bool // the right operand is the same for all instances
		rows, columns  dims // nil: there are none
		row            int
		contractedRows dims
	}{
		{name: "plain", lhs: dims{2, 600}, rhs: dims{2, 700}, left: dims{0}, right: dims{0}, rows: dims{2, 600}, columns: dims{2, 700}, row: 1, contractedRows: dims{0}},
		{name: "transposed", lhs: dims{2, 700}, rhs: dims{2, 600}, left: dims{0}, right: dims{0}, turn: dims{1, 0}, rows: dims{2, 600}, columns: dims{2, 700}, row: 1, contractedRows: dims{0}},
		{name: "tokens", lhs: dims{2, 3, 600}, rhs: dims{2, 3, 700}, left: dims{0, 1}, right: dims{0, 1}, rows: dims{2, 3, 600}, columns: dims{2, 3, 700}, row: 2, contractedRows: dims{0, 1}},
		{name: "heads", lhs: dims{2, 600}, rhs: dims{2, 70, 10}, left: dims{0}, right: dims{0}, turn: dims{1, 2, 0}, rows: dims{2, 70, 10}, columns: dims{2, 600}, row: 1, contractedRows: dims{0}},
		{name: "mixed up", lhs: dims{2, 600}, rhs: dims{2, 70, 10}, left: dims{0}, right: dims{0}, turn: dims{2, 1, 0}},
		{name: "forward", lhs: dims{2, 600}, rhs: dims{600, 700}, left: dims{1}, right: dims{0}},
		{name: "other pairs", lhs: dims{3, 3, 600}, rhs: dims{3, 3, 700}, left: dims{0, 1}, right: dims{1, 0}},
		{name: "fixed", lhs: dims{2, 600}, rhs: dims{2, 700}, left: dims{0}, right: dims{0}, fixed: true},
		{name: "vector", lhs: dims{2, 600}, rhs: dims{2}, left: dims{0}, right: dims{0}},
		{name: "vector on the left", lhs: dims{2}, rhs: dims{2, 600}, left: dims{0}, right: dims{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &ir.Program{}
			operand := func(d dims, varying bool) *ir.Value {
				op := p.NewOp(&ir.Identity{}, nil, shapes.Make(dtypes.Float32, d...))
				op.Varying = varying
				return op.Outputs[0]
			}
			var free dims
			for i, n := range c.lhs {
				if !slices.Contains(c.left, i) {
					free = append(free, n)
				}
			}
			for i, n := range c.rhs {
				if !slices.Contains(c.right, i) {
					free = append(free, n)
				}
			}
			v := p.NewOp(&ir.DotGeneral{LHSContractingAxes: c.left, RHSContractingAxes: c.right}, []*ir.Value{operand(c.lhs, true), operand(c.rhs, !c.fixed)}, shapes.Make(dtypes.Float32, free...)).Outputs[0]
			if c.turn != nil {
				turned := make(dims, len(free))
				for i, axis := range c.turn {
					turned[i] = free[axis]
				}
				v = p.NewOp(&ir.Transpose{Permutation: c.turn}, []*ir.Value{v}, shapes.Make(dtypes.Float32, turned...)).Outputs[0]
			}
			f, ok := factorsOf(p.NewOp(&ir.Merge{How: ir.Mean}, []*ir.Value{v}, v.Shape))
			if ok != (c.rows != nil) {
				t.Fatalf("it has factors: %v", ok)
			}
			if ok && (!slices.Equal(f.rows.Shape.Dimensions, c.rows) || !slices.Equal(f.columns.Shape.Dimensions, c.columns) || f.row != c.row ||
				!slices.Equal(f.dot.LHSContractingAxes, c.contractedRows)) {
				t.Errorf("rows %v, columns %v, row %d, contracted %v", f.rows.Shape, f.columns.Shape, f.row, f.dot.LHSContractingAxes)
			}
			if ok && (!f.pay(v.Shape, 2) || f.pay(v.Shape, 11)) {
				t.Error("it pays for 11 replicas, which cannot have as many rows, or not for 2")
			}
		})
	}
}
