// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"math/rand"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// gradientSum is the gradient of a layer's weights, over a batch, added to a sum, or by itself.
func gradientSum(batch int, transposed, sums bool) *ir.Program {
	p := ir.NewProgram("gradient")
	add := func(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
		op := p.NewOp(a, in, s)
		p.Main.Append(op)
		return op.Outputs[0]
	}
	parameter := func(name string, dims ...int) *ir.Value {
		s := shapes.Make(dtypes.Float32, dims...)
		return add(&ir.Parameter{Name: name, Shape: s}, s)
	}
	x, g := parameter("x", batch, 70), parameter("g", batch, 50)
	if transposed {
		x, g = g, x
	}
	w := add(&ir.DotGeneral{LHSContractingAxes: []int{0}, RHSContractingAxes: []int{0}}, shapes.Make(dtypes.Float32, x.Shape.Dimensions[1], g.Shape.Dimensions[1]), x, g)
	if transposed {
		w = add(&ir.Transpose{Permutation: []int{1, 0}}, shapes.Make(dtypes.Float32, 70, 50), w)
	}
	if sums {
		w = add(&ir.Add{}, w.Shape, parameter("sum", 70, 50), w)
	}
	p.Main.Outputs = []*ir.Value{w}
	return p
}

// A product is added to the sum of those before it bit for bit as by an addition of its own: in memory of the sum, which no other step reads, if it is given to keep.
func TestAProductIsAddedToASum(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	for _, batch := range []int{1, 7, 128, 256, 257, 600} {
		for _, transposed := range []bool{false, true} {
			inputs := []any{random(batch * 70), random(batch * 50), random(70 * 50)}
			for name, b := range engines(t) {
				want := execute(t, b, gradientSum(batch, transposed, false), inputs[:2])[0].([]float32)
				for i, before := range inputs[2].([]float32) {
					want[i] += before
				}
				p := gradientSum(batch, transposed, true)
				if err := bits(want, execute(t, b, p, inputs)[0]); err != nil {
					t.Errorf("%s, batch of %d, transposed %t, for a caller that keeps the sum: %v", name, batch, transposed, err)
				}
				if err := bits(want, donated(t, b, p, inputs)); err != nil {
					t.Errorf("%s, batch of %d, transposed %t: %v", name, batch, transposed, err)
				}
				itself := batch > 1 && batch <= 256 // a deeper product is added up in memory, and then followed by the addition
				if l, err := b.(*cpu.Backend).Plan(emit.Whole(p)); err != nil || name == "fused" && (len(l.Steps) == 1 != itself || l.Over[0] != 2) {
					t.Errorf("%s, batch of %d, transposed %t: %+v, %v", name, batch, transposed, l, err)
				}
			}
		}
	}
}

// donated runs a program that is given its last input to keep.
func donated(t *testing.T, b compute.Backend, p *ir.Program, inputs []any) []float32 {
	t.Helper()
	x, err := emit.Program(b, p)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Finalize()
	var ins []compute.Buffer
	for i, v := range p.Main.Params {
		in, err := b.BufferFromFlatData(0, inputs[i], v.Shape)
		if err != nil {
			t.Fatal(err)
		}
		ins = append(ins, in)
	}
	outs, err := x.Execute(ins, []bool{false, false, true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	flat := make([]float32, p.Main.Outputs[0].Shape.Size())
	if err := outs[0].ToFlatData(flat); err != nil {
		t.Fatal(err)
	}
	return flat
}
