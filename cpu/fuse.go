// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// fuser makes nodes of ops, in one pass over them.
//
// The positions of nodes are at any time an order in which they can run. An op joins a group if everything it reads is
// written before the group's position, or in the group itself; a group that nobody reads yet can move to the end to make
// that so, and two groups that an op brings together can meet at the position of one of them. So no search for cycles is
// needed: the order is the proof that there are none.
type fuser struct {
	views views
	wrote map[*ir.Value]*node // who writes a root; nothing for inputs and constants
	users map[*ir.Value][]*node
	nodes []*node
	next  int
	opts  options
}

// maxGroup is how many ops a group may have: its blocks must stay in the fastest caches.
const maxGroup = 150

// newFuser makes one for so many ops.
func newFuser(vs views, o options, ops int) *fuser {
	return &fuser{views: vs, wrote: make(map[*ir.Value]*node, ops), users: make(map[*ir.Value][]*node, ops), opts: o}
}

// made is the node that writes a root; nil for inputs and constants.
func (f *fuser) made(root *ir.Value) *node { return f.wrote[root].now() }

// order returns the nodes in an order in which they can run.
func (f *fuser) order() []*node {
	f.nodes = slices.DeleteFunc(f.nodes, func(n *node) bool { return n.into != nil })
	slices.SortFunc(f.nodes, func(a, b *node) int { return a.pos - b.pos })
	return f.nodes
}

func (f *fuser) newNode(g *group, ops ...*ir.Op) *node {
	n := &node{pos: f.next, ops: ops, group: g, firstUser: never}
	f.next++
	f.nodes = append(f.nodes, n)
	return n
}

// add places an op that is neither a view nor a constant.
func (f *fuser) add(op *ir.Op) {
	n := f.place(op)
	f.wrote[op.Outputs[0]] = n
	for _, v := range op.Inputs {
		f.reader(n, f.views.of(v).root)
	}
}

// addNode places an op that is a node of its own, and reads these tensors.
func (f *fuser) addNode(op *ir.Op, reads []*ir.Value) {
	n := f.newNode(nil, op)
	for _, out := range op.Outputs {
		f.wrote[out] = n
	}
	for _, root := range reads {
		f.reader(n, root)
	}
}

// reader remembers that a node reads a tensor.
func (f *fuser) reader(n *node, root *ir.Value) {
	if m := f.made(root); m != nil && m != n {
		m.firstUser = min(m.firstUser, n.pos)
	}
	if us := f.users[root]; len(us) == 0 || us[len(us)-1] != n {
		f.users[root] = append(us, n)
	}
}

func (f *fuser) place(op *ir.Op) *node {
	for _, n := range f.candidates(op) {
		if f.join(n, op) {
			return n
		}
	}
	g := &group{n: product(domain(op)), ops: map[*ir.Op]class{}}
	c, cols, _ := f.classIn(g, op)
	g.ops[op], g.cols = c, cols
	return f.newNode(g, op)
}

