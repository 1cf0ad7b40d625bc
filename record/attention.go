// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"reflect"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/easyparallel/epl/ir"
)

// Attention that some engine has as one op is recorded in both ways, forward and backward: written out, as GoMLX's layers and its automatic
// differentiation build it, and as one op, whose twin is that. The pass write-out chooses one of the two, once it is known what runs the
// program.

// attentions is what the builder knows about attention.
type attentions struct {
	written map[*ir.Op]*attention // those that were recorded as one op, by the ops that they are written out as
	failed  error                 // why the gradient of one could not be recorded; nil: it could
}

// attention is one that GoMLX also wrote out.
type attention struct {
	fn    *Func
	attrs *ir.FusedScaledDotProductAttention
	in    []compute.Value  // as GoMLX gave them
	outs  []compute.Value  // as GoMLX got them
	twin  *ir.Value        // the result, written out
	reads map[operand]int  // where that reads the query, the key (1) and the value (2)
	of    *Value           // the gradient of the result
	from  [3]compute.Value // query, key and value, or clones of them, as its gradient reads them
	to    [3]compute.Value // their gradients, written out
	done  bool             // these are recorded as one op, too
}

// operand is one of an op.
type operand struct {
	op *ir.Op
	at int
}

// twinned are the results of a fused op that have a twin: all, but states of attention.
func twinned(attrs ir.Attrs, outs []shapes.Shape) []shapes.Shape {
	if _, is := attrs.(*ir.FusedScaledDotProductAttention); is {
		return outs[:1]
	}
	return outs
}

// fused notes an attention with a twin, so that its gradient can be recorded as one op.
func (f *Func) fused(attrs ir.Attrs, in opInputs, outs []compute.Value, twin *ir.Value) {
	one, is := attrs.(*ir.FusedScaledDotProductAttention)
	if !is || f != f.b.main {
		return
	}
	a := &attention{fn: f, attrs: one, in: in.vals, outs: outs, twin: twin, reads: map[operand]int{}}
	var operands []*ir.Value
	for _, v := range in.vals {
		if v != nil {
			operands = append(operands, v.(*Value).Value)
		}
	}
	parts, _ := ir.Between([]*ir.Value{twin}, operands)
	if f.b.written == nil {
		f.b.written = map[*ir.Op]*attention{}
	}
	found := [3]bool{}
	for _, op := range f.fn.Ops {
		if !parts[op] {
			continue
		}
		f.b.written[op] = a
		for at, v := range op.Inputs {
			for i := range found { // where one value is two of them, either order is right: their gradients are added up
				if !found[i] && v == operands[i] {
					a.reads[operand{op, at}], found[i] = i, true
					break
				}
			}
		}
	}
}

// cloned is the twin of a fused op that GoMLX cloned to compute an attention again for backward; nil: it is none. What the original is written
// out as is recorded again, too.
func (f *Func) cloned(attrs ir.Attrs, in []*ir.Value) ([]*ir.Value, error) {
	if f != f.b.main || f.b.phase != ir.Backward || f.b.of != nil {
		return nil, nil
	}
	original := func(v *ir.Value) *ir.Value {
		if o := f.b.canonical[v]; o != nil {
			return o
		}
		return v
	}
	var a *attention
	for _, op := range f.fn.Ops {
		x := f.b.written[op]
		if x != nil && reflect.DeepEqual(x.attrs, attrs) && slices.EqualFunc(x.in, in, func(v compute.Value, w *ir.Value) bool {
			return v == nil && w == nil || v != nil && w != nil && v.(*Value).Value == original(w)
		}) {
			a = x
		}
	}
	if a == nil {
		return nil, nil
	}
	by := map[*ir.Value]compute.Value{}
	for _, v := range f.b.values {
		by[v.Value] = v
	}
	for i, v := range a.in {
		if v != nil {
			by[v.(*Value).Value] = by[in[i]]
		}
	}
	for _, op := range slices.Clone(f.fn.Ops) {
		if f.b.written[op] != a {
			continue
		}
		var operands opInputs
		for _, v := range op.Inputs {
			operands.value(by[v])
		}
		outs, err := f.record(op.Attrs, operands)
		if err != nil {
			return nil, err
		}
		for i, v := range outs {
			by[op.Outputs[i]] = v
		}
	}
	return []*ir.Value{by[a.twin].(*Value).Value}, nil
}

// differentiated notes the gradients of a node of GoMLX: v of its results, to of its inputs. Once those of an attention that is written out are
// there, they are recorded as one op, whose twins they are. Nothing uses that op yet.
func (b *Builder) differentiated(n *graph.Node, v, to []*graph.Node) {
	op := ValueOf(n).Op
	if op.Origin == ir.Rematerialised && op.Of != nil {
		op = op.Of.Op
	}
	a := b.written[op]
	if a == nil || a.done {
		return
	}
	if op == a.twin.Op {
		a.of = ValueOf(v[a.twin.Index])
	}
	for at, x := range to {
		if i, is := a.reads[operand{op, at}]; is && x != nil {
			a.from[i], a.to[i] = ValueOf(n.Inputs()[at]), ValueOf(x)
		}
	}
	if a.done = a.of != nil && !slices.Contains(a.to[:], nil); a.done {
		if err := a.gradient(); err != nil && b.failed == nil {
			b.failed = err
		}
	}
}

// gradient records the gradient as one op. If GoMLX computes the query, the key or the value again for it, so is the attention.
func (a *attention) gradient() (err error) {
	in, outs := slices.Concat(a.from[:], a.in[3:]), a.outs
	if !slices.Equal(in, a.in) {
		if outs, err = a.fn.record(a.attrs, opInputs{vals: in}); err != nil {
			return err
		}
	}
	grad := &ir.FusedScaledDotProductAttentionVJP{AxesLayout: a.attrs.AxesLayout, Options: a.attrs.Options}
	if outs, err = a.fn.record(grad, opInputs{vals: slices.Concat(in, outs, []compute.Value{a.of})}); err != nil {
		return err
	}
	twin := make([]*ir.Value, len(outs))
	for i := range outs {
		if twin[i] = a.to[i].(*Value).Value; !twin[i].Shape.Equal(outs[i].(*Value).Shape) {
			return nil // it stays written out
		}
	}
	setTwin(outs, twin)
	return nil
}

// setTwin makes values the twins of the results of a fused op, or of what they were cast to.
func setTwin(outs []compute.Value, twin []*ir.Value) {
	if op := outs[0].(*Value).Op; len(op.Outputs) > 1 {
		op.Twin = twin
		return
	}
	for i, v := range twin {
		outs[i].(*Value).Op.Twin = []*ir.Value{v}
	}
}
