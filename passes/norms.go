// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// What GoMLX and its autodiff make of a layer norm, y = (x − μ)/σ. g is the gradient of y, and that of x is the sum of normGo and normEnd.
var (
	normX       = anything()
	normMu      = meanOf(normX)
	normCentred = of(ir.OpSub, normX, normMu)
	normSigma   = of(ir.OpSqrt, of(ir.OpAdd, meanOf(of(ir.OpMul, normCentred, normCentred)), anything()))

	normG       = anything()
	normDSigma  = sumOf(of(ir.OpNeg, of(ir.OpMul, normG, of(ir.OpDiv, normCentred, of(ir.OpMul, normSigma, normSigma)))))
	normDSquare = of(ir.OpMul, of(ir.OpMul, of(ir.OpMul, normDSigma, of(ir.OpMul, of(ir.OpDiv, exactly(1), normSigma), exactly(0.5))), oneOfN), normCentred)
	normGo      = of(ir.OpAdd, of(ir.OpAdd, of(ir.OpDiv, normG, normSigma), normDSquare), normDSquare)
	normRest    = anything() // normGo, or a sum with it
	normEnd     = of(ir.OpAdd, normRest, of(ir.OpMul, of(ir.OpNeg, sumOf(normGo)), oneOfN))
)

// layerNorm rewrites the gradient of a layer norm. GoMLX's autodiff goes through each op, which takes two sums over rows, one after the
// other, and keeps x − μ and y. That is the same as (g − mean(g) − y·mean(g·y))/σ, where both means can be taken at once, and y is
// computed again from x.
func layerNorm(p *ir.Program, o Options) (int, error) {
	r := newRewriter(p)
	for _, op := range p.Main.Ops {
		if op.Type() == ir.OpAdd && op.Phase == ir.Backward && is32(op.Outputs[0]) {
			if m := normEnd.find(op.Outputs[0], nil, nil); m != nil {
				r.layerNorm(m)
			}
		}
	}
	if r.found > 0 {
		o.note("gradients of " + counted(r.found, "layer norm") + " by one formula; backward normalises again")
	}
	return r.finish(), nil
}

// layerNorm rewrites the gradient of one norm.
func (r *rewriter) layerNorm(m *match) {
	x, mu, centred, sigma, g, end := m.value[normX], m.value[normMu], m.value[normCentred], m.value[normSigma], m.value[normG], m.value[normGo]
	ofCentred, ok := r.backward(centred)
	if !ok || x.Op.Phase != ir.Forward {
		return
	}
	var y *ir.Value
	for _, user := range r.index.Users(centred) {
		if user.Phase == ir.Forward && user.Type() == ir.OpDiv && user.Inputs[0] == centred {
			y = user.Outputs[0]
		}
	}
	if y == nil {
		return
	}
	readers, ok := r.backward(y)
	if !ok {
		return
	}
	r.found++
	dims := slices.Clone(x.Shape.Dimensions)
	for _, axis := range m.axes {
		dims[axis] = 1
	}
	at := place{r, r.first(slices.Concat(readers, ofCentred)...)}
	column := func(v *ir.Value) *ir.Value {
		if slices.Equal(v.Shape.Dimensions, dims) {
			return v
		}
		return at.put(&ir.Reshape{Dimensions: dims}, shapes.Make(v.Shape.DType, dims...), v)
	}
	inverse := at.of(&ir.Div{}, 1., column(sigma))
	again := at.mul(at.sub(at.exact(at.again(x)), column(mu)), inverse)
	read(readers, y, again)
	at = place{r, end.Op}
	// The division by σ comes before the factor of the norm's gain: so that is float32, and all that follows.
	if g.Op.Type() == ir.OpMul && isSmall(g.Op.Inputs[1], g) && g.Op.Inputs[0].Shape.Equal(g.Shape) {
		g = at.mul(at.mul(g.Op.Inputs[0], inverse), g.Op.Inputs[1])
	} else {
		g = at.mul(g, inverse)
	}
	r.by[end] = at.sub(at.sub(g, at.mean(g, m.axes)), at.mul(again, at.mean(at.mul(g, again), m.axes)))
	r.by[m.full] = m.value[normRest]
}

// The variance as GoMLX writes it: the mean of (x − μ)².
var (
	varianceX       = anything()
	varianceMu      = meanOf(varianceX)
	varianceCentred = of(ir.OpSub, varianceX, varianceMu)
	varianceSquare  = of(ir.OpMul, varianceCentred, varianceCentred)
)

// variance takes the sum of (x − μ)² as Σx² − μ·Σx, so that x is read once for it and for μ. That loses digits where μ is far from 0, beside the
// deviation: but fewer than x has lost where it was rounded to bfloat16, and only there it is done.
func variance(p *ir.Program, o Options) (int, error) {
	r := newRewriter(p)
	for _, op := range p.Main.Ops {
		a, ok := op.Attrs.(*ir.ReduceSum)
		if !ok || op.Phase == ir.Apply || !is32(op.Outputs[0]) || len(a.Axes) == 0 {
			continue
		}
		m := varianceSquare.find(op.Inputs[0], a.Axes, nil)
		if m == nil {
			continue
		}
		x, mu, sum := m.value[varianceX], m.value[varianceMu], op.Outputs[0]
		if x.Op.Type() != ir.OpConvertDType || x.Op.Inputs[0].Shape.DType != dtypes.BFloat16 || !mu.Shape.Equal(sum.Shape) {
			continue
		}
		r.found++
		at := place{r, op}
		squares, total := at.put(a, sum.Shape, at.mul(x, x)), at.put(a, sum.Shape, x)
		r.by[sum] = at.of(&ir.Max{}, at.sub(squares, at.mul(total, mu)), 0.)
	}
	if r.found > 0 {
		o.note(counted(r.found, "variance") + " of bfloat16 by sums of squares")
	}
	return r.finish(), nil
}
