// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package lower

import (
	"reflect"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// Segments that devices run together: what they have is of one shape on all of them, padded where that does not divide: see pad.go.

// communicate does a collective, if there is someone to do it with.
func (l *lowering) communicate(a *ir.Communicate, s shapes.Shape, v *ir.Value) *ir.Value {
	if len(a.Groups[0]) == 1 {
		return v
	}
	return l.add(a, s, v)
}

// resized is a shape with another number of rows along a dim.
func resized(s shapes.Shape, dim, n int) shapes.Shape {
	s = s.Clone()
	s.Dimensions[dim] = n
	return s
}

// exchange changes a placement by a collective.
func (l *lowering) exchange(op *ir.Op) *ir.Value {
	v, out := l.values[op.Inputs[0]], op.Outputs[0]
	axis, how := op.Change()
	before, after := op.Inputs[0].On(axis), out.On(axis)
	s, a := out.LocalShape(l.at), &ir.Communicate{How: how, Groups: l.mesh.Along(axis)}
	k, rows := len(a.Groups[0]), out.Shape.Dimensions
	switch how {
	case ir.AllReduceOf:
		a.Reduce = before.Reduce
	case ir.AllGatherOf:
		switch {
		case op.Attrs.(*ir.Reshard).Stack:
			v = l.reshape(v, slices.Concat([]int{1}, v.Shape.Dimensions)...)
		case before.Kind == ir.Flat:
			return l.stood(out, l.communicate(a, resized(v.Shape, 0, k*v.Shape.Size()), v), k)
		default:
			return l.all(v, before, rows[before.Dim], k)
		}
	case ir.ReduceScatterOf:
		a.Reduce = before.Reduce
		if after.Kind == ir.Flat {
			v = l.laid(op.Inputs[0], v, k)
		} else {
			a.Dim = after.Dim
			v = l.spread(v, after, k)
		}
	case ir.AllToAllOf:
		if before.Dim == after.Dim { // in other units
			return l.share(l.all(v, before, rows[before.Dim], k), s, after, ir.Even(k), l.here())
		}
		a.Dim, a.Split = before.Dim, after.Dim
		v = l.spread(v, after, k)
		return l.joined(l.communicate(a, resized(s, before.Dim, k*v.Shape.Dimensions[before.Dim]), v), before, rows[before.Dim], k)
	}
	return l.communicate(a, s, v)
}

// all gathers the rows of all devices, of n.
func (l *lowering) all(v *ir.Value, p ir.Placement, n, k int) *ir.Value {
	a := &ir.Communicate{How: ir.AllGatherOf, Groups: l.mesh.Along(ir.Model), Dim: p.Dim}
	return l.joined(l.communicate(a, resized(v.Shape, p.Dim, k*v.Shape.Dimensions[p.Dim]), v), p, n, k)
}

// merging is a merge of devices that run a segment together.
type merging struct {
	*lowering
	op      *ir.Op
	circles [][]int
	values  []*ir.Value // of the device's instances, or the sum of them; their padding is zero
	theres  []*ir.Value // whether there are these instances; nil: all are, or the values have what counts
	count   *ir.Value   // how many instances there are; nil: as many as the mesh says
}

// merge merges the values of all instances, of which the device has one, or one for each micro-batch, or the sum of its own.
func (l *lowering) merge(op *ir.Op, way *ir.Merge) *ir.Value {
	m := merging{lowering: l, op: op, circles: l.mesh.Circles(op)}
	for _, in := range op.Inputs {
		v := l.values[in]
		switch in.Op.Attrs.(type) {
		case *ir.Present:
			m.theres = append(m.theres, v)
		case *ir.InstanceCount:
			m.count = v
		default:
			if Uneven(in) { // some are compared, or looked at for how large they are
				v = l.filled(in, zeroOf(in))
			}
			m.values = append(m.values, v)
		}
	}
	switch way.How {
	case ir.First:
		return m.first()
	case ir.Agree:
		return m.agree()
	}
	for i, there := range m.theres { // not multiplied: it may be no number
		v := m.values[i]
		m.values[i] = l.add(&ir.Where{}, v.Shape, there, v, l.constant(zeroOf(v)))
	}
	v, s := m.values[0], op.Outputs[0].LocalShape(l.at)
	switch way.How {
	case ir.Check:
		return m.check(way)
	case ir.Concat:
		if len(m.values) == 1 {
			return l.communicate(&ir.Communicate{How: ir.AllGatherOf, Groups: m.circles}, s, v)
		}
		return l.reshape(m.gathered(m.values), s.Dimensions...)
	}
	if op.Outputs[0].On(ir.Replicas).Kind == ir.Flat { // each model replica gets a part
		if op.Inputs[0].On(ir.Model).Kind == ir.Partial {
			v = l.communicate(&ir.Communicate{How: ir.AllReduceOf, Reduce: ir.ReduceBySum, Groups: l.mesh.Along(ir.Model)}, v.Shape, v)
		}
		v = l.addUp(op, &ir.Communicate{How: ir.ReduceScatterOf, Reduce: ir.ReduceBySum, Groups: l.mesh.Along(ir.Replicas)}, s, l.laid(op.Inputs[0], v, l.mesh.Replicas))
	} else {
		v = l.addUp(op, &ir.Communicate{How: ir.AllReduceOf, Reduce: ir.ReduceBySum, Groups: m.circles}, s, v)
	}
	if m.count != nil {
		return l.over(v, m.count)
	}
	total := l.mesh.Instances / l.mesh.Replicas * len(m.circles[0])
	if op.Inputs[0].On(ir.Model).Kind == ir.Partial {
		total /= l.mesh.Model // its devices have terms of one
	}
	if way.How == ir.Sum || total == 1 {
		return v
	}
	return l.scale(v, 1/float64(total))
}

// first is the value of the first instance that the step has. Each device has one.
func (m merging) first() *ir.Value {
	v := m.values[0]
	if len(m.circles[0]) == 1 {
		return v
	}
	all := m.gathered(m.values)
	return m.reshape(m.row(m.reshape(all, all.Shape.Dimensions[1:]...), m.there()), v.Shape.Dimensions...)
}

// there tells of each instance, in the order in which they are gathered, whether the step has it; nil: it has all.
func (m merging) there() *ir.Value {
	if m.theres == nil {
		return nil
	}
	all := m.gathered(m.theres)
	return m.reshape(all, all.Shape.Size())
}

// smallest is the number of the first of some instances for which something is true; if there is none, how many there are.
func (m merging) smallest(is *ir.Value) *ir.Value {
	s := shapes.Make(dtypes.Int32, is.Shape.Dimensions[0])
	which := m.add(&ir.Where{}, s, is, m.add(&ir.Iota{Shape: s}, s), m.broadcast(m.constant(int32(s.Size())), s.Dimensions))
	return m.add(&ir.ReduceMin{}, shapes.Make(dtypes.Int32), which)
}

// row is that of the first instance that is there.
func (m merging) row(all, there *ir.Value) *ir.Value {
	s := resized(all.Shape, 0, 1)
	if there == nil {
		return m.rows(all, 0, 0, 1)
	}
	return m.window(all, s, 0, m.add(&ir.ConvertDType{DType: dtypes.Int64}, index, m.smallest(there)))
}

// agree finds the first instance that has another value than the first one; that of the first is what comes of it.
func (m merging) agree() *ir.Value {
	v := m.values[0]
	all, there := m.gathered(m.values), m.there()
	n, size := all.Shape.Dimensions[0]*all.Shape.Dimensions[1], v.Shape.Size()
	all = m.reshape(all, n, size)
	first := m.reshape(m.row(all, there), size)
	same := m.add(&ir.BroadcastInDim{OutputShape: all.Shape, BroadcastAxes: []int{1}}, all.Shape, first)
	each := shapes.Make(dtypes.Bool, n)
	differs := m.add(&ir.ReduceLogicalOr{Axes: []int{1}}, each, m.add(&ir.NotEqual{}, shapes.Make(dtypes.Bool, n, size), all, same))
	if there != nil {
		differs = m.add(&ir.LogicalAnd{}, each, differs, there)
	}
	finding := m.smallest(differs)
	m.finds(finding, m.add(&ir.LessThan{}, shapes.Make(dtypes.Bool), finding, m.constant(int32(n))))
	return m.reshape(first, v.Shape.Dimensions...)
}

// check finds the values, one of which may be above the limit, or no number.
func (m merging) check(way *ir.Merge) *ir.Value {
	all := m.gathered(m.values)
	s := shapes.Make(dtypes.Bool, all.Shape.Dimensions...)
	small := m.add(&ir.LessOrEqual{}, s, all, m.broadcast(m.constant(float32(way.Limit)), s.Dimensions))
	m.finds(all, m.add(&ir.ReduceLogicalOr{}, shapes.Make(dtypes.Bool), m.add(&ir.LogicalNot{}, s, small)))
	return m.values[0]
}

// finds notes what a check leaves, and whether it refuses the step: see schedule.Checks.
func (m merging) finds(finding, bad *ir.Value) {
	m.is(m.op.Outputs[1], finding)
	m.is(m.op.Outputs[2], m.add(&ir.ConvertDType{DType: dtypes.Int32}, shapes.Make(dtypes.Int32), bad))
}

// gathered has the values of all instances: first by micro-batch, of which each is an operand, then by device.
func (m merging) gathered(values []*ir.Value) *ir.Value {
	var all []*ir.Value
	for _, v := range values {
		all = append(all, m.reshape(v, slices.Concat([]int{1, 1}, v.Shape.Dimensions)...))
	}
	s := resized(all[0].Shape, 0, len(all))
	v := all[0]
	if len(all) > 1 {
		v = m.add(&ir.Concatenate{}, s, all...)
	}
	return m.communicate(&ir.Communicate{How: ir.AllGatherOf, Dim: 1, Groups: m.circles}, resized(s, 1, len(m.circles[0])), v)
}

func zeroOf(v *ir.Value) any { return reflect.Zero(v.Shape.DType.GoType()).Interface() }

// addUp adds up values of devices. Gradients may travel as float16: exec/local tells how, and why they are scaled.
func (l *lowering) addUp(op *ir.Op, a *ir.Communicate, s shapes.Shape, v *ir.Value) *ir.Value {
	k := len(a.Groups[0])
	if l.mesh.Half == 0 || v.Shape.DType != dtypes.Float32 || op.Phase != ir.Backward || k == 1 {
		return l.communicate(a, s, v)
	}
	scale := l.halfScale(v, a.Groups)
	half := func(s shapes.Shape) shapes.Shape { return shapes.Make(dtypes.Float16, s.Dimensions...) }
	v = l.add(&ir.Mul{}, v.Shape, v, l.broadcast(scale, v.Shape.Dimensions))
	v = l.communicate(a, half(s), l.add(&ir.ConvertDType{DType: dtypes.Float16}, half(v.Shape), v))
	return l.add(&ir.Div{}, s, l.add(&ir.ConvertDType{DType: dtypes.Float32}, s, v), l.broadcast(scale, s.Dimensions))
}

// LargestHalf is the largest number that a sum of float16 may become on its way, which leaves room for rounding up to that of float16, 65504.
const LargestHalf = 1 << 15

// halfScale is what a value is multiplied by on its way as float16: what the mesh prefers, unless the sum over all devices could be beyond float16,
// or even the largest element would be below 1, where small ones are lost; then the largest power of 2 with which the sum fits. Elements
// that are no numbers do not count: they travel as what they are.
func (l *lowering) halfScale(v *ir.Value, groups [][]int) *ir.Value {
	number, truth, bits := shapes.Make(dtypes.Float32), shapes.Make(dtypes.Bool), shapes.Make(dtypes.Uint32)
	all := shapes.Make(dtypes.Bool, v.Shape.Dimensions...)
	finite := l.add(&ir.Where{}, v.Shape, l.add(&ir.IsFinite{}, all, v), l.add(&ir.Abs{}, v.Shape, v), l.constant(float32(0)))
	largest := finite
	if v.Shape.Rank() > 0 {
		largest = l.add(&ir.ReduceMax{}, number, finite)
	}
	largest = l.communicate(&ir.Communicate{How: ir.AllReduceOf, Reduce: ir.ReduceByMax, Groups: groups}, number, largest)
	k, preferred := float64(len(groups[0])), l.constant(float32(l.mesh.Half))
	within := l.add(&ir.LogicalAnd{}, truth, // where 0 is, too
		l.add(&ir.GreaterOrEqual{}, truth, largest, l.constant(float32(1/l.mesh.Half))),
		l.add(&ir.LessOrEqual{}, truth, largest, l.constant(float32(LargestHalf/l.mesh.Half/k))))
	within = l.add(&ir.LogicalOr{}, truth, within, l.add(&ir.Equal{}, truth, largest, l.constant(float32(0))))
	// A float without its mantissa is a power of 2; that of an infinity would be 2^128.
	fits := l.add(&ir.Bitcast{TargetDType: dtypes.Uint32}, bits, l.add(&ir.Div{}, number, l.constant(float32(LargestHalf/k)), largest))
	fits = l.add(&ir.Min{}, bits, l.add(&ir.BitwiseAnd{}, bits, fits, l.constant(uint32(0xff<<23))), l.constant(uint32(0xfe<<23)))
	return l.add(&ir.Where{}, number, within, preferred, l.add(&ir.Bitcast{TargetDType: dtypes.Float32}, number, fits))
}

// broadcast repeats a number.
func (l *lowering) broadcast(x *ir.Value, dims []int) *ir.Value {
	if len(dims) == 0 {
		return x
	}
	s := shapes.Make(x.Shape.DType, dims...)
	return l.add(&ir.BroadcastInDim{OutputShape: s}, s, x)
}

// scale multiplies a value by a number.
func (l *lowering) scale(v *ir.Value, by float64) *ir.Value {
	if v.Shape.DType == dtypes.Float64 {
		return l.times(v, l.constant(by))
	}
	return l.times(v, l.constant(float32(by)))
}

// over divides a value by how many instances there are, a float32: as scale, it multiplies by the inverse.
func (l *lowering) over(v, count *ir.Value) *ir.Value {
	if v.Shape.DType == dtypes.Float64 {
		s := shapes.Make(dtypes.Float64)
		return l.times(v, l.add(&ir.Div{}, s, l.constant(1.0), l.add(&ir.ConvertDType{DType: s.DType}, s, count)))
	}
	return l.times(v, l.add(&ir.Div{}, count.Shape, l.constant(float32(1)), count))
}

// times multiplies a value by a number, which is a float32 or of the value's type.
func (l *lowering) times(v, x *ir.Value) *ir.Value {
	if s := shapes.Make(v.Shape.DType); !x.Shape.Equal(s) {
		x = l.add(&ir.ConvertDType{DType: s.DType}, s, x)
	}
	return l.add(&ir.Mul{}, v.Shape, v, l.broadcast(x, v.Shape.Dimensions))
}

// barrier lets the piece that begins at an op take what was there before through a barrier, so that XLA does not use what it computed from it
// before: else it would keep what is to be computed, or gathered, again. Nothing of the piece is there before all that it takes is.
func (l *lowering) barrier(s *ir.Segment, at int) {
	end := len(s.Ops)
	for _, next := range s.Barriers {
		if next > at {
			end = min(end, next)
		}
	}
	made, seen := map[*ir.Value]bool{}, map[*ir.Value]bool{}
	var from []*ir.Value
	for _, op := range s.Ops[at:end] {
		op.Uses(func(v *ir.Value) {
			if _, isConst := v.Op.Attrs.(*ir.Constant); !made[v] && !seen[v] && !isConst && l.values[v] != nil {
				seen[v] = true
				from = append(from, v)
			}
		})
		for _, v := range op.Outputs {
			made[v] = true
		}
	}
	if len(from) == 0 {
		return
	}
	var ins []*ir.Value
	var of []shapes.Shape
	for _, v := range from {
		ins, of = append(ins, l.values[v]), append(of, l.values[v].Shape)
	}
	b := l.p.NewOp(&ir.OptimizationBarrier{}, ins, of...)
	b.Attribution = s.Ops[at].Attribution
	l.to.Ops = append(l.to.Ops, b)
	for i, v := range from {
		l.is(v, b.Outputs[i])
	}
}
