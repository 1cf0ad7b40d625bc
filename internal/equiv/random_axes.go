// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
)

func (p *pool) transpose() {
	v, ok := p.pick(func(v value) bool { return v.Rank() > 1 })
	if !ok {
		return
	}
	perm := p.Perm(v.Rank())
	if p.IntN(4) == 0 {
		slices.Sort(perm) // the identity
	}
	v = p.put(fmt.Sprintf("transpose %v", perm), v.bound, TransposeAllAxes(v.Node, perm...), v)
	if p.IntN(2) == 0 {
		return
	}
	again := p.Perm(v.Rank())
	if p.IntN(2) == 0 { // back to where it was
		for i, axis := range perm {
			again[axis] = i
		}
	}
	p.put(fmt.Sprintf("transpose %v", again), v.bound, TransposeAllAxes(v.Node, again...), v)
}

// someAxes draws some axes, at least one: often the first or the last ones.
func (p *pool) someAxes(v value) []int {
	n := 1 + p.IntN(v.Rank())
	switch p.IntN(3) {
	case 0:
		return consecutive(0, n)
	case 1:
		return consecutive(v.Rank()-n, n)
	}
	axes := p.Perm(v.Rank())[:n]
	slices.Sort(axes)
	return axes
}

func consecutive(from, n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = from + i
	}
	return r
}

func elements(v value, axes []int) int {
	n := 1
	for _, a := range axes {
		n *= v.Shape().Dimensions[a]
	}
	return n
}

func (p *pool) reduce() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok {
		return
	}
	v = p.tame(v)
	axes := p.someAxes(v)
	type op struct {
		name    string
		rounded bool
		f       func(*Node, ...int) *Node
	}
	ops := []op{
		{"sum", true, scaledSum}, {"mean", true, ReduceMean},
		{"max", false, func(x *Node, axes ...int) *Node { return kink(ReduceMax(x, axes...), v) }},
		{"min", false, func(x *Node, axes ...int) *Node { return kink(ReduceMin(x, axes...), v) }},
		{"product of tanh", true, func(x *Node, axes ...int) *Node { return StopGradient(ReduceMultiply(Tanh(x), axes...)) }},
	}
	o := ops[p.IntN(len(ops))]
	put := p.put
	if o.rounded {
		put = p.putRounded
	}
	bound := max(v.bound, 1) * math.Sqrt(float64(elements(v, axes)))
	if p.IntN(3) == 0 {
		put(fmt.Sprintf("%s and keep %v", o.name, axes), bound, ReduceAndKeep(v.Node, o.f, axes...), v)
		return
	}
	put(fmt.Sprintf("%s %v", o.name, axes), bound, o.f(v.Node, axes...), v)
}

// scaledSum is a sum divided by the square root of the number of terms.
func scaledSum(x *Node, axes ...int) *Node {
	n := 1
	for _, a := range axes {
		n *= x.Shape().Dimensions[a]
	}
	return DivScalar(ReduceSum(x, axes...), math.Sqrt(float64(max(1, n))))
}

// sum adds up something with many elements over its first or last axes.
func (p *pool) sum() {
	rows, cols := 8+p.IntN(9), 8+p.IntN(9)
	split := 1 + p.IntN(3)
	dims := []int{rows * split, cols}
	if p.IntN(2) == 0 {
		dims = []int{rows, split, cols}
	}
	v := p.shaped(dtypes.Float32, dims...)
	axes := p.someAxes(v)
	p.putRounded(fmt.Sprintf("sum %v", axes), v.bound*math.Sqrt(float64(elements(v, axes))), scaledSum(v.Node, axes...), v)
}

// siblings applies an op twice to the same operand, once with other attributes: only one of each is needed, but both.
func (p *pool) siblings() {
	d := p.size.favourite
	v := p.shaped(dtypes.Float32, d, d, d)
	if d > 9 {
		v = p.shaped(dtypes.Float32, d, d)
	}
	r := v.Rank()
	i, j := p.IntN(r), p.IntN(r)
	type op struct {
		name    string
		rounded bool
		f       func(x *Node, axis int) *Node
	}
	ops := []op{
		{"sum", true, func(x *Node, axis int) *Node { return scaledSum(x, axis) }},
		{"max", false, func(x *Node, axis int) *Node { return kink(ReduceMax(x, axis), v) }},
		{"softmax", true, func(x *Node, axis int) *Node { return Softmax(x, axis) }},
		{"slice", false, func(x *Node, axis int) *Node { return SliceAxis(x, 0, AxisElem(axis)) }},
		{"reverse", false, func(x *Node, axis int) *Node { return StopGradient(Reverse(x, axis)) }},
		{"transpose", false, func(x *Node, axis int) *Node { return Transpose(x, axis, r-1) }},
		{"iota", false, func(x *Node, axis int) *Node { return Mul(x, DivScalar(Iota(x.Graph(), x.Shape(), axis), d)) }},
		{"dot", true, func(x *Node, axis int) *Node {
			return DivScalar(DotGeneral(x, []int{axis}, nil, x, []int{axis}, nil), float64(d))
		}},
		{"tanh", false, func(x *Node, _ int) *Node { return Tanh(x) }},
		{"broadcast", false, func(x *Node, axis int) *Node {
			row := kink(ReduceMax(x, consecutive(0, r-1)...), v)
			shape := slices.Repeat([]int{1}, r)
			shape[axis] = d
			return Mul(x, Reshape(row, shape...))
		}},
		{"cumulative sum", true, func(x *Node, axis int) *Node { return StopGradient(DivScalar(CumSum(x, axis), d)) }},
	}
	o := ops[p.IntN(len(ops))]
	if o.name == "dot" && r == 3 {
		return // too large
	}
	put := p.put
	if o.rounded {
		put = p.putRounded
	}
	bound := max(v.bound, v.bound*v.bound) * math.Sqrt(float64(d))
	a := put(fmt.Sprintf("%s %d", o.name, i), bound, o.f(v.Node, i), v)
	b := put(fmt.Sprintf("%s %d", o.name, j), bound, o.f(v.Node, j), v)
	p.put("x-y/2", 2*bound, Sub(a.Node, MulScalar(b.Node, 0.5)), a, b)
}

