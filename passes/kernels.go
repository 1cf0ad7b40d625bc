// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// What the pass layer-norm, and mixed precision after it, make of the gradient of a layer norm: see [ir.NormGradient].
var (
	kernelDY      = anything()
	kernelX       = anything()
	kernelMu      = anything()
	kernelInverse = anything()
	kernelGain    = anything()
	kernelG       = of(ir.OpMul, of(ir.OpMul, kernelDY, kernelInverse), kernelGain)
	kernelY       = of(ir.OpMul, of(ir.OpSub, kernelX, kernelMu), kernelInverse)
	kernelDX      = of(ir.OpSub, of(ir.OpSub, kernelG, meanOf(kernelG)), of(ir.OpMul, kernelY, meanOf(of(ir.OpMul, kernelG, kernelY))))
)

// What the pass gelu, and mixed precision after it, make of the gradient of GELU: see [ir.GELUGradient].
var (
	kernelDGELU = anything()
	kernelOf    = anything()
	kernelZ     = of(ir.OpMin, of(ir.OpMul, kernelOf, kernelOf), exactly(g3))
	kernelPhi   = of(ir.OpLogistic, of(ir.OpMul, kernelOf, of(ir.OpAdd, of(ir.OpMul, kernelZ, of(ir.OpSub, exactly(g1), of(ir.OpMul, kernelZ, exactly(g2)))), exactly(g0))))
	kernelDPhi  = of(ir.OpMul, of(ir.OpMul, of(ir.OpMul, kernelPhi, of(ir.OpSub, exactly(1), kernelPhi)),
		of(ir.OpAdd, of(ir.OpMul, kernelZ, of(ir.OpSub, exactly(3*g1), of(ir.OpMul, kernelZ, exactly(5*g2)))), exactly(g0))), exactly(2*math.Sqrt2))
	kernelGELU = of(ir.OpAdd, of(ir.OpMul, kernelDGELU, kernelPhi),
		of(ir.OpMul, of(ir.OpMul, of(ir.OpMul, of(ir.OpMul, kernelDGELU, kernelOf), exactly(0.5)), kernelDPhi), exactly(math.Sqrt2/2)))
)

// What mixed precision makes of a layer norm: see [ir.Norm].
var (
	kernelNormOf     = anything()
	kernelNormMu     = anything()
	kernelNormSigma  = anything()
	kernelNormGain   = &pattern{loose: true}
	kernelNormOffset = &pattern{loose: true}
	kernelMean       = meanOf(kernelNormOf)
	kernelCentred    = of(ir.OpSub, kernelNormOf, kernelMean)
	kernelEpsilon    = anything()
	kernelDeviation  = of(ir.OpSqrt, of(ir.OpAdd, of(ir.OpMul, of(ir.OpMax, of(ir.OpSub, sumOf(of(ir.OpMul, kernelNormOf, kernelNormOf)),
		of(ir.OpMul, sumOf(kernelNormOf), kernelMean)), exactly(0)), oneOfN), kernelEpsilon))
	kernelDeviation2 = of(ir.OpSqrt, of(ir.OpAdd, meanOf(of(ir.OpMul, kernelCentred, kernelCentred)), kernelEpsilon))
	kernelNorm       = of(ir.OpAdd, of(ir.OpMul, of(ir.OpDiv, of(ir.OpSub, kernelNormOf, kernelNormMu), kernelNormSigma), kernelNormGain), kernelNormOffset)
)

