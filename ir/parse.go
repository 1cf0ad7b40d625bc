// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute/shapes"
)

// Parse reads a program printed by [Program.String]. It checks the syntax and that names refer to something; whether
// the program makes sense is for [Program.Verify] to say.
func Parse(text string) (*Program, error) {
	r := &reader{scanner: scanner{text: text}, funcs: map[string]*Func{}, p: &Program{}}
	if err := r.program(); err != nil {
		return nil, err
	}
	return r.p, nil
}

type reader struct {
	scanner
	p     *Program
	funcs map[string]*Func
	scope
	main scope
	// later holds what refers to values that the text defines further down.
	later []func() error
}

// scope is what main or a named function has defined so far, its closures included. None sees that of another.
type scope struct {
	values   map[string]*Value
	closures map[int]*Func
}

func (r *reader) program() (err error) {
	if err := r.expect("program"); err != nil {
		return err
	}
	if r.p.Name, err = r.quoted(); err != nil {
		return err
	}
	for {
		switch {
		case r.accept("passes"):
			err = r.passes()
		case r.accept("instances"):
			err = r.local()
		case r.accept("taskgraph"):
			err = r.taskGraph()
		case r.accept("stage"):
			err = r.stage()
		case r.accept("variable"):
			err = r.variable()
		case r.accept("input"):
			err = r.valueLater(func(v *Value) { r.p.Inputs = append(r.p.Inputs, v) })
		case r.accept("gradient"):
			err = r.gradient()
		case r.accept("loss"):
			err = r.valueLater(func(v *Value) { r.p.Loss = v })
		case r.accept("outputs"):
			err = r.outputs()
		case r.accept("collection"):
			err = r.collection()
		case r.accept("func"):
			err = r.namedFunction()
		case r.accept("main"):
			err = r.mainFunction()
		case r.peek() == 0:
			return r.finish()
		default:
			err = r.expect("main")
		}
		if err != nil {
			return err
		}
	}
}

func (r *reader) finish() error {
	if r.p.Main == nil {
		return r.errorf("the program has no main function")
	}
	for name, f := range r.funcs {
		if !slices.Contains(r.p.Funcs, f) {
			return r.errorf("function %q is called but not defined", name)
		}
	}
	r.scope = r.main
	for _, f := range r.later {
		if err := f(); err != nil {
			return err
		}
	}
	if !r.p.OutputsKnown {
		r.p.Outputs = make([]Output, len(r.p.Main.Outputs))
	}
	return nil
}

func (r *reader) int() (int, error) {
	word := r.word()
	n, err := strconv.Atoi(word)
	if err != nil {
		return 0, r.errorf("%q is not a number", word)
	}
	return n, nil
}

// ref reads the name of a value; "_" is the absent one.
func (r *reader) ref() (string, error) {
	if r.accept("_") {
		return "_", nil
	}
	if err := r.expect("%"); err != nil {
		return "", err
	}
	return r.word(), nil
}

func (r *reader) lookup(name string) (*Value, error) {
	if name == "_" {
		return nil, nil
	}
	v, ok := r.values[name]
	if !ok {
		return nil, r.errorf("value %%%s is not defined", name)
	}
	return v, nil
}

// valueLater reads the name of a value and hands the value over once all are known.
func (r *reader) valueLater(use func(*Value)) error {
	name, err := r.ref()
	if err != nil {
		return err
	}
	r.later = append(r.later, func() error {
		v, err := r.lookup(name)
		if err == nil {
			use(v)
		}
		return err
	})
	return nil
}

func (r *reader) passes() error {
	for r.peek() == '"' {
		name, err := r.quoted()
		if err != nil {
			return err
		}
		r.p.Passes = append(r.p.Passes, name)
	}
	return nil
}

func (r *reader) local() (err error) {
	r.p.Local = &Local{}
	if r.p.Local.Replicas, err = r.int(); err != nil {
		return err
	}
	if r.p.Local.MicroBatches, err = r.int(); err != nil || !r.accept("shares") {
		return err
	}
	for range r.p.Local.Replicas {
		share, err := r.int()
		if err != nil {
			return err
		}
		r.p.Local.Shares = append(r.p.Local.Shares, share)
	}
	return nil
}

