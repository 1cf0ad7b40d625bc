// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// A model with an activation whose derivative needs an exponential that its value does not: the backward pass computes it.
func TestWhatOnlyALaterGroupReadsIsComputedThere(t *testing.T) {
	p := ir.NewProgram("activation")
	s := shapes.Make(dtypes.Float32, 64, 64)
	add := func(a ir.Attrs, in ...*ir.Value) *ir.Value {
		op := p.NewOp(a, in, s)
		p.Main.Append(op)
		return op.Outputs[0]
	}
	dot := &ir.DotGeneral{LHSContractingAxes: []int{1}, RHSContractingAxes: []int{0}}
	x, w := add(&ir.Parameter{Name: "x", Shape: s}), add(&ir.Parameter{Name: "w", Shape: s})
	z := add(dot, x, w)
	e := add(&ir.Exp{}, add(&ir.Neg{}, add(&ir.Mul{}, z, z)))
	slope := add(&ir.Mul{}, e, z)
	erf := add(&ir.Erf{}, z)
	y := add(&ir.Mul{}, z, erf)
	back := add(dot, y, w)
	p.Main.Outputs = []*ir.Value{add(&ir.Mul{}, back, slope), add(&ir.Add{}, back, z)}
	segment := &ir.Segment{Inputs: p.Main.Params, Outputs: p.Main.Outputs, Ops: slices.DeleteFunc(slices.Clone(p.Main.Ops), func(op *ir.Op) bool {
		_, ok := op.Attrs.(*ir.Parameter)
		return ok
	})}
	plan, err := newPlan(segment, everything, nil)
	if err != nil {
		t.Fatal(err)
	}
	groups := map[*ir.Op]int{}
	for i, n := range plan.nodes {
		for _, op := range n.ops {
			groups[op] = i
		}
	}
	last := groups[p.Main.Outputs[0].Op]
	if groups[y.Op] == last {
		t.Fatal("both passes are one group")
	}
	if groups[e.Op] != last || groups[slope.Op] != last {
		t.Errorf("the exponential is computed at node %d, its product at %d, not where they are read, at %d", groups[e.Op], groups[slope.Op], last)
	}
	if groups[erf.Op] == last {
		t.Errorf("what the forward pass needs is computed in the backward pass")
	}
	for _, v := range []*ir.Value{e, slope} {
		if _, ok := plan.number[v]; ok {
			t.Errorf("%s is stored", v.Op)
		}
	}
}
