// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// Verify checks what every other package takes for granted, and returns an error that names the first op, value or
// variable that breaks it:
//
//  1. Op IDs are unique.
//  2. An op knows the function that lists it, and its outputs know their op and index.
//  3. A function's Params are the outputs of its Parameter ops, in order.
//  4. Inputs are defined before they are used, in the same function or one around it; so are outputs of functions.
//  5. An op has as many inputs and functions as its operation takes, and lacks only inputs that are optional.
//  6. Closures belong to the function of the op that uses them; named functions are listed in the program.
//  7. Every value has a valid shape.
//  8. Every parameter of main is exactly one of variable and input, and paths of variables are unique.
//  9. The new value of a variable has the variable's shape and lives in main.
//  10. A gradient is that of a trainable variable, has its shape, is not computed in apply, and there is one per variable.
//  11. The loss is a scalar of a float type, computed in forward.
//  12. Outputs are described one by one; an update among them is the new value of its variable, and a guard, an int32, is the last of them.
//  13. No op reads a value of a later phase, in its closures neither; parameters and constants aside.
//  14. TaskGraphs of ops and variables are listed in the program, numbered by their place, with at least one device.
//  15. Collections hold values of main.
//  16. The twin of a fused op stands before it and has the shapes of its outputs.
//  17. Model replicas have as many micro-batches as the local view says, at most. Only a program with a local view has varying ops and merges. In it an op is varying exactly if it is a data
//     input, the number of an instance, or reads a varying value and is no merge; main returns invariant values; a
//     value is merged once.
//  18. In a program with stages every TaskGraph is in one, and every op on a group of devices that there is.
//  19. A parameter or a constant has one output, of the shape that its attributes say, and a constant its elements.
//  20. A placement is one of an axis that the mesh of the op's stage has. A value is sharded along a dim that it has, in units that
//     every device gets one of at least; a Reshard leaves the shape as it is, unless it stacks, and within a stage changes one axis.
func (p *Program) Verify() error {
	v := verifier{p: p, ids: make([]*Op, p.nextID), usable: make([]bool, p.nextID), merged: map[*Value]*Op{}}
	for _, check := range []func() error{v.local, v.taskGraphs, v.stages, v.functions, v.parameters, v.variables, v.gradients, v.outputs, v.collections} {
		if err := check(); err != nil {
			return errors.WithMessagef(err, "epl: internal error: program %q is broken", p.Name)
		}
	}
	return nil
}

type verifier struct {
	p      *Program
	ids    []*Op          // the ops so far, by ID
	usable []bool         // by ID: the function being checked may use what it defines
	merged map[*Value]*Op // values of main, by the op that merges them
	groups int            // of devices
}

// defined tells whether the function being checked may use a value.
func (v *verifier) defined(x *Value) bool {
	if x == nil || !v.seen(x.Op) {
		return false
	}
	return v.usable[x.Op.ID] && x.Index < len(x.Op.Outputs) && x.Op.Outputs[x.Index] == x
}

// seen tells whether an op is one of those so far.
func (v *verifier) seen(op *Op) bool {
	return op != nil && op.ID >= 0 && op.ID < len(v.ids) && v.ids[op.ID] == op
}

// end says that nobody else may use what a function defines.
func (v *verifier) end(f *Func) {
	for _, op := range f.Ops {
		v.usable[op.ID] = false
	}
}

func (v *verifier) local() error {
	l := v.p.Local
	if l == nil || l.Shares == nil {
		return nil
	}
	if len(l.Shares) != l.Replicas || slices.Min(l.Shares) < 0 || slices.Max(l.Shares) != l.MicroBatches {
		return errors.Errorf("%d model replicas of %d micro-batches at most have the shares %v", l.Replicas, l.MicroBatches, l.Shares)
	}
	return nil
}

func (v *verifier) taskGraphs() error {
	for i, t := range v.p.TaskGraphs {
		if t.ID != i {
			return errors.Errorf("TaskGraph %q has number %d at place %d", t.Name, t.ID, i)
		}
		if t.Devices < 1 {
			return errors.Errorf("TaskGraph %q has %d devices", t.Name, t.Devices)
		}
	}
	return nil
}

