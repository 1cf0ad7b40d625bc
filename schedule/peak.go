package schedule

import (
	"sync"

	"github.com/easyparallel/epl/ir"
)

// Need is what something takes for a moment, beyond what lives before it. A count is negative where inputs die on the way.
type Need struct {
	Peak Bytes // when it is most
	Most Bytes // the most of each use
	// Op is the one that runs when it is most; nil: none does.
	Op *ir.Op
}

// Profile is what a segment needs while it runs: its ops run in order, and a value dies after its last use. So do inputs
// that it is given to keep. Where the device plans memory, it is what that comes to.
type Profile struct {
	ops        []*ir.Op
	made, gone []Bytes // by op: what it makes, and what dies after it
	inputs     []inputLife

	// Of a device that plans memory: what it plans, what that is for, and the op that runs when most of it lives.
	planned *Footprint
	outputs []inputLife
	arena   Bytes
	at      *ir.Op

	mu    sync.Mutex
	needs map[string]Need // by the inputs that it may keep
}

// inputLife is what there is to know of an input of a segment.
type inputLife struct {
	use   Use
	bytes int64
	last  int // the op that reads it last
	// through: it is also an output.
	through bool
}

// Profile reads a segment. f is what the device plans for it; nil: ops run one by one, each with memory of its own.
func (l *Ledger) Profile(s *ir.Segment, f *Footprint) *Profile {
	n := len(s.Ops)
	p := &Profile{ops: s.Ops, made: make([]Bytes, n), gone: make([]Bytes, n), needs: map[string]Need{}}
	last := map[*ir.Value]int{}
	for i, op := range s.Ops {
		op.Uses(func(v *ir.Value) { last[v] = i })
	}
	leaves := map[*ir.Value]bool{}
	for _, v := range s.Outputs {
		leaves[v] = true
	}
	for i, op := range s.Ops {
		for _, v := range op.Outputs {
			use, at := l.within(s.Origin(v), leaves[v]), i
			if x, used := last[v]; used {
				at = x
			}
			p.made[i][use] += v.Bytes()
			if !leaves[v] {
				p.gone[at][use] += v.Bytes()
			}
		}
	}
	for _, v := range s.Inputs {
		x := inputLife{use: l.Use(s.Origin(v)), bytes: v.Bytes(), last: last[v], through: leaves[v]}
		if given(v) {
			x.bytes = 0 // a number that is on nobody's books
		}
		p.inputs = append(p.inputs, x)
	}
	if f != nil {
		p.plan(l, s, f)
	}
	return p
}

// Inputs is how many inputs the segment has.
func (p *Profile) Inputs() int { return len(p.inputs) }

// Use is what an input is for.
func (p *Profile) Use(input int) Use { return p.inputs[input].use }

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
	dies := make([]Bytes, len(p.gone))
	copy(dies, p.gone)
	var copies Bytes // of inputs that are handed through and not the segment's
	for i, x := range p.inputs {
		switch {
		case x.through && keeps[i] == 0:
			copies[x.use] += x.bytes
		case !x.through && keeps[i] == 1 && len(dies) > 0:
			dies[x.last][x.use] += x.bytes
		}
	}
	var live Bytes
	var n Need
	note := func(op *ir.Op) {
		if live.Total() > n.Peak.Total() {
			n.Peak, n.Op = live, op
		}
		n.Most.raise(live)
		if look != nil {
			look(op, live)
		}
	}
	for i := range dies {
		live.add(p.made[i])
		note(p.ops[i])
		for u := range live {
			live[u] -= dies[i][u]
		}
	}
	live.add(copies)
	note(nil)
	return n
}