// norm makes a function of a layer norm.
func (r *rewriter) norm(m *match) {
	x, mu, sigma, gain, offset := m.value[kernelNormOf], m.value[kernelNormMu], m.value[kernelNormSigma], m.value[kernelNormGain], m.value[kernelNormOffset]
	rank, rounded := m.full.Shape.Rank(), r.only(m.full)
	if rounded == nil || !isCast(rounded.Outputs[0], dtypes.BFloat16) || x.Op.Type() != ir.OpConvertDType || !x.Shape.Equal(m.full.Shape) {
		return
	}
	width := m.full.Shape.Dimensions[rank-1]
	for _, v := range []*ir.Value{gain, offset} {
		if v.Shape.Size() != width || v.Shape.Dimensions[v.Shape.Rank()-1] != width {
			return
		}
	}
	// μ and σ must be those of x, whichever way the variance is taken.
	last, given := []int{rank - 1}, map[*pattern]*ir.Value{kernelNormOf: x}
	mean, deviation := kernelMean.findFor(mu, x, last, given), kernelDeviation.findFor(sigma, x, last, given)
	if deviation == nil {
		deviation = kernelDeviation2.findFor(sigma, x, last, given)
	}
	if mean == nil || deviation == nil {
		return
	}
	epsilon := constant(deviation.value[kernelEpsilon])
	if len(epsilon) != 1 {
		return
	}
	inputs, outputs := []*ir.Value{uncast(x), gain, offset}, []*ir.Value{rounded.Outputs[0], mean.value[kernelMean], sigma}
	if inputs[0].Shape.DType != dtypes.BFloat16 {
		return
	}
	r.call(ir.Norm+fmt.Sprint(epsilon[0]), rounded, inputs, outputs)
}

// kernels makes functions of gradients that runners have kernels for.
func kernels(p *ir.Program, o Options) (int, error) {
	return outlined(p, o, ir.Backward, func(r *rewriter, v *ir.Value) {
		if m := kernelDX.find(v, nil, nil); m != nil {
			r.normGradient(m)
		} else if m := kernelGELU.find(v, nil, nil); m != nil {
			r.geluGradient(m)
		}
	})
}

// normKernels makes functions of layer norms.
func normKernels(p *ir.Program, o Options) (int, error) {
	return outlined(p, o, ir.Forward, func(r *rewriter, v *ir.Value) {
		if rank := v.Shape.Rank(); rank > 1 {
			if m := kernelNorm.find(v, []int{rank - 1}, nil); m != nil {
				r.norm(m)
			}
		}
	})
}

// outlined makes functions of what look finds at sums and differences of a phase.
func outlined(p *ir.Program, o Options, phase ir.Phase, look func(r *rewriter, v *ir.Value)) (int, error) {
	if o.splits() {
		return 0, nil // what a function computes is not divided over devices
	}
	r := newRewriter(p)
	for _, op := range p.Main.Ops {
		if op.Phase == phase && (op.Type() == ir.OpAdd || op.Type() == ir.OpSub) && is32(op.Outputs[0]) {
			look(r, op.Outputs[0])
		}
	}
	n := r.finish()
	if n > 0 {
		p.Main.Ops = sorted(p.Main.Ops)
	}
	return n, nil
}

