package passes

import (
	"fmt"
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

// kernels makes functions of what runners have kernels for.
func kernels(p *ir.Program, _ Options) (int, error) {
	r := newRewriter(p)
	for _, op := range p.Main.Ops {
		if op.Type() == ir.OpSub && op.Phase == ir.Backward && is32(op.Outputs[0]) {
			if m := kernelDX.find(op.Outputs[0], nil, nil); m != nil {
				r.normGradient(m)
			}
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
	outputs := []*ir.Value{rounded.Outputs[0], gains, offsets}
	parts, _ := ir.Between(outputs, inputs)
	for op := range parts {
		if op.Phase != ir.Backward || op.TaskGraph != rounded.TaskGraph || len(op.Funcs) > 0 {
			return
		}
	}
	r.found++
	call := r.outline(ir.NormGradient, inputs, outputs)
	call.Attribution, call.Func = rounded.Attribution, rounded.Func
	r.before[rounded] = append(r.before[rounded], call)
	for i, v := range outputs {
		r.by[v] = call.Outputs[i]
	}
}

// outline makes a function of what is between values, unless there is one for these shapes, and a call of it.
func (r *rewriter) outline(name string, inputs, outputs []*ir.Value) *ir.Op {
	call := r.p.NewOp(&ir.Call{}, inputs, shapesOf(outputs)...)
	for _, f := range r.p.Funcs {
		if f.Name == name && slices.EqualFunc(shapesOf(f.Params), shapesOf(inputs), shapes.Shape.Equal) {
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
