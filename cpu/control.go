// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"
	"unsafe"

	"github.com/easyparallel/epl/ir"
)

// control is an op whose functions are compiled as segments of their own: While and If.
type control struct {
	op     *ir.Op
	inputs []*ir.Value // what the op reads, and what its functions capture
	funcs  []*body
}

// body is a function of such an op. Its inputs are its parameters, then what it captures.
type body struct {
	plan     *plan
	captured []int // which of the inputs of the op it takes besides its parameters
	exec     *executable
}

// call adds the ops of a function where it is called; false: some of them need it to be a function.
func (b *builder) call(op *ir.Op, other fallbackCompiler) (bool, error) {
	if _, ok := op.Attrs.(*ir.Call); !ok {
		return false, nil
	}
	f := op.Funcs[0]
	if isDynamic(&ir.Segment{Inputs: f.Params, Ops: f.Ops}) || slices.ContainsFunc(f.Ops, func(o *ir.Op) bool { return len(o.Funcs) > 0 }) {
		return false, nil
	}
	values := map[*ir.Value]*ir.Value{}
	for i, p := range f.Params {
		values[p] = op.Inputs[i]
	}
	for _, o := range f.Ops {
		if _, ok := o.Attrs.(*ir.Parameter); ok {
			continue
		}
		inputs := make([]*ir.Value, len(o.Inputs))
		for i, v := range o.Inputs {
			inputs[i] = values[v]
		}
		c := o.Copy(inputs) // for it may be called again
		c.Func = op.Func
		for i, v := range o.Outputs {
			values[v] = c.Outputs[i]
		}
		if err := b.op(c, other); err != nil {
			return false, err
		}
	}
	for i, v := range f.Outputs {
		b.views[op.Outputs[i]] = b.views.of(values[v])
	}
	return true, nil
}

// control adds a While or an If; false: its functions have shapes that are known only when they run.
func (b *builder) control(op *ir.Op, other fallbackCompiler) (bool, error) {
	switch op.Attrs.(type) {
	case *ir.While, *ir.If:
	default:
		return false, nil
	}
	c := &control{op: op, inputs: slices.Clone(op.Inputs)}
	for _, f := range op.Funcs {
		s := &ir.Segment{Name: op.String(), Inputs: slices.Clone(f.Params), Outputs: f.Outputs}
		for _, o := range f.Ops {
			if _, ok := o.Attrs.(*ir.Parameter); !ok {
				s.Ops = append(s.Ops, o)
			}
		}
		x := &body{}
		(&ir.Op{Funcs: []*ir.Func{f}}).Captures(func(v *ir.Value) {
			if slices.Contains(s.Inputs, v) {
				return
			}
			s.Inputs = append(s.Inputs, v)
			k := slices.Index(c.inputs, v)
			if k < 0 {
				k = len(c.inputs)
				c.inputs = append(c.inputs, v)
			}
			x.captured = append(x.captured, k)
		})
		if isDynamic(s) {
			return false, nil
		}
		var err error
		if x.plan, err = newPlan(s, b.opts, other); err != nil {
			return false, err
		}
		c.funcs = append(c.funcs, x)
	}
	b.whole(op, &task{control: c}, c.inputs)
	return true, nil
}

// run runs a function of the op on its parameters. It takes those that are its own.
func (f *body) run(params, inputs []*Buffer, own bool) ([]*Buffer, error) {
	ins, donate := slices.Clone(params), make([]bool, len(params)+len(f.captured))
	for i := range params {
		donate[i] = own
	}
	for _, k := range f.captured {
		ins = append(ins, inputs[k])
	}
	x := f.exec
	return x.run(ins, donate, unsafe.Pointer(unsafe.SliceData(x.arena)), hooks{})
}

// decide runs a function that gives a bool.
func (f *body) decide(params, inputs []*Buffer) (bool, error) {
	outs, err := f.run(params, inputs, false)
	if err != nil {
		return false, err
	}
	yes := outs[0].bytes[0] != 0
	return yes, outs[0].Finalize()
}

// control runs a While or an If.
func (x *executable) control(t *task, mem []unsafe.Pointer) error {
	c, b := t.control, x.backend
	inputs := make([]*Buffer, len(c.inputs)) // lent
	for i, v := range c.inputs {
		inputs[i] = &Buffer{backend: b, shape: v.Shape, bytes: unsafe.Slice((*byte)(mem[i]), x.plan.tensors[t.mems[i]].bytes)}
	}
	var outs []*Buffer
	var err error
	if _, ok := c.op.Attrs.(*ir.If); ok {
		f := c.funcs[1]
		if inputs[0].bytes[0] != 0 {
			f = c.funcs[0]
		}
		outs, err = f.run(nil, inputs, false)
	} else {
		outs, err = c.loop(b, inputs)
	}
	if err != nil {
		return err
	}
	for i, o := range outs {
		n := t.mems[t.reads+i]
		x.results[n] = o
		x.memory[n] = unsafe.Pointer(unsafe.SliceData(o.bytes))
	}
	return nil
}

// loop runs the body of a While as long as its condition says so.
func (c *control) loop(b *Backend, inputs []*Buffer) ([]*Buffer, error) {
	state, own := inputs[:len(c.op.Inputs)], false
	for {
		again, err := c.funcs[0].decide(state, inputs)
		if err == nil && !again {
			break
		}
		var next []*Buffer
		if err == nil {
			next, err = c.funcs[1].run(state, inputs, own)
		}
		if err != nil {
			for _, s := range state {
				if own && !s.final {
					_ = s.Finalize()
				}
			}
			return nil, err
		}
		state, own = next, true
	}
	if own {
		return state, nil
	}
	outs := make([]*Buffer, len(state))
	for i, s := range state {
		outs[i] = b.newBuffer(s.shape)
		copy(outs[i].bytes, s.bytes)
	}
	return outs, nil
}
