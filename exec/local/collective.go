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
// flat slices only: along dims other than the first, values are divided before, or put together after, in memory for that.
func collective(end *comm.Communicator, program string, op *ir.Op, how ir.Collective, at ir.Coordinates, k int, from, to any, memory staging) error {
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
		return joined(&call, end, out, got, before.Dim, memory)
	case ir.ReduceScatterOf:
		call.Op, call.Out, call.Reduction = comm.ReduceScatter, to, reductions[before.Reduce]
		given := rows(after)
		call.InCounts = counts(in, after.Dim, given)
		return divided(&call, from, in, given, after.Dim, memory, func() error { return end.Do(call) })
	case ir.AllToAllOf:
		given, got := rows(after), rows(before)
		call.Op, call.Out = comm.AllToAll, to
		call.InCounts, call.OutCounts = counts(in, after.Dim, given), counts(out, before.Dim, got)
		return divided(&call, from, in, given, after.Dim, memory, func() error { return joined(&call, end, out, got, before.Dim, memory) })
	}
	return errors.Errorf("unknown collective %s", how)
}

// staging gives memory for a tensor on the way, and what takes it back. If a call fails, it is not given back: somebody may still read it.
type staging func(shapes.Shape) (flat any, free func() error, err error)

// divided makes a call that is given the parts of a tensor along a dim, one after the other.
func divided(call *comm.Call, flat any, s shapes.Shape, sizes []int, dim int, memory staging, do func() error) error {
	if schedule.Leading(s, dim) {
		call.In = flat
		return do()
	}
	all, free, err := memory(s)
	if err != nil {
		return err
	}
	eachPart(all, s, sizes, dim, func(part any, r rows) { r.cut(part, flat, s) })
	call.In = all
	if err := do(); err != nil {
		return err
	}
	return free()
}

// joined makes a call whose result is parts, one after the other, and puts them together along a dim.
func joined(call *comm.Call, end *comm.Communicator, s shapes.Shape, sizes []int, dim int, memory staging) error {
	if schedule.Leading(s, dim) {
		return end.Do(*call)
	}
	whole := call.Out
	all, free, err := memory(s)
	if err != nil {
		return err
	}
	call.Out = all
	if err := end.Do(*call); err != nil {
		return err
	}
	eachPart(all, s, sizes, dim, func(part any, r rows) { r.paste(whole, part, s) })
	return free()
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
