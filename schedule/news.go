package schedule

import (
	"maps"
	"slices"

	"github.com/easyparallel/epl/ir"
)

// news is what the devices of a model replica can know of each other: who receives a value of another knows what that one
// had done when it sent it, and all that it knew.
type news struct {
	s     *Program
	known [][]int                   // by place: how many instructions of each place are done, as far as it knows
	sent  map[transferAt][]int      // what the sender knew
	meets map[meeting]map[int][]int // by place that has arrived: what it knew
	takes map[transferAt]taken      // the receives
}

// transferAt is a transfer in a micro-batch.
type transferAt struct{ transfer, micro int }

// taken is an instruction of a place, by which it takes a value of another.
type taken struct{ place, at int }

// meeting is an exchange in a micro-batch, or a bucket.
type meeting struct {
	op            *ir.Op
	bucket, micro int
}

func newNews(s *Program) *news {
	g := &news{s: s, sent: map[transferAt][]int{}, meets: map[meeting]map[int][]int{}, takes: map[transferAt]taken{}}
	for place, list := range s.Places {
		g.known = append(g.known, make([]int, len(s.Places)))
		for i, in := range list {
			if in.Kind == Receive {
				g.takes[transferAt{in.Transfer, in.Micro}] = taken{place, i}
			}
		}
	}
	return g
}

// taking is the instruction that takes what another sends.
func (g *news) taking(send Instr) taken { return g.takes[transferAt{send.Transfer, send.Micro}] }

// knows tells whether a place knows that a value was taken.
func (g *news) knows(place int, x taken) bool { return g.known[place][x.place] > x.at }

// hears tells whether a place can do its next instruction. If so, it learns what that tells it.
func (g *news) hears(place, at int) bool {
	in := g.s.Places[place][at]
	switch in.Kind {
	case Receive, Feed:
		if in.Transfer < 0 {
			return true
		}
		message, ok := g.sent[transferAt{in.Transfer, in.Micro}]
		g.learn(place, message)
		return ok
	case Exchange:
		m := meeting{op: in.Op, micro: in.Micro}
		if g.meets[m][place] == nil {
			g.arrives(place, m)
		}
		return g.meet(place, m, in.Op.Attrs.(*ir.Exchange).Places)
	case Wait:
		b, m := g.s.Buckets[in.Bucket], meeting{bucket: in.Bucket}
		switch {
		case b.Parts && in.Micro != Once: // each place has its like in other model replicas
			return true
		case b.Parts && g.meets[m][place] == nil:
			g.arrives(place, m)
		}
		return g.meet(place, m, b.Places)
	}
	return true
}

func (g *news) arrives(place int, m meeting) {
	if g.meets[m] == nil {
		g.meets[m] = map[int][]int{}
	}
	g.meets[m][place] = slices.Clone(g.known[place])
}

// meet lets a place wait until all have arrived.
func (g *news) meet(place int, m meeting, places []int) bool {
	if len(g.meets[m]) < len(places) {
		return false
	}
	for other := range maps.Values(g.meets[m]) {
		g.learn(place, other)
	}
	return true
}

func (g *news) learn(place int, message []int) {
	for i, n := range message {
		g.known[place][i] = max(g.known[place][i], n)
	}
}

// tells notes that a place has done an instruction, and what it tells others by that.
func (g *news) tells(place, at int) {
	g.known[place][place] = at + 1
	switch in := g.s.Places[place][at]; in.Kind {
	case Send:
		g.sent[transferAt{in.Transfer, in.Micro}] = slices.Clone(g.known[place])
	case Merge:
		if !g.s.Buckets[in.Bucket].Parts {
			g.arrives(place, meeting{bucket: in.Bucket})
		}
	}
}
