// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build mpi

package mpi

import (
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/kernel"
	"github.com/easyparallel/epl/comm/internal/transport"
)

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
func countsOf(spans [][]transport.Span) []int {
	counts := make([]int, len(spans))
	for m, all := range spans {
		for _, s := range all {
			counts[m] += s.To - s.From
		}
	}
	return counts
}

// inOrder tells whether the spans of the members, one member after the other, are the whole vector in its own order.
func inOrder(spans [][]transport.Span) bool {
	at := 0
	for _, all := range spans {
		for _, s := range all {
			if s.From != at {
				return false
			}
			at = s.To
		}
	}
	return true
}

// pointers returns the addresses of an element in buffers of the calls.
func pointers(calls []*transport.Call, at func(*transport.Call) unsafe.Pointer) (all []unsafe.Pointer) {
	for _, c := range calls {
		all = append(all, at(c))
	}
	return all
}

func (e *engine) allReduce(r *transport.Round) error {
	k := r.First()
	b := k.In
	if b.Len == 0 {
		return e.run(r, nil)
	}
	all := pointers(r.Calls, func(c *transport.Call) unsafe.Pointer { return c.In.Ptr })
	if len(all) > 1 {
		if err := e.run(r, nil); err != nil { // before anything is overwritten
			return err
		}
		kernel.Reduce(k.DType, k.Reduction, 1, all[:1], all, b.Len, &e.scratch)
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
		kernel.Reduce(k.DType, transport.Sum, scale, all, all[:1], b.Len, &e.scratch)
	} else {
		transport.MoveToAll(all[1:], all[0], int(b.Bytes()))
	}
	return nil
}

// reduceInParts reduces a buffer in place, scaled: each member gets its part from all, reduces it in the order of the
// members, and gives the result to all.
func (e *engine) reduceInParts(r *transport.Round, b transport.Buffer) error {
	n, k := len(e.workers), r.First()
	counts, same := make([]int, n), make([]int, n)
	for m := range counts {
		counts[m] = b.Len*(m+1)/n - b.Len*m/n
	}
	mine := counts[e.team.Me]
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
		dst := []unsafe.Pointer{b.At(int(give.offsets[e.team.Me]))}
		kernel.Reduce(k.DType, k.Reduction, k.Scale, dst, e.partsAt(got, mine), mine, &e.scratch)
	}
	return e.run(r, func(op *mpiOp, c mpiComm) error { return op.post(mpiAllGather(b, give.pinned(op), c)) }, b)
}

// partsAt returns the addresses of equal parts, one of each member.
func (e *engine) partsAt(b transport.Buffer, n int) (all []unsafe.Pointer) {
	for m := range e.workers {
		all = append(all, b.At(m*n))
	}
	return all
}

