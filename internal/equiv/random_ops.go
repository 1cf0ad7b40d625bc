// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
)

// family is a kind of ops that random programs are made of. It draws operands from the pool and adds results to it.
type family struct {
	weight int // how often, relative to the others
	apply  func(*pool)
}

var families = []family{
	{8, (*pool).unary}, {2, (*pool).jump}, {6, (*pool).binary}, {6, (*pool).broadcast},
	{10, (*pool).dot}, {4, (*pool).einsum}, {4, (*pool).matmul},
	{8, (*pool).transpose}, {8, (*pool).reduce}, {4, (*pool).sum}, {6, (*pool).siblings},
	{5, (*pool).reshape}, {4, (*pool).slice}, {3, (*pool).concatenate}, {2, (*pool).pad}, {2, (*pool).reverse},
	{4, (*pool).gather}, {3, (*pool).scatter},
	{4, (*pool).softmax}, {4, (*pool).layerNorm}, {3, (*pool).gelu}, {6, (*pool).dense},
	{4, (*pool).where}, {2, (*pool).logic}, {4, (*pool).convert}, {3, (*pool).integer},
	{2, (*pool).counting}, {2, (*pool).cumSum}, {2, (*pool).sort}, {2, (*pool).while}, {3, (*pool).branch}, {2, (*pool).random},
}

func (p *pool) unary() {
	v, ok := p.pick(isFloat)
	if !ok {
		return
	}
	v = p.tame(v)
	b := v.bound
	type op struct {
		name  string
		bound float64
		f     func(*Node) *Node
	}
	ops := []op{
		{"tanh", 1, Tanh}, {"neg", b, Neg}, {"sin", 1, Sin}, {"cos", 1, Cos}, {"logistic", 1, Logistic},
		{"square", b * b, Square}, {"erf", 1, Erf}, {"abs", b, func(x *Node) *Node { return kink(Abs(x), v) }},
		{"exp", math.Exp(min(b, 2)), func(x *Node) *Node { return Exp(ClipScalar(x, -4, 2)) }},
		{"log1p(abs)", b, func(x *Node) *Node { return Log1P(kink(Abs(x), v)) }},
		{"sqrt(1+x²)", b + 1, func(x *Node) *Node { return Sqrt(OnePlus(Square(x))) }},
		{"1/(1+x²)", 1, func(x *Node) *Node { return Reciprocal(OnePlus(Square(x))) }},
		{"rsqrt(1+x²)", 1, func(x *Node) *Node { return StopGradient(Rsqrt(OnePlus(Square(x)))) }},
	}
	n := len(ops)
	if v.Shape().Size() == 0 {
		n = 7 // the others have constants in them: see hasData
	}
	o := ops[p.IntN(n)]
	p.put(o.name, o.bound, o.f(v.Node), v)
}

// kink stops gradients that jump where from changes by a rounding error.
func kink(n *Node, from ...value) *Node {
	if slices.ContainsFunc(from, func(v value) bool { return !v.exact }) {
		return StopGradient(n)
	}
	return n
}

// jump applies what is not continuous.
func (p *pool) jump() {
	v, ok := p.pick(hasData(isExact(isFloat)))
	if !ok || v.bound > 100 {
		return
	}
	switch p.IntN(4) {
	case 0:
		p.put("sign", 1, StopGradient(Sign(v.Node)), v)
	case 1:
		p.put("floor(3x)", 3*v.bound+1, StopGradient(Floor(MulScalar(v.Node, 3))), v)
	case 2:
		p.put("round(5x)", 5*v.bound+1, StopGradient(Round(MulScalar(v.Node, 5))), v)
	case 3:
		if v.Rank() > 0 {
			axis := p.IntN(v.Rank())
			p.put(fmt.Sprintf("argmax %d", axis), float64(v.Shape().Dimensions[axis]), StopGradient(ArgMax(v.Node, axis)), v)
		}
	}
}

