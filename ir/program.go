// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gomlx/compute/shapes"
)

// Program is a recorded program. Its parts are described in the package comment, its invariants at [Program.Verify].
type Program struct {
	Name string
	Main *Func
	// Funcs are the named functions that Call refers to, in the order they were created.
	Funcs []*Func

	TaskGraphs  []*TaskGraph
	Variables   []*Variable
	Inputs      []*Value // parameters of main that are not variables, in order
	Gradients   []Gradient
	Loss        *Value   // what was differentiated by the optimizer; nil if there is none
	Outputs     []Output // one per output of main
	Collections []Collection

	// Stages say which devices of a model replica run which TaskGraphs; nil: it has one device.
	Stages []Stage
	// Local is the local view, nil for a program that simply runs once.
	Local *Local
	// Passes are the passes that the program has been through, by name, in order; none: it is as it was recorded. What
	// holds in it, and which passes may follow, depends on them.
	Passes []string

	// OutputsKnown is false when EPL never saw the GoMLX graph of this program (nothing in it is annotated), so that
	// it cannot tell variable updates from results: all outputs then count as results.
	OutputsKnown bool

	nextID int
}

// Func is a function of a program: main, a named function, or a closure.
type Func struct {
	Name    string // "" for a closure
	Parent  *Func  // the function around a closure; nil for main and named functions
	Ops     []*Op
	Params  []*Value // the outputs of its Parameter ops, in order
	Outputs []*Value
}

// Op is one operation.
type Op struct {
	ID      int // unique in its program
	Attrs   Attrs
	Inputs  []*Value // nil where an optional input is absent
	Funcs   []*Func  // closures, or the callee
	Outputs []*Value
	Func    *Func // the function that holds it
	// Twin, for a fused op, are the values of the written-out version that GoMLX recorded in front of it and that
	// gradients go through: one per output, or nil. States of attention, the last outputs, have none. Where an attention in half
	// precision stands for one in float32, the casts of its results have the twins.
	Twin []*Value

	Attribution
	Varying bool // its results differ between instances; only in a program with a local view
	// PerShard: every device computes the op on what it has of the inputs, as if that were all.
	PerShard bool
	// Keep says of a forward op that its results live until backward has used them, where others are computed again.
	Keep bool
	// Of, as recorded, is a result of the forward op that a backward op belongs to: whose gradient it helps to compute, or
	// which it repeats. Passes drop it: what it refers to may go.
	Of *Value
}

// Attribution says whose an op is, where and when it runs. An op that is made for another one gets that one's, as a whole.
type Attribution struct {
	TaskGraph *TaskGraph // nil: outside every scope
	Phase     Phase
	Place     int // in a program with stages: the group of devices that it runs on, see [Program.Groups]
	// Region divides what a device does for a micro-batch, or once per step, into pieces: ops run in the order of their
	// regions, each in segments of its own. Regions of backward come after those of forward; those of apply are apart.
	Region int
	Origin Origin // how TaskGraph and Phase were found
	Source Source // the user's line
	// Scope is the scope of the model that the op computes for, "/block_0/attention", as far as variables tell it; "" if they do not.
	Scope string
}

// Value is one output of an op.
type Value struct {
	Op    *Op
	Index int
	Shape shapes.Shape

	// How devices hold it in an SPMD program, by axis of the mesh, and the shape of what the first of them has: see [Value.SetOn].
	placed []along
	local  shapes.Shape
}

// Phase is the part of a training step an op belongs to.
type Phase uint8

// The phases, in the order in which they run: an op never reads a value of a later phase.
const (
	Forward  Phase = iota // the model, its loss, and metrics that do not depend on gradients
	Backward              // gradients, and what is recomputed for them
	Apply                 // the optimizer, once per step
)

var phaseNames = [...]string{"forward", "backward", "apply"}

// String returns "forward", "backward" or "apply".
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", p)
}

// Origin tells how the TaskGraph and the phase of an op were found.
type Origin uint8

// Where an attribution comes from.
const (
	Recorded        Origin = iota // recorded in the scope and phase that were open
	VJP                           // recorded while the gradient of a forward op was built: it follows that op
	Rematerialised                // a clone of a forward op that GoMLX's Node.Checkpoint makes: it follows its original
	FollowsInputs                 // between gradients (sums, custom gradients): the earliest TaskGraph of its inputs
	FollowsVariable               // apply: follows the variable whose update it computes
)

