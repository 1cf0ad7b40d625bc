// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// Gradients are added up over micro-batches by the segments that compute them, so that a device can do that with every part of a product while it has it at
// hand. The first micro-batch's are the sums. Those after it run the same segment with additions: it takes the sums, and gives them back.

// sums puts additions into segments, and takes them off the lists.
func (b *builder) sums() {
	if b.p.Local.MicroBatches == 1 {
		return
	}
	summed := map[*ir.Value]bool{}
	for i := range b.s.Buckets {
		x := &b.s.Buckets[i]
		vs, _ := x.Values()
		if x.Summed = x.How.Adds() && !x.Parts && !slices.ContainsFunc(vs, func(v *ir.Value) bool { return !b.summable(v, x.Place) }); x.Summed {
			for _, v := range vs {
				summed[v] = true
			}
		}
	}
	if len(summed) == 0 {
		return
	}
	with := map[int]int{} // segments: themselves with additions
	for i, s := range slices.Clone(b.s.Segments) {
		if slices.ContainsFunc(s.Outputs, func(v *ir.Value) bool { return summed[v] }) {
			with[i] = len(b.s.Segments)
			b.s.Segments = append(b.s.Segments, s.adding(summed))
		}
	}
	b.s.apart = b.s.Places
	b.s.Places = make([][]Instr, len(b.s.apart))
	for place, list := range b.s.apart {
		b.s.Places[place] = b.s.adding(list, summed, with)
	}
}

// summable tells whether a segment of a place computes a value that is read by nobody but its merge. Forward of a pipeline is not compiled twice for the sake of
// a loss.
func (b *builder) summable(v *ir.Value, place int) bool {
	return b.PerInstance(v.Op) && len(b.Users(v)) == 1 &&
		slices.ContainsFunc(b.s.Segments, func(s *Segment) bool { return s.Place == place && s.Kind != Forward && slices.Contains(s.Outputs, v) })
}

// adding is a segment that adds some of its outputs to what it is given after its own inputs.
func (s *Segment) adding(summed map[*ir.Value]bool) *Segment {
	scratch := ir.NewProgram("sums")
	c := *s.Segment
	c.Name += " and sums"
	c.Inputs, c.Ops, c.Outputs = slices.Clone(c.Inputs), slices.Clone(c.Ops), slices.Clone(c.Outputs)
	for i, v := range s.Outputs {
		if summed[v] {
			before, sum := added(scratch, v, v)
			c.Inputs, c.Ops, c.Outputs[i] = append(c.Inputs, before), append(c.Ops, sum.Op), sum
		}
	}
	return &Segment{Segment: &c, Place: s.Place, Stage: s.Stage, Kind: s.Kind, Adds: s}
}

// profile is what a device needs for a part of the segment. Sums are for what they are of.
func (s *Segment) profile(l *Ledger, part *ir.Segment, f *emit.Listing) *Profile {
	if s.Adds != nil {
		for i, v := range s.Adds.Outputs {
			if sum := s.Outputs[i]; sum != v {
				l.set(l.Use(v), sum, sum.Op.Inputs[0])
			}
		}
	}
	return l.Profile(part, f)
}

// added adds x, what counts of a value v of a micro-batch, to that of the micro-batches before.
func added(scratch *ir.Program, x, v *ir.Value) (before, sum *ir.Value) {
	before = scratch.NewOp(&ir.Parameter{Name: "sum", Shape: v.Shape}, nil, v.Shape).Outputs[0]
	before.PlaceLike(v)
	op := scratch.NewOp(&ir.Add{}, []*ir.Value{before, x}, v.Shape)
	op.Outputs[0].PlaceLike(v)
	op.Attribution, op.Varying = v.Op.Attribution, v.Op.Varying
	return before, op.Outputs[0]
}

// adding is a list whose segments add up. Micro-batches come in order, on every device.
func (p *Program) adding(list []Instr, summed map[*ir.Value]bool, with map[int]int) (all []Instr) {
	for _, in := range list {
		if in.Kind == Accumulate && p.Buckets[in.Bucket].Summed {
			continue
		}
		if n, ok := with[in.Segment]; ok && in.Kind == Run {
			takes, gives := p.Takes(in), p.Gives(in)
			for i, v := range p.Segments[in.Segment].Outputs {
				if summed[v] {
					gives[i].Micro = Once
					takes = append(takes, gives[i])
				}
			}
			if in.Out = gives; in.Micro > 0 {
				in.Segment, in.In = n, takes
			}
		}
		all = append(all, in)
	}
	return all
}

// withoutSums is the program in which instructions add up.
func (p *Program) withoutSums() *Program {
	if p.apart == nil {
		return p
	}
	q := *p
	q.Places, q.apart, q.Buckets = p.apart, nil, slices.Clone(p.Buckets)
	for i := range q.Buckets {
		q.Buckets[i].Summed = false
	}
	return &q
}
