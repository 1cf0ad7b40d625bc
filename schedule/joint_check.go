// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Devices that run segments together check values by themselves. If a check refuses the step, new values of variables are the old ones; the host
// finds out later, from what the checks leave.

// Checks are what devices leave of checks; nil: they check nothing by themselves. All are kept once per step.
type Checks struct {
	Refused *ir.Value // int32: 0, unless a device refuses the step
	Merges  []*ir.Op
	// Findings are, by merge: of Agree, an int32, the first instance that differs, or how many there are; of Check, the values by micro-batch and model replica.
	Findings []*ir.Value
}

// isCheck tells whether a merge may refuse a step.
func isCheck(how ir.How) bool { return how == ir.Agree || how == ir.Check }

// unchecked is why the devices of the place do not check by themselves; "": they do. What they do once is one segment then, and all variables are there.
func (j *joiner) unchecked() string {
	if len(j.p.Places) > 1 {
		return "a step that is refused must not change variables of other stages, either"
	}
	if slices.ContainsFunc(j.p.Places[j.place], func(in Instr) bool { return in.Kind == Load || in.Kind == Store }) {
		return "a step that is refused must not change variables in memory of the host"
	}
	for i, b := range j.p.Buckets {
		if !isCheck(b.How) && j.host(i) != "" {
			return "the host merges other values, and what comes of them changes variables"
		}
	}
	return ""
}

var number = shapes.Make(dtypes.Int32)

// check makes of a merge one that leaves what it finds; of is what it was made of.
func (b *block) check(m, of *ir.Op) (*ir.Op, error) {
	if b.found.Refused != nil {
		return nil, errors.New("epl: internal error: checks are in two segments")
	}
	c, finds := *m, number
	if m.Attrs.(*ir.Merge).How == ir.Check {
		finds = shapes.Make(dtypes.Float32, b.p.Local.MicroBatches, len(b.mesh.Circles(m)[0]))
	}
	finding, bad := &ir.Value{Op: &c, Index: 1, Shape: finds}, &ir.Value{Op: &c, Index: 2, Shape: number}
	c.Outputs = append(slices.Clone(m.Outputs), finding, bad)
	b.bad = append(b.bad, bad)
	b.found.Merges, b.found.Findings = append(b.found.Merges, of), append(b.found.Findings, finding)
	b.leave(finding)
	return &c, nil
}

// leave keeps a value until the step is over.
func (b *block) leave(v *ir.Value) {
	at := Slot{v, Once}
	b.stays[slotAt{at, b.place}] = true
	b.put(v, at)
}

// refuse lets the block leave variables as they were if a check of it refuses the step.
func (b *block) refuse() error {
	if len(b.bad) == 0 {
		return nil
	}
	add := func(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
		op := b.scratch.NewOp(a, in, s)
		op.Attribution = b.bad[0].Op.Attribution
		b.ops = append(b.ops, op)
		return op.Outputs[0]
	}
	any := b.bad[0]
	for _, x := range b.bad[1:] {
		any = add(&ir.Max{}, number, any, x)
	}
	if n := b.mesh.Devices(); n > 1 {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		any = add(&ir.Communicate{How: ir.AllReduceOf, Reduce: ir.ReduceByMax, Groups: [][]int{all}}, number, any)
	}
	b.found.Refused = any
	b.leave(any)
	zero := ir.NumberOf(int32(0))
	good := add(&ir.Equal{}, shapes.Make(dtypes.Bool), any, add(&ir.Constant{Value: zero}, zero.Shape))
	for _, x := range b.p.Variables {
		at := Slot{x.Update, Once}
		if x.Update == nil || x.Update == x.Param || b.is[at] == nil || !slices.Contains(b.news, at) {
			continue
		}
		if err := b.take(x.Param, Slot{x.Param, Once}); err != nil {
			return err
		}
		v := add(&ir.Where{}, x.Update.Shape, good, b.is[at], x.Param)
		v.PlaceLike(x.Update)
		v.Op.Attribution = x.Update.Op.Attribution
		b.put(v, at)
	}
	return nil
}
