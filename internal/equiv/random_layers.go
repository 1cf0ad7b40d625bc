// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/nn"
)

// indices returns integers from 0 to n-1, as a matrix with one column.
func (p *pool) indices(n int) (value, bool) {
	v, ok := p.pick(hasData(func(v value) bool { return isInt(v) && v.Rank() > 0 && v.Shape().Size() <= 64 && v.bound < 1e6 }))
	if !ok || n == 0 {
		return value{}, false
	}
	size := v.Shape().Size()
	x := Mod(Abs(Reshape(v.Node, size, 1)), Scalar(p.g, dtypes.Int32, n))
	return p.put(fmt.Sprintf("indices below %d", n), float64(n), StopGradient(x), v), true
}

func (p *pool) gather() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok {
		return
	}
	at, ok := p.indices(v.Shape().Dimensions[0])
	if !ok || at.Shape().Size()*v.Shape().Size() > maxSize*v.Shape().Dimensions[0] {
		return
	}
	p.put("gather", v.bound, Gather(v.Node, at.Node), v, at)
}

func (p *pool) scatter() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok {
		return
	}
	v = p.tame(v)
	at, ok := p.indices(v.Shape().Dimensions[0])
	if !ok {
		return
	}
	dims := append([]int{at.Shape().Size()}, v.Shape().Dimensions[1:]...)
	size := 1
	for _, d := range dims {
		size *= d
	}
	if size > maxSize {
		return
	}
	updates := p.shaped(v.DType(), dims...)
	switch p.IntN(2) {
	case 0:
		bound := v.bound + updates.bound*float64(dims[0])
		p.tame(p.putRounded("scatter sum", bound, ScatterSum(v.Node, at.Node, updates.Node, false, false), v, at, updates))
	case 1:
		p.put("scatter max", max(v.bound, updates.bound), kink(ScatterMax(v.Node, at.Node, updates.Node, false, false), v, updates), v, at, updates)
	}
}

func (p *pool) softmax() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok || v.DType() == dtypes.BFloat16 { // for which the pure-Go backend has no fused op
		return
	}
	v = p.tame(v)
	axis := p.IntN(v.Rank())
	if p.IntN(3) == 0 {
		p.putRounded(fmt.Sprintf("log softmax %d", axis), v.bound+3, LogSoftmax(v.Node, axis), v)
		return
	}
	p.putRounded(fmt.Sprintf("softmax %d", axis), 1, Softmax(v.Node, axis), v)
}

func (p *pool) layerNorm() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok || v.DType() == dtypes.BFloat16 {
		return
	}
	v = p.tame(v)
	n := 1 + p.IntN(min(2, v.Rank()))
	axes := consecutive(v.Rank()-n, n)
	var gamma, beta *Node
	from := []value{v}
	parameter := func() *Node {
		if p.IntN(3) == 0 {
			return nil
		}
		w := p.shaped(v.DType(), v.Shape().Dimensions[v.Rank()-n:]...)
		from = append(from, w)
		return w.Node
	}
	if gamma = parameter(); gamma != nil { // without gamma the pure-Go backend's fused op takes beta for it
		beta = parameter()
	}
	// A large epsilon: rounding errors of nearly equal elements must not be blown up.
	p.tame(p.putRounded(fmt.Sprintf("layer norm %v", axes), 10, nn.LayerNorm(v.Node, axes, 0.1, gamma, beta, nil), from...))
}

func (p *pool) gelu() {
	v, ok := p.pick(hasData(isFloat))
	if !ok {
		return
	}
	v = p.tame(v)
	if p.IntN(2) == 0 {
		p.putRounded("gelu", v.bound, activation.Gelu(v.Node), v)
		return
	}
	p.putRounded("gelu approximate", v.bound, activation.GeluApproximate(v.Node), v)
}