func (r *reader) taskGraph() (err error) {
	t := &TaskGraph{}
	if t.ID, err = r.int(); err != nil {
		return err
	}
	if t.Name, err = r.quoted(); err != nil {
		return err
	}
	switch word := r.word(); word {
	case "replicate":
	case "split":
		t.Kind = Split
	default:
		return r.errorf("unknown strategy %q", word)
	}
	if err = r.list('(', ')', func(int) error { t.Devices, err = r.int(); return err }); err != nil {
		return err
	}
	for r.accept("pin") {
		var pin Pin
		if pin.Variable, err = r.quoted(); err != nil {
			return err
		}
		if pin.Dim, err = r.int(); err != nil {
			return err
		}
		t.Pins = append(t.Pins, pin)
	}
	t.Default, t.Implicit = r.accept("default"), r.accept("implicit")
	t.Source, err = r.source()
	r.p.TaskGraphs = append(r.p.TaskGraphs, t)
	return err
}

func (r *reader) stage() error {
	var s Stage
	for {
		t, err := r.taskGraphRef()
		if err != nil {
			return err
		}
		if t == nil {
			break
		}
		s.TaskGraphs = append(s.TaskGraphs, t)
	}
	var err error
	if s.Places, err = r.each("place"); err != nil {
		return err
	}
	if s.Axes, err = r.each("axis"); err != nil {
		return err
	}
	s.Weights, err = r.each("weight")
	r.p.Stages = append(r.p.Stages, s)
	return err
}