// combine is a binary op on operands whose shapes broadcast.
func (p *pool) combine(a, b value) value {
	x, y := a.Node, b.Node
	kinds := 6
	if x.Shape().Size() == 0 {
		kinds = 5 // see hasData
	}
	switch p.IntN(kinds) {
	case 0:
		return p.put("add", a.bound+b.bound, Add(x, y), a, b)
	case 1:
		return p.put("sub", a.bound+b.bound, Sub(x, y), a, b)
	case 2:
		return p.put("mul", a.bound*b.bound, Mul(x, y), a, b)
	case 3:
		return p.put("max", max(a.bound, b.bound), kink(Max(x, y), a, b), a, b)
	case 4:
		return p.put("min", max(a.bound, b.bound), kink(Min(x, y), a, b), a, b)
	default:
		return p.put("x/(1+|y|)", a.bound, Div(x, OnePlus(kink(Abs(y), b))), a, b)
	}
}

func (p *pool) binary() {
	a, ok := p.pick(isFloat)
	if !ok {
		return
	}
	a = p.tame(a)
	p.combine(a, p.shaped(a.DType(), a.Shape().Dimensions...))
}

// broadcast combines operands of different shapes, in the ways that GoMLX has.
func (p *pool) broadcast() {
	a, ok := p.pick(hasData(isFloatAxes))
	if !ok {
		return
	}
	a = p.tame(a)
	dims := slices.Clone(a.Shape().Dimensions)
	axis := p.IntN(len(dims))
	switch p.IntN(5) {
	case 0: // an axis of size one stretches
		dims[axis] = 1
		p.combine(a, p.shaped(a.DType(), dims...))
	case 1: // a scalar
		p.combine(p.shaped(a.DType()), a)
	case 2: // a vector over the other axes
		v := p.shaped(a.DType(), dims[axis])
		shape := slices.Repeat([]int{1}, len(dims))
		shape[axis] = dims[axis]
		p.combine(a, p.put("expand", v.bound, Reshape(v.Node, shape...), v))
	case 3: // both stretch
		if other := max(1, p.size.dim(p.Rand)); len(dims) < 4 && a.Shape().Size()*other <= maxSize {
			b := p.shaped(a.DType(), append([]int{other}, slices.Repeat([]int{1}, len(dims))...)...)
			p.combine(p.put("insert axis", a.bound, InsertAxes(a.Node, 0), a), b)
		}
	case 4:
		if n := p.size.dim(p.Rand); len(dims) < 4 && a.Shape().Size()*n <= maxSize {
			p.put(fmt.Sprintf("broadcast prefix %d", n), a.bound, BroadcastPrefix(a.Node, n), a)
		}
	}
}

// condition returns booleans of the given shape.
func (p *pool) condition(dims []int) (value, bool) {
	v, ok := p.pick(hasData(isExact(func(v value) bool { return isFloat(v) && slices.Equal(v.Shape().Dimensions, dims) })))
	if !ok {
		return value{}, false
	}
	x := v.Node
	y := Scalar(p.g, v.DType(), 0.1)
	switch p.IntN(4) {
	case 0:
		return p.put("less than 0.1", 1, LessThan(x, y), v), true
	case 1:
		return p.put("at least 0.1", 1, GreaterOrEqual(x, y), v), true
	case 2:
		return p.put("is finite", 1, IsFinite(x), v), true
	default:
		return p.put("greater than its neighbour", 1, GreaterThan(x, Reverse(x, consecutive(0, x.Rank())...)), v), true
	}
}

func (p *pool) where() {
	v, ok := p.pick(isFloat)
	if !ok {
		return
	}
	dims := v.Shape().Dimensions
	cond, ok := p.condition(dims)
	if !ok {
		return
	}
	w := p.shaped(v.DType(), dims...)
	p.put("where", max(v.bound, w.bound), Where(cond.Node, v.Node, w.Node), cond, v, w)
}

