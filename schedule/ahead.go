// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"cmp"
	"slices"

	"github.com/easyparallel/epl/ir"
)

// gatherAhead moves what gathers a variable in front of the region before the one that needs it, so that one is computed while
// the other is on its way.
func (b *builder) gatherAhead(place int) {
	l := b.s.Places[place]
	for i, in := range l {
		if in.Kind != Exchange || in.Micro == Once || !isGather(in.Op) {
			continue
		}
		at := lastRun(l, i)
		if at < 0 || l[at].Micro == Once {
			continue
		}
		for before := lastRun(l, at); before >= 0 && b.alike(l[before], l[at]); before = lastRun(l, at) {
			at = before
		}
		// Those that were moved there before stay in front: devices meet in the same order.
		l = slices.Insert(slices.Delete(l, i, i+1), at, in)
	}
	b.s.Places[place] = l
}

// gatherTogether makes one call of gathers that follow each other and are for the same region.
func (b *builder) gatherTogether(place int) {
	var l []Instr
	for _, in := range b.s.Places[place] {
		if n := len(l) - 1; n >= 0 && together(l[n], in) {
			l[n].More = append(l[n].More, in.Op)
			continue
		}
		l = append(l, in)
	}
	b.s.Places[place] = l
}

// together tells whether two instructions can be one call.
func together(x, y Instr) bool {
	if x.Kind != Exchange || y.Kind != Exchange || x.Micro != y.Micro {
		return false
	}
	for _, op := range []*ir.Op{x.Op, y.Op} {
		if axis, how := op.Change(); axis != ir.Replicas || how != ir.AllGatherOf {
			return false
		}
	}
	return x.Op.Phase == y.Op.Phase && x.Op.Region == y.Op.Region && x.Op.Inputs[0].Shape.DType == y.Op.Inputs[0].Shape.DType
}

// lastRun is the last segment that runs before an instruction; -1: none.
func lastRun(l []Instr, at int) int {
	for at--; at >= 0 && l[at].Kind != Run; at-- {
	}
	return at
}

// alike tells whether two segments are of one region and micro-batch.
func (b *builder) alike(x, y Instr) bool {
	if x.Micro == Once || x.Micro != y.Micro || b.s.Segments[x.Segment].Stage != b.s.Segments[y.Segment].Stage {
		return false
	}
	s, t := b.turns[x.Segment], b.turns[y.Segment]
	return s.phase == t.phase && s.region == t.region
}

// onHost tells whether a variable is kept on the host: weights, and what the optimizer has for them, if that is worth it.
func (b *builder) onHost(x *ir.Variable) bool {
	const smallest = 1 << 10
	applied := x.Update != nil && x.Update.Op.Phase == ir.Apply
	return b.o.Offload && (x.Trainable || applied) && x.Param.Shape.ByteSize() >= smallest && (x.Update == nil || !x.Update.Op.IsLeaf())
}

// offload keeps variables on the host: they come to the device before they are used, a segment ahead, and go after it, unless
// at most a segment runs until they are used again. New values go to the host when they are computed.
func (b *builder) offload(place int) {
	const near = 1
	hosted, stores := map[*ir.Value]int{}, map[*ir.Value]bool{}
	for n, x := range b.s.Variables {
		if x.Host && slices.Contains(x.Places, place) {
			hosted[x.Param], stores[x.Update] = n, true
		}
	}
	list := b.s.Places[place]
	loads := make([][]*ir.Value, len(list)) // before each instruction
	used := map[*ir.Value]int{}             // how many segments had run after its last use
	last, runs := -1, 0                     // the segment before, and how many there were
	for i, in := range list {
		at, here := i, runs
		if last >= 0 {
			at = last
		}
		if in.Kind == Run {
			last, runs = i, runs+1
		}
		for _, x := range b.s.Uses(in) {
			if _, ok := hosted[x.Value]; ok {
				if was, ok := used[x.Value]; !ok || here-was > near {
					loads[at] = append(loads[at], x.Value)
				}
				used[x.Value] = runs
			}
		}
	}
	var l []Instr
	for i, in := range list {
		slices.SortFunc(loads[i], func(x, y *ir.Value) int { return cmp.Compare(hosted[x], hosted[y]) })
		for _, v := range loads[i] {
			l = append(l, Instr{Kind: Load, Value: v, Micro: Once})
		}
		l = append(l, in)
		for _, at := range b.s.Makes(in) {
			if at.Micro == Once && stores[at.Value] {
				l = append(l, Instr{Kind: Store, Value: at.Value, Micro: Once})
			}
		}
	}
	b.s.Places[place] = l
}
