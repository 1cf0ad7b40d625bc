package shard

import (
	"reflect"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// want returns what each device of g needs of a value that is to be placed so, and adds the ops that make it if nobody did
// before.
func (e *expansion) want(v *ir.Value, g *group, p Placement, at site) []*ir.Value {
	k := len(g.places)
	if v.Op.IsLeaf() && p.Kind == Replicated {
		return slices.Repeat([]*ir.Value{v}, k)
	}
	h := e.held[key{v, g}]
	if x := h.find(p, v.Shape, k, at.phase); x != nil {
		return x.values
	}
	here := v.Op.IsLeaf() || e.groupOf(v.Op) == g || h.kind(Replicated, at.phase) != nil || h.kind(Sharded, at.phase) != nil
	var values []*ir.Value
	switch {
	case p.Kind == Partial:
		values = e.mask(v, g, at)
	case !here && p.Kind == Sharded:
		values = e.fetchRows(v, g, p, at)
	case !here:
		values = e.fetchWhole(v, g, at)
	case p.Kind == Sharded:
		if values = e.again(v, g, p); values != nil {
			at.phase = v.Op.Phase
			break
		}
		for j, w := range e.want(v, g, Placement{}, at) {
			from, to := p.rows(v.Shape, j, k)
			values = append(values, e.rows(at, g.places[j], w, p.Dim, from, to))
		}
	case h.kind(Sharded, at.phase) != nil:
		x := h.kind(Sharded, at.phase)
		values = e.gather(v, g, x.Placement, x.values, at)
	default:
		x := h.kind(Partial, at.phase)
		shapes := slices.Repeat([]shapes.Shape{v.Shape}, k)
		values = e.add(at, g.places[0], &ir.Exchange{How: ir.AllReduceOf, Reduce: x.Reduce, Places: g.places}, x.values, shapes...).Outputs
	}
	e.hold(v, g, p, at.phase, values)
	return values
}

// rows slices a value on a device.
func (e *expansion) rows(at site, place int, v *ir.Value, dim, from, to int) *ir.Value {
	if from == 0 && to == dims(v)[dim] {
		return v
	}
	s := v.Shape.Clone()
	starts, limits, strides := make([]int, s.Rank()), slices.Clone(s.Dimensions), slices.Repeat([]int{1}, s.Rank())
	starts[dim], limits[dim], s.Dimensions[dim] = from, to, to-from
	return e.add(at, place, &ir.Slice{Starts: starts, Limits: limits, Strides: strides}, []*ir.Value{v}, s).Outputs[0]
}

// again computes a cheap op that every device has computed as a whole for the rows of each device: what is left of the whole
// may then be dead. It returns nil if it is not that cheap.
func (e *expansion) again(v *ir.Value, g *group, p Placement) []*ir.Value {
	op := v.Op
	if op.IsLeaf() || e.groupOf(op) != g || e.plan[op].out[0].Kind != Replicated {
		return nil
	}
	r := RuleOf(op)
	if r == nil || !r.Cheap {
		return nil
	}
	for _, f := range r.Factors {
		if f.Out[0].Dim != p.Dim {
			continue
		}
		if unit, ok := f.unitOf(f.Out[0], p, v.Shape, len(g.places)); ok {
			return e.compute(op, g, strategy{f.inputs(unit), f.outputs(unit)})[0]
		}
	}
	return nil
}

// gather gives every device all rows. Devices gather along dim 0: other dims are brought to the front and back.
func (e *expansion) gather(v *ir.Value, g *group, p Placement, values []*ir.Value, at site) []*ir.Value {
	front := []int{p.Dim}
	for d := range v.Shape.Rank() {
		if d != p.Dim {
			front = append(front, d)
		}
	}
	back := make([]int, len(front))
	for i, d := range front {
		back[d] = i
	}
	transposed := func(values []*ir.Value, permutation []int) []*ir.Value {
		if p.Dim == 0 {
			return values
		}
		r := make([]*ir.Value, len(values))
		for j, w := range values {
			s := w.Shape.Clone()
			for i, d := range permutation {
				s.Dimensions[i] = dims(w)[d]
			}
			r[j] = e.add(at, g.places[j], &ir.Transpose{Permutation: permutation}, []*ir.Value{w}, s).Outputs[0]
		}
		return r
	}
	values = transposed(values, front)
	s := values[0].Shape.Clone()
	s.Dimensions[0] = dims(v)[p.Dim]
	x := e.add(at, g.places[0], &ir.Exchange{How: ir.AllGatherOf, Places: g.places}, values, slices.Repeat([]shapes.Shape{s}, len(values))...)
	return transposed(x.Outputs, back)
}

// mask makes terms of a whole value: the first device has it, the others zeros.
func (e *expansion) mask(v *ir.Value, g *group, at site) []*ir.Value {
	values := slices.Clone(e.want(v, g, Placement{}, at))
	for j := range values[1:] {
		zero := e.zero(v.Shape.DType)
		if v.Shape.Rank() > 0 {
			zero = e.add(at, g.places[j+1], &ir.BroadcastInDim{OutputShape: v.Shape}, []*ir.Value{zero}, v.Shape).Outputs[0]
		}
		values[j+1] = zero
	}
	return values
}

// zero is a constant.
func (e *expansion) zero(t dtypes.DType) *ir.Value {
	if e.zeros[t] == nil {
		s := shapes.Make(t)
		flat := reflect.MakeSlice(reflect.SliceOf(t.GoType()), 1, 1).Interface()
		e.zeros[t] = e.add(site{}, 0, &ir.Constant{Value: ir.Literal{Shape: s, Flat: flat}}, nil, s).Outputs[0]
	}
	return e.zeros[t]
}