func (p *pool) logic() {
	v, ok := p.pick(isBool)
	if !ok {
		if x, ok := p.pick(isExact(isFloat)); ok {
			p.condition(x.Shape().Dimensions)
		}
		return
	}
	w, _ := p.pick(func(w value) bool { return isBool(w) && w.Shape().Equal(v.Shape()) })
	switch p.IntN(4) {
	case 0:
		p.put("and", 1, LogicalAnd(v.Node, w.Node), v, w)
	case 1:
		p.put("xor", 1, LogicalXor(v.Node, w.Node), v, w)
	case 2:
		p.put("not", 1, LogicalNot(v.Node), v)
	case 3:
		if v.Rank() > 0 && v.Shape().Size() > 0 {
			p.put("any", 1, LogicalAny(v.Node, p.IntN(v.Rank())), v)
		}
	}
}

// half converts to bfloat16.
func (p *pool) half(v value) value {
	h := p.put("bfloat16", v.bound, ConvertDType(v.Node, dtypes.BFloat16), v)
	return p.change(h, func(h *value) { h.coarse = h.coarse || !v.exact })
}

func (p *pool) convert() {
	switch p.IntN(5) {
	case 0:
		if v, ok := p.pick(func(v value) bool { return v.DType() == dtypes.Float32 }); ok {
			p.put("float64", v.bound, ConvertDType(v.Node, dtypes.Float64), v)
		}
	case 1:
		if v, ok := p.pick(func(v value) bool { return isFloat(v) && v.DType() != dtypes.Float32 }); ok {
			p.put("float32", v.bound, ConvertDType(v.Node, dtypes.Float32), v)
		}
	case 2:
		if v, ok := p.pick(hasData(isExact(isFloat))); ok && v.bound < 1000 {
			p.put("int32(7x)", 7*v.bound+1, StopGradient(ConvertDType(MulScalar(v.Node, 7), dtypes.Int32)), v)
		}
	case 3:
		if v, ok := p.pick(hasData(isInt)); ok {
			p.put("tanh(float32)", 1, StopGradient(Tanh(DivScalar(ConvertDType(v.Node, dtypes.Float32), 4))), v)
		}
	case 4:
		if v, ok := p.pick(func(v value) bool { return v.DType() == dtypes.Float32 }); ok {
			p.half(v)
		}
	}
}

func (p *pool) integer() {
	v, ok := p.pick(hasData(isInt))
	if !ok || v.bound > 1e6 {
		return
	}
	switch p.IntN(4) {
	case 0:
		p.put("3x+1", 3*v.bound+1, AddScalar(MulScalar(v.Node, 3), 1), v)
	case 1:
		p.put("mod 5", 5, Mod(Abs(v.Node), Scalar(p.g, dtypes.Int32, 5)), v)
	case 2:
		p.put("x²-x", v.bound*v.bound+v.bound, Sub(Mul(v.Node, v.Node), v.Node), v)
	case 3:
		if v.Rank() > 0 && v.Shape().Size() > 0 {
			axes := p.someAxes(v)
			p.put(fmt.Sprintf("sum %v", axes), v.bound*float64(elements(v, axes)), ReduceSum(v.Node, axes...), v)
		}
	}
}

func (p *pool) counting() {
	dims := p.size.dims(p.Rand, 1+p.IntN(3))
	shape := shapes.Make(dtypes.Float32, dims...)
	if shape.Size() > maxSize {
		return
	}
	if p.IntN(2) == 0 {
		shape.DType = dtypes.Int32
		axis := p.IntN(len(dims))
		p.put(fmt.Sprintf("iota %d", axis), float64(dims[axis]), Iota(p.g, shape, axis))
		return
	}
	p.put("sin(iota)", 1, Sin(IotaFull(p.g, shape)))
}

func (p *pool) random() {
	shape := shapes.Make(dtypes.Float32, p.size.dims(p.Rand, 1+p.IntN(3))...)
	if shape.Size() > maxSize || shape.Size() == 0 {
		return
	}
	var x *Node
	if p.IntN(2) == 0 {
		p.rng, x = RandomUniform(p.rng, shape)
	} else {
		p.rng, x = RandomNormal(p.rng, shape)
	}
	p.put("random", 4, x)
}
