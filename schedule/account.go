package schedule

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule/play"
)

// Account is what the devices of a model replica need of memory in a step.
type Account struct {
	Places []PlaceAccount

	again func(keep bool) []*counter // plays the step, and keeps its course
}

// PlaceAccount is what one of them needs.
type PlaceAccount struct {
	Peak Bytes  // what lives when most does
	Most Bytes  // the most of each use, whenever that is
	At   int    // the instruction during which most lives; -1: before the first
	Text string // the same, for people, with the op
}

// Worst is the place that needs most.
func (a *Account) Worst() (place int) {
	for i, x := range a.Places {
		if x.Peak.Total() > a.Places[place].Peak.Total() {
			place = i
		}
	}
	return place
}

// Peak is the most that any place needs.
func (a *Account) Peak() int64 { return a.Places[a.Worst()].Peak.Total() }

// Traffic says what copies values travel in when they are merged.
type Traffic struct {
	Half   bool // gradients travel as float16
	Packed bool // small values travel together
}

// SmallBytes is how large a value may be that travels with others.
const SmallBytes = 64 << 10

// Account plays the lists of all places through with bytes, as the runtime's meter counts them. What is sent counts until
// its sender can know that it was taken: nobody says how fast other devices are. plans are what devices plan for each segment;
// nil: they plan nothing.
func (s *Program) Account(p *ir.Program, t Traffic, plans []*Footprint) *Account {
	return newAccount(func(keep bool) []*counter { return s.count(p, t, plans, keep) })
}

func newAccount(again func(keep bool) []*counter) *Account {
	a := &Account{again: again}
	for place, c := range again(false) {
		x := PlaceAccount{Peak: c.books.Peak, Most: c.books.Most, At: c.peak}
		var when []string
		if c.peak >= 0 {
			when = append(when, c.s.Text(c.s.Places[place][c.peak]))
		}
		if c.op != nil {
			when = append(when, c.op.String())
		}
		x.Text = cmp.Or(strings.Join(when, ", "), "its start")
		a.Places = append(a.Places, x)
	}
	return a
}

// Profiles are what the segments need on the first device of their place, which has most. plans are what devices plan for each; nil: they plan nothing.
func (s *Program) Profiles(l *Ledger, plans []*Footprint) []*Profile {
	profiles := make([]*Profile, len(s.Segments))
	for i, x := range s.Segments {
		var f *Footprint
		if plans != nil {
			f = plans[i]
		}
		profiles[i] = l.Profile(x.First, f)
	}
	return profiles
}

// count plays the lists through.
func (s *Program) count(p *ir.Program, t Traffic, plans []*Footprint, keep bool) []*counter {
	l := NewLedger(p)
	profiles := s.Profiles(l, plans)
	a := &accountant{clocks: newClocks(len(s.Places)), taken: map[event]taken{}}
	for place := range s.Places {
		c := &counter{accountant: a, s: s, ledger: l, profiles: profiles, traffic: t, place: place, have: map[Slot]bool{}, sent: map[Slot][]event{}, at: -1, peak: -1, keep: keep}
		c.addAll(s.Arena(profiles, place), 1)
		a.counters = append(a.counters, c)
	}
	s.residents(func(place int, at Slot) { a.counters[place].put(at) })
	if stops, _ := play.Play(s.Places, events, a.do); len(stops) > 0 {
		panic(errors.Errorf("epl: internal error: the account of schedule %q, which was not checked, stops at instruction %d of device %d", s.Name, stops[0].At, stops[0].List))
	}
	return a.counters
}

