// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// pad makes a large dim of a product's result, such as a vocabulary, one that GPUs multiply fast: a multiple of a tile. All that is computed
// from it elementwise has the larger dim as well, so that nothing is copied. Sums and products over it see neutral elements there, and what
// leaves is cut off: results are the same, but for the order of sums.
func pad(p *ir.Program, o Options) (int, error) {
	if o.splits() {
		return 0, nil // a dim that is divided over devices is not for here
	}
	n := 0
	for _, op := range slices.Clone(p.Main.Ops) {
		dot, ok := op.Attrs.(*ir.DotGeneral)
		if !ok || op.Phase != ir.Forward || !slices.Contains(p.Main.Ops, op) {
			continue
		}
		out := op.Outputs[0]
		axis := out.Shape.Rank() - 1
		if axis < 1 || len(dot.RHSBatchAxes) > 0 || op.Inputs[1].Shape.Rank() != len(dot.RHSContractingAxes)+1 || !out.Shape.DType.IsHalfPrecision() {
			continue
		}
		size := out.Shape.Dimensions[axis]
		to := (size + tile - 1) / tile * tile
		if size < leastPadded || to == size {
			continue
		}
		x := &padder{rewriter: newRewriter(p), dot: op, size: size, to: to, wide: map[*ir.Value]*ir.Value{}, axis: map[*ir.Value]int{}, masked: map[*ir.Value]bool{}}
		if x.run() {
			o.note(fmt.Sprintf("%s gives %d columns, not %d, which is a multiple of %d", op, to, size, tile))
			n += x.finish()
		}
	}
	return n, nil
}

const (
	tile        = 128
	leastPadded = 4096 // columns: of fewer, the tile is too large a part
)

// padder pads what follows from one product.
type padder struct {
	*rewriter
	dot      *ir.Op
	size, to int
	// wide are values with the larger dim, by those they stand for, and axis is which dim that is. Masked ones are zero beyond the size.
	wide   map[*ir.Value]*ir.Value
	axis   map[*ir.Value]int
	masked map[*ir.Value]bool
}

// run is false if something large would have to be cut.
func (x *padder) run() bool {
	at := place{x.rewriter, x.dot}
	out := x.dot.Outputs[0]
	a := x.dot.Attrs.(*ir.DotGeneral)
	weights := x.dot.Inputs[1]
	free := slices.IndexFunc(weights.Shape.Dimensions, func(n int) bool { return n == x.size })
	for free >= 0 && slices.Contains(a.RHSContractingAxes, free) {
		if free++; free == weights.Shape.Rank() {
			return false
		}
	}
	x.set(out, out.Shape.Rank()-1, at.put(a, x.larger(out.Shape, out.Shape.Rank()-1), x.dot.Inputs[0], x.zeros(at, weights, free)))
	for _, op := range x.p.Main.Ops {
		if op != x.dot && slices.ContainsFunc(op.Inputs, func(v *ir.Value) bool { return x.wide[v] != nil }) && !x.op(op) {
			return false
		}
		captured := false
		op.Captures(func(v *ir.Value) { captured = captured || x.wide[v] != nil })
		if captured {
			return false
		}
	}
	if slices.ContainsFunc(x.p.Main.Outputs, func(v *ir.Value) bool { return x.wide[v] != nil }) {
		return false
	}
	x.found++
	return true
}

func (x *padder) set(v *ir.Value, axis int, wide *ir.Value) { x.wide[v], x.axis[v] = wide, axis }

// larger is a shape with the larger dim.
func (x *padder) larger(s shapes.Shape, axis int) shapes.Shape {
	s = s.Clone()
	s.Dimensions[axis] = x.to
	return s
}

