// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
)

// contraction is how the axes of two operands of a dot meet.
type contraction struct {
	a, b                   value
	aContract, aBatch      []int
	bContract, bBatch      []int
	left, right, contracts int // cross axes of a and of b; products summed up per element
}

// contraction draws an operand, and makes another to fit.
func (p *pool) contraction() (c contraction, ok bool) {
	if c.a, ok = p.pick(hasData(isFloatAxes)); !ok {
		return c, false
	}
	c.a = p.tame(c.a)
	dims := c.a.Shape().Dimensions
	axes := p.Perm(len(dims))
	batch := p.IntN(min(len(axes), 3))
	contract := 1 + p.IntN(len(axes)-batch)
	c.aBatch, c.aContract = axes[:batch], axes[batch:batch+contract]
	c.left, c.right = len(axes)-batch-contract, p.IntN(3)
	type axis struct{ size, like int }
	var other []axis
	outSize := 1
	c.contracts = 1
	for i, d := range dims {
		switch {
		case slices.Contains(c.aContract, i):
			other = append(other, axis{d, i})
			c.contracts *= d
		case slices.Contains(c.aBatch, i):
			other = append(other, axis{d, i})
			outSize *= d
		default:
			outSize *= d
		}
	}
	for range c.right {
		d := max(1, p.size.dim(p.Rand)) // the pure-Go backend fails on empty dots
		other = append(other, axis{d, -1})
		outSize *= d
	}
	p.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	if p.r.differentiate { // GoMLX finds gradients only where contracted axes come in the same order on both sides
		slices.Sort(c.aContract)
		next := 0
		for i, x := range other {
			if slices.Contains(c.aContract, x.like) {
				other[i] = axis{dims[c.aContract[next]], c.aContract[next]}
				next++
			}
		}
	}
	sizes := make([]int, len(other))
	at := map[int]int{}
	total := 1
	for i, x := range other {
		sizes[i] = x.size
		total *= x.size
		if x.like >= 0 {
			at[x.like] = i
		}
	}
	if outSize > maxSize || total > maxSize || outSize*c.contracts > 40*maxSize {
		return c, false
	}
	for _, i := range c.aBatch {
		c.bBatch = append(c.bBatch, at[i])
	}
	for _, i := range c.aContract {
		c.bContract = append(c.bContract, at[i])
	}
	c.b = p.shaped(c.a.DType(), sizes...)
	return c, true
}

func (c contraction) bound() float64 {
	return c.a.bound * c.b.bound * math.Sqrt(float64(max(1, c.contracts)))
}

// putDot adds the result of a dot, brought back to the size of its operands.
func (p *pool) putDot(what string, n *Node, c contraction) {
	n = DivScalar(n, math.Sqrt(float64(max(1, c.contracts))))
	v := p.putRounded(what, c.bound(), n, c.a, c.b)
	if c.a.DType() == dtypes.BFloat16 { // also where the result is float32
		v = p.change(v, func(v *value) { v.coarse = true })
	}
	p.tame(v)
}

// dot is a general one; its result is often transposed, mostly such that its operands could be swapped instead.
func (p *pool) dot() {
	c, ok := p.contraction()
	if !ok {
		return
	}
	what := fmt.Sprintf("dot %v %v with %v %v", c.aContract, c.aBatch, c.bContract, c.bBatch)
	if c.a.DType() == dtypes.Float32 && p.IntN(3) == 0 {
		c.a, c.b = p.half(c.a), p.half(c.b)
	}
	builder := Dot(c.a.Node, c.b.Node)
	if c.a.DType() == dtypes.BFloat16 && p.IntN(2) == 0 {
		what += " to float32"
		builder = builder.WithOutputDType(dtypes.Float32)
	}
	n := builder.General(c.aContract, c.aBatch, c.bContract, c.bBatch)
	batch := len(c.aBatch)
	if n.Rank() > 1 && p.IntN(2) == 0 {
		perm := make([]int, 0, n.Rank())
		for i := range n.Rank() {
			switch {
			case i < batch:
				perm = append(perm, i)
			case i < batch+c.right:
				perm = append(perm, i+c.left)
			default:
				perm = append(perm, i-c.right)
			}
		}
		if p.IntN(4) == 0 {
			perm = p.Perm(n.Rank())
		}
		what += fmt.Sprintf(", transpose %v", perm)
		n = TransposeAllAxes(n, perm...)
	}
	p.putDot(what, n, c)
}

func (p *pool) einsum() {
	c, ok := p.contraction()
	if !ok {
		return
	}
	names := func(rank int, from byte) []byte {
		b := make([]byte, rank)
		for i := range b {
			b[i] = from + byte(i)
		}
		return b
	}
	a, b := names(c.a.Rank(), 'a'), names(c.b.Rank(), 'k')
	out := slices.Clone(a)
	for i, axis := range c.aContract {
		b[c.bContract[i]] = a[axis]
		out = slices.DeleteFunc(out, func(x byte) bool { return x == a[axis] })
	}
	for i, axis := range c.aBatch {
		b[c.bBatch[i]] = a[axis]
	}
	for _, x := range b {
		if x >= 'k' {
			out = append(out, x)
		}
	}
	p.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	equation := fmt.Sprintf("%s,%s->%s", a, b, out)
	p.putDot("einsum "+equation, Einsum(equation, c.a.Node, c.b.Node), c)
}

func (p *pool) matmul() {
	a, ok := p.pick(hasData(isFloatMatrix))
	if !ok {
		return
	}
	a = p.tame(a)
	dims := a.Shape().Dimensions
	k, n := dims[len(dims)-1], max(1, p.size.dim(p.Rand))
	if a.Shape().Size()*n > maxSize {
		return
	}
	c := contraction{a: a, b: p.shaped(a.DType(), k, n), contracts: k}
	if len(dims) > 2 { // GoMLX multiplies each matrix of a stack
		stack := append(slices.Clone(dims[:len(dims)-2]), k, n)
		c.b = p.shaped(a.DType(), stack...)
	}
	p.putDot("matmul", MatMul(a.Node, c.b.Node), c)
}
