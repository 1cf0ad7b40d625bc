// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

var reductions = map[ir.Reduction]comm.Reduction{ir.ReduceBySum: comm.Sum, ir.ReduceByMax: comm.Max, ir.ReduceByMin: comm.Min}

// collective changes a placement along the axis of the k devices of a place: from is what this one gives, to what it gets. Communicators know
// flat slices only: along dims other than the first, values are divided before, or put together after.
func collective(end *comm.Communicator, program string, op *ir.Op, how ir.Collective, at ir.Coordinates, k int, from, to any) error {
	v, w := op.Inputs[0], op.Outputs[0]
	before, after := v.On(ir.Model), w.On(ir.Model)
	division := v.Division(ir.Model)
	if division.Devices == 0 {
		division = w.Division(ir.Model)
	}
	in, out := v.LocalShape(at), w.LocalShape(at)
	call := comm.Call{Program: program}
	// rows are those of each device along the dim of a placement; counts, with elements for each row.
	rows := func(p ir.Placement) []int { return division.Shares(v.Shape.Dimensions[p.Dim], p.Unit) }
	counts := func(s shapes.Shape, dim int, rows []int) (n []int) {
		for _, x := range rows {
			if n = append(n, 0); s.Dimensions[dim] > 0 {
				n[len(n)-1] = s.Size() / s.Dimensions[dim] * x
			}
		}
		return n
	}
	switch how {
	case ir.AllReduceOf:
		copyFlat(to, from)
		call.Op, call.Buf, call.Reduction = comm.AllReduce, to, reductions[before.Reduce]
		return end.Do(call)
	case ir.AllGatherOf:
		call.Op, call.In, call.Out = comm.AllGather, from, to
		if op.Attrs.(*ir.Reshard).Stack {
			call.OutCounts = slices.Repeat([]int{in.Size()}, k)
			return end.Do(call)
		}
		got := rows(before)
		call.OutCounts = counts(out, before.Dim, got)
		return joined(&call, end, out, got, before.Dim)
	case ir.ReduceScatterOf:
		call.Op, call.Out, call.Reduction = comm.ReduceScatter, to, reductions[before.Reduce]
		given := rows(after)
		call.In, call.InCounts = divided(from, in, given, after.Dim), counts(in, after.Dim, given)
		return end.Do(call)
	case ir.AllToAllOf:
		given, got := rows(after), rows(before)
		call.Op, call.Out, call.In = comm.AllToAll, to, divided(from, in, given, after.Dim)
		call.InCounts, call.OutCounts = counts(in, after.Dim, given), counts(out, before.Dim, got)
		return joined(&call, end, out, got, before.Dim)
	}
	return errors.Errorf("unknown collective %s", how)
}

// divided lays the parts of a tensor along a dim one after the other.
func divided(flat any, s shapes.Shape, sizes []int, dim int) any {
	if schedule.Leading(s, dim) {
		return flat
	}
	all := newFlat(s)
	eachPart(all, s, sizes, dim, func(part any, r rows) { r.cut(part, flat, s) })
	return all
}

// joined makes a call whose result is parts, one after the other, and puts them together along a dim.
func joined(call *comm.Call, end *comm.Communicator, s shapes.Shape, sizes []int, dim int) error {
	if schedule.Leading(s, dim) {
		return end.Do(*call)
	}
	whole := call.Out
	call.Out = newFlat(s)
	if err := end.Do(*call); err != nil {
		return err
	}
	eachPart(call.Out, s, sizes, dim, func(part any, r rows) { r.paste(whole, part, s) })
	return nil
}

// eachPart visits parts that lie one after the other.
func eachPart(all any, s shapes.Shape, sizes []int, dim int, visit func(part any, r rows)) {
	start, at := 0, 0
	for _, n := range sizes {
		count := 0
		if s.Dimensions[dim] > 0 {
			count = s.Size() / s.Dimensions[dim] * n
		}
		visit(slice(all, at, at+count), rows{dim: dim, start: start, size: n})
		start, at = start+n, at+count
	}
}
