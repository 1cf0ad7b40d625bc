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
			return l.share(l.all(v, before, rows[before.Dim], k), s, after, k, l.here())
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

// merge merges the values of all instances, of which the device has one, or the sum of its own.
func (l *lowering) merge(op *ir.Op, m *ir.Merge) *ir.Value {
	v, s := l.values[op.Inputs[0]], op.Outputs[0].LocalShape(l.at)
	if in := op.Inputs[0]; Uneven(in) { // some are compared, or looked at for how large they are
		v = l.filled(in, reflect.Zero(in.Shape.DType.GoType()).Interface())
	}
	circles := l.mesh.Circles(op)
	k := len(circles[0])
	switch m.How {
	case ir.First:
		if k == 1 {
			return v
		}
		// That of the first device of the circle.
		stacked := l.reshape(v, slices.Concat([]int{1}, v.Shape.Dimensions)...)
		all := l.communicate(&ir.Communicate{How: ir.AllGatherOf, Groups: circles}, resized(stacked.Shape, 0, k), stacked)
		first := &ir.Slice{Starts: make([]int, all.Shape.Rank()), Limits: stacked.Shape.Dimensions, Strides: slices.Repeat([]int{1}, all.Shape.Rank())}
		return l.reshape(l.add(first, stacked.Shape, all), v.Shape.Dimensions...)
	case ir.Agree:
		return l.agree(op, circles)
	case ir.Check:
		return l.check(op, m, circles)
	case ir.Concat:
		if len(op.Inputs) == 1 {
			return l.communicate(&ir.Communicate{How: ir.AllGatherOf, Groups: circles}, s, v)
		}
		return l.reshape(l.gathered(op, circles), s.Dimensions...)
	}
	if op.Outputs[0].On(ir.Replicas).Kind == ir.Flat { // each model replica gets a part
		if op.Inputs[0].On(ir.Model).Kind == ir.Partial {
			v = l.communicate(&ir.Communicate{How: ir.AllReduceOf, Reduce: ir.ReduceBySum, Groups: l.mesh.Along(ir.Model)}, v.Shape, v)
		}
		v = l.addUp(op, &ir.Communicate{How: ir.ReduceScatterOf, Reduce: ir.ReduceBySum, Groups: l.mesh.Along(ir.Replicas)}, s, l.laid(op.Inputs[0], v, l.mesh.Replicas))
	} else {
		v = l.addUp(op, &ir.Communicate{How: ir.AllReduceOf, Reduce: ir.ReduceBySum, Groups: circles}, s, v)
	}
	total := l.mesh.Instances / l.mesh.Replicas * k
	if op.Inputs[0].On(ir.Model).Kind == ir.Partial {
		total /= l.mesh.Model // its devices have terms of one
	}
	if m.How == ir.Sum || total == 1 {
		return v
	}
	return l.scale(v, 1/float64(total))
}

// agree finds the first instance that has another value than the first one; that of the first is what comes of it.
func (l *lowering) agree(op *ir.Op, circles [][]int) *ir.Value {
	v := l.values[op.Inputs[0]]
	all := l.gathered(op, circles)
	n, size := all.Shape.Dimensions[0]*all.Shape.Dimensions[1], v.Shape.Size()
	all = l.reshape(all, n, size)
	first := l.reshape(l.add(&ir.Slice{Starts: []int{0, 0}, Limits: []int{1, size}, Strides: []int{1, 1}}, shapes.Make(v.Shape.DType, 1, size), all), size)
	same := l.add(&ir.BroadcastInDim{OutputShape: all.Shape, BroadcastAxes: []int{1}}, all.Shape, first)
	differs := l.add(&ir.ReduceLogicalOr{Axes: []int{1}}, shapes.Make(dtypes.Bool, n), l.add(&ir.NotEqual{}, shapes.Make(dtypes.Bool, n, size), all, same))
	instances, number := shapes.Make(dtypes.Int32, n), shapes.Make(dtypes.Int32)
	which := l.add(&ir.Where{}, instances, differs, l.add(&ir.Iota{Shape: instances}, instances), l.broadcast(l.constant(int32(n)), []int{n}))
	finding := l.add(&ir.ReduceMin{}, number, which)
	l.finds(op, finding, l.add(&ir.LessThan{}, shapes.Make(dtypes.Bool), finding, l.constant(int32(n))))
	return l.reshape(first, v.Shape.Dimensions...)
}

// check finds the values, one of which may be above the limit, or no number.
func (l *lowering) check(op *ir.Op, m *ir.Merge, circles [][]int) *ir.Value {
	all := l.gathered(op, circles)
	s := shapes.Make(dtypes.Bool, all.Shape.Dimensions...)
	small := l.add(&ir.LessOrEqual{}, s, all, l.broadcast(l.constant(float32(m.Limit)), s.Dimensions))
	l.finds(op, all, l.add(&ir.ReduceLogicalOr{}, shapes.Make(dtypes.Bool), l.add(&ir.LogicalNot{}, s, small)))
	return l.values[op.Inputs[0]]
}

// finds notes what a check leaves, and whether it refuses the step: see schedule.Checks.
func (l *lowering) finds(op *ir.Op, finding, bad *ir.Value) {
	l.is(op.Outputs[1], finding)
	l.is(op.Outputs[2], l.add(&ir.ConvertDType{DType: dtypes.Int32}, shapes.Make(dtypes.Int32), bad))
}

// gathered has the values of all instances: first by micro-batch, of which each is an operand, then by device.
func (l *lowering) gathered(op *ir.Op, circles [][]int) *ir.Value {
	var all []*ir.Value
	one := l.values[op.Inputs[0]].Shape.Dimensions
	for _, v := range op.Inputs {
		all = append(all, l.reshape(l.values[v], slices.Concat([]int{1, 1}, one)...))
	}
	s := resized(all[0].Shape, 0, len(all))
	v := all[0]
	if len(all) > 1 {
		v = l.add(&ir.Concatenate{}, s, all...)
	}
	return l.communicate(&ir.Communicate{How: ir.AllGatherOf, Dim: 1, Groups: circles}, resized(s, 1, len(circles[0])), v)
}

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
	x := l.constant(float32(by))
	if v.Shape.DType == dtypes.Float64 {
		x = l.constant(by)
	} else if v.Shape.DType != dtypes.Float32 {
		x = l.add(&ir.ConvertDType{DType: v.Shape.DType}, shapes.Make(v.Shape.DType), x)
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
