// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// sinker moves ops into the only group that reads their results, where that saves memory traffic. The fuser puts an op
// where what it reads is written: so the forward pass of a model would compute, and store, what only the backward pass needs.
type sinker struct {
	*fuser
	output  map[*ir.Value]bool
	home    map[*ir.Op]*node // of ops of groups
	readers map[*ir.Value][]*ir.Op
}

// sink moves ops of all groups, the last first; output are the tensors that the segment returns.
func (f *fuser) sink(output map[*ir.Value]bool) {
	s := &sinker{fuser: f, output: output, home: make(map[*ir.Op]*node, len(f.wrote)), readers: make(map[*ir.Value][]*ir.Op, len(f.wrote))}
	nodes := f.order()
	for _, n := range nodes {
		if n.group == nil {
			continue
		}
		for _, op := range n.ops {
			s.home[op] = n
			for _, in := range op.Inputs {
				root := f.views.of(in).root
				if rs := s.readers[root]; len(rs) == 0 || rs[len(rs)-1] != op {
					s.readers[root] = append(rs, op)
				}
			}
		}
	}
	for _, n := range slices.Backward(nodes) {
		if n.group == nil {
			continue
		}
		for _, op := range slices.Backward(slices.Clone(n.ops)) {
			if s.home[op] != n {
				continue
			}
			if to := s.target(n, op); to != nil {
				if list := s.slice(n, op); len(to.ops)+len(list) <= maxGroup && s.saves(n, to, op, list) {
					s.move(n, to, list)
				}
			}
		}
	}
}

// target is the group that an op of group n could move to: the only one that reads it.
func (s *sinker) target(n *node, op *ir.Op) (to *node) {
	out := op.Outputs[0]
	if s.output[out] || n.group.ops[op] != full || s.readElsewhere(out) {
		return nil
	}
	for _, r := range s.readers[out] {
		h := s.home[r]
		if h == n || to != nil && h != to {
			return nil
		}
		to = h
		for i, in := range r.Inputs {
			if s.views.of(in).root == out && !inGroup(s.operand(r, i), full, h.group.ops[r], n.group.n, h.group.cols) {
				return nil
			}
		}
	}
	if to == nil || to.group.n != n.group.n {
		return nil
	}
	return to
}

// readElsewhere tells whether a node that is no group reads a tensor.
func (s *sinker) readElsewhere(v *ir.Value) bool {
	return slices.ContainsFunc(s.users[v], func(u *node) bool { return u.now().group == nil })
}

// slice are the ops of group n that only serve this one, and itself, in order.
func (s *sinker) slice(n *node, op *ir.Op) []*ir.Op {
	list := map[*ir.Op]bool{op: true}
	for grown := true; grown; {
		grown = false
		for _, p := range slices.Backward(n.ops) {
			out := p.Outputs[0]
			if list[p] || n.group.ops[p] != full || s.output[out] || len(s.readers[out]) == 0 || s.readElsewhere(out) ||
				slices.ContainsFunc(s.readers[out], func(r *ir.Op) bool { return !list[r] }) {
				continue
			}
			list[p], grown = true, true
		}
	}
	return slices.DeleteFunc(slices.Clone(n.ops), func(p *ir.Op) bool { return !list[p] })
}

// saves tells whether less memory is read and written if the ops of a list move from one group to another: the result of op is
// neither written nor read any more, but what the list reads may be.
func (s *sinker) saves(from, to *node, op *ir.Op, list []*ir.Op) bool {
	cost := -2 * int(op.Outputs[0].Shape.ByteSize())
	seen := map[*ir.Value]bool{}
	for _, p := range list {
		for _, in := range p.Inputs {
			root := s.views.of(in).root
			if seen[root] || root.Op != nil && slices.Contains(list, root.Op) {
				continue
			}
			seen[root] = true
			bytes := int(root.Shape.ByteSize())
			in := func(n *node) func(r *ir.Op) bool { return func(r *ir.Op) bool { return s.home[r] == n } }
			if !slices.ContainsFunc(s.readers[root], in(to)) {
				cost += bytes
			}
			if s.home[root.Op] == from {
				stored := s.output[root] || s.readElsewhere(root) || slices.ContainsFunc(s.readers[root], func(r *ir.Op) bool { return s.home[r] != from })
				if !stored {
					cost += bytes
				}
			} else if !slices.ContainsFunc(s.readers[root], func(r *ir.Op) bool { return s.home[r] == from && !slices.Contains(list, r) }) {
				cost -= bytes
			}
		}
	}
	return cost < 0
}

// move puts the ops of a list in front of those of another group.
func (s *sinker) move(from, to *node, list []*ir.Op) {
	from.ops = slices.DeleteFunc(slices.Clone(from.ops), func(p *ir.Op) bool { return slices.Contains(list, p) })
	to.ops = append(slices.Clone(list), to.ops...)
	for _, p := range list {
		delete(from.group.ops, p)
		to.group.ops[p] = full
		s.home[p] = to
		s.wrote[p.Outputs[0]], s.users[p.Outputs[0]] = to, []*node{to}
		for _, in := range p.Inputs {
			root := s.views.of(in).root
			s.users[root] = append(s.users[root], to)
		}
	}
	if len(from.ops) == 0 {
		from.into = to
	}
}
