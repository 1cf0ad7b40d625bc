// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// randomPooling draws a pooling and its gradient; ok is false if no output is left.
func randomPooling(r *rand.Rand) (p *ir.Program, inputs []any, ok bool) {
	d := []dtypes.DType{dtypes.Float32, dtypes.Float64}[r.IntN(2)]
	rank := 1 + r.IntN(4)
	a := &ir.ReduceWindow{ReductionType: []compute.ReduceOpType{compute.ReduceOpMax, compute.ReduceOpSum, compute.ReduceOpMin, compute.ReduceOpProduct}[r.IntN(4)]}
	x, o, g := make([]int, rank), make([]int, rank), make([]int, rank)
	for i := range rank {
		x[i] = 1 + r.IntN(7)
		window, stride, pad, dilation := 1+r.IntN(3), 1+r.IntN(3), [2]int{r.IntN(2), r.IntN(2)}, 1+r.IntN(2)*r.IntN(2)
		if r.IntN(3) == 0 || i == 0 && r.IntN(2) == 0 {
			window, stride, pad, dilation = 1, 1, [2]int{}, 1
		}
		a.WindowDimensions, a.Strides, a.Paddings = append(a.WindowDimensions, window), append(a.Strides, stride), append(a.Paddings, pad)
		a.WindowDilations, a.InputDilations = append(a.WindowDilations, dilation), append(a.InputDilations, 1)
		n := x[i] + pad[0] + pad[1]
		if n < (window-1)*dilation+1 {
			return nil, nil, false
		}
		o[i], g[i] = (n-(window-1)*dilation-1)/stride+1, (n-window)/stride+1
	}
	p = ir.NewProgram("pooling")
	for i, s := range []shapes.Shape{shapes.Make(d, x...), shapes.Make(d, g...)} {
		p.Main.Append(p.NewOp(&ir.Parameter{Name: fmt.Sprint("arg", i), Shape: s}, nil, s))
		inputs = append(inputs, content(r, s))
	}
	for _, op := range []*ir.Op{
		p.NewOp(a, p.Main.Params[:1], shapes.Make(d, o...)),
		p.NewOp(&ir.SelectAndScatterMax{WindowDimensions: a.WindowDimensions, WindowStrides: a.Strides, Paddings: a.Paddings}, p.Main.Params, shapes.Make(d, x...)),
		p.NewOp(&ir.SelectAndScatterMin{WindowDimensions: a.WindowDimensions, WindowStrides: a.Strides, Paddings: a.Paddings}, p.Main.Params, shapes.Make(d, x...)),
	} {
		p.Main.Append(op)
		p.Main.Outputs = append(p.Main.Outputs, op.Outputs[0])
	}
	return p, inputs, true
}

func TestPoolingGivesTheResultsOfTheBackend(t *testing.T) {
	oracle, list := opByOp(t), engines(t)
	defer oracle.Finalize()
	r := rand.New(rand.NewPCG(21, 22))
	for n := 0; n < 300; {
		p, inputs, ok := randomPooling(r)
		if !ok {
			continue
		}
		n++
		want := execute(t, oracle, p, inputs)
		for name, b := range list {
			for i, got := range execute(t, b, p, inputs) {
				if err := same(want[i], got, 1e-6); err != nil {
					t.Fatalf("%s: output %d: %v\n%s", name, i, err, p)
				}
			}
		}
	}
}
