package schedule

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// smallest is how many bytes a variable has at least that is worth keeping on the host.
const smallest = 1 << 10

// gatherAhead moves what gathers a variable in front of the segment before the one that needs it, so that one runs while the
// other is on its way.
func (b *builder) gatherAhead(place int) {
	l := b.s.Places[place]
	for i, in := range l {
		if in.Kind != Exchange || in.Micro == Once || !isGather(in.Op) {
			continue
		}
		at := i
		for at > 0 && l[at-1].Kind != Run {
			at--
		}
		if at == 0 || l[at-1].Micro == Once {
			continue
		}
		// Those that were moved there before stay in front: devices meet in the same order.
		l = slices.Insert(slices.Delete(l, i, i+1), at-1, in)
	}
	b.s.Places[place] = l
}

// toHost chooses the variables that are kept on the host.
func (b *builder) toHost() {
	for i := range b.s.Variables {
		x := &b.s.Variables[i]
		unmade := func(v *ir.Value) bool { return v.Op.IsLeaf() }
		x.Host = b.offloaded[x.Param] && x.Param.Bytes() >= smallest && !slices.ContainsFunc(x.Updates, unmade)
	}
}

// offload keeps variables on the host: they come to the device before they are used, a segment ahead, and go after it. New
// values go to the host when they are computed.
func (b *builder) offload(place int) {
	stores := map[*ir.Value]bool{}
	for _, x := range b.s.Variables {
		if v := x.At(place); x.Host && v != nil {
			b.load(place, v)
			if x.Updates != nil {
				stores[x.Updates[slices.Index(x.Places, place)]] = true
			}
		}
	}
	var l []Instr
	for _, in := range b.s.Places[place] {
		l = append(l, in)
		for _, at := range b.s.makes(in, place) {
			if at.Micro == Once && stores[at.Value] && in.Kind != Load {
				l = append(l, Instr{Kind: Store, Value: at.Value, Micro: Once})
			}
		}
	}
	b.s.Places[place] = l
}

// load inserts what brings a variable to the device: once for uses that follow each other with at most a segment in between.
func (b *builder) load(place int, v *ir.Value) {
	const near = 1
	var l []Instr
	last := -1 // where in l the segment before runs
	runs := near + 1
	for _, in := range b.s.Places[place] {
		if slices.Contains(b.s.uses(in, place), Slot{v, Once}) {
			if runs > near {
				at := len(l)
				if last >= 0 {
					at = last
				}
				l = slices.Insert(l, at, Instr{Kind: Load, Value: v, Micro: Once})
			}
			runs = 0
		} else if in.Kind == Run {
			runs++
		}
		if in.Kind == Run {
			last = len(l)
		}
		l = append(l, in)
	}
	b.s.Places[place] = l
}
