// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import "slices"

// sink moves the cutting of rows towards where values come from: a value that every device computes as a whole, and of which
// all users take the same rows, is computed for those rows only; and what is reduced for everyone and then cut is reduced
// for those who need the rows.
func (r *propagation) sink() {
	k := sinking{propagation: r}
	for _, s := range slices.Backward(r.steps) {
		if s.dead {
			continue
		}
		k.steps = append(k.steps, s)
		if cut := cutAlike(s); cut != nil {
			k.narrow(s, cut)
		}
	}
	slices.Reverse(k.steps)
	r.steps = k.steps
	r.prune()
}

type sinking struct {
	*propagation
	steps []*step // in reverse
}

// cutAlike returns the step that cuts what s makes, if all that is needed of it are those rows.
func cutAlike(s *step) *step {
	if len(s.out) != 1 || s.out[0].Kind != Replicated || s.out[0].result || len(s.g.places) == 1 || s.out[0].uses != 1 {
		return nil
	}
	if cut := s.out[0].cut; cut != nil && !cut.dead {
		return cut
	}
	return nil
}

// narrow lets s make the rows that are cut out of its result.
func (x *sinking) narrow(s, cut *step) {
	rows := cut.out[0]
	switch s.kind {
	case reduceStep:
		s.kind = scatterStep
	case fetchStep:
		if in := s.in[0]; in.Kind == Sharded && in.Dim != rows.Dim {
			return
		}
	case opStep:
		if !x.narrowOp(s, rows) {
			return
		}
	default:
		return
	}
	s.out[0].uses = 0
	s.out[0], rows.by, rows.phase, cut.dead = rows, s, s.phase, true
}

// narrowOp lets an op compute the rows that are needed.
func (x *sinking) narrowOp(s *step, rows *held) bool {
	for _, h := range s.in {
		if h != nil && h.Kind != Replicated {
			return false
		}
	}
	k := len(s.g.places)
	for _, f := range s.task.rule.Factors {
		unit, ok := f.unitOf(f.Out[0], rows.Placement, x.values[rows.value].v.Shape, s.g.Division)
		if !ok || f.Reduce != 0 || !fits(f.Size, unit, k) || slices.ContainsFunc(f.In, func(r Ref) bool { return r.Dim == term }) {
			continue
		}
		f.fill(&s.s, unit)
		s.use(-1)
		for i, h := range s.in {
			if h != nil && i < len(s.s.in) && s.s.in[i].Kind == Sharded {
				s.in[i] = x.rowsOf(s, h, s.s.in[i])
			}
		}
		s.use(1)
		return true
	}
	return false
}

// rowsOf returns the rows of a whole value that step s needs: as they are there already, or cut in front of s.
func (x *sinking) rowsOf(s *step, from *held, p Placement) *held {
	v := from.value
	var later *held
	for h := x.first[v]; h != nil; h = h.next {
		if h.g != s.g || !same(h.Placement, p, x.values[v].v.Shape, s.g.Division) || h.by != nil && h.by.dead {
			continue
		}
		if h.usable(s.g, s.phase) && (h.by == nil || h.by.index < s.index) {
			return h
		}
		if h.by != nil && h.by.kind == rowsStep && h.by.in[0] == from {
			later = h
		}
	}
	cut := x.newStep(rowsStep, s.op, s.phase, s.g, 1, 1)
	cut.index, cut.in[0] = s.index, from
	rows := later
	if rows == nil {
		rows = x.hold(v, s.g, p, cut)
	} else {
		rows.by.dead = true
		rows.by.use(-1)
		cut.phase = min(rows.phase, s.phase)
		rows.by, rows.phase = cut, cut.phase
	}
	cut.out[0] = rows
	cut.use(1)
	x.steps = append(x.steps, cut)
	return rows
}
