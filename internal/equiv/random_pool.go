// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written

	"github.com/easyparallel/epl/ir"
)

// value is a node of the pool, and what the generator must know about it.
type value struct {
	*Node
	id     int
	bound  float64 // elements are at most so large, roughly
	exact  bool    // no pass may change a bit of it: no sum, no dot and no fused op led to it
	coarse bool    // see Result
}

// pool is a program being built.
type pool struct {
	*rand.Rand
	r      *Random
	g      *Graph
	size   sizes
	values []value
	used   map[int]bool
	rng    *Node // the state of the random number generator
}

// maxSize bounds the number of elements of a value.
const maxSize = 4096

// put adds a value to the pool. It is exact, or coarse, as what it was made from is.
func (p *pool) put(what string, bound float64, n *Node, from ...value) value {
	v := value{Node: n, id: len(p.values), bound: bound, exact: true}
	operands := make([]string, len(from))
	for i, x := range from {
		v.exact = v.exact && x.exact
		v.coarse = v.coarse || x.coarse
		p.used[x.id] = true
		operands[i] = fmt.Sprintf("v%d", x.id)
	}
	p.values = append(p.values, v)
	fmt.Fprintf(&p.r.text, "v%d = %s(%s) %s\n", v.id, what, strings.Join(operands, ", "), ir.ShapeText(n.Shape()))
	return v
}

// putRounded adds a value that passes may change by rounding.
func (p *pool) putRounded(what string, bound float64, n *Node, from ...value) value {
	v := p.put(what, bound, n, from...)
	return p.change(v, func(v *value) {
		v.exact = false
		v.coarse = v.coarse || v.DType() == dtypes.BFloat16
	})
}

func (p *pool) change(v value, how func(*value)) value {
	how(&p.values[v.id])
	return p.values[v.id]
}

// tame brings a value back into a small range.
func (p *pool) tame(v value) value {
	if v.bound <= 4 {
		return v
	}
	return p.put("tanh", 1, Tanh(v.Node), v)
}

// pick draws a value; late ones are likelier. ok is false if there is none of the kind.
func (p *pool) pick(is func(value) bool) (v value, ok bool) {
	var candidates []value
	for _, v := range p.values {
		if is(v) {
			candidates = append(candidates, v)
		}
	}
	if len(candidates) == 0 {
		return value{}, false
	}
	a, b := p.IntN(len(candidates)), p.IntN(len(candidates))
	return candidates[max(a, b)], true
}

func isFloat(v value) bool { return v.DType().IsFloat() }

func isInt(v value) bool { return v.DType() == dtypes.Int32 }

func isBool(v value) bool { return v.DType() == dtypes.Bool }

func isFloatAxes(v value) bool { return isFloat(v) && v.Rank() > 0 }

func isFloatMatrix(v value) bool { return isFloat(v) && v.Rank() > 1 }

// hasData is for ops that make no sense without elements, or that the pure-Go backend fails on: those that combine an
// empty value with one that has elements.
func hasData(is func(value) bool) func(value) bool {
	return func(v value) bool { return is(v) && v.Shape().Size() > 0 }
}

func isExact(is func(value) bool) func(value) bool {
	return func(v value) bool { return is(v) && v.exact }
}

// shaped returns a value of the pool made to fit: flattened, repeated, cut and reshaped.
func (p *pool) shaped(dtype dtypes.DType, dims ...int) value {
	shape := shapes.Make(dtype, dims...)
	if v, ok := p.pick(func(v value) bool { return v.Shape().Equal(shape) }); ok && p.IntN(4) > 0 {
		return p.tame(v)
	}
	v, ok := p.pick(hasData(func(v value) bool { return isFloat(v) && v.coarse == (dtype == dtypes.BFloat16) }))
	if !ok {
		v, _ = p.pick(hasData(isFloat))
	}
	if v.Node == nil { // nothing but empty inputs
		return p.put("iota", 1, DivScalar(IotaFull(p.g, shape), float64(max(1, shape.Size()))))
	}
	v = p.tame(v)
	n := Reshape(v.Node, v.Shape().Size())
	if v.DType() != dtype {
		n = ConvertDType(n, dtype)
	}
	if want := shape.Size(); want > n.Shape().Size() {
		size := n.Shape().Size()
		copies := (want + size - 1) / size
		n = Reshape(BroadcastPrefix(n, copies), copies*size)
	}
	if n.Shape().Size() != shape.Size() {
		n = Slice(n, AxisRange(0, shape.Size()))
	}
	fitted := p.put("fit", v.bound, Reshape(n, dims...), v)
	if dtype == dtypes.BFloat16 && !v.exact {
		fitted = p.change(fitted, func(v *value) { v.coarse = true })
	}
	return fitted
}