// each reads numbers, each of which follows a word.
func (r *reader) each(word string) (list []int, err error) {
	for r.accept(word) {
		n, err := r.int()
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

func (r *reader) source() (Source, error) {
	if r.peek() != '"' {
		return "", nil
	}
	s, err := r.quoted()
	return Source(s), err
}

func (r *reader) taskGraphRef() (*TaskGraph, error) {
	if !r.accept("taskgraph") {
		return nil, nil
	}
	id, err := r.int()
	if err != nil {
		return nil, err
	}
	for _, t := range r.p.TaskGraphs {
		if t.ID == id {
			return t, nil
		}
	}
	return nil, r.errorf("taskgraph %d is not defined", id)
}

func (r *reader) variable() (err error) {
	v := &Variable{}
	r.p.Variables = append(r.p.Variables, v)
	if v.Path, err = r.quoted(); err != nil {
		return err
	}
	if err = r.valueLater(func(x *Value) { v.Param = x }); err != nil {
		return err
	}
	v.Trainable = r.accept("trainable")
	if r.accept("update") {
		if err = r.valueLater(func(x *Value) { v.Update = x }); err != nil {
			return err
		}
	}
	v.TaskGraph, err = r.taskGraphRef()
	return err
}

// variableLater reads the name of a variable's parameter and hands the variable over once all are known.
func (r *reader) variableLater(use func(*Variable)) error {
	var missing error
	err := r.valueLater(func(x *Value) {
		if v := r.p.Variable(x); v != nil && x != nil {
			use(v)
		} else {
			missing = r.errorf("%s is not a variable", x)
		}
	})
	r.later = append(r.later, func() error { return missing })
	return err
}

func (r *reader) gradient() error {
	i := len(r.p.Gradients)
	r.p.Gradients = append(r.p.Gradients, Gradient{})
	if err := r.variableLater(func(v *Variable) { r.p.Gradients[i].Variable = v }); err != nil {
		return err
	}
	if err := r.expect("="); err != nil {
		return err
	}
	return r.valueLater(func(v *Value) { r.p.Gradients[i].Value = v })
}

func (r *reader) outputs() error {
	r.p.OutputsKnown = true
	for {
		i := len(r.p.Outputs)
		switch {
		case r.accept("result"):
			r.p.Outputs = append(r.p.Outputs, Output{})
		case r.accept("guard"):
			r.p.Outputs = append(r.p.Outputs, Output{Guard: true})
		case r.accept("update"):
			r.p.Outputs = append(r.p.Outputs, Output{})
			if err := r.variableLater(func(v *Variable) { r.p.Outputs[i].Updates = v }); err != nil {
				return err
			}
		case r.accept("always"):
			r.p.Outputs = append(r.p.Outputs, Output{Always: true})
			if err := r.variableLater(func(v *Variable) { r.p.Outputs[i].Updates = v }); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (r *reader) collection() error {
	key, err := r.quoted()
	if err != nil {
		return err
	}
	i := len(r.p.Collections)
	r.p.Collections = append(r.p.Collections, Collection{Key: key})
	for r.peek() == '%' {
		if err := r.valueLater(func(v *Value) {
			r.p.Collections[i].Values = append(r.p.Collections[i].Values, v)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) namedFunction() error {
	name, err := r.quoted()
	if err != nil {
		return err
	}
	f := r.function(name)
	if slices.Contains(r.p.Funcs, f) {
		return r.errorf("function %q is defined twice", name)
	}
	r.p.Funcs = append(r.p.Funcs, f)
	return r.topLevel(f)
}

func (r *reader) mainFunction() error {
	if r.p.Main != nil {
		return r.errorf("main is defined twice")
	}
	r.p.Main = &Func{Name: "main"}
	err := r.topLevel(r.p.Main)
	r.main = r.scope
	return err
}

func (r *reader) topLevel(f *Func) error {
	r.scope = scope{values: map[string]*Value{}, closures: map[int]*Func{}}
	return r.body(f)
}

func (r *reader) function(name string) *Func {
	f, ok := r.funcs[name]
	if !ok {
		f = &Func{Name: name}
		r.funcs[name] = f
	}
	return f
}

func (r *reader) body(f *Func) error {
	if err := r.expect("{"); err != nil {
		return err
	}
	for r.peek() == '%' {
		if err := r.op(f); err != nil {
			return err
		}
	}
	if err := r.expect("return"); err != nil {
		return err
	}
	var err error
	if f.Outputs, err = r.operands(); err != nil {
		return err
	}
	return r.expect("}")
}

// operands reads values separated by commas, up to what is no value.
func (r *reader) operands() (vs []*Value, err error) {
	for r.peek() == '%' {
		v, err := r.operand()
		if err != nil {
			return nil, err
		}
		vs = append(vs, v)
		if !r.accept(",") {
			break
		}
	}
	return vs, nil
}

func (r *reader) operand() (*Value, error) {
	name, err := r.ref()
	if err != nil {
		return nil, err
	}
	return r.lookup(name)
}

func (r *reader) op(f *Func) (err error) {
	op := &Op{}
	if err := r.expect("%"); err != nil {
		return err
	}
	if op.ID, err = r.int(); err != nil {
		return err
	}
	r.p.nextID = max(r.p.nextID, op.ID+1)
	if err := r.expect("="); err != nil {
		return err
	}
	t := OpType(r.word())
	if err := r.list('(', ')', func(int) error {
		v, err := r.operand()
		op.Inputs = append(op.Inputs, v)
		return err
	}); err != nil {
		return err
	}
	if op.Attrs, err = r.parseAttrs(t); err != nil {
		return err
	}
	if r.peek() == '[' {
		if err := r.list('[', ']', func(int) error {
			g, err := r.operandFunction(f)
			op.Funcs = append(op.Funcs, g)
			return err
		}); err != nil {
			return err
		}
	}
	if err := r.expect("->"); err != nil {
		return err
	}
	for i := 0; r.peek() != ':'; i++ {
		if i > 0 {
			if err := r.expect(","); err != nil {
				return err
			}
		}
		shape, err := r.parseShape()
		if err != nil {
			return err
		}
		v := &Value{Op: op, Index: i, Shape: shape}
		for r.accept("on") {
			if err := r.placement(v); err != nil {
				return err
			}
		}
		op.Outputs = append(op.Outputs, v)
	}
	if _, isParam := op.Attrs.(*Parameter); isParam && len(op.Outputs) != 1 {
		return r.errorf("a parameter has one output")
	}
	for _, v := range op.Outputs {
		name := strings.TrimPrefix(v.String(), "%")
		if r.values[name] != nil {
			return r.errorf("value %s is defined twice", v)
		}
		r.values[name] = v
	}
	f.Append(op)
	return r.opTail(op)
}

// placement reads how a value is placed along an axis.
func (r *reader) placement(v *Value) error {
	word := r.word()
	axis := Replicas
	for ; axis.String() != word; axis++ {
		if axis > maxAxis {
			return r.errorf("unknown axis %q", word)
		}
	}
	if err := r.expect("of"); err != nil {
		return err
	}
	var d Division
	var err error
	if d.Devices, err = r.int(); err != nil {
		return err
	}
	if d.Weights, err = r.each("weight"); err != nil {
		return err
	}
	kind, err := r.oneOf("placement", placementNames[:])
	if err != nil {
		return err
	}
	p := Placement{Kind: PlacementKind(kind)}
	switch p.Kind {
	case Sharded:
		err = r.list('(', ')', func(int) (err error) {
			p.Unit = 1
			if p.Dim, err = r.int(); err == nil && r.accept("by") {
				p.Unit, err = r.int()
			}
			return err
		})
	case Partial:
		err = r.list('(', ')', func(int) error {
			n, err := r.oneOf("reduction", reductionNames[:])
			p.Reduce = Reduction(n)
			return err
		})
	}
	if err == nil && d.ok() && (p.Kind != Sharded || p.Dim >= 0 && p.Dim < v.Shape.Rank() && p.Unit > 0) {
		v.SetDivided(axis, p, d)
	} else if err == nil {
		err = r.errorf("a value of shape %s cannot be %s over %s", ShapeText(v.Shape), p, d)
	}
	return err
}

// maxAxis bounds the axes of a mesh in program text.
const maxAxis = 8

// opTail reads what follows the shapes: phase, TaskGraph, origin, twin, source.
func (r *reader) opTail(op *Op) (err error) {
	if err := r.expect(":"); err != nil {
		return err
	}
	phase, err := r.oneOf("phase", phaseNames[:])
	if err != nil {
		return err
	}
	op.Phase = Phase(phase)
	op.Varying, op.PerShard = r.accept("varying"), r.accept("pershard")
	if op.TaskGraph, err = r.taskGraphRef(); err != nil {
		return err
	}
	if r.accept("place") {
		if op.Place, err = r.int(); err != nil {
			return err
		}
	}
	if r.accept("region") {
		if op.Region, err = r.int(); err != nil {
			return err
		}
	}
	op.Keep = r.accept("keep")
	if r.accept("by") {
		origin, err := r.oneOf("origin", originNames[:])
		if err != nil {
			return err
		}
		op.Origin = Origin(origin)
	}
	if r.accept("twin") {
		if op.Twin, err = r.operands(); err != nil {
			return err
		}
	}
	if r.accept("of") {
		name, err := r.ref()
		if err != nil {
			return err
		}
		if op.Of, err = r.lookup(name); err != nil {
			return err
		}
	}
	if r.accept("in") {
		if op.Scope, err = r.quoted(); err != nil {
			return err
		}
	}
	op.Source, err = r.source()
	return err
}

func (r *reader) oneOf(what string, names []string) (int, error) {
	word := r.word()
	i := slices.Index(names, word)
	if i < 0 {
		return 0, r.errorf("unknown %s %q", what, word)
	}
	return i, nil
}

func (r *reader) operandFunction(parent *Func) (*Func, error) {
	if r.accept("func") {
		name, err := r.quoted()
		return r.function(name), err
	}
	if err := r.expect("closure"); err != nil {
		return nil, err
	}
	n, err := r.int()
	if err != nil {
		return nil, err
	}
	f, ok := r.closures[n]
	if !ok {
		f = &Func{Parent: parent}
		r.closures[n] = f
		err = r.body(f)
	}
	return f, err
}

// ParseShape reads a shape printed by [ShapeText].
func ParseShape(text string) (shapes.Shape, error) {
	s := &scanner{text: text}
	shape, err := s.parseShape()
	if err == nil && s.peek() != 0 {
		err = s.errorf("text after the shape")
	}
	return shape, err
}
