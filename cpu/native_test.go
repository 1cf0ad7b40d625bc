// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

func TestRandomBitsAreThoseOfTheBackend(t *testing.T) {
	oracle, list := opByOp(t), engines(t)
	defer oracle.Finalize()
	var all []shapes.Shape
	for _, d := range allTypes {
		if d == dtypes.Bool {
			continue // bits of no bool
		}
		for _, n := range []int{1, 3, 13, 4096, 70001} {
			if testing.Short() && n > 4096 && d != dtypes.Float32 {
				continue
			}
			all = append(all, shapes.Make(d, n))
		}
	}
	for _, s := range all {
		p := ir.NewProgram(fmt.Sprint("random bits of ", s))
		state := shapes.Make(dtypes.Uint64, 3)
		in := p.NewOp(&ir.Parameter{Name: "arg0", Shape: state}, nil, state)
		bits := p.NewOp(&ir.RNGBitGenerator{Shape: s}, in.Outputs, state, s)
		again := p.NewOp(&ir.RNGBitGenerator{Shape: s}, bits.Outputs[:1], state, s)
		for _, op := range []*ir.Op{in, bits, again} {
			p.Main.Append(op)
		}
		p.Main.Outputs = append(append([]*ir.Value{}, bits.Outputs...), again.Outputs...)
		inputs := []any{[]uint64{1, 1 << 63, 77}}
		want := execute(t, oracle, p, inputs)
		for name, b := range list {
			got := execute(t, b, p, inputs)
			for i := range want {
				if i%2 == 0 { // the third word of a state is nobody's
					want[i], got[i] = want[i].([]uint64)[:2], got[i].([]uint64)[:2]
				}
				if err := same(want[i], got[i], 0); err != nil {
					t.Errorf("%s: output %d of %s: %v", name, i, s, err)
				}
			}
		}
	}
}

// scatterProgram adds rows to those of a table, on many threads if there are some: its gather reads them again.
func scatterProgram(rows, cols, n int, index func(int) int32) (*ir.Program, []any) {
	p := ir.NewProgram("scatter")
	table, list, updates := shapes.Make(dtypes.Float32, rows, cols), shapes.Make(dtypes.Int32, n, 1), shapes.Make(dtypes.Float32, n, cols)
	for i, s := range []shapes.Shape{table, list, updates} {
		p.Main.Append(p.NewOp(&ir.Parameter{Name: fmt.Sprint("arg", i), Shape: s}, nil, s))
	}
	op := p.NewOp(&ir.ScatterSum{IndexVectorAxis: 1, UpdateWindowAxes: []int{1}, InsertedWindowAxes: []int{0}, ScatterAxesToOperandAxes: []int{0}}, p.Main.Params, table)
	p.Main.Append(op)
	p.Main.Outputs = op.Outputs
	x, i, u := make([]float32, rows*cols), make([]int32, n), make([]float32, n*cols)
	for k := range i {
		i[k] = index(k)
	}
	for k := range u {
		u[k] = 1 / float32(k+1)
	}
	return p, []any{x, i, u}
}

func TestScattersOfAnySizeAddInTheOrderOfTheIndices(t *testing.T) {
	oracle, list := opByOp(t), engines(t)
	defer oracle.Finalize()
	for _, size := range [][3]int{{7, 1, 90000}, {50, 3, 40000}, {300, 256, 2000}, {9, 1000, 300}} {
		p, inputs := scatterProgram(size[0], size[1], size[2], func(k int) int32 { return int32(k * k % size[0]) })
		want := execute(t, oracle, p, inputs)
		for name, b := range list {
			if err := bits(want[0], execute(t, b, p, inputs)[0]); err != nil {
				t.Errorf("%s: %v of %v: %v", name, p.Main.Outputs[0].Op, size, err)
			}
		}
	}
}

func TestAScatterOutsideOfItsTensorIsAnError(t *testing.T) {
	for name, b := range engines(t) {
		p, inputs := scatterProgram(5, 2, 3, func(k int) int32 { return int32(3 * k) })
		x, err := emit.Program(b, p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run(b, x, p.Main.Params, inputs, p.Main.Outputs); err == nil || !strings.Contains(err.Error(), "index 6 of ScatterSum %3 is outside 0…4") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
