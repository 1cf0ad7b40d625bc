package schedule

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// transfers finds the values that segments read on other places than where they are computed, one for each place that
// reads them.
func (b *builder) transfers() {
	seen := map[Transfer]bool{}
	for _, s := range b.s.Segments {
		for _, v := range s.Inputs {
			b.travel(v, s.Place, s.Kind == Apply, seen)
		}
	}
	for _, t := range b.sortedTasks() {
		for _, p := range t.pieces {
			if p.exchange != nil {
				b.travel(inputAt(p.exchange, t.place), t.place, false, seen)
			}
		}
	}
	for _, p := range b.apply {
		if p.exchange != nil {
			for _, place := range p.exchange.Places() {
				b.travel(inputAt(p.exchange, place), place, true, seen)
			}
		}
	}
}

// travel adds the transfer of a value to a place that reads it, in every micro-batch or once.
func (b *builder) travel(v *ir.Value, to int, once bool, seen map[Transfer]bool) {
	t := Transfer{Value: v, To: to}
	switch v.Op.Attrs.(type) {
	case *ir.Instance, *ir.InstanceCount, *ir.Replica:
		return
	case *ir.ShardOf, *ir.PartOf: // of another stage, for what is computed from it there and here
		t.From, t.Once = v.Op.Place, true
	case *ir.Parameter:
		if b.input[v] {
			t.Input = true // from the first place
			t.Start, t.Rows = b.rows(v, to)
			break
		}
		home := b.home(v)
		if slices.Contains(home.Places, to) {
			return
		}
		t.From, t.Once = home.Places[0], true
	default:
		if !once && !b.PerInstance(v.Op) || once && !b.Bound(v.Op) {
			return // computed by the task itself
		}
		t.From, t.Once = v.Place(), once
	}
	if t.From != t.To && !seen[t] {
		seen[t] = true
		b.s.Transfers = append(b.s.Transfers, t)
	}
}

// rows are those of a data input that a place reads, if it takes a slice of its first dim only; 0, 0: all.
func (b *builder) rows(v *ir.Value, place int) (start, n int) {
	limit := 0
	for _, u := range b.Users(v) {
		if !slices.Contains(u.Places(), place) {
			continue
		}
		a, ok := u.Attrs.(*ir.Slice)
		if !ok {
			return 0, 0
		}
		for d, size := range v.Shape.Dimensions {
			if a.Strides[d] != 1 || d > 0 && (a.Starts[d] != 0 || a.Limits[d] != size) {
				return 0, 0
			}
		}
		if limit == 0 || a.Starts[0] < start {
			start = a.Starts[0]
		}
		limit = max(limit, a.Limits[0])
	}
	if limit == 0 || limit-start == v.Shape.Dimensions[0] {
		return 0, 0
	}
	return start, limit - start
}

// home is where a variable lives.
func (b *builder) home(param *ir.Value) *Variable {
	return &b.s.Variables[slices.IndexFunc(b.s.Variables, func(x Variable) bool { return x.Param == param })]
}

// transfer is the index of a value's transfer to a place; -1 if it is there.
func (b *builder) transfer(v *ir.Value, to, micro int) int {
	once := micro == Once || b.s.variable[v]
	return slices.IndexFunc(b.s.Transfers, func(t Transfer) bool { return t.Value == v && t.To == to && t.Once == once })
}

// lists makes the instructions of every place.
func (b *builder) lists(order [][]Task) {
	for place := range b.p.NumPlaces() {
		l := &lister{builder: b, place: place, have: map[Slot]bool{}}
		l.sendAll(func(t Transfer) bool { return t.Once && t.Value.Op.IsLeaf() }, Once)
		for _, x := range order[b.stageAt(place)%b.s.Pipeline.Groups] {
			if t := b.tasks[taskKey{place, x.Stage, x.Kind}]; t != nil {
				l.task(t, x.Micro)
			}
		}
		for i, x := range b.s.Buckets {
			if slices.Contains(x.Places, place) {
				l.finish(func(bucket int) bool { return bucket == i })
				if !x.Parts || len(x.Places) > 1 {
					l.add(Instr{Kind: Wait, Bucket: i, Micro: Once})
				}
				_, out := x.At(place)
				for _, v := range out {
					l.send(v, Once)
				}
			}
		}
		for _, p := range b.apply {
			switch {
			case p.exchange != nil:
				if slices.Contains(p.exchange.Places(), place) {
					l.exchange(p.exchange, Once)
				}
			case b.s.Segments[p.segment].Place == place:
				l.run(p.segment, Once)
			}
		}
		b.s.Places = append(b.s.Places, l.list)
	}
}