func (v *verifier) functions() error {
	if v.p.Main == nil {
		return errors.New("there is no main function")
	}
	for _, f := range append(slices.Clone(v.p.Funcs), v.p.Main) {
		if f.Parent != nil {
			return errors.Errorf("function %q is listed in the program but is a closure", f.Name)
		}
		if err := v.function(f); err != nil {
			return errors.WithMessagef(err, "function %q", f.Name)
		}
		if f != v.p.Main {
			v.end(f)
		}
	}
	return nil
}

func (v *verifier) function(f *Func) error {
	var params []*Value
	for _, op := range f.Ops {
		if err := v.op(f, op); err != nil {
			return errors.WithMessage(err, op.String())
		}
		if _, ok := op.Attrs.(*Parameter); ok {
			params = append(params, op.Outputs...)
		}
		v.usable[op.ID] = true
	}
	if !slices.Equal(params, f.Params) {
		return errors.Errorf("it lists %d parameters, its ops define %d, or in another order", len(f.Params), len(params))
	}
	for i, o := range f.Outputs {
		if !v.defined(o) {
			return errors.Errorf("output %d, %s, is not defined in it", i, o)
		}
	}
	return nil
}

func (v *verifier) op(f *Func, op *Op) error {
	if op.Attrs == nil {
		return errors.New("it has no attributes, hence no type")
	}
	if op.ID < 0 || op.ID >= len(v.ids) {
		return errors.Errorf("its ID, %d, is none that the program gave", op.ID)
	}
	if other := v.ids[op.ID]; other != nil {
		return errors.Errorf("its ID is also that of %s", other)
	}
	v.ids[op.ID] = op
	if op.Func != f {
		return errors.New("it is listed in a function that is not its own")
	}
	for i, o := range op.Outputs {
		if o.Op != op || o.Index != i {
			return errors.Errorf("output %d does not know its op or index", i)
		}
		if !o.Shape.Ok() || o.Shape.IsTuple() {
			return errors.Errorf("output %d has an invalid shape", i)
		}
	}
	if err := leaf(op); err != nil {
		return err
	}
	if op.TaskGraph != nil && !slices.Contains(v.p.TaskGraphs, op.TaskGraph) {
		return errors.Errorf("its TaskGraph %q is not one of the program", op.TaskGraph.Name)
	}
	if len(op.Twin) > len(op.Outputs) {
		return errors.Errorf("its twin has %d values, it has %d", len(op.Twin), len(op.Outputs))
	}
	for i, t := range op.Twin {
		if !v.defined(t) || !t.Shape.Equal(op.Outputs[i].Shape) {
			return errors.Errorf("its twin %s is not defined before it, or has another shape", t)
		}
	}
	if op.Of != nil && !v.defined(op.Of) {
		return errors.Errorf("it belongs to %s, which is not defined before it", op.Of)
	}
	if err := v.places(op); err != nil {
		return err
	}
	if err := v.inputs(op); err != nil {
		return err
	}
	if err := v.placements(op); err != nil {
		return err
	}
	if err := v.closures(op); err != nil {
		return err
	}
	if err := v.phases(op); err != nil {
		return err
	}
	return v.varying(op)
}

func (v *verifier) varying(op *Op) error {
	if op.Func != v.p.Main { // a closure is part of the op of main that has it
		if op.Varying {
			return errors.New("it counts as varying inside a function")
		}
		return nil
	}
	want := false
	switch op.Attrs.(type) {
	case *Instance, *InstanceCount, *Present, *Merge:
		if v.p.Local == nil {
			return errors.New("it is an op of the local view, which the program does not have")
		}
		if op.IsMerge() {
			for _, in := range op.Inputs {
				if other := v.merged[in]; other != nil && other != op {
					return errors.Errorf("its input is merged by %s, too", other)
				}
				v.merged[in] = op
			}
		}
		_, want = op.Attrs.(*Instance)
	case *Parameter:
		want = v.p.Local != nil && slices.Contains(v.p.Inputs, op.Outputs[0])
	default:
		op.Uses(func(x *Value) { want = want || x.Op.Varying })
	}
	if op.Varying != want {
		return errors.Errorf("it counts as varying: %v, but should: %v", op.Varying, want)
	}
	return nil
}

