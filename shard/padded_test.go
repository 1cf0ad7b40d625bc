// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/exec/lower"
	"github.com/easyparallel/epl/ir"
)

// together computes an op as devices do that run segments together: in parts of one size. Padding is never a number that an op could do with, and
// what is no padding must be as it is on devices that have parts of their own sizes.
func (e *evaluation) together(op *ir.Op, k int) {
	e.t.Helper()
	if k == 1 || op.IsTransfer() || slices.ContainsFunc(e.p.Stages, func(s ir.Stage) bool { return s.Weights != nil }) {
		return // devices of different weights run nothing together
	}
	if err := lower.CanPad(op); err != nil {
		e.t.Error(err)
		return
	}
	position := ir.NewProgram("position").NewOp(&ir.Position{Axis: ir.Model}, nil, ir.PositionShape).Outputs[0]
	position.SetOn(ir.Model, ir.Placement{Kind: ir.Each}, k)
	s := &ir.Segment{Name: "op", Ops: []*ir.Op{op}, Inputs: []*ir.Value{position}, Outputs: op.Outputs,
		Mesh: &ir.Mesh{Replicas: 1, Model: k, Instances: 1, Ranks: make([]int, k)}}
	op.Uses(func(v *ir.Value) {
		if !slices.Contains(s.Inputs, v) {
			s.Inputs = append(s.Inputs, v)
		}
	})
	l := lower.Lower(s, nil)
	has := make([]map[*ir.Value]tensor, k)
	for j := range has {
		has[j] = map[*ir.Value]tensor{}
		for i, v := range s.Inputs {
			x := e.at(v, j, k)
			if all := e.padded[v]; all != nil {
				x = all[j]
			}
			has[j][l.Inputs[i]] = spoiled(x, v, j, k)
		}
	}
	for _, op := range l.Ops {
		if a, ok := op.Attrs.(*ir.Communicate); ok {
			communicated(op, a, has)
			continue
		}
		for j := range has {
			for i, x := range e.here(op, has[j]) {
				has[j][op.Outputs[i]] = x
			}
		}
	}
	for i, v := range s.Outputs {
		e.padded[v] = nil
		for j := range has {
			x := has[j][l.Outputs[i]]
			e.padded[v] = append(e.padded[v], x)
			if p := v.On(ir.Model); p.Kind == ir.Sharded {
				from, to := p.Rows(v.Shape.Dimensions[p.Dim], j, v.Division(ir.Model))
				x = part(x, p.Dim, 0, to-from)
			}
			if v.On(ir.Model).Kind != ir.Each { // of what each has for itself it may use some
				same(e.t, v.String()+" of devices together, by "+op.String(), e.values[v][j], x)
			}
		}
	}
}

// communicated does a collective.
func communicated(op *ir.Op, a *ir.Communicate, has []map[*ir.Value]tensor) {
	var all []tensor
	for _, x := range has {
		all = append(all, x[op.Inputs[0]])
	}
	k, n := len(has), op.Outputs[0].Shape.Dimensions
	for j := range has {
		var x tensor
		switch a.How {
		case ir.AllReduceOf:
			x = reduce(all, a.Reduce)
		case ir.AllGatherOf:
			x = concat(all, a.Dim)
		case ir.ReduceScatterOf:
			x = part(reduce(all, a.Reduce), a.Dim, j*n[a.Dim], (j+1)*n[a.Dim])
		case ir.AllToAllOf:
			var pieces []tensor
			for i := range k {
				pieces = append(pieces, part(all[i], a.Split, j*n[a.Split], (j+1)*n[a.Split]))
			}
			x = concat(pieces, a.Dim)
		}
		has[j][op.Outputs[0]] = x
	}
}

// spoiled is what a device has of a value, with padding that spoils whatever it becomes part of.
func spoiled(x tensor, v *ir.Value, j, k int) tensor {
	if !lower.Uneven(v) {
		return x
	}
	p, t := v.On(ir.Model), v.Shape.DType
	from, to := p.Rows(v.Shape.Dimensions[p.Dim], j, v.Division(ir.Model))
	x = part(x, p.Dim, 0, to-from)
	s := v.LocalShape(nil).Clone()
	s.Dimensions[p.Dim] -= to - from
	bad := newTensor(s)
	for i := range bad.flat.Len() {
		switch at := bad.flat.Index(i); {
		case t == dtypes.Bool:
			at.SetBool((i+j)%2 == 0)
		case t.IsUnsigned():
			at.SetUint([]uint64{0, 1, 1<<(8*t.Size()-1) - 1}[(i+j)%3])
		case t.IsInt():
			at.SetInt([]int64{0, -1, 1<<(8*t.Size()-1) - 1, -1 << (8*t.Size() - 1)}[(i+j)%4])
		default:
			setFloat(at, []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e30}[(i+j)%4])
		}
	}
	return concat([]tensor{x, bad}, p.Dim)
}
