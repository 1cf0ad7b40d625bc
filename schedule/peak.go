// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"
	"sync"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// Need is what something takes for a moment, beyond what lives before it. A count is negative where inputs die on the way.
type Need struct {
	Peak Bytes // when it is most
	Most Bytes // the most of each use
	// Op is the one that runs when it is most; nil: none does.
	Op   *ir.Op
	step int // when it is most
}

// lives are what steps make, and what dies after each; ops are what runs in them, nil where none does.
type lives struct {
	ops        []*ir.Op
	made, gone []Bytes
}

func newLives(steps int) lives {
	return lives{make([]*ir.Op, steps), make([]Bytes, steps), make([]Bytes, steps)}
}

// play takes the steps with bytes. look, if there is one, sees what lives in each.
func (x lives) play(look func(op *ir.Op, live Bytes)) (n Need) {
	var live Bytes
	for i, op := range x.ops {
		live = live.Plus(x.made[i])
		if live.Total() > n.Peak.Total() {
			n.Peak, n.Op, n.step = live, op, i
		}
		n.Most.raise(live)
		if look != nil {
			look(op, live)
		}
		live = live.Plus(x.gone[i].times(-1))
	}
	return n
}

// Profile is what a segment needs while it runs: its ops run in order, and a value dies after its last use. So do inputs
// that it is given to keep. Where the device plans memory, it is what that comes to.
type Profile struct {
	lives           // of what its ops compute; the last step is its end
	inputs, outputs []edge
	planned         *emit.Listing // nil: ops run one by one, each with memory of its own
	arena           Need          // of a device that plans memory: what intermediate tensors take of it
	crowd           []Held        // the tensors in the arena when most live

	mu    sync.Mutex
	needs map[string]Need // by the inputs that it may keep
}

// Held is a value that takes memory, and what for.
type Held struct {
	Value *ir.Value // nil: it is no tensor's
	Use   Use
	Bytes int64
}

// edge is what there is to know of an input or output of a segment.
type edge struct {
	value *ir.Value // of an output
	use   Use
	bytes int64
	// Of an input: the op that reads it last, and whether it is also an output.
	last    int
	through bool
}

// Profile reads a segment. f is what the device plans for it; nil: nothing.
func (l *Ledger) Profile(s *ir.Segment, f *emit.Listing) *Profile {
	n := len(s.Ops)
	p := &Profile{lives: newLives(n + 1), planned: f, needs: map[string]Need{}}
	copy(p.ops, s.Ops)
	last, leaves := make(map[*ir.Value]int, n), map[*ir.Value]bool{}
	for i, op := range s.Ops {
		op.Uses(func(v *ir.Value) { last[v] = i })
	}
	for _, v := range s.Outputs {
		leaves[v] = true
		p.outputs = append(p.outputs, edge{value: v, use: l.Use(s.Origin(v)), bytes: v.Bytes()})
	}
	for i, op := range s.Ops {
		for _, v := range op.Outputs {
			use := l.within(s.Origin(v), leaves[v])
			p.made[i][use] += v.Bytes()
			if !leaves[v] {
				p.gone[max(i, last[v])][use] += v.Bytes()
			}
		}
	}
	for _, v := range s.Inputs {
		x := edge{use: l.Use(s.Origin(v)), bytes: v.Bytes(), last: last[v], through: leaves[v]}
		if given(v) {
			x.bytes = 0 // a number that is on nobody's books
		}
		p.inputs = append(p.inputs, x)
	}
	if f != nil {
		p.arena, p.crowd = l.arena(s, f)
	}
	return p
}

