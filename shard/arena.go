package shard

// arena is memory for one round of propagation after the other: choices are compared by the hundred.
type arena struct {
	held       slab[held]
	steps      slab[step]
	inputs     slab[*held]
	placements slab[Placement]
	wishes     slab[wish]
	bills      slab[bill]
	marks      slab[bool]
	list       []*step
}

func (a *arena) reset() {
	a.held.reset()
	a.steps.reset()
	a.inputs.reset()
	a.placements.reset()
	a.wishes.reset()
	a.bills.reset()
	a.marks.reset()
}

// slab hands out memory in pieces, and takes all of it back at once.
type slab[T any] struct {
	chunks [][]T
	chunk  int // that is being handed out
	used   int // of it
}

const chunkSize = 4096

// take returns n zero elements.
func (s *slab[T]) take(n int) []T {
	for s.chunk < len(s.chunks) && s.used+n > len(s.chunks[s.chunk]) {
		s.chunk, s.used = s.chunk+1, 0
	}
	if s.chunk == len(s.chunks) {
		s.chunks = append(s.chunks, make([]T, max(n, chunkSize)))
	}
	r := s.chunks[s.chunk][s.used : s.used+n : s.used+n]
	s.used += n
	clear(r)
	return r
}

func (s *slab[T]) one() *T { return &s.take(1)[0] }

func (s *slab[T]) reset() { s.chunk, s.used = 0, 0 }
