// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"
)

// Local is the local view of a program: what GoMLX traced is one instance of it. A step runs one instance per model
// replica and micro-batch, each on its own batch, and merges what must be the same everywhere.
//
// In a program with a local view every op is varying, its results differ between instances, or invariant. Data inputs
// and the instance's number are varying, and so is what is computed from varying values; a [Merge] makes an invariant
// value of a varying one. Everything that leaves the program is invariant.
type Local struct {
	Replicas     int
	MicroBatches int // of a model replica; the most, if they differ
	// Shares are the micro-batches of each model replica, if they differ; nil: all have as many.
	Shares []int
}

// Share is how many micro-batches a model replica has in a full step: the first so many.
func (l *Local) Share(replica int) int {
	if l.Shares == nil {
		return l.MicroBatches
	}
	return l.Shares[replica]
}

// Instances is how many instances a full step has.
func (l *Local) Instances() int {
	if l.Shares == nil {
		return l.Replicas * l.MicroBatches
	}
	n := 0
	for _, share := range l.Shares {
		n += share
	}
	return n
}

// Number is that of an instance: its place in a full step. Micro-batches follow each other, and in each of them the model replicas that have it.
func (l *Local) Number(replica, micro int) int {
	if l.Shares == nil {
		return micro*l.Replicas + replica
	}
	n := 0
	for r, share := range l.Shares {
		if n += min(share, micro); r < replica && share > micro {
			n++
		}
	}
	return n
}

// Instance is the number of the instance, a uint64 scalar: see [Local.Number]. It is varying.
type Instance struct{}

// InstanceCount is how many instances the step at hand has, a float32 scalar. The last step of a dataset may have
// fewer than the others.
type InstanceCount struct {
	// Worker: those of this worker; it is for segments that devices run together, as [Present] is.
	Worker bool
}

// Present tells whether the step at hand has the instance, a bool scalar. One that it lacks may run all the same: then what it gives does not count.
type Present struct{}

// Merge turns the values of all instances into one. Terms of a stage's devices are added up on the way; if the result is flat along
// the model replicas, each of them gets a part of it.
type Merge struct {
	How How
	// Pad, with Concat: instances that the step lacks count as zeros, so that the shape stays the same.
	Pad bool
	// Worker: of those of each worker, one. It may differ between workers, and must not go into variables.
	Worker bool
	// Limit is the largest number that a value of Check may have, and Of what it says something about, for messages.
	Limit float64
	Of    string
}

// How says how the values of instances are merged.
type How int

// The ways to merge.
const (
	Mean   How = iota + 1 // arithmetic mean
	Sum                   // sum
	Concat                // concatenated along dim 0, in the order of instances
	First                 // that of instance 0, which computes what a program without instances would
	Agree                 // that of any instance, after checking that all have the same
	Check                 // that of any instance, after checking that none is larger than Limit
)

var howNames = [...]string{"", "mean", "sum", "concat", "first", "agree", "check"}

// String returns the word used in program text.
func (h How) String() string {
	if int(h) < len(howNames) {
		return howNames[h]
	}
	return fmt.Sprintf("how(%d)", int(h))
}

// Adds tells whether merging adds values up, so that those of micro-batches can be added as they come.
func (h How) Adds() bool { return h == Mean || h == Sum }

// The operations of the local view.
const (
	OpInstance      OpType = "Instance"
	OpInstanceCount OpType = "InstanceCount"
	OpPresent       OpType = "Present"
	OpMerge         OpType = "Merge"
)

func init() {
	newAttrs[OpInstance] = func() Attrs { return &Instance{} }
	newAttrs[OpInstanceCount] = func() Attrs { return &InstanceCount{} }
	newAttrs[OpPresent] = func() Attrs { return &Present{} }
	newAttrs[OpMerge] = func() Attrs { return &Merge{} }
}

// OpType implements Attrs.
func (*Instance) OpType() OpType { return OpInstance }

// OpType implements Attrs.
func (*InstanceCount) OpType() OpType { return OpInstanceCount }

// OpType implements Attrs.
func (*Present) OpType() OpType { return OpPresent }

// OpType implements Attrs.
func (*Merge) OpType() OpType { return OpMerge }

func (*Instance) arity() arity      { return arity{} }
func (*InstanceCount) arity() arity { return arity{} }
func (*Present) arity() arity       { return arity{} }
func (*Merge) arity() arity         { return arity{}.required(1) }

// Emit implements Attrs, by an error: a segment takes it as an input.
func (*Instance) Emit(compute.Function, *Operands) ([]compute.Value, error) {
	return nil, errors.New("the number of an instance is an input of its segment")
}

// Emit implements Attrs, by an error: a segment takes it as an input.
func (*InstanceCount) Emit(compute.Function, *Operands) ([]compute.Value, error) {
	return nil, errors.New("the number of instances is an input of its segment")
}

// Emit implements Attrs, by an error: a segment takes it as an input.
func (*Present) Emit(compute.Function, *Operands) ([]compute.Value, error) {
	return nil, errors.New("whether there is an instance is an input of its segment")
}

// Emit implements Attrs, by an error: instances are merged between segments.
func (*Merge) Emit(compute.Function, *Operands) ([]compute.Value, error) {
	return nil, errors.New("instances are merged between segments, not inside one")
}

// IsMerge tells whether the op merges the values of instances.
func (op *Op) IsMerge() bool { _, ok := op.Attrs.(*Merge); return ok }

// SetVarying says of an op whether its results differ between instances: what is computed from varying values does, unless
// instances are merged. What those it reads say must be right.
func (op *Op) SetVarying() {
	op.Varying = false
	if !op.IsMerge() {
		op.Uses(func(v *Value) { op.Varying = op.Varying || v.Op.Varying })
	}
}

// isGiven tells whether the value of the op comes from outside the program.
func (op *Op) isGiven() bool {
	switch op.Attrs.(type) {
	case *Parameter, *Instance, *InstanceCount, *Present, *Position:
		return true
	}
	return false
}