// WholeAccount is that of a program that runs as a whole on one device. A training step is given its data to keep, and the
// variables that it changes. f is what the device plans for it; nil: nothing.
func WholeAccount(p *ir.Program, f *Footprint) *Account {
	keeps := map[*ir.Value]bool{}
	for _, x := range p.Variables {
		keeps[x.Param] = x.Update != nil
	}
	for _, v := range p.Inputs {
		keeps[v] = p.IsTraining()
	}
	return newAccount(func(keep bool) []*counter {
		l, c := NewLedger(p), &counter{at: -1, peak: -1, keep: keep}
		for _, v := range p.Main.Params {
			c.add(l.Use(v), v.Bytes())
		}
		whole := l.Whole(p, f)
		c.addAll(whole.Arena(), 1)
		c.segment(whole, func(i int) bool { return keeps[p.Main.Params[i]] })
		return []*counter{c}
	})
}

// Whole is the profile of a program that runs as a whole; its parameters are the inputs.
func (l *Ledger) Whole(p *ir.Program, f *Footprint) *Profile {
	ops := slices.DeleteFunc(slices.Clone(p.Main.Ops), func(op *ir.Op) bool { _, is := op.Attrs.(*ir.Parameter); return is })
	return l.Profile(&ir.Segment{Inputs: p.Main.Params, Ops: ops, Outputs: p.Main.Outputs}, f)
}

// accountant is the observer that counts bytes. It knows what devices know of each other.
type accountant struct {
	clocks
	counters []*counter
	taken    map[event]taken // what others gave, when it is taken
}

// taken is the instruction of a list after which others no longer read what it was given, or gave.
type taken struct{ list, at int }

// do counts what an instruction takes.
func (a *accountant) do(list, at int) error {
	c := a.counters[list]
	a.clocks.do(list, at, c.s.Places[list][at])
	c.do(at)
	return nil
}

// clocks are what lists can know of each other: how many instructions of each are done, as far as a list was told.
type clocks struct {
	known [][]int // by list, of each list
	told  map[event][]int
}

func newClocks(lists int) clocks {
	c := clocks{known: make([][]int, lists), told: map[event][]int{}}
	for list := range c.known {
		c.known[list] = make([]int, lists)
	}
	return c
}

// do lets a list learn, do an instruction, and tell.
func (c *clocks) do(list, at int, in Instr) {
	needs, tells := events(in)
	for _, e := range needs {
		for i, n := range c.told[e] {
			c.known[list][i] = max(c.known[list][i], n)
		}
	}
	c.known[list][list] = at + 1
	for _, e := range tells {
		c.told[e] = slices.Clone(c.known[list])
	}
}

// counter counts the bytes of one list.
type counter struct {
	*accountant
	s        *Program
	ledger   *Ledger
	profiles []*Profile
	traffic  Traffic
	place    int
	books    Books
	have     map[Slot]bool
	sent     map[Slot][]event // of what it has: how others take it
	outbox   []outgoing       // what others may still read, and nobody here needs
	at, peak int              // the instruction that is played, and that of the peak
	op       *ir.Op           // of the peak
	keep     bool             // keep the course
	course   []Sample
}

// outgoing is a value on its way to others. It may come back and be given again before all have taken it.
type outgoing struct {
	*ir.Value
	by []event
}

func (c *counter) note(peak bool, op *ir.Op) {
	if peak {
		c.peak, c.op = c.at, op
	}
}

func (c *counter) add(use Use, bytes int64) {
	c.note(c.books.Add(use, bytes), nil)
	if bytes > 0 { // what goes was seen, and may be gone since an op of its segment
		c.sample(nil, Bytes{})
	}
}

func (c *counter) addAll(bytes Bytes, sign int64) {
	for use, n := range bytes {
		if n != 0 {
			c.add(Use(use), sign*n)
		}
	}
}

func (c *counter) during(n Need) { c.note(c.books.During(n), n.Op) }

// segment plays what a segment needs while it runs.
func (c *counter) segment(p *Profile, keeps func(input int) bool) {
	n := p.Need(keeps)
	c.during(n)
	if c.op == nil && c.books.Live.Plus(n.Peak).Total() == c.books.Peak.Total() { // all that it needs was there before
		c.note(true, n.Op)
	}
	if c.keep {
		p.play(p.mask(keeps), c.sample)
	}
}

