// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// Check tells whether an SPMD program is one: along each axis of its stage's mesh the placements of an op are what its rule
// allows, and what functions read is replicated.
func Check(p *ir.Program) error {
	index := analysis.Of(p)
	for _, op := range p.Main.Ops {
		if op.IsLeaf() || op.TaskGraph == nil || len(p.Stages) == 0 {
			continue
		}
		for axis := range p.Stages[index.Stage(op)].Mesh() {
			axis := ir.Model + ir.Axis(axis)
			if err := checkOp(op, axis, p.Stages[index.Stage(op)].Division(axis)); err != nil {
				return errors.WithMessagef(err, "epl: internal error: program %q: %s, along the axis %s", p.Name, op, axis)
			}
		}
	}
	return nil
}

// checkOp checks an op along an axis.
func checkOp(op *ir.Op, axis ir.Axis, d ir.Division) (err error) {
	op.Captures(func(v *ir.Value) {
		if v.On(axis).Kind != Replicated {
			err = errors.Errorf("a function reads %s, which is %s", v, v.On(axis))
		}
	})
	if err != nil || d.Devices == 1 {
		return err
	}
	var in, out []Placement
	free := op.PerShard || op.IsReshard()
	for _, v := range op.Inputs {
		p := Placement{}
		if v != nil {
			p = v.On(axis)
		}
		in = append(in, p)
		free = free || p.Kind == ir.Each
	}
	for _, v := range op.Outputs {
		out = append(out, v.On(axis))
	}
	if free || allowed(op, in, out, d) {
		return nil
	}
	return errors.Errorf("its rule does not allow %v of %v", out, in)
}

// allowed tells whether an op can be computed so.
func allowed(op *ir.Op, in, out []Placement, d ir.Division) bool {
	switch {
	case !slices.ContainsFunc(slices.Concat(in, out), func(p Placement) bool { return p.Kind != Replicated }):
		return true
	case isBarrier(op):
		return slices.Equal(in[:len(out)], out)
	case op.IsMerge():
		return same(in[0], out[0], op.Inputs[0].Shape, d) || in[0].Kind == Partial && out[0].Kind == Replicated
	}
	r := RuleOf(op)
	if r == nil {
		return false
	}
	other := func(p Placement) bool { return p.Kind != Replicated && p != out[0] }
	if r.Linear != NotLinear && out[0].Kind == Partial && slices.Contains(in, out[0]) && !slices.ContainsFunc(in, other) {
		return true
	}
	return slices.ContainsFunc(r.Factors, func(f *Factor) bool { return f.allows(op, in, out, d) })
}

// allows tells whether placements are those of the factor being sharded.
func (f *Factor) allows(op *ir.Op, in, out []Placement, d ir.Division) bool {
	refs, placed, values := slices.Concat(f.In, f.Out), slices.Concat(in, out), slices.Concat(op.Inputs, op.Outputs)
	unit := 0
	for i, p := range placed {
		if unit == 0 && values[i] != nil {
			unit, _ = f.unitOf(refs[i], p, values[i].Shape, d)
		}
	}
	if unit == 0 {
		return false
	}
	s := strategy{in: make([]Placement, len(in)), out: make([]Placement, len(out))}
	f.fill(&s, unit)
	for i, want := range slices.Concat(s.in, s.out) {
		if values[i] != nil && !same(placed[i], want, values[i].Shape, d) {
			return false
		}
	}
	return true
}
