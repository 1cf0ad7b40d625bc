//go:build mpi

package comm

import "unsafe"

// partsOf divides a buffer among members, one part after the other.
func partsOf(counts []int) mpiParts {
	p := mpiParts{make([]mpiInt, len(counts)), make([]mpiInt, len(counts))}
	at := 0
	for m, n := range counts {
		p.counts[m], p.offsets[m] = mpiInt(n), mpiInt(at)
		at += n
	}
	return p
}

// pinned pins the parts' own memory as well, which MPI reads while it moves them.
func (p mpiParts) pinned(op *mpiOp) mpiParts {
	op.pins.Pin(&p.counts[0])
	op.pins.Pin(&p.offsets[0])
	return p
}

// countsOf returns the elements of each member.
func countsOf(spans [][]span) []int {
	counts := make([]int, len(spans))
	for m, all := range spans {
		for _, s := range all {
			counts[m] += s.to - s.from
		}
	}
	return counts
}

// inOrder tells whether the spans of the members, one member after the other, are the whole vector in its own order.
func inOrder(spans [][]span) bool {
	at := 0
	for _, all := range spans {
		for _, s := range all {
			if s.from != at {
				return false
			}
			at = s.to
		}
	}
	return true
}

// pointers returns the addresses of an element in buffers of the calls.
func pointers(calls []*call, at func(*call) unsafe.Pointer) (all []unsafe.Pointer) {
	for _, c := range calls {
		all = append(all, at(c))
	}
	return all
}

func (e *mpiEngine) allReduce(r *round) error {
	k := r.first()
	b := k.in
	if b.len == 0 {
		return e.run(r, nil)
	}
	all := pointers(r.calls, func(c *call) unsafe.Pointer { return c.in.ptr })
	if len(all) > 1 {
		if err := e.run(r, nil); err != nil { // before anything is overwritten
			return err
		}
		reduce(k.DType, k.Reduction, 1, all[:1], all, b.len, &e.scratch)
	}
	scale := k.Scale
	var err error
	if kind, ok := mpiAdds(k.DType, k.Reduction); ok {
		err = e.run(r, func(op *mpiOp, c mpiComm) error { return op.post(mpiAllReduce(b, kind, c)) }, b)
	} else {
		err = e.reduceInParts(r, b)
		scale = 1
	}
	if err != nil {
		return err
	}
	if scale != 1 {
		reduce(k.DType, Sum, scale, all, all[:1], b.len, &e.scratch)
	} else {
		moveToAll(all[1:], all[0], int(b.bytes()))
	}
	return nil
}

// reduceInParts reduces a buffer in place, scaled: each member gets its part from all, reduces it in the order of the
// members, and gives the result to all.
func (e *mpiEngine) reduceInParts(r *round, b buffer) error {
	n, k := len(e.workers), r.first()
	counts, same := make([]int, n), make([]int, n)
	for m := range counts {
		counts[m] = b.len*(m+1)/n - b.len*m/n
	}
	mine := counts[e.team.me]
	for m := range same {
		same[m] = mine
	}
	give, take := partsOf(counts), partsOf(same)
	got := e.space(n*mine, b)
	err := e.run(r, func(op *mpiOp, c mpiComm) error {
		return op.post(mpiAllToAll(b, got, give.pinned(op), take.pinned(op), c))
	}, b, got)
	if err != nil {
		return err
	}
	if mine > 0 {
		dst := []unsafe.Pointer{b.at(int(give.offsets[e.team.me]))}
		reduce(k.DType, k.Reduction, k.Scale, dst, e.partsAt(got, mine), mine, &e.scratch)
	}
	return e.run(r, func(op *mpiOp, c mpiComm) error { return op.post(mpiAllGather(b, give.pinned(op), c)) }, b)
}

// partsAt returns the addresses of equal parts, one of each member.
func (e *mpiEngine) partsAt(b buffer, n int) (all []unsafe.Pointer) {
	for m := range e.workers {
		all = append(all, b.at(m*n))
	}
	return all
}