// candidates are the groups that an op may join: those that write what it reads, then those that read the same, latest
// first.
func (f *fuser) candidates(op *ir.Op) (list []*node) {
	add := func(n *node) {
		if n != nil && n.group != nil && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	for _, in := range op.Inputs {
		add(f.made(f.views.of(in).root))
	}
	slices.SortStableFunc(list, func(a, b *node) int { return b.pos - a.pos })
	writers := len(list)
	for _, in := range op.Inputs {
		if root := f.views.of(in).root; root.Shape.Size() > 1 {
			for i, us := 0, f.users[root]; i < min(len(us), 4); i++ {
				add(us[len(us)-1-i].now())
			}
		}
	}
	slices.SortStableFunc(list[writers:], func(a, b *node) int { return b.pos - a.pos })
	return list
}

// join adds an op to the group of a node, if that is possible.
func (f *fuser) join(n *node, op *ir.Op) bool {
	g := n.group
	c, cols, ok := f.classIn(g, op)
	if !ok || len(n.ops) >= maxGroup || !f.opts.fuses(c.reduces(), g) || !f.reads(n, op, c, cols) {
		return false
	}
	// Other groups that write what the op reads come along where they can.
	last := -1 // the position of the latest node that must come before
	for _, in := range op.Inputs {
		m := f.made(f.views.of(in).root)
		if m == nil || m == n {
			continue
		}
		last = max(last, m.pos)
	}
	if last >= n.pos {
		if n.firstUser != never {
			return false
		}
		f.moveToEnd(n)
	}
	g.ops[op], g.cols = c, cols
	n.ops = append(n.ops, op)
	for _, in := range op.Inputs {
		if m := f.made(f.views.of(in).root); m != nil && m != n && m.group != nil {
			f.merge(m, n)
		}
	}
	return true
}

// moveToEnd gives a node that nobody reads yet the last position.
func (f *fuser) moveToEnd(n *node) {
	n.pos = f.next
	f.next++
}

// merge takes the ops of a into n, which comes later, if the two have the same domain and nothing between them needs a.
func (f *fuser) merge(a, n *node) bool {
	ga, gn := a.group, n.group
	if ga.n != gn.n || ga.cols != 0 && gn.cols != 0 && ga.cols != gn.cols || len(a.ops)+len(n.ops) > maxGroup || a.firstUser < n.pos ||
		!f.opts.fuses(false, ga, gn) {
		return false
	}
	cols := max(ga.cols, gn.cols)
	// What n reads of a must be there element by element.
	for _, op := range n.ops {
		c := gn.ops[op]
		for i, in := range op.Inputs {
			v := f.views.of(in)
			if m := f.made(v.root); m == a && !inGroup(f.operand(op, i), ga.ops[v.root.Op], c, gn.n, cols) {
				return false
			}
		}
	}
	for op, c := range ga.ops {
		gn.ops[op] = c
	}
	gn.cols = cols
	n.ops = append(slices.Clone(a.ops), n.ops...)
	a.into = n
	n.firstUser = never
	for _, op := range n.ops {
		for _, u := range f.users[op.Outputs[0]] {
			if u = u.now(); u != n {
				n.firstUser = min(n.firstUser, u.pos)
			}
		}
	}
	return true
}

// classIn tells what an op would be in a group, and the columns that the group would have.
func (f *fuser) classIn(g *group, op *ir.Op) (c class, cols int, ok bool) {
	size := product(domain(op))
	cols = g.cols
	if r, want, isReduction := reduction(op); isReduction {
		if size != g.n || want != 0 && g.cols != 0 && want != g.cols {
			return 0, 0, false
		}
		if want != 0 {
			cols = want
		}
		return r, cols, true
	}
	switch {
	case size == g.n:
		return full, cols, true
	case g.cols != 0 && g.hasRows() && size == g.rows():
		return perRow, cols, true
	}
	return 0, 0, false
}

// reads tells whether an op finds what it reads of the group's own values.
func (f *fuser) reads(n *node, op *ir.Op, c class, cols int) bool {
	inside := false
	for i, in := range op.Inputs {
		root := f.views.of(in).root
		if f.made(root) != n {
			continue
		}
		inside = true
		if !inGroup(f.operand(op, i), n.group.ops[root.Op], c, n.group.n, cols) {
			return false
		}
	}
	return inside || c != perRow
}

// inGroup tells whether an op of class to can read a value that an op of class from computes in the same group, through
// a view over the op's domain: what it needs must be there when its block runs.
func inGroup(v view, from, to class, n, cols int) bool {
	if to.reduces() {
		to = full
	}
	switch {
	case from == full && to == full:
		return v.linear() && v.size() == n
	case from == perRow && to == perRow, from == reduceRow && to == perRow:
		return v.linear()
	case (from == perRow || from == reduceRow) && to == full:
		return isPerRow(v, n, cols)
	}
	return false
}

// isPerRow tells whether a view over n elements is element r of its root in row r of cols elements.
func isPerRow(v view, n, cols int) bool {
	if cols == 0 || v.offset != 0 {
		return false
	}
	od, os, id, is, ok := cutAt(v.dims, v.strides, cols)
	if !ok {
		return false
	}
	od, os = squeeze(od, os)
	id, is = squeeze(id, is)
	return (len(id) == 0 || len(id) == 1 && is[0] == 0) && (len(od) == 0 || len(od) == 1 && os[0] == 1) && v.root.Shape.Size() == n/cols
}

// operand is the view of an input over the domain of its op: scalars and dims of size 1 are broadcast.
func (f *fuser) operand(op *ir.Op, i int) view { return operand(f.views, op, i) }

func operand(vs views, op *ir.Op, i int) view {
	v, dims := vs.of(op.Inputs[i]), domain(op)
	if len(v.dims) == 0 {
		return view{v.root, v.offset, dims, make([]int, len(dims))}
	}
	if slices.Equal(v.dims, dims) {
		return v
	}
	s := slices.Clone(v.strides)
	for k := range s {
		if v.dims[k] == 1 {
			s[k] = 0
		}
	}
	return view{v.root, v.offset, dims, s}
}
