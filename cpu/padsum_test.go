// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"fmt"
	"math"
	"math/rand"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/ir"
)

// The gradient of slices: parts among zeros, added up one after the other. Op by op and all at once the bits are the same,
// also where parts overlap, and where -0 meets 0.
func TestPartsAmongZerosAreAddedWhereTheyLie(t *testing.T) {
	oracle, list := opByOp(t), engines(t)
	defer oracle.Finalize()
	cases := 60
	if testing.Short() {
		cases = 20
	}
	for seed := range cases {
		rng := rand.New(rand.NewSource(int64(seed)))
		p := ir.NewProgram(fmt.Sprint("parts ", seed))
		dims := make([]int, 1+rng.Intn(4))
		for i := range dims {
			dims[i] = 1 + rng.Intn(9)
		}
		if seed%5 == 0 {
			dims = []int{1, 37, 40, 33} // enough for several threads
		}
		whole := shapes.Make(dtypes.Float32, dims...)
		var inputs []any
		parameter := func(s shapes.Shape) *ir.Value {
			op := p.NewOp(&ir.Parameter{Name: fmt.Sprint("arg", len(inputs)), Shape: s}, nil, s)
			p.Main.Append(op)
			x := make([]float32, s.Size())
			for i := range x {
				x[i] = []float32{float32(rng.NormFloat64()), float32(math.Copysign(0, -1)), 0}[min(rng.Intn(6), 2)]
			}
			inputs = append(inputs, x)
			return op.Outputs[0]
		}
		add := func(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
			op := p.NewOp(a, in, s)
			p.Main.Append(op)
			return op.Outputs[0]
		}
		scalar := shapes.Make(dtypes.Float32)
		zero := add(&ir.Constant{Value: ir.Literal{Flat: []float32{0}, Shape: scalar}}, scalar)
		part := func() *ir.Value {
			small := append([]int{}, dims...)
			config := make([]compute.PadAxis, len(dims))
			for i := range dims {
				if rng.Intn(2) == 0 {
					small[i] = 1 + rng.Intn(dims[i])
					config[i].Start = rng.Intn(dims[i] - small[i] + 1)
					config[i].End = dims[i] - small[i] - config[i].Start
				}
			}
			return add(&ir.Pad{AxesConfig: config}, whole, parameter(shapes.Make(dtypes.Float32, small...)), zero)
		}
		var sum *ir.Value
		if rng.Intn(2) == 0 {
			sum = parameter(whole)
		} else {
			sum = part()
		}
		for range 1 + rng.Intn(6) {
			if x := part(); rng.Intn(2) == 0 {
				sum = add(&ir.Add{}, whole, sum, x)
			} else {
				sum = add(&ir.Add{}, whole, x, sum)
			}
			if rng.Intn(8) == 0 {
				p.Main.Outputs = append(p.Main.Outputs, sum) // somebody else reads it
			}
		}
		p.Main.Outputs = append(p.Main.Outputs, sum)
		want := execute(t, oracle, p, inputs)
		for name, b := range list {
			for i, got := range execute(t, b, p, inputs) {
				if err := bits(want[i], got); err != nil {
					t.Fatalf("%s: output %d: %v\n%s", name, i, err, p)
				}
			}
		}
	}
}

// An input of a segment knows the op that computes it elsewhere, and a lowered one without its inputs: that is no part of a sum here.
func TestAPartOfAnotherSegmentIsAnInput(t *testing.T) {
	p := ir.NewProgram("parts")
	whole := shapes.Make(dtypes.Float32, 4)
	x := p.NewOp(&ir.Parameter{Name: "x", Shape: whole}, nil, whole).Outputs[0]
	y := p.NewOp(&ir.Pad{AxesConfig: []compute.PadAxis{{Start: 1, End: 1}}}, nil, whole).Outputs[0]
	sum := p.NewOp(&ir.Add{}, []*ir.Value{x, y}, whole)
	s := &ir.Segment{Name: "sum", Inputs: []*ir.Value{x, y}, Ops: []*ir.Op{sum}, Outputs: sum.Outputs}
	for name, b := range engines(t) {
		if l, err := b.(*cpu.Backend).Plan(s); err != nil || l.Ops != 1 {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}
