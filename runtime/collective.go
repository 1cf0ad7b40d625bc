package runtime

import (
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

var reductions = map[ir.Reduction]comm.Reduction{ir.ReduceBySum: comm.Sum, ir.ReduceByMax: comm.Max, ir.ReduceByMin: comm.Min}

// collective does an exchange for the device at a position: from is what it gives, to what it gets. Communicators know
// flat slices only: along dims other than the first, values are divided before, or put together after.
func collective(end *comm.Communicator, program string, op *ir.Op, a *ir.Exchange, mine int, from, to any) error {
	in, out := op.Inputs[mine].Shape, op.Outputs[mine].Shape
	call := comm.Call{Program: program}
	switch a.How {
	case ir.AllReduceOf:
		copyFlat(to, from)
		call.Op, call.Buf, call.Reduction = comm.AllReduce, to, reductions[a.Reduce]
		return end.Do(call)
	case ir.AllGatherOf:
		call.Op, call.In, call.Out = comm.AllGather, from, to
		for _, v := range op.Inputs {
			call.OutCounts = append(call.OutCounts, v.Shape.Size())
		}
		return joined(&call, end, out, dimSizes(op.Inputs, a.Dim), a.Dim)
	case ir.ReduceScatterOf:
		call.Op, call.Out, call.Reduction = comm.ReduceScatter, to, reductions[a.Reduce]
		call.In = divided(from, in, dimSizes(op.Outputs, a.Split), a.Split)
		for _, v := range op.Outputs {
			call.InCounts = append(call.InCounts, v.Shape.Size())
		}
		return end.Do(call)
	case ir.AllToAllOf:
		call.Op, call.Out = comm.AllToAll, to
		given := dimSizes(op.Outputs, a.Split)
		call.In = divided(from, in, given, a.Split)
		got := dimSizes(op.Inputs, a.Dim)
		for i := range op.Inputs {
			call.InCounts = append(call.InCounts, in.Size()/in.Dimensions[a.Split]*given[i])
			call.OutCounts = append(call.OutCounts, out.Size()/out.Dimensions[a.Dim]*got[i])
		}
		return joined(&call, end, out, got, a.Dim)
	}
	return errors.Errorf("unknown collective %s", a.How)
}

func dimSizes(vs []*ir.Value, dim int) (n []int) {
	for _, v := range vs {
		n = append(n, v.Shape.Dimensions[dim])
	}
	return n
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