func (c *counter) put(at Slot) {
	if !given(at.Value) && !c.have[at] {
		c.have[at] = true
		c.add(c.ledger.Use(at.Value), at.Value.Bytes())
	}
}

// drop takes a value off the books, as soon as nobody reads it any more.
func (c *counter) drop(at Slot) {
	if c.have[at] {
		delete(c.have, at)
		if out := (outgoing{at.Value, c.sent[at]}); !c.gone(out) {
			c.outbox = append(c.outbox, out)
		}
	}
}

// gone takes off the books what nobody here needs, unless somebody else may not have taken it yet.
func (c *counter) gone(x outgoing) bool {
	if c.sending(x.by) {
		return false
	}
	c.add(c.ledger.Use(x.Value), -x.Bytes())
	return true
}

// sending tells whether somebody may not have taken a value yet.
func (c *counter) sending(by []event) bool {
	return slices.ContainsFunc(by, func(e event) bool {
		x, ok := c.taken[e]
		return !ok || c.known[c.place][x.list] <= x.at
	})
}

// do plays an instruction: what it needs meanwhile, what it makes, and what dies after it.
func (c *counter) do(at int) {
	c.at = at
	in := c.s.Places[c.place][at]
	c.outbox = slices.DeleteFunc(c.outbox, c.gone)
	c.sample(nil, Bytes{})
	switch in.Kind {
	case Run:
		c.run(in)
	case Accumulate:
		c.accumulate(in)
	case Merge:
		c.merge(in)
	case Wait:
		c.addAll(c.s.Pending(c.ledger, in.Bucket), -1)
	case Send:
		if t := c.s.Transfers[in.Transfer]; !t.Input {
			at := c.s.slot(t.Value, in.Micro)
			c.sent[at] = append(c.sent[at], event{in.Transfer, in.Micro})
		}
	case Receive:
		c.taken[event{in.Transfer, in.Micro}] = taken{c.place, at}
	case Exchange:
		if axis, how := in.Op.Change(); axis == ir.Replicas && how == ir.AllGatherOf { // other model replicas read the part
			at, e := c.s.slot(in.Op.Inputs[0], in.Micro), event{-1 - c.place, c.at}
			c.sent[at] = append(c.sent[at], e)
			c.taken[e] = taken{c.place, c.awaits(Slot{in.Op.Outputs[0], in.Micro}) + 1}
		}
	}
	for _, at := range c.s.makes(in) {
		c.put(at)
	}
	switch in.Kind {
	case Wait:
		if in.Micro != Once || !c.s.Buckets[in.Bucket].Parts {
			c.add(ForCommunication, -c.s.MergeBuffers(in.Bucket, c.traffic))
		}
	case Exchange:
		n := ExchangeBuffers(in.Op)
		c.during(n)
		c.sample(nil, n.Peak)
	}
	for _, at := range in.Frees {
		c.drop(at)
	}
}

// awaits is the instruction at which the place waits for a value that is on its way: until then others may read what it gave.
func (c *counter) awaits(at Slot) int {
	list := c.s.Places[c.place]
	for i := c.at + 1; i < len(list); i++ {
		if slices.Contains(c.s.uses(list[i]), at) || slices.Contains(list[i].Frees, at) {
			return i
		}
	}
	return len(list)
}

// run plays a segment, which keeps the inputs that die with it unless they are being sent.
func (c *counter) run(in Instr) {
	inputs := c.s.Segments[in.Segment].Inputs
	dies := map[Slot]bool{}
	for _, at := range in.Frees {
		dies[at] = !c.sending(c.sent[at])
	}
	keeps := func(i int) bool { return given(inputs[i]) || dies[c.s.slot(inputs[i], in.Micro)] }
	c.segment(c.profiles[in.Segment], keeps)
	for i, v := range inputs {
		if keeps(i) {
			c.drop(c.s.slot(v, in.Micro))
		}
	}
}