// lister writes the list of one place.
type lister struct {
	*builder
	place   int
	list    []Instr
	have    map[Slot]bool // what was fed or received
	shipped []bool        // micro-batches whose inputs went to other places
	onWay   []Instr       // merges in parts that are not waited for yet
}

// partsOnWay is how many buckets are merged in parts at the same time: as long as one is on its way, all of its gradients are
// there.
const partsOnWay = 1

// finish waits for merges in parts.
func (l *lister) finish(which func(bucket int) bool) {
	l.onWay = slices.DeleteFunc(l.onWay, func(in Instr) bool {
		if !which(in.Bucket) {
			return false
		}
		in.Kind = Wait
		l.add(in)
		return true
	})
}

func (l *lister) add(in Instr) { l.list = append(l.list, in) }

// sendAll sends what place has to send among the transfers chosen.
func (l *lister) sendAll(choose func(Transfer) bool, micro int) {
	for i, t := range l.s.Transfers {
		if t.From == l.place && choose(t) {
			l.add(Instr{Kind: Send, Transfer: i, Micro: micro})
		}
	}
}

func (l *lister) send(v *ir.Value, micro int) {
	l.sendAll(func(t Transfer) bool { return t.Value == v && t.Once == (micro == Once) }, micro)
}

// task runs the pieces of a task, and merges what is complete.
func (l *lister) task(t *task, micro int) {
	if l.place == 0 && len(l.shipped) <= micro { // the first that the place does for this micro-batch
		for len(l.shipped) <= micro {
			l.sendAll(func(t Transfer) bool { return t.Input }, len(l.shipped))
			l.shipped = append(l.shipped, true)
		}
	}
	for _, p := range t.pieces {
		if p.exchange != nil {
			l.exchange(p.exchange, micro)
			continue
		}
		l.run(p.segment, micro)
		for i := range l.s.Buckets {
			x := &l.s.Buckets[i]
			if !slices.Contains(x.Places, l.place) || l.after[i][l.place] != p.segment {
				continue
			}
			if x.Parts {
				l.finish(func(bucket int) bool { return bucket == i })
				if len(l.onWay) == partsOnWay {
					first := l.onWay[0].Bucket
					l.finish(func(bucket int) bool { return bucket == first })
				}
				in := Instr{Kind: Merge, Bucket: i, Micro: micro}
				l.add(in)
				l.onWay = append(l.onWay, in)
				continue
			}
			if l.p.Local.MicroBatches > 1 {
				l.add(Instr{Kind: Accumulate, Bucket: i, Micro: micro})
			}
			if micro == l.p.Local.MicroBatches-1 {
				l.add(Instr{Kind: Merge, Bucket: i, Micro: Once})
			}
		}
	}
}

// exchange does a collective, and sends what others need of it.
func (l *lister) exchange(op *ir.Op, micro int) {
	l.get(inputAt(op, l.place), micro)
	l.add(Instr{Kind: Exchange, Op: op, Micro: micro})
	for _, v := range op.Outputs {
		if v.Place() == l.place {
			l.send(v, micro)
		}
	}
}

// run gets what a segment needs, runs it, and sends what others need of it.
func (l *lister) run(segment, micro int) {
	s := l.s.Segments[segment]
	for _, v := range s.Inputs {
		l.get(v, micro)
	}
	l.add(Instr{Kind: Run, Segment: segment, Micro: micro})
	for _, v := range s.Outputs {
		if !v.Op.IsLeaf() && (l.PerInstance(v.Op) || l.Bound(v.Op)) {
			l.send(v, micro)
		}
	}
}

// get feeds or receives a value, if it is not there.
func (l *lister) get(v *ir.Value, micro int) {
	in := Instr{Kind: Receive, Transfer: l.transfer(v, l.place, micro), Micro: micro}
	switch {
	case l.input[v]:
		in.Kind, in.Value = Feed, v
	case in.Transfer < 0:
		return
	case l.s.Transfers[in.Transfer].Once:
		in.Micro = Once
	}
	if at := (Slot{v, in.Micro}); !l.have[at] {
		l.have[at] = true
		l.add(in)
	}
}

