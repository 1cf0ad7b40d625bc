// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"fmt"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// recompute lets backward compute what it reads of forward again, from what is kept, in the region that reads it. Copies
// stay apart from what they copy because regions run in segments of their own. What devices exchange is kept, and so is
// what the last region has, since its backward follows at once.
func recompute(p *ir.Program, o Options) (int, error) {
	if !o.Divides() || p.Local == nil {
		return 0, nil
	}
	r := newRecomputer(p, o)
	Settle(p, r.Regions())
	if o.Checkpoint == "" {
		return 0, nil
	}
	var plain map[*ir.Value]*ir.Value
	if o.CheckGradients {
		plain = r.withoutCopies(o.note)
	}
	r.find()
	before := cost.Activations(p.Main.Ops)
	n := r.rewrite()
	r.check(plain)
	analysis.Sweep(p) // forward computes nothing that only backward read
	o.note(fmt.Sprintf("gradient checkpoint: backward computes %s again, %.0f%% of the arithmetic of forward, and keeps %s of it instead of %s.",
		counted(n, "op"), 100*r.share(), humanize.Bytes(cost.Activations(p.Main.Ops)), humanize.Bytes(before)))
	return n, nil
}

// share is how much of the arithmetic of forward is done again.
func (r *recomputer) share() float64 {
	var forward, again int64
	for _, op := range r.p.Main.Ops {
		if op.Phase == ir.Forward {
			forward += cost.Of(op).Flops
		}
	}
	for _, op := range r.copies {
		again += cost.Of(op).Flops
	}
	return float64(again) / float64(max(forward, 1))
}

// recomputer knows what to recompute where.
type recomputer struct {
	*analysis.Index
	p      *ir.Program
	auto   bool
	from   int // the first region of forward that is not recomputed
	end    int // the first TaskGraph that is not recomputed
	cheap  map[*ir.Op]bool
	kept   map[*ir.Value]bool // though not marked
	copies map[key]*ir.Op
	plain  map[*ir.Op]bool // backward as it is without, to compare with
}

// key is an op that a region of backward computes again.
type key struct {
	op     *ir.Op
	region int
}

func newRecomputer(p *ir.Program, o Options) *recomputer {
	r := &recomputer{Index: analysis.Of(p), p: p, auto: o.Checkpoint == "auto", end: o.CheckpointEnd,
		kept: map[*ir.Value]bool{}, copies: map[key]*ir.Op{}, plain: map[*ir.Op]bool{}}
	marked := map[*ir.Op]bool{}
	for _, op := range p.Main.Ops {
		marked[op] = op.Keep
	}
	r.cheap = cost.Cheap(p, marked)
	if r.auto {
		r.from = r.Regions() - 1
	} else {
		for _, v := range p.Collection("Checkpoints") {
			r.from = max(r.from, v.Op.Region+1)
		}
	}
	return r
}

// again tells whether an op of backward that reads v computes it again, or reads v's copy, instead of v itself.
func (r *recomputer) again(v *ir.Value, reader *ir.Op) bool {
	op := v.Op
	if _, reduce := op.Attrs.(*ir.AllReduce); reduce || op.IsMerge() || op.IsExchange() || op.IsTransfer() {
		return false
	}
	switch {
	case op.IsLeaf() || op.Phase != ir.Forward || !op.Varying || r.kept[v]:
		return false
	case op.Place != reader.Place || r.Stage(op) != r.Stage(reader):
		return false // it was sent
	case r.cheap[op]:
		return true
	case op.Region >= r.from || r.end > 0 && (op.TaskGraph == nil || op.TaskGraph.ID >= r.end):
		return false
	}
	// Of an op with several results only those are kept that go on: the state of random numbers, not the numbers.
	return !op.Keep || len(op.Outputs) > 1 && !r.Crossing()[v]
}

// find finds what is wanted again. What a function captures is kept, since the copy of an op has the same functions; and, if
// EPL chooses, so is what another region wants than the mirror of its own.
func (r *recomputer) find() {
	for changed := true; changed; {
		changed = false
		wanted := map[key]bool{}
		keep := func(v *ir.Value, reader *ir.Op) {
			if r.again(v, reader) {
				r.kept[v], changed = true, true
			}
		}
		var want func(reader *ir.Op, region int) // what it reads
		want = func(reader *ir.Op, region int) {
			reader.Captures(func(v *ir.Value) { keep(v, reader) })
			for _, v := range reader.Inputs {
				switch {
				case v == nil || !r.again(v, reader) || wanted[key{v.Op, region}]:
				case r.auto && !r.cheap[v.Op] && region != 2*r.Regions()-1-v.Op.Region:
					keep(v, reader)
				default:
					wanted[key{v.Op, region}] = true
					want(v.Op, region)
				}
			}
		}
		for _, op := range r.p.Main.Ops {
			if !op.IsLeaf() && op.Phase == ir.Backward && !r.plain[op] {
				want(op, op.Region)
			}
		}
	}
}

// rewrite puts copies in front of those that read them.
func (r *recomputer) rewrite() int {
	var ops []*ir.Op
	var again func(v *ir.Value, reader *ir.Op, region int) *ir.Value
	again = func(v *ir.Value, reader *ir.Op, region int) *ir.Value {
		if !r.again(v, reader) {
			return v
		}
		k := key{v.Op, region}
		c := r.copies[k]
		if c == nil {
			c = r.copyOf(v.Op, region, func(in *ir.Value) *ir.Value { return again(in, v.Op, region) })
			r.copies[k] = c
			ops = append(ops, c)
		}
		return c.Outputs[v.Index]
	}
	for _, op := range r.p.Main.Ops {
		if !op.IsLeaf() && op.Phase == ir.Backward && !r.plain[op] {
			op.Inputs = ir.Through(op.Inputs, func(in *ir.Value) *ir.Value { return again(in, op, op.Region) })
		}
		ops = append(ops, op)
	}
	r.p.Main.Ops = ops
	return len(r.copies)
}

// copyOf makes the same op again, for a region of backward.
func (r *recomputer) copyOf(op *ir.Op, region int, input func(*ir.Value) *ir.Value) *ir.Op {
	c := r.p.CopyOp(op, ir.Through(op.Inputs, input))
	c.Phase, c.Region, c.Origin = ir.Backward, region, ir.Rematerialised
	return c
}