// normGradient makes a function of the gradient of a layer norm.
func (r *rewriter) normGradient(m *match) {
	rank := m.full.Shape.Rank()
	if rank < 2 || !slices.Equal(m.axes, []int{rank - 1}) {
		return
	}
	dy, x, mu, inverse, gain, y := m.value[kernelDY], m.value[kernelX], m.value[kernelMu], m.value[kernelInverse], m.value[kernelGain], m.value[kernelY]
	if b, ok := gain.Op.Attrs.(*ir.BroadcastInDim); ok && slices.Equal(b.BroadcastAxes, upTo(rank)) {
		gain = gain.Op.Inputs[0]
	}
	width := m.full.Shape.Dimensions[rank-1]
	if gain.Shape.Size() != width || gain.Shape.Dimensions[gain.Shape.Rank()-1] != width {
		return
	}
	// The sums over all rows.
	var offsets, gains *ir.Value
	for _, user := range r.index.Users(dy) {
		if isSumOfRows(user, rank) {
			offsets = user.Outputs[0]
		}
	}
	for _, user := range r.index.Users(y) {
		if next := r.only(user.Outputs[0]); user.Type() == ir.OpMul && slices.Contains(user.Inputs, dy) && next != nil && isSumOfRows(next, rank) {
			gains = next.Outputs[0]
		}
	}
	// What is added, and the rounding.
	last, rest := m.full, (*ir.Value)(nil)
	if next := r.only(last); next != nil && next.Type() == ir.OpAdd && next.Inputs[0] != next.Inputs[1] {
		if rest = next.Inputs[0]; rest == last {
			rest = next.Inputs[1]
		}
		last = next.Outputs[0]
	}
	rounded := r.only(last)
	if offsets == nil || gains == nil || rounded == nil || !isCast(rounded.Outputs[0], dtypes.BFloat16) {
		return
	}
	inputs := []*ir.Value{uncast(dy), uncast(x), mu, inverse, gain}
	if rest != nil {
		inputs = append(inputs, uncast(rest))
	}
	for i, v := range inputs {
		if half := i < 2 || i == 5; v == nil || half != (v.Shape.DType == dtypes.BFloat16) || half && !v.Shape.Equal(rounded.Outputs[0].Shape) {
			return
		}
	}
	r.call(ir.NormGradient, rounded, inputs, []*ir.Value{rounded.Outputs[0], gains, offsets})
}

// geluGradient makes a function of the gradient of GELU.
func (r *rewriter) geluGradient(m *match) {
	x, rank := m.value[kernelOf], m.full.Shape.Rank()
	for x.Op.Type() == ir.OpConvertDType && is32(x.Op.Inputs[0]) {
		x = x.Op.Inputs[0]
	}
	rounded := r.only(m.full)
	if x.Op.Type() != ir.OpAdd || rounded == nil || !isCast(rounded.Outputs[0], dtypes.BFloat16) {
		return
	}
	bias := x.Op.Inputs[1]
	b, ok := bias.Op.Attrs.(*ir.BroadcastInDim)
	if !ok || !slices.Equal(b.BroadcastAxes, []int{rank - 1}) {
		return
	}
	inputs := []*ir.Value{uncast(m.value[kernelDGELU]), uncast(x.Op.Inputs[0]), bias.Op.Inputs[0]}
	for i, v := range inputs {
		if half := i < 2; half != (v.Shape.DType == dtypes.BFloat16) || half && !v.Shape.Equal(rounded.Outputs[0].Shape) {
			return
		}
	}
	if r.sumOfRows(rounded.Outputs[0]) != nil {
		r.call(ir.GELUGradient, rounded, inputs, []*ir.Value{rounded.Outputs[0]})
	}
}

// sumOfRows is the sum over all rows of a rounded value, behind its barrier, as the gradient of a bias is; nil: there is none.
func (r *rewriter) sumOfRows(v *ir.Value) *ir.Value {
	for _, guard := range r.index.Users(v) {
		if guard.Type() != ir.OpOptimizationBarrier {
			continue
		}
		for _, cast := range r.index.Users(guard.Outputs[0]) {
			if cast.Type() != ir.OpConvertDType || !is32(cast.Outputs[0]) {
				continue
			}
			for _, sum := range r.index.Users(cast.Outputs[0]) {
				if isSumOfRows(sum, v.Shape.Rank()) && sum.TaskGraph == v.Op.TaskGraph {
					return sum.Outputs[0]
				}
			}
		}
	}
	return nil
}

// call makes a function of what is between values, and calls it where the first result was computed. If there is a sum of the first result over
// rows, it is a result, too.
func (r *rewriter) call(name string, where *ir.Op, inputs, outputs []*ir.Value) {
	parts, _ := ir.Between(outputs, inputs)
	for op := range parts {
		if op.Phase != where.Phase || op.TaskGraph != where.TaskGraph || len(op.Funcs) > 0 {
			return
		}
	}
	r.found++
	sum := r.sumOfRows(outputs[0])
	call := r.outline(name, inputs, outputs, sum)
	call.Attribution, call.Func = where.Attribution, where.Func
	r.before[where] = append(r.before[where], call)
	if sum != nil {
		outputs = append(outputs, sum)
	}
	for i, v := range outputs {
		r.by[v] = call.Outputs[i]
	}
}