// uses are the slots that an instruction reads on a place.
func (p *Program) uses(in Instr, place int) (slots []Slot) {
	switch in.Kind {
	case Run:
		for _, v := range p.Segments[in.Segment].Inputs {
			slots = append(slots, p.slot(v, in.Micro))
		}
	case Accumulate:
		vs, _ := p.Buckets[in.Bucket].At(place)
		for _, v := range vs {
			slots = append(slots, Slot{v, in.Micro})
		}
	case Merge:
		if p.Buckets[in.Bucket].Parts {
			vs, _ := p.Buckets[in.Bucket].At(place)
			for _, v := range vs {
				slots = append(slots, Slot{v, in.Micro})
			}
		} else if p.Local.MicroBatches == 1 {
			vs, _ := p.Buckets[in.Bucket].At(place)
			for _, v := range vs {
				slots = append(slots, Slot{v, 0})
			}
		}
	case Send:
		if t := p.Transfers[in.Transfer]; !t.Input {
			slots = append(slots, p.slot(t.Value, in.Micro))
		}
	case Exchange:
		slots = append(slots, p.slot(inputAt(in.Op, place), in.Micro))
	case Store:
		slots = append(slots, Slot{in.Value, Once})
	}
	return slots
}

// makes are the slots that an instruction fills on a place.
func (p *Program) makes(in Instr, place int) (slots []Slot) {
	switch in.Kind {
	case Run:
		for _, v := range p.Segments[in.Segment].Outputs {
			slots = append(slots, Slot{v, in.Micro})
		}
	case Wait:
		_, vs := p.Buckets[in.Bucket].At(place)
		for _, v := range vs {
			slots = append(slots, Slot{v, Once})
		}
	case Receive:
		slots = append(slots, Slot{p.Transfers[in.Transfer].Value, in.Micro})
	case Feed, Load:
		slots = append(slots, Slot{in.Value, in.Micro})
	case Exchange:
		for _, v := range in.Op.Outputs {
			if v.Place() == place {
				slots = append(slots, Slot{v, in.Micro})
			}
		}
	}
	return slots
}

// slot is where an input of a segment is: variables are there once.
func (p *Program) slot(v *ir.Value, micro int) Slot {
	if p.variable[v] {
		micro = Once
	}
	return Slot{v, micro}
}

// frees finds the last use of everything on a place. What is merged is consumed by that; what leaves the step stays.
func (b *builder) frees(place int) {
	stays := map[Slot]bool{}
	for _, bucket := range b.s.Buckets {
		if slices.Contains(bucket.Places, place) {
			in, _ := bucket.At(place)
			for _, v := range in {
				for m := range b.p.Local.MicroBatches {
					stays[Slot{v, m}] = true
				}
			}
		}
	}
	for _, x := range b.s.Variables {
		if i := slices.Index(x.Places, place); i >= 0 && x.Updates != nil && !x.Host {
			stays[Slot{x.Updates[i], Once}] = true
		}
	}
	for _, r := range b.s.Results {
		if r.Place == place {
			stays[Slot{r.Value, Once}] = true
		}
	}
	for _, x := range b.s.Variables { // those that do not change are the caller's
		if v := x.At(place); x.Updates == nil && v != nil && !x.Host {
			stays[Slot{v, Once}] = true
		}
	}
	l := b.s.Places[place]
	seen := map[Slot]bool{}
	for i := len(l) - 1; i >= 0; i-- {
		for _, slots := range [][]Slot{b.s.uses(l[i], place), b.s.makes(l[i], place)} {
			for _, at := range slots {
				if given(at.Value) || seen[at] {
					continue
				}
				seen[at] = true
				if !stays[at] {
					l[i].Frees = append(l[i].Frees, at)
				}
			}
		}
		switch l[i].Kind {
		case Load, Run: // what came before it used what another one brought, or computed
			for _, at := range b.s.makes(l[i], place) {
				delete(seen, at)
			}
		}
	}
}

// given tells whether a value is made for every segment that takes it.
func given(v *ir.Value) bool {
	switch v.Op.Attrs.(type) {
	case *ir.Instance, *ir.InstanceCount, *ir.Replica:
		return true
	}
	return false
}