// op makes an op that reads something padded read that.
func (x *padder) op(op *ir.Op) bool {
	at, out := place{x.rewriter, op}, op.Outputs[0]
	i := slices.IndexFunc(op.Inputs, func(v *ir.Value) bool { return x.wide[v] != nil })
	v := op.Inputs[i]
	axis := x.axis[v]
	switch a := op.Attrs.(type) {
	case *ir.OptimizationBarrier:
		if len(op.Inputs) != 1 {
			return false
		}
		wide := x.wide[v]
		if x.masked[out] = slices.ContainsFunc(x.index.Users(out), func(user *ir.Op) bool { return contracts(user, out, axis) }); x.masked[out] {
			wide = x.mask(at, v, 0)
		}
		x.set(out, axis, at.put(a, wide.Shape, wide))
		return true
	case *ir.Reshape: // of the other dims
		last := out.Shape.Rank() - 1
		if axis != v.Shape.Rank()-1 || last < 0 || out.Shape.Dimensions[last] != x.size {
			return false
		}
		s := x.larger(out.Shape, last)
		x.set(out, last, at.put(&ir.Reshape{Dimensions: s.Dimensions}, s, x.wide[v]))
		return true
	case *ir.ReduceSum:
		return x.reduce(at, op, v, a.Axes, 0)
	case *ir.ReduceMax:
		return x.reduce(at, op, v, a.Axes, math.Inf(-1))
	case *ir.DotGeneral:
		return x.product(at, op, a)
	case *ir.Gather:
		if i != 0 || a.SliceSizes[axis] == x.size {
			return false
		}
		x.by[out] = at.put(a, out.Shape, x.wide[v], op.Inputs[1])
		return true
	}
	if !ir.IsElementwiseType(op.Type()) {
		return false
	}
	wide := x.elementwise(at, op, axis)
	if wide != nil {
		x.set(out, axis, wide)
	}
	return wide != nil
}

// elementwise is an elementwise op on larger values; nil: one of them is not there.
func (x *padder) elementwise(at place, op *ir.Op, axis int) *ir.Value {
	in := make([]*ir.Value, len(op.Inputs))
	for i, v := range op.Inputs {
		if in[i] = x.widen(at, v, axis); in[i] == nil {
			return nil
		}
	}
	return at.put(op.Attrs, x.larger(op.Outputs[0].Shape, axis), in...)
}

// widen is a value with a larger dim, or one that is repeated along it; nil: that would be a copy of something large.
func (x *padder) widen(at place, v *ir.Value, axis int) *ir.Value {
	switch {
	case x.wide[v] != nil && x.axis[v] == axis:
		return x.wide[v]
	case v.Shape.Rank() == 0:
		return v
	case axis >= v.Shape.Rank() || x.wide[v] != nil:
		return nil
	case v.Shape.Dimensions[axis] == 1:
		return v
	case v.Shape.Dimensions[axis] != x.size:
		return nil
	}
	s := x.larger(v.Shape, axis)
	var wide *ir.Value
	switch a := v.Op.Attrs.(type) {
	case *ir.Iota:
		wide = at.put(&ir.Iota{Shape: s, IotaAxis: a.IotaAxis}, s)
	case *ir.BroadcastInDim:
		in := v.Op.Inputs[0]
		if i := slices.Index(a.BroadcastAxes, axis); i >= 0 {
			if in = x.widen(at, in, i); in == nil {
				return nil
			}
		}
		wide = at.put(&ir.BroadcastInDim{OutputShape: s, BroadcastAxes: a.BroadcastAxes}, s, in)
	default:
		switch {
		case v.Shape.Size() <= x.dot.Outputs[0].Shape.Size()/64:
			wide = x.zeros(at, v, axis)
		case ir.IsElementwiseType(v.Op.Type()):
			wide = x.elementwise(at, v.Op, axis)
		}
	}
	if wide != nil {
		x.set(v, axis, wide)
	}
	return wide
}

// zeros puts zeros behind the elements of a dim.
func (x *padder) zeros(at place, v *ir.Value, axis int) *ir.Value {
	config := make([]compute.PadAxis, v.Shape.Rank())
	config[axis].End = x.to - x.size
	return at.put(&ir.Pad{AxesConfig: config}, x.larger(v.Shape, axis), v, at.number(v.Shape.DType, 0))
}