var originNames = [...]string{"recorded", "vjp", "remat", "inputs", "variable"}

// String returns the word used in program text.
func (o Origin) String() string {
	if int(o) < len(originNames) {
		return originNames[o]
	}
	return fmt.Sprintf("origin(%d)", o)
}

// Source is a line of Go, "" if unknown.
type Source string

// StrategyKind says how a TaskGraph is parallelised.
type StrategyKind uint8

// The two strategies.
const (
	Replicate StrategyKind = iota // data parallel over its devices
	Split                         // its ops are sharded over its devices
)

// String returns "replicate" or "split".
func (k StrategyKind) String() string {
	if k == Split {
		return "split"
	}
	return "replicate"
}

// Pin is a user's wish: shard dim Dim of the variables whose path ends in Variable.
type Pin struct {
	Variable string
	Dim      int
}

// TaskGraph is a unit of placement: the ops recorded under one annotation.
type TaskGraph struct {
	ID       int
	Name     string // as the user gave it; may be empty and need not be unique
	Kind     StrategyKind
	Devices  int
	Pins     []Pin
	Default  bool   // opened by a default strategy, not by a scope
	Implicit bool   // made by EPL for a program without any annotation
	Source   Source // the line of the annotation
}

// Title is how people see the TaskGraph: its name, or "TaskGraph 3".
func (t *TaskGraph) Title() string {
	if t == nil {
		return "outside"
	}
	if t.Name != "" {
		return t.Name
	}
	return fmt.Sprintf("TaskGraph %d", t.ID)
}

// Strategy prints the annotation, as "replicate(1)".
func (t *TaskGraph) Strategy() string { return fmt.Sprintf("%s(%d)", t.Kind, t.Devices) }

// Variable is a parameter of main that is state of the model.
type Variable struct {
	Path      string
	Param     *Value // its value at the start of the step
	Trainable bool
	Update    *Value // its value after the step; nil: unchanged
	// TaskGraph is where the variable was first read; for optimizer state, that of the variable it belongs to.
	TaskGraph *TaskGraph
}

// Gradient says that Value is the gradient of the loss with respect to Variable.
type Gradient struct {
	Variable *Variable
	Value    *Value
}

// Output says what an output of main is.
type Output struct {
	Updates *Variable // the variable of which this is the new value; nil for a result
	// Always: a variable gets its new value also in a step that does not count, see Guard.
	Always bool
	// Guard: it is the verdict on a training step, an int32: see [Counts]. Only the last output may be one, and GoMLX does not know of it. The pass guard
	// lets variables keep their values in a step that does not count.
	Guard bool
}

// Verdicts on a training step.
const (
	Counts    int32 = iota // its gradients are finite
	Overflows              // its gradients are not, and a smaller loss scale may help
	NotFinite              // its loss or its gradients are not
)

// Guard is the verdict on a step, if the program has one.
func (p *Program) Guard() *Value {
	if n := len(p.Outputs); n > 0 && p.Outputs[n-1].Guard {
		return p.Main.Outputs[n-1]
	}
	return nil
}

// Collection is a named list of values of main.
type Collection struct {
	Key    string
	Values []*Value
}

// NewProgram returns a program with an empty main function.
func NewProgram(name string) *Program {
	return &Program{Name: name, Main: &Func{Name: "main"}}
}

// NewOp makes an op with fresh outputs of the given shapes. It does not add it to a function: see [Func.Append]
// and [Func.InsertBefore].
func (p *Program) NewOp(attrs Attrs, inputs []*Value, outputs ...shapes.Shape) *Op {
	op := &Op{ID: p.nextID, Attrs: attrs, Inputs: inputs}
	p.nextID++
	for i, s := range outputs {
		op.Outputs = append(op.Outputs, &Value{Op: op, Index: i, Shape: s})
	}
	return op
}

// Append adds the op at the end of the function.
func (f *Func) Append(op *Op) {
	op.Func = f
	f.Ops = append(f.Ops, op)
	if _, ok := op.Attrs.(*Parameter); ok {
		f.Params = append(f.Params, op.Outputs[0])
	}
}

