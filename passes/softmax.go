// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// softmax lets backward compute the exponentials of a softmax again, from what they are of; and reads the logarithms of probabilities of labels, where
// GoMLX sums up what a mask selects of all.
func softmax(p *ir.Program, o Options) (int, error) {
	r := newRewriter(p)
	for _, op := range p.Main.Ops {
		switch _, sums := op.Attrs.(*ir.ReduceSum); {
		case op.Phase == ir.Apply || !is32(op.Outputs[0]):
		case op.Phase == ir.Backward && sums:
			r.ofMask(op)
		case op.Phase == ir.Backward:
		case op.Type() == ir.OpExp:
			r.exponentials(op)
		case sums && !o.splits(): // the class of a label may be on another device
			if m := selected.find(op.Inputs[0], op.Attrs.(*ir.ReduceSum).Axes, nil); m != nil {
				r.selected(op, m)
			}
		}
	}
	if r.found > 0 {
		o.note(counted(r.found, "sum") + " of exponentials, or of what masks select: backward computes exponentials again, and labels select")
	}
	return r.finish(), nil
}

// exponentials computes exponentials of a difference again.
func (r *rewriter) exponentials(op *ir.Op) {
	exp, difference := op.Outputs[0], op.Inputs[0]
	readers, ok := r.backward(exp)
	if !ok || len(readers) == 0 || difference.Op.Type() != ir.OpSub {
		return
	}
	x, most := difference.Op.Inputs[0], difference.Op.Inputs[1]
	if !x.Shape.Equal(exp.Shape) || !isSmall(most, exp) {
		return
	}
	r.found++
	at := place{r, r.first(readers...)}
	read(readers, exp, at.of(&ir.Exp{}, at.sub(at.exact(at.again(x)), at.repeated(most))))
}

// What GoMLX makes of the logarithm of the probability of a label: minus what a mask selects of x − log Σ exp x.
var (
	selectedX    = anything()
	selectedMask = of(ir.OpConvertDType, anything())
	selectedLog  = of(ir.OpLog, anything())
	selected     = of(ir.OpNeg, of(ir.OpMul, selectedMask, of(ir.OpSub, selectedX, selectedLog)))
)

// labels is a mask that is 1 where a class is that of a label.
type labels struct {
	of   *ir.Value // the labels, with one class
	axis int       // that of classes
	size int       // how many classes there are
}

// labelsOf finds the labels of a mask; nil: it is another.
func labelsOf(mask *ir.Value) *labels {
	if mask.Op.Type() != ir.OpConvertDType || mask.Op.Inputs[0].Op.Type() != ir.OpEqual {
		return nil
	}
	for i, v := range mask.Op.Inputs[0].Op.Inputs {
		a, ok := v.Op.Attrs.(*ir.Iota)
		of := mask.Op.Inputs[0].Op.Inputs[1-i]
		if !ok || a.IotaAxis != mask.Shape.Rank()-1 || v.Shape.Rank() != mask.Shape.Rank() || of.Shape.Rank() != mask.Shape.Rank() {
			continue
		}
		l := &labels{of, a.IotaAxis, mask.Shape.Dimensions[a.IotaAxis]}
		if want := append(slices.Clone(mask.Shape.Dimensions[:l.axis]), 1); slices.Equal(of.Shape.Dimensions, want) && v.Shape.Dimensions[l.axis] == l.size {
			return l
		}
	}
	return nil
}

// rows is the shape of one number for each label.
func (l *labels) rows(d dtypes.DType) shapes.Shape {
	return shapes.Make(d, l.of.Shape.Dimensions[:l.axis]...)
}

// inside is 1 where a label is one of the classes.
func (l *labels) inside(at place) *ir.Value {
	d := l.of.Shape.DType
	of := at.put(&ir.Reshape{Dimensions: l.rows(d).Dimensions}, l.rows(d), l.of)
	from := at.put(&ir.GreaterOrEqual{}, l.rows(dtypes.Bool), of, at.number(d, 0))
	to := at.put(&ir.LessThan{}, l.rows(dtypes.Bool), of, at.number(d, float64(l.size)))
	both := at.put(&ir.LogicalAnd{}, l.rows(dtypes.Bool), from, to)
	return at.put(&ir.ConvertDType{DType: dtypes.Float32}, l.rows(dtypes.Float32), both)
}

