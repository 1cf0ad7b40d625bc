package shard

import (
	"reflect"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// reshard writes a step down that makes a placement of a value from another, and returns what each device has then.
func (e *expansion) reshard(s *step) (values []*ir.Value) {
	from, to := s.in[0], s.out[0]
	v, at, k := e.values[to.value].v, s.site(), len(s.g.places)
	x := &ir.Exchange{How: s.kind.collective(), Places: s.g.places}
	switch s.kind {
	case rowsStep:
		for j, w := range from.values {
			first, last := to.rows(v.Shape, j, k)
			values = append(values, e.rows(at, s.g.places[j], w, to.Dim, first, last))
		}
		return values
	case maskStep:
		return e.mask(v, from.values, s.g, at)
	case fetchStep:
		return e.fetch(v, from, to, at)
	case reduceStep:
		x.Reduce = from.Reduce
	case scatterStep:
		x.Reduce, x.Split = from.Reduce, to.Dim
	case gatherStep:
		x.Dim = from.Dim
	case turnStep:
		x.Dim, x.Split = from.Dim, to.Dim
	}
	local := make([]shapes.Shape, k)
	for j := range local {
		local[j] = to.local(v.Shape, j, k)
	}
	return e.add(at, s.g.places[0], x, from.values, local...).Outputs
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

// mask makes terms of a whole value: the first device has it, the others zeros.
func (e *expansion) mask(v *ir.Value, all []*ir.Value, g *group, at site) []*ir.Value {
	values := slices.Clone(all)
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
