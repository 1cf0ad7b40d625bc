// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/easyparallel/epl/ir"
)

// taskKey names what a place does for a micro-batch of a stage without waiting for another stage.
type taskKey struct {
	place, stage int
	kind         TaskKind
}

// task is its ops, and the pieces they are run in.
type task struct {
	taskKey
	ops []*ir.Op // varying, in order, exchanges included
	// wants are values that are merged though they do not differ between instances.
	wants  []*ir.Value
	pieces []piece
}

// piece is a segment or an exchange.
type piece struct {
	segment  int
	exchange *ir.Op // nil: it is a segment
}

// makeTasks deals the ops of instances to tasks.
func (b *builder) makeTasks() {
	at := func(k taskKey) *task {
		t := b.tasks[k]
		if t == nil {
			t = &task{taskKey: k}
			b.tasks[k] = t
		}
		return t
	}
	last := BackwardTask // of a micro-batch
	if b.s.Pipeline.Strategy == ZeroBubble && !b.single() {
		last = WeightsTask
	}
	for _, op := range b.p.Main.Ops {
		switch {
		case op.IsTransfer(): // it comes
		case b.PerInstance(op):
			t := at(taskKey{op.Place, b.Stage(op), b.kind[op]})
			t.ops = append(t.ops, op)
		case op.IsMerge():
			if in := op.Inputs[0]; !b.PerInstance(in.Op) {
				t := at(taskKey{op.Place, b.Stage(op), last})
				t.wants = append(t.wants, in)
			}
		}
	}
	b.sorted = slices.SortedFunc(maps.Values(b.tasks), func(x, y *task) int {
		return cmp.Or(cmp.Compare(x.place, y.place), cmp.Compare(b.position(x), b.position(y)))
	})
}

// position orders the tasks of a micro-batch on a place: forward by stage, then backward the other way.
func (b *builder) position(t *task) int {
	if t.kind == ForwardTask {
		return t.stage
	}
	return 3*b.s.Pipeline.Stages - 2*t.stage + int(t.kind)
}

// turn is where an op stands in its task: in its phase, if these are apart, and its region, or a later one that has something
// it needs, after so many exchanges.
type turn struct {
	phase         ir.Phase
	region, level int
}

func (x turn) compare(y turn) int {
	return cmp.Or(cmp.Compare(x.phase, y.phase), cmp.Compare(x.region, y.region), cmp.Compare(x.level, y.level))
}

// when is the segment of an op: the one of its turn for the first bucket that needs it.
type when struct {
	turn
	bucket int
}

func (x when) compare(y when) int {
	return cmp.Or(x.turn.compare(y.turn), cmp.Compare(x.bucket, y.bucket))
}

// segments cuts a task: between regions, at exchanges, and after what each bucket of gradients needs, if there is someone to send it to.
// What does not differ between instances is computed in each task that needs it, and not kept for another.
func (b *builder) segments(t *task) {
	at := b.whens(t)
	ops := map[when][]*ir.Op{}
	for key, x := range at.at {
		if !key.op.IsExchange() {
			ops[x] = append(ops[x], key.op)
		}
	}
	if len(ops) == 0 {
		ops[when{}] = nil // for what is merged and not computed
	}
	exchanges := slices.DeleteFunc(slices.Clone(t.ops), func(op *ir.Op) bool { return !op.IsExchange() })
	slices.SortStableFunc(exchanges, func(x, y *ir.Op) int { return b.order[x].compare(b.order[y]) })
	times := slices.SortedFunc(maps.Keys(ops), when.compare)
	for i, x := range times {
		for len(exchanges) > 0 && b.order[exchanges[0]].compare(x.turn) < 0 {
			t.pieces = append(t.pieces, piece{exchange: exchanges[0]})
			exchanges = exchanges[1:]
		}
		var outs []*ir.Value
		slices.SortFunc(ops[x], func(x, y *ir.Op) int { return cmp.Compare(b.Position(x), b.Position(y)) })
		for _, op := range ops[x] {
			for _, v := range op.Outputs {
				if b.leaves(t, v, at, x) {
					outs = append(outs, v)
				}
			}
		}
		if i == len(times)-1 {
			outs = append(outs, slices.DeleteFunc(slices.Clone(t.wants), func(v *ir.Value) bool { return !v.Op.IsLeaf() })...)
		}
		if outs = dedupe(outs); len(outs) == 0 {
			continue
		}
		t.pieces = append(t.pieces, piece{segment: len(b.s.Segments)})
		part := b.part(t, x.turn)
		b.turns = append(b.turns, x.turn)
		b.s.Segments = append(b.s.Segments, &Segment{Place: t.place, Stage: t.stage, Kind: part,
			Segment: ir.CutBy(b.Position, b.p.Main, b.name(t, part, len(t.pieces)-1), func(op *ir.Op) bool { y, ok := at.of(op, x.region); return ok && x == y }, outs)})
	}
	for _, op := range exchanges {
		t.pieces = append(t.pieces, piece{exchange: op})
	}
}

