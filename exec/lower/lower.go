// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package lower makes of SPMD programs what one device runs.
//
// What goes in is a segment of an SPMD program, with logical shapes and placements, and the coordinates of a device on its mesh. What
// comes out of [Lower] is the same segment with the local shapes of that device. [Classes] lowers once per class of devices with equal
// local shapes. The position of a device is an input of the segment, never a constant, so that the devices of a class share it.
//
// In a segment that devices run together (ir.Mesh) collectives and merges are inside, and become ir.Communicate. All devices run the same then:
// unequal parts are padded to the largest. [CanPad] tells of which ops that can be done.
//
// It may assume that placements are verified, and that collectives and transfers are else between segments: a Reshard is then a
// local slice or mask.
package lower

import (
	"reflect"
	"slices"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// Lower makes of a segment what the device at some coordinates runs; nil are those of the first one, which has most. A segment in
// which all devices have all of everything is left as it is. Inputs and outputs are, in the same order, what the device has of those
// of the segment that it was made of.
func Lower(s *ir.Segment, at ir.Coordinates) *ir.Segment {
	placed := slices.ContainsFunc(s.Inputs, (*ir.Value).IsPlaced)
	for _, op := range s.Ops {
		placed = placed || op.IsReshard() || slices.ContainsFunc(op.Outputs, (*ir.Value).IsPlaced)
	}
	if !placed && s.Mesh == nil {
		return s
	}
	if s.Mesh != nil {
		at = nil // all run the same
	}
	l := &lowering{at: at, p: ir.NewProgram(s.Name), values: make(map[*ir.Value]*ir.Value, len(s.Ops)), mesh: s.Mesh, fillings: map[filling]*ir.Value{},
		to: &ir.Segment{Name: s.Name, Of: make(map[*ir.Value]*ir.Value, len(s.Ops)), Mesh: s.Mesh}}
	for _, v := range s.Inputs {
		op := v.Op.Copy(nil)
		op.Outputs[v.Index] = &ir.Value{Op: op, Index: v.Index, Shape: v.LocalShape(at)}
		l.is(v, op.Outputs[v.Index])
		l.to.Inputs = append(l.to.Inputs, op.Outputs[v.Index])
		if IsPosition(v) {
			l.place = op.Outputs[v.Index]
		}
	}
	for i, op := range s.Ops {
		if slices.Contains(s.Barriers, i) {
			l.barrier(s, i)
		}
		l.op(op)
	}
	for _, v := range s.Outputs {
		l.to.Outputs = append(l.to.Outputs, l.values[v])
	}
	return l.to
}

// Classes lowers segments for several devices: those that have values of equal shapes share what they run. If all sizes divide, that is
// one class; else the first so many devices have a unit more of something.
type Classes struct {
	made map[class]*ir.Segment
}

type class struct {
	s      *ir.Segment
	shapes string
}

// Lower makes of a segment what the device at some coordinates runs.
func (c *Classes) Lower(s *ir.Segment, at ir.Coordinates) *ir.Segment {
	if s.Mesh != nil {
		at = nil
	}
	var w strings.Builder
	note := func(v *ir.Value) {
		if v.IsPlaced() {
			w.WriteString(ir.ShapeText(v.LocalShape(at)))
		}
	}
	for _, v := range s.Inputs {
		note(v)
	}
	for _, op := range s.Ops {
		for _, v := range op.Outputs {
			note(v)
		}
	}
	if c.made == nil {
		c.made = map[class]*ir.Segment{}
	}
	key := class{s, w.String()}
	if c.made[key] == nil {
		c.made[key] = Lower(s, at)
	}
	return c.made[key]
}

// lowering writes the ops of one device.
type lowering struct {
	at     ir.Coordinates
	p      *ir.Program // for the numbers of new ops
	values map[*ir.Value]*ir.Value
	to     *ir.Segment
	now    *ir.Op // that is being lowered
	mesh   *ir.Mesh
	// Of devices that run the segment together: where one is along the axis Model, and values with padding set to a number.
	place    *ir.Value
	fillings map[filling]*ir.Value
}

// is notes what a device has of a value.
func (l *lowering) is(v, local *ir.Value) {
	if l.values[v] = local; l.to.Of[local] == nil {
		l.to.Of[local] = v
	}
}

// op writes an op down.
func (l *lowering) op(op *ir.Op) {
	l.now = op
	switch a := op.Attrs.(type) {
	case *ir.Constant:
		l.to.Ops = append(l.to.Ops, op)
		l.values[op.Outputs[0]] = op.Outputs[0]
		return
	case *ir.Reshard:
		if op.IsExchange() {
			l.is(op.Outputs[0], l.exchange(op))
		} else {
			l.is(op.Outputs[0], l.reshard(op))
		}
		return
	case *ir.Merge:
		l.is(op.Outputs[0], l.merge(op, a))
		return
	case *ir.FillEnd:
		l.is(op.Outputs[0], l.fillEnd(op, a))
		return
	case *ir.Sort:
		if v := op.Inputs[0]; l.mesh != nil && Uneven(v) && v.On(ir.Model).Dim == a.Axis {
			l.sort(op)
			return
		}
	}
	inputs := l.operands(op)
	local := make([]shapes.Shape, len(op.Outputs))
	for i, v := range op.Outputs {
		local[i] = v.LocalShape(l.at)
	}
	if _, broadcast := op.Attrs.(*ir.BroadcastInDim); broadcast && isFlat(op.Outputs[0]) && inputs[0].Shape.Rank() > 0 {
		inputs[0] = l.reshape(inputs[0]) // of one element
	}
	c := &ir.Op{ID: op.ID, Attrs: localAttrs(op, inputs, local), Inputs: inputs, Attribution: op.Attribution, Varying: op.Varying}
	if op.Funcs != nil {
		here := map[*ir.Value]*ir.Value{}
		op.Captures(func(v *ir.Value) { here[v] = l.values[v] })
		c.Funcs = l.p.CopyFuncs(op.Funcs, here)
	}
	for i, v := range op.Outputs {
		c.Outputs = append(c.Outputs, &ir.Value{Op: c, Index: i, Shape: local[i]})
		l.is(v, c.Outputs[i])
	}
	l.to.Ops = append(l.to.Ops, c)
}

func isFlat(v *ir.Value) bool { return v.On(ir.Replicas).Kind == ir.Flat }

// localAttrs are the attributes of an op on one device: those that repeat the shapes of operands are those of what it has.
func localAttrs(op *ir.Op, inputs []*ir.Value, outputs []shapes.Shape) ir.Attrs {
	switch a := op.Attrs.(type) {
	case *ir.Reshape:
		return &ir.Reshape{Dimensions: outputs[0].Dimensions}
	case *ir.BroadcastInDim:
		if isFlat(op.Outputs[0]) {
			return &ir.BroadcastInDim{OutputShape: outputs[0]}
		}
		return &ir.BroadcastInDim{OutputShape: outputs[0], BroadcastAxes: a.BroadcastAxes}
	case *ir.Iota:
		return &ir.Iota{Shape: outputs[0], IotaAxis: a.IotaAxis}
	case *ir.DynamicSlice:
		return &ir.DynamicSlice{SliceDims: outputs[0].Dimensions}
	case *ir.Slice:
		limits := slices.Clone(a.Limits)
		for d, n := range inputs[0].Shape.Dimensions {
			limits[d] = min(limits[d], n) // a dim that is sharded is taken whole
		}
		return &ir.Slice{Starts: a.Starts, Limits: limits, Strides: a.Strides}
	case *ir.Gather:
		sizes := slices.Clone(a.SliceSizes)
		for d, n := range inputs[0].Shape.Dimensions {
			sizes[d] = min(sizes[d], n)
		}
		b := *a
		b.SliceSizes = sizes
		return &b
	case *ir.ReduceSum, *ir.ReduceMax, *ir.ReduceMin, *ir.ReduceLogicalAnd:
		if isFlat(op.Inputs[0]) { // the only dim of a part
			return reflect.New(reflect.TypeOf(a).Elem()).Interface().(ir.Attrs)
		}
	}
	return op.Attrs
}

// add appends an op that takes part in what is being lowered.
func (l *lowering) add(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
	op := l.p.NewOp(a, in, s)
	op.Attribution, op.Varying = l.now.Attribution, l.now.Varying
	l.to.Ops = append(l.to.Ops, op)
	return op.Outputs[0]
}

var index = shapes.Make(dtypes.Int64)

func (l *lowering) reshape(v *ir.Value, dims ...int) *ir.Value {
	return l.add(&ir.Reshape{Dimensions: dims}, shapes.Make(v.Shape.DType, dims...), v)
}

func (l *lowering) constant(x any) *ir.Value {
	v := ir.NumberOf(x)
	return l.add(&ir.Constant{Value: v}, v.Shape)
}

func (l *lowering) number(n int) *ir.Value { return l.constant(int64(n)) }

// position is the second input of an op, as an int64.
func (l *lowering) position(op *ir.Op) *ir.Value {
	return l.add(&ir.ConvertDType{DType: dtypes.Int64}, index, l.values[op.Inputs[1]])
}

// window takes, along a dim, the rows from start on.
func (l *lowering) window(v *ir.Value, s shapes.Shape, dim int, start *ir.Value) *ir.Value {
	all := make([]int, s.Rank())
	for d := range all {
		all[d] = d
	}
	a := &ir.Gather{OffsetOutputAxes: all, StartIndexMap: []int{dim}, SliceSizes: s.Dimensions, IndicesAreSorted: true}
	return l.add(a, s, v, l.reshape(start, 1))
}

// reshard takes what the device needs of something whole.
func (l *lowering) reshard(op *ir.Op) *ir.Value {
	v, out := l.values[op.Inputs[0]], op.Outputs[0]
	axis, _ := op.Change()
	to, d := out.On(axis), out.Division(axis)
	s := out.LocalShape(l.at)
	switch to.Kind {
	case ir.Sharded:
		return l.share(v, s, to, d, l.position(op))
	case ir.Partial: // the first device has it, the others zeros
		yes := l.add(&ir.Equal{}, shapes.Make(dtypes.Bool), l.position(op), l.number(0))
		if s.Rank() > 0 {
			all := shapes.Make(dtypes.Bool, s.Dimensions...)
			yes = l.add(&ir.BroadcastInDim{OutputShape: all}, all, yes)
		}
		return l.add(&ir.Where{}, s, yes, v, l.constant(reflect.Zero(s.DType.GoType()).Interface()))
	}
	return l.window(l.laid(op.Inputs[0], v, d.Devices), s, 0, l.add(&ir.Mul{}, index, l.position(op), l.number(s.Size())))
}

// share takes the rows of the device at a position, of something whole. What lies past the end is padding.
func (l *lowering) share(v *ir.Value, s shapes.Shape, p ir.Placement, d ir.Division, at *ir.Value) *ir.Value {
	n := v.Shape.Dimensions[p.Dim]
	start := p.Start(at, n, d, func(a ir.Attrs, in ...*ir.Value) *ir.Value { return l.add(a, index, in...) }, l.number)
	if l.mesh != nil && extra(p, n, d.Devices) > 0 {
		v = l.longer(v, p.Dim, p.Unit)
	}
	return l.window(v, s, p.Dim, start)
}

// flat lays a value out flat, with zeros past the end, so that k devices can have equal parts.
func (l *lowering) flat(v *ir.Value, k int) *ir.Value {
	n, c := v.Shape.Size(), ir.PartShape(v.Shape, k).Size()
	if v.Shape.Rank() != 1 {
		v = l.reshape(v, n)
	}
	if pad := k*c - n; pad > 0 {
		v = l.add(&ir.Pad{AxesConfig: []compute.PadAxis{{End: pad}}}, shapes.Make(v.Shape.DType, k*c), v, l.constant(reflect.Zero(v.Shape.DType.GoType()).Interface()))
	}
	return v
}

// fillEnd sets what lies past the end of a tensor.
func (l *lowering) fillEnd(op *ir.Op, a *ir.FillEnd) *ir.Value {
	v, whole := l.values[op.Inputs[0]], *op.Inputs[0]
	k := whole.Devices(ir.Replicas)
	whole.SetOn(ir.Replicas, ir.Placement{}, k)
	n, c := whole.LocalShape(l.at).Size(), v.Shape.Size()
	uneven := l.mesh != nil && Uneven(op.Inputs[0])
	if k*c == n && !uneven {
		return v
	}
	ints := shapes.Make(dtypes.Int64, c)
	var inside *ir.Value
	if uneven {
		_, s := boxes(op.Inputs[0])
		size := l.either(op.Inputs[0], l.number(c), l.number(ir.PartShape(s, k).Size()))
		end := l.add(&ir.Sub{}, index, l.either(op.Inputs[0], l.number(n), l.number(s.Size())), l.add(&ir.Mul{}, index, l.position(op), size))
		inside = l.add(&ir.LessThan{}, shapes.Make(dtypes.Bool, c), l.add(&ir.Iota{Shape: ints}, ints), l.add(&ir.Min{}, index, size, end))
	} else {
		first := l.add(&ir.Mul{}, index, l.position(op), l.number(c))
		inside = l.add(&ir.LessThan{}, shapes.Make(dtypes.Bool, c), l.add(&ir.Add{}, ints, l.add(&ir.Iota{Shape: ints}, ints), first), l.number(n))
	}
	fill := l.add(&ir.BroadcastInDim{OutputShape: v.Shape}, v.Shape, l.add(&ir.Constant{Value: a.With}, a.With.Shape))
	return l.add(&ir.Where{}, v.Shape, inside, v, fill)
}
