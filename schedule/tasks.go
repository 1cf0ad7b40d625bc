package schedule

import (
	"cmp"
	"fmt"
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
		case b.PerInstance(op):
			for _, place := range op.Places() {
				t := at(taskKey{place, b.Stage(op), b.kind[op]})
				t.ops = append(t.ops, op)
			}
		case op.IsMerge():
			for i, place := range op.Places() {
				if in := op.Inputs[i]; !b.PerInstance(in.Op) {
					t := at(taskKey{place, b.Stage(op), last})
					t.wants = append(t.wants, in)
				}
			}
		}
	}
}

// position orders the tasks of a micro-batch on a place: forward by stage, then backward the other way.
func (b *builder) position(t *task) int {
	n := 2 * b.s.Pipeline.Stages
	switch t.kind {
	case ForwardTask:
		return t.stage
	case BackwardTask:
		return 2 * (n - t.stage)
	}
	return 2*(n-t.stage) + 1
}

func (b *builder) sortedTasks() []*task {
	var all []*task
	for _, t := range b.tasks {
		all = append(all, t)
	}
	slices.SortFunc(all, func(x, y *task) int {
		return cmp.Or(cmp.Compare(x.place, y.place), cmp.Compare(b.position(x), b.position(y)))
	})
	return all
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
	times := at.times()
	if len(times) == 0 {
		times = []when{{}}
	}
	slices.SortFunc(times, when.compare)
	exchanges := slices.DeleteFunc(slices.Clone(t.ops), func(op *ir.Op) bool { return !op.IsExchange() })
	slices.SortStableFunc(exchanges, func(x, y *ir.Op) int { return b.order[x].compare(b.order[y]) })
	for i, x := range times {
		for len(exchanges) > 0 && b.order[exchanges[0]].compare(x.turn) < 0 {
			t.pieces = append(t.pieces, piece{exchange: exchanges[0]})
			exchanges = exchanges[1:]
		}
		in := func(op *ir.Op) bool { y, ok := at.of(op, x.region); return ok && x == y }
		var outs []*ir.Value
		for _, op := range b.p.Main.Ops {
			if !in(op) || op.IsExchange() {
				continue
			}
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
		b.s.Segments = append(b.s.Segments, &Segment{Place: t.place, Stage: t.stage, Kind: part,
			Segment: ir.Cut(b.p.Main, b.name(t, part, len(t.pieces)-1), in, outs)})
	}
	for _, op := range exchanges {
		t.pieces = append(t.pieces, piece{exchange: op})
	}
}

// whens says when each op of a task is computed. What does not differ between instances is computed in each region that needs
// it: weights that are cast for the first layer are not kept until backward comes back to it.
type whens struct {
	work   map[*ir.Op]when
	shared map[regional]when
	last   when
}

type regional struct {
	op     *ir.Op
	region int
}

// of is when an op is computed for a region.
func (w *whens) of(op *ir.Op, region int) (when, bool) {
	if x, ok := w.work[op]; ok {
		return x, true
	}
	x, ok := w.shared[regional{op, region}]
	return x, ok
}

// times are all times at which something is computed.
func (w *whens) times() (times []when) {
	add := func(x when) {
		if !slices.Contains(times, x) {
			times = append(times, x)
		}
	}
	for op, x := range w.work {
		if !op.IsExchange() {
			add(x)
		}
	}
	for _, x := range w.shared {
		add(x)
	}
	return times
}

func (b *builder) whens(t *task) *whens {
	at := map[*ir.Op]when{}
	w := &whens{work: at, shared: map[regional]when{}}
	mine := map[*ir.Op]bool{}
	for _, op := range t.ops {
		mine[op] = true
	}
	bucket := map[*ir.Op]int{}
	last := 0
	for i := range b.s.Buckets {
		x := &b.s.Buckets[i]
		if !slices.Contains(x.Places, t.place) || b.p.Local.Replicas*len(x.Places) == 1 || x.Merges[0].Phase != ir.Backward || !x.How.Adds() {
			continue
		}
		var need func(v *ir.Value)
		need = func(v *ir.Value) {
			if _, seen := bucket[v.Op]; seen || !mine[v.Op] {
				return
			}
			bucket[v.Op] = i
			last = i
			if v.Op.IsExchange() {
				need(inputAt(v.Op, t.place))
				return
			}
			v.Op.Uses(need)
		}
		in, _ := x.At(t.place)
		for _, v := range in {
			need(v)
		}
	}
	for _, op := range t.ops {
		x, ok := bucket[op]
		if !ok {
			x = last
		}
		if b.phases && b.single() && b.order[op].phase == ir.Forward {
			x = 0 // no bucket is complete before backward
		}
		at[op] = when{b.order[op], x}
	}
	// The rest is computed when it is first needed.
	var need func(v *ir.Value, x when)
	need = func(v *ir.Value, x when) {
		if v.Op.IsLeaf() || b.PerInstance(v.Op) || v.Op.IsMerge() || v.Op.Func != b.p.Main {
			return
		}
		key := regional{v.Op, x.region}
		if y, ok := w.shared[key]; ok && x.compare(y) >= 0 {
			return
		}
		w.shared[key] = x
		v.Op.Uses(func(u *ir.Value) { need(u, x) })
	}
	for _, op := range t.ops {
		x := at[op]
		if isGather(op) {
			continue
		}
		if w.last.compare(x) < 0 {
			w.last = x
		}
		if op.IsExchange() {
			need(inputAt(op, t.place), x)
			continue
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
	case b.single() && b.phases && at.phase == ir.Forward:
		return Forward
	case b.single() && b.phases:
		return Backward
	case b.single():
		return Instance
	case t.kind == ForwardTask:
		return Forward
	case t.kind == BackwardTask:
		return Backward
	}
	return Weights
}

// name says what a segment is: "backward 1.0" is the first piece of the backward of stage 1.
func (b *builder) name(t *task, part Part, piece int) string {
	name := fmt.Sprintf("%s %d.%d", part, t.stage, piece)
	if b.single() {
		name = fmt.Sprintf("%s.%d", part, piece)
	}
	if len(b.p.Stages) > 0 && len(b.p.Stages[t.stage].Places) > 1 {
		name += fmt.Sprintf(" on %d", t.place)
	}
	return name
}

// placeBuckets lets a bucket wait for the last segment that computes or reads one of its values: merging overwrites them.
// Places that merge together do so in the same order.
func (b *builder) placeBuckets() {
	tasks := b.sortedTasks()
	for i := range b.s.Buckets {
		x := &b.s.Buckets[i]
		after := make([]int, b.p.NumPlaces())
		for _, place := range x.Places {
			in, _ := x.At(place)
			for _, t := range tasks {
				for _, p := range t.pieces {
					if p.exchange != nil || t.place != place {
						continue
					}
					s := b.s.Segments[p.segment]
					if slices.ContainsFunc(in, func(v *ir.Value) bool {
						return slices.Contains(s.Inputs, v) && !v.Op.IsLeaf() || slices.Contains(s.Outputs, v)
					}) {
						after[place] = p.segment
					}
				}
			}
		}
		for j, y := range b.s.Buckets[:i] {
			for _, place := range x.Places {
				if len(x.Places) > 1 && len(y.Places) > 1 {
					after[place] = max(after[place], b.after[j][place])
				}
			}
		}
		b.after = append(b.after, after)
		x.After = after[x.Places[0]]
	}
}