// pick gives the element of each label, of a value with a number for each class: nil if it is none. It goes back to what is in memory.
func (l *labels) pick(at place, v *ir.Value) *ir.Value {
	rows := l.rows(v.Shape.DType)
	switch v.Op.Attrs.(type) {
	case *ir.Add, *ir.Sub, *ir.Mul:
		if x, y := l.pick(at, v.Op.Inputs[0]), l.pick(at, v.Op.Inputs[1]); x != nil && y != nil {
			return at.put(v.Op.Attrs, rows, x, y)
		}
		return nil
	case *ir.BroadcastInDim:
		if in := v.Op.Inputs[0]; in.Shape.Rank() == 1 && in.Shape.Size() == l.size {
			return l.gather(at, in)
		}
	}
	switch dims := v.Shape.Dimensions; {
	case len(dims) == 0:
		return v
	case len(dims) != l.axis+1:
		return nil
	case dims[l.axis] == 1 && v.Shape.Size() == rows.Size():
		return at.put(&ir.Reshape{Dimensions: rows.Dimensions}, rows, v)
	case dims[l.axis] == l.size && v.Shape.Size() == l.size:
		return l.gather(at, at.put(&ir.Reshape{Dimensions: []int{l.size}}, shapes.Make(v.Shape.DType, l.size), v))
	case slices.Equal(dims[:l.axis], rows.Dimensions) && dims[l.axis] == l.size:
		return l.gather(at, v)
	}
	return nil
}

// gather reads the elements of labels: of a vector, or of a value with one for each.
func (l *labels) gather(at place, v *ir.Value) *ir.Value {
	var parts []*ir.Value
	for axis := range v.Shape.Rank() - 1 {
		parts = append(parts, at.put(&ir.Iota{Shape: l.of.Shape, IotaAxis: axis}, l.of.Shape))
	}
	indices := l.of
	if parts != nil {
		s := l.of.Shape.Clone()
		s.Dimensions[l.axis] = v.Shape.Rank()
		indices = at.put(&ir.Concatenate{Axis: l.axis}, s, append(parts, l.of)...)
	}
	all := upTo(v.Shape.Rank())
	return at.put(&ir.Gather{IndexVectorAxis: l.axis, OffsetOutputAxes: []int{}, CollapsedSliceAxes: all, StartIndexMap: all,
		SliceSizes: slices.Repeat([]int{1}, len(all))}, l.rows(v.Shape.DType), v, indices)
}

// selected reads the elements of labels, instead of a sum over all classes.
func (r *rewriter) selected(op *ir.Op, m *match) {
	x, log, sum := m.value[selectedX], m.value[selectedLog], op.Outputs[0]
	l := labelsOf(m.value[selectedMask])
	if l == nil || !slices.Equal(op.Attrs.(*ir.ReduceSum).Axes, []int{l.axis}) || log.Shape.Size() != sum.Shape.Size() || !x.Shape.Equal(m.full.Shape) {
		return
	}
	at := place{r, op}
	chosen := l.pick(at, x)
	if chosen == nil {
		return
	}
	r.found++
	log = at.put(&ir.Reshape{Dimensions: sum.Shape.Dimensions}, sum.Shape, log)
	r.by[sum] = at.mul(l.inside(at), at.sub(log, chosen))
}

// ofMask takes what is the same for all classes out of a sum over a mask, of which one element is 1.
func (r *rewriter) ofMask(op *ir.Op) {
	if op.Inputs[0].Op.Type() != ir.OpMul {
		return
	}
	for i, mask := range op.Inputs[0].Op.Inputs {
		l := labelsOf(mask)
		if l == nil || !slices.Equal(op.Attrs.(*ir.ReduceSum).Axes, []int{l.axis}) {
			continue
		}
		negative, v := false, op.Inputs[0].Op.Inputs[1-i]
		for ; v.Op.Type() == ir.OpNeg; v = v.Op.Inputs[0] {
			negative = !negative
		}
		b, ok := v.Op.Attrs.(*ir.BroadcastInDim)
		if !ok || !slices.Equal(v.Op.Inputs[0].Shape.Dimensions, l.of.Shape.Dimensions) || !slices.Equal(b.BroadcastAxes, upTo(l.axis+1)) {
			continue
		}
		r.found++
		at, rows := place{r, op}, l.rows(dtypes.Float32)
		v = at.put(&ir.Reshape{Dimensions: rows.Dimensions}, rows, v.Op.Inputs[0])
		if negative {
			v = at.put(&ir.Neg{}, rows, v)
		}
		r.by[op.Outputs[0]] = at.mul(v, l.inside(at))
		return
	}
}
