// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"hash/maphash"
	"maps"
	"reflect"
	"slices"

	"github.com/easyparallel/epl/ir"
)

// layering says which tasks and values of a problem belong to which of the layers that a model repeats. Layers have the same number
// of a first one up to the last, in forward and in backward; -1 is none of them.
type layering struct {
	whole   *problem
	layer   []int                  // by value: of the task that makes it; of a leaf, if only one layer reads it in forward
	place   []int                  // by value: in the list of its layer
	lists   [][]int                // by layer: its values
	ops     [][]*task              // by layer: its tasks
	fixed   map[*task]bool         // tasks that data are offered to
	leaving map[int][]*ir.Variable // results, by their number: the variables that they are for
}

// findLayers finds the layers of forward, and what belongs to them in backward; nil if nothing is repeated at least so often.
func (x *problem) findLayers(least int) *layering {
	var forward []*task
	for _, t := range x.tasks {
		if t.op.Phase == ir.Forward {
			forward = append(forward, t)
		}
	}
	start, size, count := repeated(words(forward))
	if count < least {
		return nil
	}
	l := &layering{whole: x, layer: slices.Repeat([]int{-1}, len(x.values)), place: make([]int, len(x.values)), lists: make([][]int, count),
		ops: make([][]*task, count), fixed: map[*task]bool{}, leaving: map[int][]*ir.Variable{}}
	x.results(func(v **ir.Value, of *ir.Variable) { l.leaving[x.number[*v]] = append(l.leaving[x.number[*v]], of) })
	if n, ok := x.number[x.p.Loss]; ok {
		l.leaving[n] = append(l.leaving[n], nil)
	}
	for _, d := range x.data {
		l.fixed[d.reader] = true
	}
	of := func(i int) int {
		if i < start || i >= start+size*count {
			return -1
		}
		return (i - start) / size
	}
	const several = -2
	for i, t := range forward {
		for _, v := range t.in {
			switch n := of(i); {
			case v < 0 || x.values[v].by != nil:
			case l.layer[v] == -1 && n >= 0:
				l.layer[v] = n
			case l.layer[v] != n:
				l.layer[v] = several
			}
		}
	}
	for v, n := range l.layer {
		if l.layer[v] = -1; n >= 0 {
			l.put(v, n)
		}
	}
	for i, t := range forward {
		l.add(t, of(i))
	}
	for _, t := range x.tasks {
		if t.op.Phase == ir.Forward {
			continue
		}
		n := -1 // that of the lowest layer that it needs something of
		for _, v := range t.in {
			if v >= 0 && l.layer[v] >= 0 && (n < 0 || l.layer[v] < n) {
				n = l.layer[v]
			}
		}
		l.add(t, n)
	}
	return l
}

// put makes a value one of a layer.
func (l *layering) put(v, n int) {
	l.layer[v], l.place[v] = n, len(l.lists[n])
	l.lists[n] = append(l.lists[n], v)
}

// add makes a task one of a layer, with its results.
func (l *layering) add(t *task, n int) {
	if n < 0 {
		return
	}
	l.ops[n] = append(l.ops[n], t)
	for _, v := range t.out {
		l.put(v, n)
	}
}

// layerOf is the layer of a task.
func (l *layering) layerOf(t *task) int { return l.layer[t.out[0]] }