func (p *pool) reshape() {
	v, ok := p.pick(func(v value) bool { return v.Rank() > 0 })
	if !ok {
		return
	}
	dims := slices.Clone(v.Shape().Dimensions)
	at := p.IntN(len(dims))
	switch p.IntN(4) {
	case 0: // split an axis
		for _, d := range []int{2, 3} {
			if dims[at] > d && dims[at]%d == 0 && len(dims) < 5 {
				dims = slices.Replace(dims, at, at+1, dims[at]/d, d)
				break
			}
		}
	case 1: // merge two
		if at > 0 {
			dims = slices.Replace(dims, at-1, at+1, dims[at-1]*dims[at])
		}
	case 2: // insert one
		if len(dims) < 5 {
			dims = slices.Insert(dims, at, 1)
		}
	case 3: // drop those of size one
		dims = slices.DeleteFunc(dims, func(d int) bool { return d == 1 })
	}
	p.put("reshape", v.bound, Reshape(v.Node, dims...), v)
}

func (p *pool) slice() {
	v, ok := p.pick(hasData(func(v value) bool { return v.Rank() > 0 }))
	if !ok {
		return
	}
	specs := make([]SliceAxisSpec, v.Rank())
	var what string
	for i, d := range v.Shape().Dimensions {
		from := p.IntN(d)
		to := from + 1 + p.IntN(d-from)
		stride := 1 + p.IntN(2)
		to -= (to - from - 1) % stride // GoMLX's gradient fails where the stride leaves a rest
		if p.IntN(3) == 0 {
			from, to, stride = 0, d, 1
		}
		specs[i] = AxisRange(from, to).Stride(stride)
		what += fmt.Sprintf(" %d:%d:%d", from, to, stride)
	}
	p.put("slice"+what, v.bound, Slice(v.Node, specs...), v)
}

func (p *pool) concatenate() {
	v, ok := p.pick(isFloatAxes)
	if !ok {
		return
	}
	axis := p.IntN(v.Rank())
	dims := slices.Clone(v.Shape().Dimensions)
	dims[axis] = p.size.dim(p.Rand)
	w := p.shaped(v.DType(), dims...)
	if v.Shape().Size()+2*w.Shape().Size() > maxSize {
		return
	}
	p.put(fmt.Sprintf("concatenate %d", axis), max(v.bound, w.bound), Concatenate([]*Node{w.Node, v.Node, w.Node}, axis), w, v, w)
}

func (p *pool) pad() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok || v.Shape().Size()*8 > maxSize {
		return
	}
	config := make([]compute.PadAxis, v.Rank())
	config[p.IntN(len(config))] = compute.PadAxis{Start: p.IntN(3), End: p.IntN(3), Interior: p.IntN(2)}
	p.put(fmt.Sprintf("pad %v", config), v.bound, StopGradient(Pad(v.Node, Scalar(p.g, v.DType(), 0.5), config...)), v)
}

func (p *pool) reverse() {
	v, ok := p.pick(func(v value) bool { return v.Rank() > 0 })
	if !ok {
		return
	}
	axes := p.someAxes(v)
	p.put(fmt.Sprintf("reverse %v", axes), v.bound, StopGradient(Reverse(v.Node, axes...)), v)
}

func (p *pool) cumSum() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok || v.DType() == dtypes.BFloat16 {
		return
	}
	v = p.tame(v)
	axis := p.IntN(v.Rank())
	bound := v.bound * float64(v.Shape().Dimensions[axis])
	p.tame(p.putRounded(fmt.Sprintf("cumulative sum %d", axis), bound, StopGradient(CumSum(v.Node, axis)), v))
}