func (p *pool) dense() {
	x, ok := p.pick(hasData(isFloatMatrix))
	if !ok || x.DType() == dtypes.BFloat16 {
		return
	}
	x = p.tame(x)
	in, out := x.Shape().Dimensions[x.Rank()-1], max(1, p.size.dim(p.Rand))
	if x.Shape().Size()/in*out > maxSize {
		return
	}
	layout, dims := compute.DenseLayoutInputOutputs, []int{in, out}
	if p.IntN(2) == 0 {
		layout, dims = compute.DenseLayoutOutputsInput, []int{out, in}
	}
	w := p.shaped(x.DType(), dims...)
	from := []value{x, w}
	var bias *Node
	if p.IntN(3) > 0 {
		b := p.shaped(x.DType(), out)
		from, bias = append(from, b), b.Node
	}
	acts := []activation.Type{activation.TypeNone, activation.TypeRelu, activation.TypeGelu, activation.TypeTanh, activation.TypeSwish}
	act := acts[p.IntN(len(acts))]
	if act == activation.TypeRelu && p.r.differentiate {
		act = activation.TypeNone // the gradient jumps
	}
	what := fmt.Sprintf("dense %s %s", layout, act)
	v := p.putRounded(what, x.bound*w.bound*float64(in), nn.Dense(x.Node, w.Node, bias, layout, act), from...)
	p.tame(v)
}

func (p *pool) sort() {
	v, ok := p.pick(hasData(isFloatAxes))
	if !ok {
		return
	}
	axis := p.IntN(v.Rank())
	if v.exact && p.IntN(2) == 0 {
		k := 1 + p.IntN(v.Shape().Dimensions[axis])
		values, at := TopK(v.Node, k, axis)
		p.put(fmt.Sprintf("top %d of %d", k, axis), v.bound, StopGradient(values), v)
		p.put(fmt.Sprintf("where top %d of %d", k, axis), float64(v.Shape().Dimensions[axis]), StopGradient(at), v)
		return
	}
	p.put(fmt.Sprintf("sort %d", axis), v.bound, StopGradient(Sort(v.Node, axis, p.IntN(2) == 0)), v)
}

// while iterates x ← tanh(x·c + w) with w taken from outside the loop.
func (p *pool) while() {
	v, ok := p.pick(hasData(isFloat))
	if !ok {
		return
	}
	v = p.tame(v)
	w := p.shaped(v.DType(), v.Shape().Dimensions...)
	times := 1 + p.IntN(4)
	cond := NewClosure(p.g, func(g *Graph) []*Node {
		n := Parameter(g, "n", shapes.Make(dtypes.Int32))
		Parameter(g, "x", v.Shape())
		return []*Node{LessThan(n, Const(g, int32(times)))}
	})
	body := NewClosure(p.g, func(g *Graph) []*Node {
		n := Parameter(g, "n", shapes.Make(dtypes.Int32))
		x := Parameter(g, "x", v.Shape())
		half := Const(g, 0.5)
		return []*Node{Add(n, Const(g, int32(1))), Tanh(Add(Mul(x, ConvertDType(half, v.DType())), w.Node))}
	})
	out := While(cond, body, Const(p.g, int32(0)), v.Node)
	p.put(fmt.Sprintf("while, %d times", times), 1, StopGradient(out[1]), v, w)
}

// branch chooses between two expressions of values from outside.
func (p *pool) branch() {
	v, ok := p.pick(isFloat)
	if !ok {
		return
	}
	w := p.shaped(v.DType(), v.Shape().Dimensions...)
	cond, ok := p.pick(func(c value) bool { return isBool(c) && c.Rank() == 0 })
	if !ok {
		x, ok := p.pick(hasData(isExact(isFloat)))
		if !ok {
			return
		}
		cond = p.put("max above 0.5", 1, GreaterThan(ReduceAllMax(x.Node), Scalar(p.g, x.DType(), 0.5)), x)
	}
	yes := NewClosure(p.g, func(*Graph) []*Node { return []*Node{Sub(v.Node, w.Node), w.Node} })
	no := NewClosure(p.g, func(*Graph) []*Node { return []*Node{v.Node, Mul(v.Node, w.Node)} })
	out := If(cond.Node, yes, no)
	bound := max(v.bound+w.bound, v.bound*w.bound)
	p.put("if, first", bound, StopGradient(out[0]), cond, v, w)
	p.put("if, second", bound, StopGradient(out[1]), cond, v, w)
}
