// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule/play"
)

// Account is what the devices of a model replica need of memory in a step.
type Account struct {
	Places []PlaceAccount

	again func(keep detail) []*counter // plays the step, and keeps its course
	brief func() [][]Sample
}

// PlaceAccount is what one of them needs.
type PlaceAccount struct {
	Peak Bytes  // what lives when most does
	Most Bytes  // the most of each use, whenever that is
	At   int    // the instruction during which most lives; -1: before the first
	Text string // the same, for people, with the op
	// Devices are the peaks of the devices of the place, if they have different weights; nil: all need as much.
	Devices []Bytes
}

// On is the peak of the device at a position of the place.
func (x PlaceAccount) On(position int) Bytes {
	if x.Devices == nil {
		return x.Peak
	}
	return x.Devices[position]
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

// Account plays the lists of all places through with bytes, as the runner's meter counts them. What is sent counts until
// its sender can know that it was taken: nobody says how fast other devices are. plans are what devices plan for each segment;
// nil: they plan nothing.
func (s *Program) Account(p *ir.Program, t Traffic, plans []*emit.Listing) *Account {
	l := NewLedger(p)
	return newAccount(func(keep detail) []*counter { return s.count(l, t, s.Profiles(l, plans), keep) })
}

func newAccount(again func(keep detail) []*counter) *Account {
	a := &Account{again: again}
	a.brief = sync.OnceValue(func() [][]Sample { return a.course(everyInstruction) })
	for place, c := range again(nothing) {
		var when []string
		if c.peak.At >= 0 {
			when = append(when, c.s.Text(c.s.Places[place][c.peak.At]))
		}
		if c.peak.Op != nil {
			when = append(when, c.peak.Op.String())
		}
		a.Places = append(a.Places, PlaceAccount{Peak: c.books.Peak, Most: c.books.Most, At: c.peak.At, Text: cmp.Or(strings.Join(when, ", "), "its start")})
	}
	return a
}

// Sample is what lives on a device at a moment of a step.
type Sample struct {
	At   int    // the instruction that is under way; -1: before the first, or the program runs as a whole
	Op   *ir.Op // the op that runs; nil: none does
	Live Bytes
}

// Course is how the account comes about: what lives on each place from the start of a step to its end. There is a sample
// for every op of a segment that runs, and one for what happens besides between two of them in an instruction, when most
// lives. The step is played again for it.
func (a *Account) Course() [][]Sample { return a.course(everyOp) }

// Brief is the course with one sample for every instruction, when most lives, with an op of the segment if one runs. It does not play the ops of a segment again
// in every micro-batch. It is kept, so that nobody may change it.
func (a *Account) Brief() [][]Sample { return a.brief() }

func (a *Account) course(keep detail) (all [][]Sample) {
	for _, c := range a.again(keep) {
		all = append(all, c.course)
	}
	return all
}

// detail is of what a course has samples.
type detail uint8

const (
	nothing detail = iota
	everyInstruction
	everyOp
)

// Profiles are what the segments need on the first device of their place, which has most. plans are what devices plan for each; nil: they plan nothing.
func (s *Program) Profiles(l *Ledger, plans []*emit.Listing) []*Profile {
	profiles := make([]*Profile, len(s.Segments))
	for i, x := range s.Segments {
		var f *emit.Listing
		if plans != nil {
			f = plans[i]
		}
		profiles[i] = x.profile(l, x.First, f)
	}
	return profiles
}

// Arena is the memory of intermediate tensors of a place: as much as the segment needs that needs most.
func (s *Program) Arena(profiles []*Profile, place int) (most Bytes) {
	if p := s.Largest(profiles, place); p != nil {
		return p.Arena()
	}
	return most
}

// Largest is the segment of a place that needs most memory for intermediate tensors; nil: none needs any.
func (s *Program) Largest(profiles []*Profile, place int) (largest *Profile) {
	most := int64(0)
	for i, x := range s.Segments {
		if n := profiles[i].Arena().Total(); x.Place == place && n > most {
			most, largest = n, profiles[i]
		}
	}
	return largest
}

// count plays the lists through.
func (s *Program) count(l *Ledger, t Traffic, profiles []*Profile, keep detail) []*counter {
	a := s.accountant(l, t, profiles, keep)
	if stops, _ := play.Play(s.Places, events, a.do); len(stops) > 0 {
		panic(errors.Errorf("epl: internal error: the account of schedule %q, which was not checked, stops at instruction %d of device %d", s.Name, stops[0].At, stops[0].List))
	}
	return a.counters
}

// accountant is the observer at the start of a step.
func (s *Program) accountant(l *Ledger, t Traffic, profiles []*Profile, keep detail) *accountant {
	a := &accountant{s: s, ledger: l, profiles: profiles, traffic: t, told: map[event][]int{}, taken: map[event]taken{}}
	for place := range s.Places {
		c := &counter{accountant: a, place: place, known: make([]int, len(s.Places)), have: map[Slot][]event{}, at: -1, peak: Sample{At: -1}, keep: keep}
		c.add(s.Arena(a.profiles, place))
		a.counters = append(a.counters, c)
	}
	s.residents(func(place int, at Slot) { a.counters[place].put(at) })
	return a
}

// WholeAccount is that of a program that runs as a whole on one device. A training step is given its data to keep, and the
// variables that it changes. f is what the device plans for it; nil: nothing.
func WholeAccount(p *ir.Program, f *emit.Listing) *Account {
	keeps := map[*ir.Value]bool{}
	for _, x := range p.Variables {
		keeps[x.Param] = x.Update != nil
	}
	for _, v := range p.Inputs {
		keeps[v] = p.IsTraining()
	}
	return newAccount(func(keep detail) []*counter {
		l, c := NewLedger(p), &counter{at: -1, peak: Sample{At: -1}, keep: keep}
		for _, v := range p.Main.Params {
			c.add(l.bytes(v))
		}
		whole := l.Profile(emit.Whole(p), f)
		c.add(whole.Arena())
		c.segment(whole, func(i int) bool { return keeps[p.Main.Params[i]] })
		return []*counter{c}
	})
}

// accountant is the observer that counts bytes. It knows what devices know of each other.
type accountant struct {
	s        *Program
	ledger   *Ledger
	profiles []*Profile
	traffic  Traffic
	counters []*counter
	told     map[event][]int // what a list knew when it sent something
	taken    map[event]taken // what others gave, when it is taken
}

// taken is the instruction of a list after which others no longer read what it was given, or gave.
type taken struct{ list, at int }

// do lets a list learn of others what they knew, do an instruction, and tell what it knows.
func (a *accountant) do(list, at int) error {
	in, c := a.s.Places[list][at], a.counters[list]
	needs, tells := events(in)
	for _, e := range needs {
		for i, n := range a.told[e] {
			c.known[i] = max(c.known[i], n)
		}
	}
	c.known[list] = at + 1
	for _, e := range tells {
		a.told[e] = slices.Clone(c.known)
	}
	c.do(at, in)
	return nil
}

// counter counts the bytes of one list.
type counter struct {
	*accountant
	place  int
	known  []int // by list: how many of its instructions are done, as far as this one was told
	books  Books
	have   map[Slot][]event // what it has, and how others take it
	outbox []outgoing       // what others may still read, and nobody here needs
	at     int              // the instruction that is played
	peak   Sample           // where the peak is
	keep   detail           // of the course
	course []Sample
}

// outgoing is a value on its way to others. It may come back and be given again before all have taken it.
type outgoing struct {
	*ir.Value
	by []event
}

// note keeps in mind where the peak is.
func (c *counter) note(peak bool, op *ir.Op) {
	if peak {
		c.peak = Sample{At: c.at, Op: op}
	}
}

// add puts bytes on the books. Those that are negative were seen, and may be gone since an op of their segment.
func (c *counter) add(bytes Bytes) {
	c.books.Live = c.books.Live.Plus(bytes)
	if bytes.Total() > 0 {
		c.during(Need{})
	}
}

// during counts what is needed for a moment.
func (c *counter) during(n Need) {
	c.note(c.books.During(n), nil)
	c.sample(nil, n.Peak)
}

// sample keeps what lives now, and what is taken beyond that for a moment.
func (c *counter) sample(op *ir.Op, more Bytes) {
	if c.keep == nothing {
		return
	}
	x := Sample{c.at, op, c.books.Live.Plus(more)}
	if last := len(c.course) - 1; last >= 0 && c.course[last].At == c.at && (c.keep == everyInstruction || op == nil && c.course[last].Op == nil) {
		y := &c.course[last]
		op = cmp.Or(op, y.Op)
		if x.Live.Total() > y.Live.Total() {
			*y = x
		}
		y.Op = op
		return
	}
	c.course = append(c.course, x)
}

// segment plays what a segment needs while it runs.
func (c *counter) segment(p *Profile, keeps func(input int) bool) {
	n := p.Need(keeps)
	all := c.peak.Op == nil && c.books.Live.Plus(n.Peak).Total() == c.books.Peak.Total() // that it needs was there before
	c.note(c.books.During(n) || all, n.Op)
	switch c.keep {
	case everyInstruction:
		c.sample(n.Op, n.Peak)
	case everyOp:
		p.play(p.mask(keeps), c.sample)
	}
}

func (c *counter) put(at Slot) {
	if _, there := c.have[at]; !there && !given(at.Value) {
		c.have[at] = nil
		c.add(c.bytes(at.Value))
	}
}

// bytes are those of a value between segments: a part that is updated where it lies has the memory of all of the variable.
func (c *counter) bytes(v *ir.Value) Bytes {
	b := c.ledger.bytes(cmp.Or(c.s.inPlace[v], v))
	for use, n := range b {
		b[use] = c.s.Counts(v, n, c.traffic)
	}
	return b
}

// drop takes a value off the books, as soon as nobody reads it any more.
func (c *counter) drop(at Slot) {
	if by, there := c.have[at]; there {
		delete(c.have, at)
		if out := (outgoing{at.Value, by}); !c.gone(out) {
			c.outbox = append(c.outbox, out)
		}
	}
}

// gone takes off the books what nobody here needs, unless somebody else may not have taken it yet.
func (c *counter) gone(x outgoing) bool {
	if c.sending(x.by) {
		return false
	}
	c.add(c.bytes(x.Value).times(-1))
	return true
}

// sending tells whether somebody may not have taken a value yet.
func (c *counter) sending(by []event) bool {
	return slices.ContainsFunc(by, func(e event) bool {
		x, ok := c.taken[e]
		return !ok || c.known[x.list] <= x.at
	})
}

// do plays an instruction: what it needs meanwhile, what it makes, and what dies after it.
func (c *counter) do(at int, in Instr) {
	c.at = at
	c.outbox = slices.DeleteFunc(c.outbox, c.gone)
	c.sample(nil, Bytes{})
	switch e := (event{in.Transfer, in.Micro}); in.Kind {
	case Run:
		c.run(in)
	case Accumulate: // to the sums; the first are the sums
		b := c.s.Buckets[in.Bucket]
		for _, m := range b.Merges {
			if b.How.Adds() {
				c.drop(Slot{m.Inputs[0], in.Micro})
				c.put(Slot{m.Inputs[0], Once})
			}
		}
	case Merge:
		c.merge(in)
	case Wait:
		if c.s.merged(in) {
			c.add(c.s.Pending(c.ledger, in.Bucket, c.traffic).times(-1))
		}
	case Send:
		if t := c.s.Transfers[in.Transfer]; !t.Input {
			at := c.s.slot(t.Value, in.Micro)
			c.have[at] = append(c.have[at], e)
		}
	case Receive:
		c.taken[e] = taken{c.place, at}
	case Exchange:
		if axis, how := in.Op.Change(); axis == ir.Replicas && how == ir.AllGatherOf { // other model replicas read the part
			e, awaited := event{-1 - c.place, at}, len(c.s.Places[c.place])
			for _, op := range in.Ops() {
				from := c.s.slot(op.Inputs[0], in.Micro)
				if c.s.inPlace[op.Inputs[0]] == op.Outputs[0] {
					c.drop(from) // what is gathered has its memory
					continue
				}
				c.have[from] = append(c.have[from], e)
				awaited = min(awaited, c.awaits(Slot{op.Outputs[0], in.Micro}))
			}
			c.taken[e] = taken{c.place, awaited + 1} // all come with the first that is waited for
		}
	}
	for _, at := range c.s.Makes(in) {
		c.put(at)
	}
	switch in.Kind {
	case Wait:
		if c.s.merged(in) {
			c.add(Bytes{ForCommunication: -c.s.mergeBuffers(in.Bucket, c.traffic, c.ledger.size)})
		}
	case Exchange:
		c.during(exchangeBuffers(in.Op, c.ledger.size))
	}
	for _, at := range in.Dies() {
		c.drop(at)
	}
}

// merged tells whether a wait ends what a merge has begun. The other waits for parts are for terms of them.
func (s *Program) merged(wait Instr) bool { return wait.Micro != Once || !s.Buckets[wait.Bucket].Parts }

// awaits is the instruction at which the place waits for a value that is on its way: until then others may read what it gave.
func (c *counter) awaits(at Slot) int {
	list := c.s.Places[c.place]
	for i := c.at + 1; i < len(list); i++ {
		if slices.Contains(c.s.Uses(list[i]), at) || slices.Contains(list[i].Frees, at) {
			return i
		}
	}
	return len(list)
}

// run plays a segment, which keeps the inputs that die with it unless they are being sent.
func (c *counter) run(in Instr) {
	s, takes, profile := c.s.Segments[in.Segment], c.s.Takes(in), c.profiles[in.Segment]
	dies := map[Slot]bool{}
	for _, at := range in.Frees {
		dies[at] = !c.sending(c.have[at])
	}
	keeps := func(i int) bool {
		own := s.OwnInput(i)
		return given(s.Inputs[i]) || dies[takes[i]] && (own == nil || profile.Overwrites(*own))
	}
	c.segment(profile, keeps)
	for i, at := range takes {
		if keeps(i) || s.OwnInput(i) != nil {
			c.drop(at)
		}
	}
}

// merge takes the values off the books: what adds up does so where they are, the rest in copies. Parts of model replicas
// come in every micro-batch, and are added up.
func (c *counter) merge(in Instr) {
	b := c.s.Buckets[in.Bucket]
	copies := Bytes{ForCommunication: c.s.mergeBuffers(in.Bucket, c.traffic, c.ledger.size)}
	if b.Parts {
		c.add(copies)
	}
	for _, m := range b.Merges {
		for micro := Once; micro < c.s.Local.MicroBatches; micro++ {
			if !b.Parts || micro == in.Micro {
				c.drop(Slot{m.Inputs[0], micro})
			}
		}
	}
	if !b.Parts {
		c.add(copies)
	}
	c.add(c.s.Pending(c.ledger, in.Bucket, c.traffic))
}
