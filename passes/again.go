// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// On GPUs, elementwise work takes the time that its bytes take to come from memory. So the passes gelu, layer-norm and softmax let backward
// compute values of forward again from what is in memory anyway, such as the result of a product, instead of keeping them as well.
// Barriers keep XLA from taking the two for one.

// rewriter finds patterns in a program as it is: changes wait until the end.
type rewriter struct {
	p      *ir.Program
	index  *analysis.Index
	before map[*ir.Op][]*ir.Op // new ops, by the op in front of which they stand
	by     map[*ir.Value]*ir.Value
	found  int
}

func newRewriter(p *ir.Program) *rewriter {
	unfuseDense(p) // backward adds a bias again, but does not multiply again
	return &rewriter{p: p, index: analysis.Of(p), before: map[*ir.Op][]*ir.Op{}, by: map[*ir.Value]*ir.Value{}}
}

// finish puts the new ops in their places.
func (r *rewriter) finish() int {
	if r.found == 0 {
		return 0
	}
	var ops []*ir.Op
	for _, op := range r.p.Main.Ops {
		ops = append(append(ops, r.before[op]...), op)
	}
	r.p.Main.Ops = ops
	r.p.ReplaceUses(r.by)
	analysis.Sweep(r.p)
	return r.found
}

// backward are the ops of backward that read a value. ok: they belong to the TaskGraph of the op that computes it.
func (r *rewriter) backward(v *ir.Value) (users []*ir.Op, ok bool) {
	ok = true
	for _, user := range r.index.Users(v) {
		if user.Phase == ir.Backward {
			users = append(users, user)
			ok = ok && user.TaskGraph == v.Op.TaskGraph && slices.Contains(user.Inputs, v)
		}
	}
	return users, ok
}

// first is the one that comes first in the program; nil: there is none.
func (r *rewriter) first(ops ...*ir.Op) (first *ir.Op) {
	for _, op := range ops {
		if first == nil || r.index.Position(op) < r.index.Position(first) {
			first = op
		}
	}
	return first
}

// only is the op that alone reads a value; nil: there are others, or none.
func (r *rewriter) only(v *ir.Value) *ir.Op {
	if users := r.index.Users(v); len(users) == 1 {
		return users[0]
	}
	return nil
}

// read makes ops read another value in place of one.
func read(ops []*ir.Op, v, other *ir.Value) {
	for _, op := range ops {
		for i, in := range op.Inputs {
			if in == v {
				op.Inputs[i] = other
			}
		}
	}
}

// place is where new ops stand: in front of another.
type place struct {
	*rewriter
	next *ir.Op
}

// put makes an op.
func (at place) put(attrs ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
	op := at.p.NewOp(attrs, in, s)
	op.Func, op.Attribution = at.next.Func, at.next.Attribution
	at.before[at.next] = append(at.before[at.next], op)
	return op.Outputs[0]
}

// of computes an elementwise op. Operands are values, of which the largest has the shape of the result, and float32 numbers.
func (at place) of(attrs ir.Attrs, operands ...any) *ir.Value {
	in := make([]*ir.Value, len(operands))
	var largest *ir.Value
	for i, x := range operands {
		switch x := x.(type) {
		case *ir.Value:
			in[i] = x
			if largest == nil || x.Shape.Size() > largest.Shape.Size() {
				largest = x
			}
		case float64:
			s := shapes.Make(dtypes.Float32)
			in[i] = at.put(&ir.Constant{Value: ir.Literal{Shape: s, Flat: []float32{float32(x)}}}, s)
		}
	}
	return at.put(attrs, largest.Shape, in...)
}

func (at place) add(x, y any) *ir.Value { return at.of(&ir.Add{}, x, y) }

func (at place) sub(x, y any) *ir.Value { return at.of(&ir.Sub{}, x, y) }

func (at place) mul(x, y any) *ir.Value { return at.of(&ir.Mul{}, x, y) }

// mean is that over axes, which stay, with size 1.
func (at place) mean(x *ir.Value, axes []int) *ir.Value {
	var rest []int
	kept := slices.Clone(x.Shape.Dimensions)
	for i, n := range x.Shape.Dimensions {
		if slices.Contains(axes, i) {
			kept[i] = 1
		} else {
			rest = append(rest, n)
		}
	}
	sum := at.put(&ir.ReduceSum{Axes: axes}, shapes.Make(x.Shape.DType, rest...), x)
	s := shapes.Make(x.Shape.DType, kept...)
	return at.put(&ir.Reshape{Dimensions: kept}, s, at.mul(sum, float64(s.Size())/float64(x.Shape.Size())))
}

// again computes a value of forward again for backward. What is small is read as it is: numbers for each feature, or row. Arithmetic with
// what is small is done again, and what it starts from is read behind a barrier.
func (at place) again(v *ir.Value) *ir.Value {
	switch v.Op.Attrs.(type) {
	case *ir.Add, *ir.Sub, *ir.Mul:
		for i, in := range v.Op.Inputs {
			if other := v.Op.Inputs[1-i]; in.Shape.Equal(v.Shape) && isSmall(other, v) {
				in, other = at.again(in), at.repeated(other)
				if i == 1 {
					in, other = other, in
				}
				return at.put(v.Op.Attrs, v.Shape, in, other)
			}
		}
	}
	return at.put(&ir.OptimizationBarrier{}, v.Shape, v)
}

// repeated is a small value as backward reads it: what forward repeats, backward repeats by itself.
func (at place) repeated(v *ir.Value) *ir.Value {
	if b, ok := v.Op.Attrs.(*ir.BroadcastInDim); ok {
		return at.put(b, v.Shape, v.Op.Inputs[0])
	}
	return v
}

// exact is a value from which on all is float32: a cast to what it is already.
func (at place) exact(v *ir.Value) *ir.Value {
	return at.put(&ir.ConvertDType{DType: v.Shape.DType}, v.Shape, v)
}

// isSmall tells whether a value, or what it repeats, has far fewer elements than another.
func isSmall(v, than *ir.Value) bool {
	if _, ok := v.Op.Attrs.(*ir.BroadcastInDim); ok {
		v = v.Op.Inputs[0]
	}
	return v.Shape.Size() <= than.Shape.Size()/64
}