// whens says when each op of a task is computed. What does not differ between instances is computed in each region that needs
// it: weights that are cast for the first layer are not kept until backward comes back to it.
type whens struct {
	at   map[regional]when
	last when
}

type regional struct {
	op     *ir.Op
	region int // -1: it is an op of the task, for all of them
}

// of is when an op is computed for a region.
func (w *whens) of(op *ir.Op, region int) (when, bool) {
	x, ok := w.at[regional{op, -1}]
	if !ok {
		x, ok = w.at[regional{op, region}]
	}
	return x, ok
}

func (b *builder) whens(t *task) *whens {
	w := &whens{at: map[regional]when{}}
	bucket := map[*ir.Op]int{} // -1: not known
	for _, op := range t.ops {
		bucket[op] = -1
	}
	last := 0
	for i := range b.s.Buckets {
		x := &b.s.Buckets[i]
		if x.Place != t.place || b.p.Local.Replicas == 1 && !x.Terms || x.Merges[0].Phase != ir.Backward || !x.How.Adds() {
			continue
		}
		var need func(v *ir.Value)
		need = func(v *ir.Value) {
			if n, mine := bucket[v.Op]; mine && n < 0 {
				bucket[v.Op], last = i, i
				v.Op.Uses(need)
			}
		}
		in, _ := x.Values()
		for _, v := range in {
			need(v)
		}
	}
	whole := b.Regions() > 1 && slices.ContainsFunc(b.s.Buckets, func(x Bucket) bool { return x.Parts && x.Place == t.place })
	for _, op := range t.ops {
		x := bucket[op]
		if x < 0 || whole { // buckets end with regions
			x = last
		}
		if b.o.Phases && b.single() && b.order[op].phase == ir.Forward {
			x = 0 // no bucket is complete before backward
		}
		w.at[regional{op, -1}] = when{b.order[op], x}
	}
	// The rest is computed when it is first needed.
	var need func(v *ir.Value, x when)
	need = func(v *ir.Value, x when) {
		if v.Op.IsLeaf() || b.PerInstance(v.Op) || v.Op.IsMerge() || v.Op.Func != b.p.Main {
			return
		}
		key := regional{v.Op, x.region}
		if y, ok := w.at[key]; ok && x.compare(y) >= 0 {
			return
		}
		w.at[key] = x
		v.Op.Uses(func(u *ir.Value) { need(u, x) })
	}
	for _, op := range t.ops {
		x := w.at[regional{op, -1}]
		if isGather(op) {
			continue
		}
		if w.last.compare(x) < 0 {
			w.last = x
		}
		op.Uses(func(u *ir.Value) { need(u, x) })
	}
	for _, v := range t.wants {
		need(v, w.last)
	}
	return w
}

// leaves tells whether a value that a task computes at some time is needed at another, or elsewhere.
func (b *builder) leaves(t *task, v *ir.Value, at *whens, x when) bool {
	if slices.Contains(t.wants, v) && (b.PerInstance(v.Op) || x.region == at.last.region) {
		return true
	}
	for _, u := range b.Users(v) {
		if y, ok := at.of(u, x.region); ok {
			if (y != x || u.IsExchange()) && (b.PerInstance(v.Op) || y.region == x.region) {
				return true
			}
		} else if b.PerInstance(v.Op) && (u.IsMerge() || b.PerInstance(u)) {
			return true // merges, and other tasks
		}
	}
	return false
}

func (b *builder) part(t *task, at turn) Part {
	switch {
	case b.single() && !b.o.Phases:
		return Instance
	case t.kind == WeightsTask:
		return Weights
	case t.kind == ForwardTask || b.single() && at.phase == ir.Forward:
		return Forward
	}
	return Backward
}

// name says what a segment is: "backward 1.0" is the first piece of the backward of stage 1.
func (b *builder) name(t *task, part Part, piece int) string {
	name := fmt.Sprintf("%s %d.%d", part, t.stage, piece)
	if b.single() {
		name = fmt.Sprintf("%s.%d", part, piece)
	}
	return name
}

// placeBuckets lets a bucket wait for the last segment that computes or reads one of its values: merging overwrites them.
func (b *builder) placeBuckets() {
	last := map[valueAt]int{} // the last segment that has a value
	for i, s := range b.s.Segments {
		for j, v := range slices.Concat(s.Outputs, s.Inputs) {
			if j < len(s.Outputs) || !v.Op.IsLeaf() {
				last[valueAt{v, s.Place}] = i
			}
		}
	}
	b.after = make([][]int, len(b.s.Segments))
	for i := range b.s.Buckets {
		x := &b.s.Buckets[i]
		for _, m := range x.Merges {
			x.After = max(x.After, last[valueAt{m.Inputs[0], x.Place}])
		}
		if x.After < len(b.after) && b.s.Segments[x.After].Place == x.Place {
			b.after[x.After] = append(b.after[x.After], i)
		}
	}
}
