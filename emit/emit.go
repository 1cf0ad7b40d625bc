// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package emit turns recorded programs, or segments cut out of them, into executables of an inner backend.
//
// What goes in is verified IR; what comes out computes the same values, op by op: nothing is rearranged here.
package emit

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Compiler is a backend that compiles segments itself. What it does not know it may have compiled op by op, by the
// builder that it has as any backend does.
type Compiler interface {
	Compile(s *ir.Segment, opByOp func(*ir.Segment) (compute.Executable, error)) (compute.Executable, error)
}

// Late is an executable that is compiled when it first runs, because that depends on the inputs it is given to keep.
type Late interface {
	// Ready compiles it before, for runs that keep these inputs. Others may keep fewer or more. Several may be made ready at the same time.
	Ready(donate []bool) error
	// Memory is what it needs, as it was compiled; nil: that is not known, or it is not yet.
	Memory() *Listing
}

// Grouper is a device that can run segments together with others: those with an ir.Mesh, whose collectives are inside.
type Grouper interface {
	// CanGroup is nil if the devices with these ranks can run segments together, else the reason why not.
	CanGroup(ranks []int) error
	// Group compiles what this device runs of a segment with the other devices of its mesh.
	Group(s *ir.Segment) (compute.Executable, error)
}

// Joint is an executable of a device that waits for other devices.
type Joint interface {
	compute.Executable
	// Abort lets those that wait return an error, because a device does not come. Reset is called when all have.
	Abort(err error)
	Reset()
}

// Program compiles the whole program: its parameters are the inputs of the executable, in order.
func Program(backend compute.Backend, p *ir.Program) (compute.Executable, error) {
	if c, ok := backend.(Compiler); ok {
		return c.Compile(Whole(p), func(s *ir.Segment) (compute.Executable, error) { return segment(backend, s) })
	}
	b := backend.Builder(p.Name)
	e := newEmitter(backend, b)
	if err := e.body(p.Main, b.Main()); err != nil {
		return nil, errors.WithMessagef(err, "epl: program %q", p.Name)
	}
	return b.Compile()
}

// Whole is all of a program as a segment: its parameters are the inputs.
func Whole(p *ir.Program) *ir.Segment {
	s := &ir.Segment{Name: p.Name, Inputs: p.Main.Params, Outputs: p.Main.Outputs}
	for _, op := range p.Main.Ops {
		if _, ok := op.Attrs.(*ir.Parameter); !ok {
			s.Ops = append(s.Ops, op)
		}
	}
	return s
}

// Segment compiles a segment: the executable takes its inputs and returns its outputs, both in order.
func Segment(backend compute.Backend, s *ir.Segment) (compute.Executable, error) {
	if c, ok := backend.(Compiler); ok {
		return c.Compile(s, func(s *ir.Segment) (compute.Executable, error) { return segment(backend, s) })
	}
	return segment(backend, s)
}

// Has tells whether a backend has an op on operands of these shapes.
func Has(backend compute.Backend, op *ir.Op) bool {
	main := backend.Builder("has").Main()
	in := ir.Operands{Values: make([]compute.Value, len(op.Inputs))}
	for i, v := range op.Inputs {
		if v == nil {
			continue
		}
		x, err := main.Parameter(fmt.Sprintf("in%d", i), v.Shape, nil)
		if err != nil {
			return false
		}
		in.Values[i] = x
	}
	_, err := op.Attrs.Emit(main, &in)
	return err == nil
}

func segment(backend compute.Backend, s *ir.Segment) (compute.Executable, error) {
	b := backend.Builder(s.Name)
	e := newEmitter(backend, b)
	main := b.Main()
	for i, v := range s.Inputs {
		p, err := main.Parameter(fmt.Sprintf("in%d", i), v.Shape, nil)
		if err != nil {
			return nil, errors.WithMessagef(err, "epl: segment %q: input %s", s.Name, v)
		}
		e.values[v] = p
	}
	for _, op := range s.Ops {
		if err := e.op(op, main); err != nil {
			return nil, errors.WithMessagef(err, "epl: segment %q", s.Name)
		}
	}
	if err := e.ret(main, s.Outputs); err != nil {
		return nil, errors.WithMessagef(err, "epl: segment %q", s.Name)
	}
	return b.Compile()
}

type emitter struct {
	builder compute.Builder
	values  map[*ir.Value]compute.Value
	funcs   map[*ir.Func]compute.Function
	// pureGo: ops are those of GoMLX's pure-Go backend.
	pureGo bool
}