// arena is what the tensors in the arena of a segment are for when most live, and which they are.
func (l *Ledger) arena(s *ir.Segment, f *emit.Listing) (n Need, crowd []Held) {
	steps := 0
	for _, x := range f.Lives {
		steps = max(steps, x.To+1)
	}
	all := newLives(steps)
	uses := make([]Use, len(f.Lives))
	for i, x := range f.Lives {
		use := ForTemporaries
		if x.Value != nil {
			use = l.within(s.Origin(x.Value), false)
			if x.Value.Op.ID >= 0 {
				all.ops[x.From] = x.Value.Op
			}
		}
		uses[i] = use
		all.made[x.From][use] += x.Bytes
		all.gone[x.To][use] += x.Bytes
	}
	n = all.play(nil)
	for i, x := range f.Lives {
		if x.From <= n.step && n.step <= x.To {
			crowd = append(crowd, Held{x.Value, uses[i], x.Bytes})
		}
	}
	n.Peak[ForTemporaries] += f.Arena - n.Peak.Total() // gaps
	return n, crowd
}

// InArena are the tensors in the arena of the segment when most live.
func (p *Profile) InArena() []Held { return p.crowd }

// Beyond are the outputs that take memory beside the arena if the segment is given some of its inputs to keep; none if the device plans nothing.
func (p *Profile) Beyond(keeps func(input int) bool) (all []Held) {
	if p.planned == nil {
		return nil
	}
	for i, x := range p.outputs {
		if over := p.planned.Over[i]; over < 0 || !keeps(over) {
			all = append(all, Held{x.value, x.use, x.bytes})
		}
	}
	return all
}

// Overwrites tells whether the device writes the new part of a variable where the old one is; else it has to be copied there.
func (p *Profile) Overwrites(x Own) bool {
	return p.planned != nil && p.planned.Over[x.Output] == x.Input
}

// Inputs is how many inputs the segment has.
func (p *Profile) Inputs() int { return len(p.inputs) }

// Use is what an input is for.
func (p *Profile) Use(input int) Use { return p.inputs[input].use }

// Arena is the memory of intermediate tensors that the segment needs of the device that runs it: by what they are for
// when most live.
func (p *Profile) Arena() Bytes { return p.arena.Peak }

// Need is what the segment takes if it is given some of its inputs to keep: those die in it, too.
func (p *Profile) Need(keeps func(input int) bool) Need {
	mask := p.mask(keeps)
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.needs[string(mask)]
	if !ok {
		n = p.play(mask, nil)
		p.needs[string(mask)] = n
	}
	return n
}

// mask has a 1 for every input that the segment may keep.
func (p *Profile) mask(keeps func(input int) bool) []byte {
	mask := make([]byte, len(p.inputs))
	for i := range p.inputs {
		if keeps(i) {
			mask[i] = 1
		}
	}
	return mask
}

// play runs the ops with bytes. look, if there is one, sees what each takes.
func (p *Profile) play(keeps []byte, look func(op *ir.Op, live Bytes)) Need {
	if p.planned != nil {
		return p.playPlanned(keeps, look)
	}
	x := p.lives
	x.made, x.gone = slices.Clone(x.made), slices.Clone(x.gone)
	for i, in := range p.inputs {
		switch end := len(x.ops) - 1; {
		case in.through && keeps[i] == 0: // a copy, since it is not the segment's
			x.made[end][in.use] += in.bytes
		case !in.through && keeps[i] == 1:
			x.gone[in.last][in.use] += in.bytes
		}
	}
	return x.play(look)
}

// playPlanned is what the segment takes beside the arena: outputs that do not take the memory of an input.
func (p *Profile) playPlanned(keeps []byte, look func(op *ir.Op, live Bytes)) Need {
	var live Bytes
	live[ForTemporaries] = p.planned.Outside
	for i, x := range p.outputs {
		if over := p.planned.Over[i]; over < 0 || keeps[over] == 0 {
			live[x.use] += x.bytes
		}
	}
	if look != nil {
		for _, op := range p.ops[:len(p.ops)-1] {
			look(op, live)
		}
	}
	return Need{Peak: live, Most: live, Op: p.arena.Op}
}
