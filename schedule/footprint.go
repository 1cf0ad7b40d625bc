package schedule

import "github.com/easyparallel/epl/ir"

// Footprint is what a segment takes on a device that plans memory when it compiles, as the engine for CPUs does.
type Footprint struct {
	// Arena is the memory of intermediate tensors. A device has one for all its segments, as large as any of them needs.
	Arena int64
	Lives []Life // in the arena
	// Outside is what else lives while the segment runs.
	Outside int64
	// Over is, for every output, the input whose memory it takes if the segment is given that to keep; -1: none.
	Over []int
}

// Life is a range of the arena that a value has from one step of the segment to another.
type Life struct {
	Value    *ir.Value // nil: it is no tensor's
	Bytes    int64
	From, To int
}

// plan notes what the segment takes as planned.
func (p *Profile) plan(l *Ledger, s *ir.Segment, f *Footprint) {
	p.planned = f
	for _, v := range s.Outputs {
		p.outputs = append(p.outputs, inputLife{use: l.Use(s.Origin(v)), bytes: v.Bytes()})
	}
	steps := 0
	for _, x := range f.Lives {
		steps = max(steps, x.To+1)
	}
	begins, ends := make([][]Life, steps), make([]Bytes, steps)
	var live Bytes
	use := func(x Life) Use {
		if x.Value == nil {
			return ForTemporaries
		}
		return l.within(s.Origin(x.Value), false)
	}
	for _, x := range f.Lives {
		begins[x.From] = append(begins[x.From], x)
		ends[x.To][use(x)] += x.Bytes
	}
	for at := range steps {
		for _, x := range begins[at] {
			live[use(x)] += x.Bytes
			if live.Total() > p.arena.Total() && x.Value != nil && x.Value.Op.ID >= 0 {
				p.at = x.Value.Op
			}
		}
		if live.Total() > p.arena.Total() {
			p.arena = live
		}
		for u := range live {
			live[u] -= ends[at][u]
		}
	}
	p.arena[ForTemporaries] += f.Arena - p.arena.Total() // gaps
}

// Arena is the memory of intermediate tensors that the segment needs of the device that runs it: by what they are for
// when most live.
func (p *Profile) Arena() Bytes { return p.arena }

// Arena is the memory of intermediate tensors of a place: as much as the segment needs that needs most.
func (s *Program) Arena(profiles []*Profile, place int) (most Bytes) {
	for i, x := range s.Segments {
		if a := profiles[i].Arena(); x.Place == place && a.Total() > most.Total() {
			most = a
		}
	}
	return most
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
		for _, op := range p.ops {
			look(op, live)
		}
	}
	return Need{Peak: live, Most: live, Op: p.at}
}