func newEmitter(backend compute.Backend, b compute.Builder) *emitter {
	name := backend.String()
	return &emitter{b, map[*ir.Value]compute.Value{}, map[*ir.Func]compute.Function{}, name == gobackend || name == engine}
}

// Names of backends with the ops of GoMLX's pure-Go one.
const (
	gobackend = "go"
	engine    = "cpu"
)

func (e *emitter) body(f *ir.Func, to compute.Function) error {
	for _, op := range f.Ops {
		if err := e.op(op, to); err != nil {
			return err
		}
	}
	return e.ret(to, f.Outputs)
}

func (e *emitter) ret(to compute.Function, outputs []*ir.Value) error {
	vs := make([]compute.Value, len(outputs))
	for i, o := range outputs {
		v, ok := e.values[o]
		if !ok {
			return errors.Errorf("output %s is not computed", o)
		}
		vs[i] = v
	}
	return to.Return(vs, nil)
}

func (e *emitter) op(op *ir.Op, to compute.Function) error {
	in := ir.Operands{Values: make([]compute.Value, len(op.Inputs))}
	for i, v := range op.Inputs {
		if v == nil {
			continue
		}
		x, ok := e.values[v]
		if !ok {
			return errors.Errorf("%s needs %s, which is not computed", op, v)
		}
		in.Values[i] = x
	}
	if len(op.Funcs) == 1 && op.Funcs[0].IsKernel() {
		return e.inline(op, in.Values, to)
	}
	for _, f := range op.Funcs {
		g, err := e.function(f, to)
		if err != nil {
			return errors.WithMessage(err, op.String())
		}
		in.Funcs = append(in.Funcs, g)
	}
	outs, err := op.Attrs.Emit(to, &in)
	if err != nil {
		return errors.WithMessage(err, op.String())
	}
	if _, random := op.Attrs.(*ir.RNGBitGenerator); random && e.pureGo {
		if outs[0], err = wholeState(to, e.values[op.Inputs[0]], outs[0]); err != nil {
			return errors.WithMessage(err, op.String())
		}
	}
	if len(outs) != len(op.Outputs) {
		return errors.Errorf("%s has %d outputs, the backend gives %d", op, len(op.Outputs), len(outs))
	}
	for i, o := range outs {
		v := op.Outputs[i]
		shape, err := to.Shape(o)
		if err != nil {
			return errors.WithMessage(err, op.String())
		}
		if shape.DType != v.Shape.DType || !shape.EqualDimensions(v.Shape) {
			return errors.Errorf("%s: %s is %s, the backend makes it %s", op, v, ir.ShapeText(v.Shape), ir.ShapeText(shape))
		}
		e.values[v] = o
	}
	return nil
}

// wholeState is the state after a random op, all of it. The pure-Go backend uses two of its three words, and leaves in the third what was in memory before:
// it would be another on every device. It stays as it was.
func wholeState(to compute.Function, old, new compute.Value) (compute.Value, error) {
	words, err := to.Shape(new)
	if err != nil || words.Size() <= usedWords {
		return new, err
	}
	if new, err = to.Slice(new, []int{0}, []int{usedWords}, []int{1}); err != nil {
		return nil, err
	}
	if old, err = to.Slice(old, []int{usedWords}, []int{words.Size()}, []int{1}); err != nil {
		return nil, err
	}
	return to.Concatenate(0, new, old)
}

// usedWords of its state are what the pure-Go backend's random generator has.
const usedWords = 2

// inline emits the body of a function in the place of its call: the pure-Go backend fails on some functions with several results.
func (e *emitter) inline(call *ir.Op, in []compute.Value, to compute.Function) error {
	f := call.Funcs[0]
	for i, p := range f.Params {
		e.values[p] = in[i]
	}
	for _, op := range f.Ops {
		if _, ok := op.Attrs.(*ir.Parameter); !ok {
			if err := e.op(op, to); err != nil {
				return err
			}
		}
	}
	for i, v := range call.Outputs {
		e.values[v] = e.values[f.Outputs[i]]
	}
	return nil
}

// function emits a function once, where it is first used.
func (e *emitter) function(f *ir.Func, user compute.Function) (g compute.Function, err error) {
	if g, ok := e.funcs[f]; ok {
		return g, nil
	}
	if f.Parent == nil {
		g, err = e.builder.NewFunction(f.Name)
	} else {
		g, err = user.Closure()
	}
	if err != nil {
		return nil, err
	}
	e.funcs[f] = g
	return g, e.body(f, g)
}