// number is a constant.
func (at place) number(d dtypes.DType, x float64) *ir.Value {
	s := shapes.Make(d)
	return at.put(&ir.Constant{Value: ir.Literal{Shape: s, Flat: shapes.CastAsDType([]float64{x}, d)}}, s)
}

// mask puts a number in the place of what is beyond the size.
func (x *padder) mask(at place, v *ir.Value, neutral float64) *ir.Value {
	wide := x.wide[v]
	if neutral == 0 && x.masked[v] {
		return wide
	}
	numbers := shapes.Make(dtypes.Int32, wide.Shape.Dimensions...)
	inside := at.put(&ir.LessThan{}, typed(numbers, dtypes.Bool),
		at.put(&ir.Iota{Shape: numbers, IotaAxis: x.axis[v]}, numbers), at.number(dtypes.Int32, float64(x.size)))
	return at.put(&ir.Where{}, wide.Shape, inside, wide, at.number(wide.Shape.DType, neutral))
}

// cut is what is not beyond the size.
func (x *padder) cut(at place, wide *ir.Value, s shapes.Shape) *ir.Value {
	return at.put(&ir.Slice{Starts: make([]int, s.Rank()), Limits: s.Dimensions, Strides: slices.Repeat([]int{1}, s.Rank())}, s, wide)
}

// reduce reduces what is inside, or what is in each place of the dim.
func (x *padder) reduce(at place, op *ir.Op, v *ir.Value, axes []int, neutral float64) bool {
	axis, out := x.axis[v], op.Outputs[0]
	if len(axes) == 0 || slices.Contains(axes, axis) {
		x.by[out] = at.put(op.Attrs, out.Shape, x.mask(at, v, neutral))
		return true
	}
	to := axis
	for _, a := range axes {
		if a < axis {
			to--
		}
	}
	x.by[out] = x.cut(at, at.put(op.Attrs, x.larger(out.Shape, to), x.wide[v]), out.Shape)
	return true
}

// contracts tells whether an op is a product that sums over an axis of an operand.
func contracts(op *ir.Op, v *ir.Value, axis int) bool {
	d, ok := op.Attrs.(*ir.DotGeneral)
	return ok && (op.Inputs[0] == v && slices.Contains(d.LHSContractingAxes, axis) || op.Inputs[1] == v && slices.Contains(d.RHSContractingAxes, axis))
}

// product multiplies what is padded. Over a dim that it sums over, both have zeros there.
func (x *padder) product(at place, op *ir.Op, d *ir.DotGeneral) bool {
	contracting, batch := [2][]int{d.LHSContractingAxes, d.RHSContractingAxes}, [2][]int{d.LHSBatchAxes, d.RHSBatchAxes}
	in := slices.Clone(op.Inputs)
	shape := op.Outputs[0].Shape
	for i, v := range op.Inputs {
		if x.wide[v] == nil {
			continue
		}
		axis := x.axis[v]
		if at := slices.Index(contracting[i], axis); at >= 0 && x.wide[op.Inputs[1-i]] != nil || slices.Contains(batch[i], axis) {
			return false
		}
		if j := slices.Index(contracting[i], axis); j >= 0 {
			in[i], in[1-i] = x.mask(at, v, 0), x.zeros(at, op.Inputs[1-i], contracting[1-i][j])
			continue
		}
		to := len(batch[0]) // its place in the result
		if i == 1 {
			to += op.Inputs[0].Shape.Rank() - len(batch[0]) - len(contracting[0])
		}
		for j := range axis {
			if !slices.Contains(contracting[i], j) && !slices.Contains(batch[i], j) {
				to++
			}
		}
		in[i] = x.wide[v]
		shape = x.larger(shape, to)
	}
	product := at.put(d, shape, in...)
	x.by[op.Outputs[0]] = product
	if !shape.Equal(op.Outputs[0].Shape) {
		x.by[op.Outputs[0]] = x.cut(at, product, op.Outputs[0].Shape)
	}
	return true
}
