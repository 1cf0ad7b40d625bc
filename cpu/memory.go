// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"

	"github.com/easyparallel/epl/emit"
)

// memory says when tensors are written and read, which may take the memory of another, and where the rest lies.
func (b *builder) memory() {
	output := map[int]bool{}
	for _, n := range b.outputs {
		output[n] = true
	}
	reader := make([]*task, len(b.tensors)) // the only task of its last step that reads a tensor; nil: there are several
	for at, step := range b.steps {
		for _, t := range step {
			for i, n := range t.mems {
				x := &b.tensors[n]
				if t.writes(i, x) {
					x.made = at
					x.last = max(x.last, at)
					continue
				}
				if x.last == at && reader[n] != t {
					reader[n] = nil
				} else {
					reader[n] = t
				}
				x.last = at
			}
		}
	}
	for at, step := range b.steps {
		for _, t := range step {
			switch {
			case !b.opts.inPlace:
			case t.code != nil:
				b.overwrite(at, t, output, reader)
			case t.inPlace:
				b.takes(at, t, 0, output, reader)
			case t.dot != nil && t.dot.Add:
				b.takes(at, t, t.reads-1, output, reader)
			}
		}
	}
	b.arrange()
}

// takes lets the result of a task take the memory of an input that it reads for the last time.
func (b *builder) takes(at int, t *task, input int, output map[int]bool, reader []*task) {
	in, out := t.mems[input], t.mems[t.reads]
	others := slices.Delete(slices.Clone(t.mems[:t.reads]), input, input+1)
	if x := &b.tensors[in]; x.last == at && reader[in] == t && !output[in] && !slices.Contains(others, in) && mayTake(x, &b.tensors[out]) {
		b.tensors[out].over = in
	}
}

// writes tells whether the task makes tensor i of its list.
func (t *task) writes(i int, x *tensor) bool {
	if t.code != nil {
		_, ok := t.node.group.ops[x.value.Op]
		return ok
	}
	return i >= t.reads
}

// overwrite lets the results of a group take the memory of what it reads for the last time: of an operand first, since the result of w - step
// is to lie where w is, and no other result there.
func (b *builder) overwrite(at int, t *task, output map[int]bool, reader []*task) {
	taken := map[int]bool{}
	for _, operands := range []bool{true, false} {
		for i, n := range t.mems {
			out := &b.tensors[n]
			if !t.writes(i, out) || out.over >= 0 {
				continue
			}
			for j, m := range t.mems {
				in := &b.tensors[m]
				if taken[m] || t.writes(j, in) || in.last != at || reader[m] != t || output[m] || !fits(in, out, operands) || !t.code.canOverwrite(i, j) {
					continue
				}
				out.over = m
				taken[m] = true
				break
			}
		}
	}
}

// fits tells whether a result may take the memory of a tensor, of an operand only if operands is set.
func fits(in, out *tensor, operands bool) bool {
	return in.bytes == out.bytes && in.value.Shape.DType.Size() == out.value.Shape.DType.Size() && mayTake(in, out) &&
		(!operands || slices.Contains(out.value.Op.Inputs, in.value))
}

// mayTake tells whether a result may take the memory of a tensor: that of an input becomes that of an output, memory of the
// arena stays there.
func mayTake(in, out *tensor) bool {
	return in.place == isInput && out.place == isOutput || in.place == inArena && out.place == inArena
}

// canOverwrite tells whether tensor d may lie where tensor a is: every block reads its elements of a before it writes those
// of d, and no other elements of a.
func (c *code) canOverwrite(d, a int) bool {
	written := false
	for i := range c.instrs {
		in := &c.instrs[i]
		if in.view != nil && in.a.mem == a {
			return false
		}
		for _, r := range []*ref{&in.a, &in.b, &in.c} {
			if r.elem == 0 || r.mem != a {
				continue
			}
			if written || r.offset != 0 || r.scalar || r.col != r.elem || r.row != c.cols*r.elem && c.rows > 1 {
				return false
			}
		}
		if in.d.elem != 0 && in.d.mem == d {
			written = true
			if in.d.rowWise {
				return false
			}
		}
	}
	return written
}

// arrange gives every intermediate tensor its place in the arena: the largest first, each at the lowest offset where
// nothing else lies while it lives.
func (b *builder) arrange() {
	type item struct {
		bytes, made, last, offset int
		tensors                   []int
		task                      *task // whose partial results it is
	}
	var items []*item
	lives := map[int]*item{} // by the tensor that first has the memory
	first := func(n int) int {
		for o := b.tensors[n].over; o >= 0 && b.tensors[o].place == inArena; o = b.tensors[n].over {
			n = o
		}
		return n
	}
	for n := range b.tensors {
		x := &b.tensors[n]
		if x.place != inArena || x.made < 0 {
			continue
		}
		it := lives[first(n)]
		if it == nil {
			it = &item{bytes: (x.bytes + 63) &^ 63, made: x.made, last: x.last}
			lives[first(n)] = it
			items = append(items, it)
		}
		it.made, it.last = min(it.made, x.made), max(it.last, x.last)
		it.tensors = append(it.tensors, n)
	}
	for at, step := range b.steps {
		for _, t := range step {
			if t.ownLen > 0 {
				items = append(items, &item{bytes: t.ownLen, made: at, last: at, task: t})
			}
		}
	}
	slices.SortStableFunc(items, func(x, y *item) int { return y.bytes - x.bytes })
	var placed []*item // by offset
	for _, it := range items {
		at := 0
		for _, p := range placed {
			if p.last < it.made || it.last < p.made {
				continue
			}
			if p.offset-at >= it.bytes {
				break
			}
			at = max(at, p.offset+p.bytes)
		}
		it.offset = at
		for _, n := range it.tensors {
			b.tensors[n].index = at
		}
		if it.task != nil {
			it.task.own = at
		}
		b.arena = max(b.arena, at+it.bytes)
		life := emit.Life{Bytes: int64(it.bytes), From: it.made, To: it.last}
		if len(it.tensors) > 0 {
			life.Value = b.tensors[it.tensors[0]].value
		}
		b.lives = append(b.lives, life)
		i, _ := slices.BinarySearchFunc(placed, it, func(x, y *item) int { return x.offset - y.offset })
		placed = slices.Insert(placed, i, it)
	}
}
