// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// backward is what the builder knows about phases.
type backward struct {
	phase ir.Phase
	of    *ir.Op // the forward op whose gradient is being built
	done  bool   // the optimizer has been recorded

	verdict  *ir.Value // on the step; nil: it counts
	reported *ir.Value // what is returned for the loss; nil: the loss
	always   []string  // paths of variables that change in every step

	restore   *ir.TaskGraph           // the TaskGraph outside backward
	optimizer *caller                 // in apply
	numbers   map[string][]*ir.Op     // forward ops of main by value number
	canonical map[*ir.Value]*ir.Value // rematerialised value → its original
}

// BeginBackward is called before the gradients of the loss are built by the optimizer.
func (b *Builder) BeginBackward(loss *ir.Value) error {
	if b.phase != ir.Forward || b.done {
		return errors.Errorf("epl: program %q has two optimizers: EPL reduces the gradients of one loss per program; "+
			"add the losses up, or train in two programs", b.Name())
	}
	b.program.Loss = loss
	b.phase, b.restore = ir.Backward, b.current
	b.numbers, b.canonical = map[string][]*ir.Op{}, map[*ir.Value]*ir.Value{}
	for _, op := range b.program.Main.Ops {
		if !op.IsLeaf() {
			key := b.valueNumber(op)
			b.numbers[key] = append(b.numbers[key], op)
		}
	}
	return nil
}

// BeginApply is called when the gradients are there, by the path of their variable in paths.
func (b *Builder) BeginApply(paths []string, gradients []*ir.Value) {
	b.phase, b.current = ir.Apply, b.restore
	b.numbers, b.canonical = nil, nil
	b.gradientsOf(paths, gradients)
	user, library := walk(nil)
	b.optimizer = &caller{user, library}
}

// ClipsAfterReduction tells when the optimizer wrapper is to clip gradients.
func (b *Builder) ClipsAfterReduction() bool { return b.backend.opts.ClipAfterReduction }

// LossScale is what the optimizer wrapper multiplies the loss by; nil: nothing.
func (b *Builder) LossScale() *LossScale { return b.backend.opts.LossScale }

// NaN says what becomes of a step that is not finite: the value of reliability.nan.
func (b *Builder) NaN() string { return b.backend.opts.NaN }

// KeepsGradients tells whether the optimizer wrapper is to keep the gradients of a step in variables.
func (b *Builder) KeepsGradients() bool { return b.backend.KeepGradients.Load() }

// Guard is called in apply with the verdict on the step: see [ir.Output]. Variables of the paths in always get their new values also if the step does not
// count. loss, if it is not nil, is to be returned for the loss.
func (b *Builder) Guard(verdict, loss *ir.Value, always ...string) {
	b.verdict, b.reported, b.always = verdict, loss, always
}

// EndApply is called when the optimizer is done. What is recorded later (metrics, hooks) is sorted out by finish.
func (b *Builder) EndApply() { b.phase, b.done, b.optimizer = ir.Forward, true, nil }

// attribute gives a new op its TaskGraph, phase, origin and source.
func (b *Builder) attribute(op *ir.Op) {
	b.openDefault()
	op.TaskGraph, op.Phase = b.current, b.phase
	switch {
	case b.of != nil:
		op.Origin, op.Source = ir.VJP, b.of.Source
		b.belongs(op, b.of)
	case b.phase == ir.Backward:
		b.betweenGradients(op)
	default:
		user, library := walk(b.optimizer)
		op.Source = cmp.Or(user, library)
	}
	if b.done {
		b.afterOptimizer(op)
	}
}

// belongs notes the forward op that a backward op serves.
func (b *Builder) belongs(op, forward *ir.Op) {
	if b.phase == ir.Backward && forward.Phase == ir.Forward && forward.Func == b.program.Main && op.Func == b.program.Main {
		op.Of = forward.Outputs[0]
	} else if b.phase == ir.Backward && forward.Origin == ir.Rematerialised && op.Func == b.program.Main {
		op.Of = forward.Of // the gradient of a clone is that of its original
	}
}

// betweenGradients attributes an op recorded in backward outside the gradient of one op: a rematerialised clone, the
// barrier in front of one, a sum of gradients, or a custom gradient.
func (b *Builder) betweenGradients(op *ir.Op) {
	if op.IsLeaf() {
		return
	}
	if _, ok := op.Attrs.(*ir.SchedulingBarrier); ok && op.Inputs[0].Op.Phase == ir.Forward {
		original := op.Inputs[0]
		b.canonical[op.Outputs[0]] = original
		op.TaskGraph, op.Origin, op.Source = original.Op.TaskGraph, ir.Rematerialised, original.Op.Source
		b.belongs(op, original.Op)
		return
	}
	for _, o := range b.numbers[b.valueNumber(op)] {
		if reflect.DeepEqual(o.Attrs, op.Attrs) {
			op.TaskGraph, op.Origin, op.Source = o.TaskGraph, ir.Rematerialised, o.Source
			b.belongs(op, o)
			for i, v := range op.Outputs {
				b.canonical[v] = o.Outputs[i]
			}
			return
		}
	}
	// Gradients flow from later TaskGraphs to earlier ones, so the op sits on the earliest of its inputs.
	op.Origin = ir.FollowsInputs
	var first *ir.Value
	for _, in := range op.Inputs {
		if in != nil && !in.Op.IsLeaf() {
			op.Source = cmp.Or(op.Source, in.Op.Source)
		}
		if in != nil && !in.Op.IsLeaf() && in.Op.TaskGraph != nil && (first == nil || in.Op.TaskGraph.ID < first.Op.TaskGraph.ID) {
			first = in
		}
	}
	if first != nil {
		op.TaskGraph, op.Source = first.Op.TaskGraph, first.Op.Source
	}
}

// valueNumber is equal for ops of the same type on the same inputs, where a rematerialised value counts as its
// original. Attributes are compared by the caller.
func (b *Builder) valueNumber(op *ir.Op) string {
	var k strings.Builder
	k.WriteString(string(op.Type()))
	for _, in := range op.Inputs {
		if original := b.canonical[in]; original != nil {
			in = original
		}
		fmt.Fprintf(&k, ",%s", in)
	}
	return k.String()
}

// afterOptimizer puts an op recorded after the optimizer where it belongs: with the instances if it depends on data
// only, as a metric does, or in apply if it depends on gradients or on what the optimizer computed.
func (b *Builder) afterOptimizer(op *ir.Op) {
	op.Phase = ir.Forward
	op.Uses(func(v *ir.Value) {
		if v.Op.Phase != ir.Forward && !v.Op.IsLeaf() {
			op.Phase = ir.Apply
		}
	})
}