// leaf checks that a parameter or a constant is what its attributes say.
func leaf(op *Op) error {
	var want shapes.Shape
	switch a := op.Attrs.(type) {
	case *Parameter:
		want = a.Shape
	case *Constant:
		want = a.Value.Shape
	default:
		return nil
	}
	if len(op.Outputs) != 1 {
		return errors.Errorf("it has %d outputs, not one output", len(op.Outputs))
	}
	if got := op.Outputs[0].Shape; !got.Equal(want) {
		return errors.Errorf("its output is %s, its attributes say %s", ShapeText(got), ShapeText(want))
	}
	if c, ok := op.Attrs.(*Constant); ok {
		return c.Value.check()
	}
	return nil
}

func (v *verifier) inputs(op *Op) error {
	a := op.Attrs.arity()
	n, fixed := len(op.Inputs), a.inputs
	if n < fixed || n > fixed && !a.hasList {
		return errors.Errorf("it has %d inputs, its operation takes %d", n, fixed)
	}
	for i, in := range op.Inputs {
		if in == nil {
			j := i // index among the fixed inputs, -1 inside the list
			if a.hasList && i >= a.listAt {
				if j = i - (n - fixed); j < a.listAt {
					j = -1
				}
			}
			if j < 0 || j >= len(a.nilOK) || !a.nilOK[j] {
				return errors.Errorf("input %d is missing", i)
			}
			continue
		}
		if !v.defined(in) {
			return errors.Errorf("input %d, %s, is not defined before it", i, in)
		}
	}
	return nil
}

// phases checks what the op reads, its closures included.
func (v *verifier) phases(op *Op) (err error) {
	op.Uses(func(in *Value) {
		if err == nil && in.Op.Phase > op.Phase && !in.Op.IsLeaf() {
			err = errors.Errorf("it is in phase %s and reads %s of the later phase %s", op.Phase, in, in.Op.Phase)
		}
	})
	return err
}

func (v *verifier) closures(op *Op) error {
	if want := op.Attrs.arity().funcs; len(op.Funcs) != want {
		return errors.Errorf("it has %d functions, its operation takes %d", len(op.Funcs), want)
	}
	for _, f := range op.Funcs {
		if f.Parent == nil {
			if !slices.Contains(v.p.Funcs, f) {
				return errors.Errorf("it calls function %q, which the program does not list", f.Name)
			}
			continue
		}
		if f.Parent != op.Func {
			return errors.New("its closure belongs to another function")
		}
		if len(f.Ops) > 0 && v.seen(f.Ops[0]) {
			continue // used by an earlier op and checked there
		}
		if err := v.function(f); err != nil {
			return errors.WithMessage(err, "in its closure")
		}
		v.end(f)
	}
	return nil
}

// parameters is called when the values of main are defined, as are the checks after it.
func (v *verifier) parameters() error {
	kinds := make(map[*Value]int, len(v.p.Variables))
	paths := make(map[string]bool, len(v.p.Variables))
	for _, x := range v.p.Variables {
		if x.Param == nil || x.Path == "" {
			return errors.Errorf("variable %q lacks a parameter or a path", x.Path)
		}
		if paths[x.Path] {
			return errors.Errorf("two variables have the path %q", x.Path)
		}
		paths[x.Path] = true
		kinds[x.Param]++
	}
	for _, x := range v.p.Inputs {
		kinds[x]++
	}
	for _, x := range v.p.Main.Params {
		if kinds[x] != 1 {
			return errors.Errorf("parameter %s of main is claimed %d times as variable or input", x, kinds[x])
		}
		delete(kinds, x)
	}
	for x := range kinds {
		return errors.Errorf("%s is a variable or an input but not a parameter of main", x)
	}
	return nil
}