// outline makes a function of what is between values, and of a sum of the first result, unless there is one for these shapes, and a call of it.
func (r *rewriter) outline(name string, inputs, outputs []*ir.Value, sum *ir.Value) *ir.Op {
	of := shapesOf(outputs)
	if sum != nil {
		of = append(of, sum.Shape)
	}
	call := r.p.NewOp(&ir.Call{}, inputs, of...)
	for _, f := range r.p.Funcs {
		if f.Name == name && slices.EqualFunc(shapesOf(f.Params), shapesOf(inputs), shapes.Shape.Equal) && len(f.Outputs) == len(of) {
			call.Funcs = []*ir.Func{f}
			return call
		}
	}
	f := &ir.Func{Name: name}
	inside := map[*ir.Value]*ir.Value{}
	for i, v := range inputs {
		op := r.p.NewOp(&ir.Parameter{Name: fmt.Sprint("in", i), Shape: v.Shape}, nil, v.Shape)
		f.Append(op)
		inside[v] = op.Outputs[0]
	}
	var copied func(v *ir.Value) *ir.Value
	copied = func(v *ir.Value) *ir.Value {
		if inside[v] == nil {
			op := r.p.CopyOp(v.Op, ir.Through(v.Op.Inputs, copied))
			f.Append(op)
			for i, out := range v.Op.Outputs {
				inside[out] = op.Outputs[i]
			}
		}
		return inside[v]
	}
	f.Outputs = ir.Through(outputs, copied)
	if sum != nil {
		wide := r.p.NewOp(&ir.ConvertDType{DType: dtypes.Float32}, f.Outputs[:1:1], typed(outputs[0].Shape, dtypes.Float32))
		f.Append(wide)
		total := r.p.NewOp(sum.Op.Attrs, wide.Outputs, sum.Shape)
		wide.Attribution, total.Attribution = sum.Op.Attribution, sum.Op.Attribution
		f.Append(total)
		f.Outputs = append(f.Outputs, total.Outputs[0])
	}
	call.Funcs = []*ir.Func{f}
	r.p.Funcs = append(r.p.Funcs, f)
	return call
}

func shapesOf(vs []*ir.Value) (all []shapes.Shape) {
	for _, v := range vs {
		all = append(all, v.Shape)
	}
	return all
}

// sorted puts ops behind what they read, and otherwise leaves their order.
func sorted(ops []*ir.Op) (all []*ir.Op) {
	done := map[*ir.Op]bool{}
	var visit func(op *ir.Op)
	visit = func(op *ir.Op) {
		if !done[op] {
			done[op] = true
			op.Uses(func(v *ir.Value) { visit(v.Op) })
			all = append(all, op)
		}
	}
	for _, op := range ops {
		visit(op)
	}
	return all
}

// isSumOfRows tells whether an op sums over all axes but the last.
func isSumOfRows(op *ir.Op, rank int) bool {
	s, ok := op.Attrs.(*ir.ReduceSum)
	return ok && op.Inputs[0].Shape.Rank() == rank && slices.Equal(s.Axes, upTo(rank-1))
}

// isCast tells whether a value is a cast of float32 to a type.
func isCast(v *ir.Value, to dtypes.DType) bool {
	return v.Op.Type() == ir.OpConvertDType && v.Shape.DType == to && is32(v.Op.Inputs[0])
}

// uncast is what a value is a cast of.
func uncast(v *ir.Value) *ir.Value {
	for v.Op.Type() == ir.OpConvertDType {
		v = v.Op.Inputs[0]
	}
	return v
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
