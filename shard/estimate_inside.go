package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// inside tells which exchanges an op has inside when it is sharded along a dim that it works on, and the bytes of what is
// exchanged: those that special.go writes down.
func (s *step) inside(exchange func(how ir.Collective, bytes int64)) {
	if s.s.factor == nil || len(s.s.in) == 0 || s.s.in[0].Kind != Sharded {
		return
	}
	op, along, k := s.task.op, s.s.in[0], int64(len(s.g.places))
	in, out := op.Inputs[0], op.Outputs[0]
	row := in.Bytes() / int64(dims(in)[along.Dim]) // of the dim
	switch a := op.Attrs.(type) {
	case *ir.ArgMinMax:
		if isAlong(along, a.Axis) {
			exchange(ir.AllGatherOf, k*row)
			exchange(ir.AllGatherOf, k*out.Bytes())
		}
	case *ir.Sort:
		if isAlong(along, a.Axis) {
			n := int64(firsts(op, slices.Values(op.Func.Ops)))
			for _, v := range op.Inputs {
				exchange(ir.AllGatherOf, min(k*n, int64(dims(v)[a.Axis]))*v.Bytes()/int64(dims(v)[a.Axis]))
			}
		}
	case *ir.FusedSoftmax:
		if isAlong(along, a.Axis) {
			exchange(ir.AllReduceOf, row)
			exchange(ir.AllReduceOf, row)
		}
	case *ir.ReduceProduct, *ir.ReduceBitwiseAnd, *ir.ReduceBitwiseOr, *ir.ReduceBitwiseXor, *ir.ReduceLogicalAnd, *ir.ReduceLogicalOr, *ir.ReduceLogicalXor:
		if axes := reduceAxes(a); len(axes) == 0 || isAlong(along, axes...) {
			exchange(ir.AllGatherOf, k*out.Bytes())
		}
	}
}