// words are numbers that are equal for tasks that may be equal.
func words(tasks []*task) []uint64 {
	seed := maphash.MakeSeed()
	list := make([]uint64, len(tasks))
	var key []byte
	for i, t := range tasks {
		key = append(key[:0], t.op.Type()...)
		for _, vs := range [...][]*ir.Value{t.op.Inputs, t.op.Outputs} {
			for _, v := range vs {
				key = append(key, 0xff)
				if v == nil {
					continue
				}
				key = append(key, byte(v.Shape.DType))
				for _, n := range dims(v) {
					key = append(key, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
				}
			}
		}
		list[i] = maphash.Bytes(seed, key)
	}
	return list
}

// repeated finds the longest part of a list that is repeated: where it starts, its size, and how often it is there.
func repeated(words []uint64) (start, size, count int) {
	last, gaps := map[uint64]int{}, map[int]int{}
	for i, w := range words {
		if at, ok := last[w]; ok {
			gaps[i-at]++
		}
		last[w] = i
	}
	for _, gap := range slices.Sorted(maps.Keys(gaps)) {
		same := 0
		for i := gap; i <= len(words); i++ {
			if i < len(words) && words[i] == words[i-gap] {
				same++
				continue
			}
			if n := same/gap + 1; same > 0 && n > 1 && n*gap > size*count {
				start, size, count = i-same-gap, gap, n
			}
			same = 0
		}
	}
	return start, size, count
}

// equal finds the longest row of layers that are the same: what there is of one is also there of the next.
func (l *layering) equal() (first, end int) {
	from := 0
	for n := range l.lists {
		if n > 0 && !l.same(n-1, n) {
			from = n
		}
		if n+1-from > end-first {
			first, end = from, n+1
		}
	}
	return first, end
}

// same tells whether a layer does the same as the next one, to the same shapes, and reads the same of layers before and after it.
func (l *layering) same(n, m int) bool {
	return slices.EqualFunc(l.lists[n], l.lists[m], func(v, w int) bool { return l.sameValue(v, w) }) &&
		slices.EqualFunc(l.ops[n], l.ops[m], func(t, u *task) bool { return l.sameTask(t, u) })
}

func (l *layering) sameTask(t, u *task) bool {
	kind := func(t *task) ir.StrategyKind {
		if t.op.TaskGraph == nil {
			return 0
		}
		return t.op.TaskGraph.Kind + 1
	}
	related := func(v, w int) bool { return l.related(t, u, v, w) }
	if t.g != u.g || t.op.Phase != u.op.Phase || kind(t) != kind(u) || t.op.Varying != u.op.Varying || t.flops != u.flops || t.deals != u.deals ||
		t.data != u.data || t.rule.Linear != u.rule.Linear || t.fused != u.fused || l.fixed[t] || l.fixed[u] || len(t.op.Funcs) > 0 || len(u.op.Funcs) > 0 ||
		!slices.EqualFunc(t.in, u.in, related) || !slices.EqualFunc(t.out, u.out, related) || !reflect.DeepEqual(t.op.Attrs, u.op.Attrs) {
		return false
	}
	if t.sum == nil || u.sum == nil {
		return t.sum == u.sum
	}
	return slices.EqualFunc(t.sum.terms, u.sum.terms, related) &&
		slices.EqualFunc(t.sum.tasks, u.sum.tasks, func(x, y *task) bool { return related(x.out[0], y.out[0]) })
}

// related tells whether a value is for a task what another one is for that of another layer.
func (l *layering) related(t, u *task, v, w int) bool {
	if v < 0 || w < 0 || l.layer[v] < 0 || l.layer[w] < 0 {
		return v == w
	}
	return l.layer[v]-l.layerOf(t) == l.layer[w]-l.layerOf(u) && l.place[v] == l.place[w]
}

func (l *layering) sameValue(v, w int) bool {
	x, y := &l.whole.values[v], &l.whole.values[w]
	return x.home == y.home && x.v.Shape.Equal(y.v.Shape) && x.uses == y.uses && x.deal == y.deal && x.pure == y.pure && x.number == y.number &&
		(x.by == nil) == (y.by == nil) && (x.moved == nil) == (y.moved == nil) && x.split == y.split &&
		l.sameVariable(v, w, x.of, y.of) && l.sameVariable(v, w, x.grad, y.grad) && l.whole.loose[v] == l.whole.loose[w] &&
		slices.EqualFunc(l.leaving[v], l.leaving[w], func(a, b *ir.Variable) bool { return l.sameVariable(v, w, a, b) })
}

// sameVariable tells whether a variable is for a value what another one is for that of another layer.
func (l *layering) sameVariable(v, w int, x, y *ir.Variable) bool {
	if x == nil || y == nil {
		return x == y
	}
	a, b := l.whole.number[x.Param], l.whole.number[y.Param]
	if l.whole.of[x.TaskGraph] != l.whole.of[y.TaskGraph] || x.Trainable != y.Trainable {
		return false
	}
	if l.layer[a] < 0 || l.layer[b] < 0 {
		return a == b
	}
	return l.layer[a]-l.layer[v] == l.layer[b]-l.layer[w] && l.place[a] == l.place[b]
}