func (e *engine) reduceScatter(r *transport.Round) error {
	k := r.First()
	if k.In.Len == 0 {
		return e.run(r, nil)
	}
	spans := e.team.Spans(k.InCounts)
	counts := countsOf(spans)
	mine := counts[e.team.Me]
	kind, native := mpiAdds(k.DType, k.Reduction)
	room := mine
	if !native {
		room *= len(counts)
	}
	if err := e.fits(k, room); err != nil {
		return err
	}

	// What MPI reads is one vector with one part for each member.
	space := e.space(room+k.In.Len, k.In)
	got, whole := space.Part(0, room), k.In
	if native && len(r.Calls) == 1 && !k.Out.Overlaps(k.In) {
		got = k.Out
	}
	if len(r.Calls) > 1 || !inOrder(spans) {
		whole = space.Part(room, k.In.Len)
		at := 0
		for _, all := range spans {
			for _, s := range all {
				src := pointers(r.Calls, func(c *transport.Call) unsafe.Pointer { return c.In.At(s.From) })
				kernel.Reduce(k.DType, k.Reduction, 1, []unsafe.Pointer{whole.At(at)}, src, s.To-s.From, &e.scratch)
				at += s.To - s.From
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
			kernel.Reduce(k.DType, k.Reduction, scale, []unsafe.Pointer{got.Ptr}, e.partsAt(got, mine), mine, &e.scratch)
		}
		scale = 1
	}
	at := 0
	for _, c := range r.Calls {
		if n := c.Out.Len; err == nil && n > 0 {
			if scale != 1 {
				kernel.Reduce(k.DType, transport.Sum, scale, []unsafe.Pointer{c.Out.Ptr}, []unsafe.Pointer{got.At(at)}, n, &e.scratch)
			} else {
				transport.Move(c.Out.Ptr, got.At(at), n*got.Size)
			}
			at += n
		}
	}
	return err
}

func (e *engine) allGather(r *transport.Round) error {
	k := r.First()
	if k.Out.Len == 0 {
		return e.run(r, nil)
	}
	spans := e.team.Spans(k.OutCounts)
	counts := countsOf(spans)
	parts := partsOf(counts)
	direct := true // the part of a member is one piece of the result
	for _, all := range spans {
		direct = direct && len(all) <= 1
	}
	whole := k.Out
	if direct {
		for m, all := range spans {
			if len(all) > 0 {
				parts.offsets[m] = mpiInt(all[0].From)
			}
		}
	} else {
		whole = e.space(k.Out.Len, k.Out)
	}
	at := int(parts.offsets[e.team.Me])
	for _, c := range r.Calls {
		if c.In.Len > 0 {
			transport.Move(whole.At(at), c.In.Ptr, int(c.In.Bytes()))
			at += c.In.Len
		}
	}
	err := e.run(r, func(op *mpiOp, c mpiComm) error { return op.post(mpiAllGather(whole, parts.pinned(op), c)) }, whole)
	if err != nil {
		return err
	}
	for m, all := range spans {
		at := int(parts.offsets[m])
		for _, s := range all {
			n := s.To - s.From
			for _, c := range r.Calls {
				transport.Move(c.Out.At(s.From), whole.At(at), n*whole.Size)
			}
			at += n
		}
	}
	return nil
}

func (e *engine) allToAll(r *transport.Round) error {
	k := r.First()
	gives, takes := make([]int, len(e.workers)), make([]int, len(e.workers))
	for pos, m := range e.team.MemberOf {
		for _, c := range r.Calls {
			gives[m] += c.InCounts[pos]
			takes[m] += c.OutCounts[pos]
		}
	}
	give, take := partsOf(gives), partsOf(takes)
	in, out := k.In, k.Out
	packed := len(r.Calls) > 1 || len(e.workers) < len(e.team.MemberOf)
	if packed {
		space := e.space(transport.Total(gives)+transport.Total(takes), k.In)
		in, out = space.Part(0, transport.Total(gives)), space.Part(transport.Total(gives), transport.Total(takes))
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
func (e *engine) pack(r *transport.Round, b transport.Buffer) {
	at := 0
	for _, member := range e.team.Members {
		for _, c := range r.Calls {
			for _, pos := range member.Positions {
				if n := c.InCounts[pos]; n > 0 {
					transport.Move(b.At(at), c.In.At(transport.Total(c.InCounts[:pos])), n*b.Size)
					at += n
				}
			}
		}
	}
}

// unpack gives the ranks of this worker what others have packed.
func (e *engine) unpack(r *transport.Round, b transport.Buffer) {
	at := 0
	for _, member := range e.team.Members {
		for _, pos := range member.Positions {
			for _, c := range r.Calls {
				if n := c.OutCounts[pos]; n > 0 {
					transport.Move(c.Out.At(transport.Total(c.OutCounts[:pos])), b.At(at), n*b.Size)
					at += n
				}
			}
		}
	}
}

func (e *engine) broadcast(r *transport.Round) error {
	k := r.First()
	if k.In.Len == 0 {
		return e.run(r, nil)
	}
	from := k
	for _, c := range r.Calls {
		if c.Pos == c.PeerPos {
			from = c
		}
	}
	b, root := from.In, e.team.MemberOf[k.PeerPos]
	err := e.run(r, func(op *mpiOp, c mpiComm) error { return op.post(mpiBroadcast(b, root, c)) }, b)
	if err != nil {
		return err
	}
	for _, c := range r.Calls {
		transport.Move(c.Out.Ptr, b.Ptr, int(b.Bytes()))
	}
	return nil
}