func (v *verifier) variables() error {
	for _, x := range v.p.Variables {
		if x.TaskGraph != nil && !slices.Contains(v.p.TaskGraphs, x.TaskGraph) {
			return errors.Errorf("the TaskGraph %q of variable %q is not one of the program", x.TaskGraph.Name, x.Path)
		}
		if x.Update == nil {
			continue
		}
		if !v.defined(x.Update) {
			return errors.Errorf("the new value of variable %q is not in main", x.Path)
		}
		if err := v.update(x); err != nil {
			return err
		}
	}
	return nil
}

// update checks the new value of a variable.
func (v *verifier) update(x *Variable) error {
	u := x.Update
	if !u.Shape.Equal(x.Param.Shape) {
		return errors.Errorf("variable %q is %s, its new value %s", x.Path, ShapeText(x.Param.Shape), ShapeText(u.Shape))
	}
	if !u.LocalShape(nil).Equal(x.Param.LocalShape(nil)) {
		return errors.Errorf("a device has %s of variable %q, and %s of its new value", ShapeText(x.Param.LocalShape(nil)), x.Path, ShapeText(u.LocalShape(nil)))
	}
	return nil
}

func (v *verifier) gradients() error {
	seen := map[*Variable]bool{}
	for _, g := range v.p.Gradients {
		switch {
		case g.Variable == nil || !slices.Contains(v.p.Variables, g.Variable):
			return errors.Errorf("gradient %s is that of no variable", g.Value)
		case seen[g.Variable]:
			return errors.Errorf("variable %q has two gradients", g.Variable.Path)
		case !g.Variable.Trainable:
			return errors.Errorf("variable %q has a gradient and is not trainable", g.Variable.Path)
		case g.Value == nil || !v.defined(g.Value):
			return errors.Errorf("the gradient of %q is not in main", g.Variable.Path)
		case !g.Value.Shape.Equal(g.Variable.Param.Shape):
			return errors.Errorf("variable %q is %s, its gradient %s", g.Variable.Path, ShapeText(g.Variable.Param.Shape), ShapeText(g.Value.Shape))
		case g.Value.Op.Phase == Apply && !g.Value.Op.IsLeaf():
			return errors.Errorf("the gradient of %q is computed in apply", g.Variable.Path)
		}
		seen[g.Variable] = true
	}
	l := v.p.Loss
	switch {
	case l == nil:
		return nil
	case !v.defined(l):
		return errors.Errorf("the loss %s is not in main", l)
	case l.Shape.Rank() != 0 || !l.Shape.DType.IsFloat() && l.Shape.DType != dtypes.BFloat16:
		return errors.Errorf("the loss %s is %s, not a float scalar", l, ShapeText(l.Shape))
	case l.Op.Phase != Forward:
		return errors.Errorf("the loss %s is computed in phase %s", l, l.Op.Phase)
	}
	return nil
}

func (v *verifier) outputs() error {
	if len(v.p.Outputs) != len(v.p.Main.Outputs) {
		return errors.Errorf("main has %d outputs, %d are described", len(v.p.Main.Outputs), len(v.p.Outputs))
	}
	for i, o := range v.p.Outputs {
		if x := v.p.Main.Outputs[i]; x.Op.Varying {
			return errors.Errorf("output %d, %s, differs between instances", i, x)
		}
		if o.Updates != nil && o.Updates.Update != v.p.Main.Outputs[i] {
			return errors.Errorf("output %d is not the new value of variable %q", i, o.Updates.Path)
		}
		if g := v.p.Main.Outputs[i]; o.Guard && (i < len(v.p.Outputs)-1 || o.Updates != nil || !g.Shape.Equal(shapes.Make(dtypes.Int32))) {
			return errors.Errorf("output %d, %s, is no guard: that is the last output, an int32", i, g)
		}
		if o.Always && o.Updates == nil {
			return errors.Errorf("output %d, %s, is no new value of a variable", i, v.p.Main.Outputs[i])
		}
	}
	return nil
}

func (v *verifier) collections() error {
	for _, c := range v.p.Collections {
		for _, x := range c.Values {
			if !v.defined(x) {
				return errors.Errorf("collection %q holds %s, which is not in main", c.Key, x)
			}
		}
	}
	return nil
}