// Copy returns the same operation on other inputs: with outputs of the same shapes, and op's functions, number and
// attribution. Nothing refers to its outputs, and it is in no function. In a program it needs a number of its own: see
// [Program.CopyOp].
func (op *Op) Copy(inputs []*Value) *Op {
	c := &Op{ID: op.ID, Attrs: op.Attrs, Inputs: inputs, Funcs: op.Funcs, Func: op.Func, Attribution: op.Attribution, Varying: op.Varying, PerShard: op.PerShard}
	c.Outputs = make([]*Value, len(op.Outputs))
	for i, v := range op.Outputs {
		c.Outputs[i] = &Value{Op: c, Index: i, Shape: v.Shape, placed: v.placed, local: v.local}
	}
	return c
}

// CopyOp makes an op that computes the same from other inputs, with op's attribution. It does not add it to a function.
func (p *Program) CopyOp(op *Op, inputs []*Value) *Op {
	c := op.Copy(inputs)
	c.ID = p.nextID
	p.nextID++
	return c
}

// InsertBefore adds op in front of the op next, with next's attribution.
func (f *Func) InsertBefore(next, op *Op) {
	op.Func, op.Attribution = f, next.Attribution
	f.Ops = slices.Insert(f.Ops, slices.Index(f.Ops, next), op)
}

// Type names the operation.
func (op *Op) Type() OpType {
	if op.Attrs == nil {
		return "?" // in a broken program, for messages
	}
	return op.Attrs.OpType()
}

// IsLeaf tells whether the op is given from outside or a constant: it computes nothing, so it lives wherever it is
// used.
func (op *Op) IsLeaf() bool {
	_, isConst := op.Attrs.(*Constant)
	return isConst || op.isGiven()
}

// String returns a short description for messages, such as "DotGeneral %12 (model.go:40)".
func (op *Op) String() string {
	s := fmt.Sprintf("%s %%%d", op.Type(), op.ID)
	if op.Source != "" {
		s += " (" + string(op.Source) + ")"
	}
	return s
}

// String returns the name of the value in program text: "%12", or "%12.1" for a second output.
func (v *Value) String() string {
	switch {
	case v == nil:
		return "_"
	case v.Index == 0:
		return "%" + strconv.Itoa(v.Op.ID)
	}
	return "%" + strconv.Itoa(v.Op.ID) + "." + strconv.Itoa(v.Index)
}

// Bytes is how much memory the value takes on a device; 0 if a dimension is known only when the program runs.
func (v *Value) Bytes() int64 {
	if v.Shape.IsDynamic() {
		return 0
	}
	return v.LocalShape(nil).ByteSize()
}

// Variable returns the variable with the given parameter, or nil.
func (p *Program) Variable(param *Value) *Variable {
	for _, v := range p.Variables {
		if v.Param == param {
			return v
		}
	}
	return nil
}

// Collection returns the values of a collection, nil if there is none of that name.
func (p *Program) Collection(key string) []*Value {
	for _, c := range p.Collections {
		if c.Key == key {
			return c.Values
		}
	}
	return nil
}

// IsTraining tells whether the program has gradients that EPL knows of.
func (p *Program) IsTraining() bool { return len(p.Gradients) > 0 }

// Unmarked is the first variable that the program trains by gradients that EPL was not told of, because its optimizer is not wrapped; nil if
// there is none.
func (p *Program) Unmarked() *Variable {
	if p.IsTraining() || !slices.ContainsFunc(p.Main.Ops, func(op *Op) bool { return op.Origin == VJP }) {
		return nil
	}
	if i := slices.IndexFunc(p.Variables, func(v *Variable) bool { return v.Trainable && v.Update != nil }); i >= 0 {
		return p.Variables[i]
	}
	return nil
}

// Samples are those of a batch: the first dim of the first input, or 1 if that has none.
func (p *Program) Samples() int {
	if len(p.Inputs) == 0 || p.Inputs[0].Shape.Rank() == 0 {
		return 1
	}
	return p.Inputs[0].Shape.Dimensions[0]
}

// NumOps counts the ops of main.
func (p *Program) NumOps() int { return len(p.Main.Ops) }