// accumulate adds the values of a micro-batch to the sums. The first are the sums.
func (c *counter) accumulate(in Instr) {
	b := c.s.Buckets[in.Bucket]
	if !b.How.Adds() {
		return
	}
	values, _ := b.Values()
	for _, v := range values {
		c.drop(Slot{v, in.Micro})
		c.put(Slot{v, Once})
	}
}

// merge takes the values off the books: what adds up does so where they are, the rest in copies. Parts of model replicas
// come in every micro-batch, and are added up.
func (c *counter) merge(in Instr) {
	b := c.s.Buckets[in.Bucket]
	values, _ := b.Values()
	copies := c.s.MergeBuffers(in.Bucket, c.traffic)
	if b.Parts {
		c.add(ForCommunication, copies)
	}
	for _, v := range values {
		for m := Once; m < c.s.Local.MicroBatches; m++ {
			if !b.Parts || m == in.Micro {
				c.drop(Slot{v, m})
			}
		}
	}
	if !b.Parts {
		c.addAll(c.s.Pending(c.ledger, in.Bucket), 1)
		c.add(ForCommunication, copies)
	}
}

// Pending is what a bucket's values take while they are merged, besides copies.
func (s *Program) Pending(l *Ledger, bucket int) (n Bytes) {
	b := s.Buckets[bucket]
	in, _ := b.Values()
	for _, v := range in {
		if (b.How.Adds() || b.How == ir.First) && !b.Parts {
			n[l.Use(v)] += v.Bytes()
		}
	}
	return n
}

// MergeBuffers are the copies that a bucket's values travel in, until they are merged.
func (s *Program) MergeBuffers(bucket int, t Traffic) (bytes int64) {
	b := s.Buckets[bucket]
	in, out := b.Values()
	if b.Parts { // laid out by model replica, and what this one gets
		n := int64(s.Local.Replicas)
		for _, v := range out {
			bytes += v.Bytes() * (n + 1)
		}
		if t.Half && in[0].Shape.DType == dtypes.Float32 { // half of that, and what it is made of when all know how large it is
			bytes = bytes/2 + bytes/(n+1)*n
		}
		return bytes
	}
	small, packed := 0, int64(0)
	for i, v := range in {
		n := v.Bytes()
		switch {
		case b.How == ir.Concat:
			bytes += out[i].Bytes()
		case b.How == ir.Agree:
			bytes += n * int64(s.Local.Instances())
		case b.How != ir.First:
			if t.Half && v.Shape.DType == dtypes.Float32 && b.Merges[i].Phase == ir.Backward && (s.Local.Replicas > 1 || b.Terms) {
				n /= 2
				bytes += n
			}
			if t.Packed && n <= SmallBytes {
				small++
				packed += n
			}
		}
	}
	if small > 1 {
		bytes += packed
	}
	return bytes
}

// ExchangeBuffers are the copies that a collective makes: parts along a dim that do not lie one after the other are put in
// order before they travel, or after.
func ExchangeBuffers(op *ir.Op) (n Need) {
	in, out := op.Inputs[0], op.Outputs[0]
	axis, how := op.Change()
	if axis == ir.Replicas {
		return n
	}
	var bytes int64
	if how == ir.ReduceScatterOf || how == ir.AllToAllOf {
		bytes += scattered(in, out.On(axis).Dim)
	}
	if how == ir.AllGatherOf || how == ir.AllToAllOf {
		bytes += scattered(out, in.On(axis).Dim)
	}
	n.Peak[ForCommunication], n.Most[ForCommunication] = bytes, bytes
	return n
}

// scattered is the size of a value, unless its parts along a dim lie one after the other.
func scattered(v *ir.Value, dim int) int64 {
	if Leading(v.LocalShape(nil), dim) {
		return 0
	}
	return v.Bytes()
}

// Leading tells whether the parts of a tensor along a dim lie one after the other.
func Leading(s shapes.Shape, dim int) bool {
	for _, n := range s.Dimensions[:dim] {
		if n != 1 {
			return false
		}
	}
	return true
}