func (e *mpiEngine) reduceScatter(r *round) error {
	k := r.first()
	if k.in.len == 0 {
		return e.run(r, nil)
	}
	spans := e.team.spans(k.inCounts)
	counts := countsOf(spans)
	mine := counts[e.team.me]
	kind, native := mpiAdds(k.DType, k.Reduction)
	room := mine
	if !native {
		room *= len(counts)
	}
	if err := e.fits(k, room); err != nil {
		return err
	}

	// What MPI reads is one vector with one part for each member.
	space := e.space(room+k.in.len, k.in)
	got, whole := space.part(0, room), k.in
	if native && len(r.calls) == 1 && !k.out.overlaps(k.in) {
		got = k.out
	}
	if len(r.calls) > 1 || !inOrder(spans) {
		whole = space.part(room, k.in.len)
		at := 0
		for _, all := range spans {
			for _, s := range all {
				src := pointers(r.calls, func(c *call) unsafe.Pointer { return c.in.at(s.from) })
				reduce(k.DType, k.Reduction, 1, []unsafe.Pointer{whole.at(at)}, src, s.to-s.from, &e.scratch)
				at += s.to - s.from
			}
		}
	}
	parts, scale := partsOf(counts), k.Scale
	var err error
	if native {
		err = e.run(r, func(op *mpiOp, c mpiComm) error {
			return op.post(mpiReduceScatter(whole, got, parts.pinned(op), kind, c))
		}, whole, got)
	} else {
		same := make([]int, len(counts))
		for m := range same {
			same[m] = mine
		}
		take := partsOf(same)
		err = e.run(r, func(op *mpiOp, c mpiComm) error {
			return op.post(mpiAllToAll(whole, got, parts.pinned(op), take.pinned(op), c))
		}, whole, got)
		if err == nil && mine > 0 {
			reduce(k.DType, k.Reduction, scale, []unsafe.Pointer{got.ptr}, e.partsAt(got, mine), mine, &e.scratch)
		}
		scale = 1
	}
	at := 0
	for _, c := range r.calls {
		if n := c.out.len; err == nil && n > 0 {
			if scale != 1 {
				reduce(k.DType, Sum, scale, []unsafe.Pointer{c.out.ptr}, []unsafe.Pointer{got.at(at)}, n, &e.scratch)
			} else {
				move(c.out.ptr, got.at(at), n*got.size)
			}
			at += n
		}
	}
	return err
}

func (e *mpiEngine) allGather(r *round) error {
	k := r.first()
	if k.out.len == 0 {
		return e.run(r, nil)
	}
	spans := e.team.spans(k.outCounts)
	counts := countsOf(spans)
	parts := partsOf(counts)
	direct := true // the part of a member is one piece of the result
	for _, all := range spans {
		direct = direct && len(all) <= 1
	}
	whole := k.out
	if direct {
		for m, all := range spans {
			if len(all) > 0 {
				parts.offsets[m] = mpiInt(all[0].from)
			}
		}
	} else {
		whole = e.space(k.out.len, k.out)
	}
	at := int(parts.offsets[e.team.me])
	for _, c := range r.calls {
		if c.in.len > 0 {
			move(whole.at(at), c.in.ptr, int(c.in.bytes()))
			at += c.in.len
		}
	}
	err := e.run(r, func(op *mpiOp, c mpiComm) error { return op.post(mpiAllGather(whole, parts.pinned(op), c)) }, whole)
	if err != nil {
		return err
	}
	for m, all := range spans {
		at := int(parts.offsets[m])
		for _, s := range all {
			n := s.to - s.from
			for _, c := range r.calls {
				move(c.out.at(s.from), whole.at(at), n*whole.size)
			}
			at += n
		}
	}
	return nil
}

func (e *mpiEngine) allToAll(r *round) error {
	k := r.first()
	gives, takes := make([]int, len(e.workers)), make([]int, len(e.workers))
	for pos, m := range e.team.memberOf {
		for _, c := range r.calls {
			gives[m] += c.inCounts[pos]
			takes[m] += c.outCounts[pos]
		}
	}
	give, take := partsOf(gives), partsOf(takes)
	in, out := k.in, k.out
	packed := len(r.calls) > 1 || len(e.workers) < len(e.team.memberOf)
	if packed {
		space := e.space(sum(gives)+sum(takes), k.in)
		in, out = space.part(0, sum(gives)), space.part(sum(gives), sum(takes))
		e.pack(r, in)
	}
	err := e.run(r, func(op *mpiOp, c mpiComm) error {
		return op.post(mpiAllToAll(in, out, give.pinned(op), take.pinned(op), c))
	}, in, out)
	if err == nil && packed {
		e.unpack(r, out)
	}
	return err
}

// pack puts what the ranks of this worker give side by side: by member, by giving rank, by taking rank.
func (e *mpiEngine) pack(r *round, b buffer) {
	at := 0
	for _, member := range e.team.members {
		for _, c := range r.calls {
			for _, pos := range member.positions {
				if n := c.inCounts[pos]; n > 0 {
					move(b.at(at), c.in.at(sum(c.inCounts[:pos])), n*b.size)
					at += n
				}
			}
		}
	}
}

// unpack gives the ranks of this worker what others have packed.
func (e *mpiEngine) unpack(r *round, b buffer) {
	at := 0
	for _, member := range e.team.members {
		for _, pos := range member.positions {
			for _, c := range r.calls {
				if n := c.outCounts[pos]; n > 0 {
					move(c.out.at(sum(c.outCounts[:pos])), b.at(at), n*b.size)
					at += n
				}
			}
		}
	}
}

func (e *mpiEngine) broadcast(r *round) error {
	k := r.first()
	if k.in.len == 0 {
		return e.run(r, nil)
	}
	from := k
	for _, c := range r.calls {
		if c.pos == c.peer {
			from = c
		}
	}
	b, root := from.in, e.team.memberOf[k.peer]
	err := e.run(r, func(op *mpiOp, c mpiComm) error { return op.post(mpiBroadcast(b, root, c)) }, b)
	if err != nil {
		return err
	}
	for _, c := range r.calls {
		move(c.out.ptr, b.ptr, int(b.bytes()))
	}
	return nil
}
