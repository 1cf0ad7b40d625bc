// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"math"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// request is a Call that was checked, and what the world keeps of it.
type request struct {
	transport.Call
	of       *Communicator
	even     []int     // memory for equal counts
	many     []request // of a call of several buffers: of each
	bad      error     // why it must not run
	before   func()
	ticket   ticket        // a call that is not queued has none before it begins
	begun    bool          // see Begin
	inquiry  *inquiry      // into who holds it up, the last one
	found    *inquiry      // the last one that is over
	inquired time.Duration // when the last one began
	again    bool          // an inquiry found that all wait for each other, so there was another
	left     time.Duration // when it was first seen waiting for a worker that has ended; 0: it does not
}

// field is a set of Call's fields.
type field uint16

const (
	fBuf field = 1 << iota
	fIn
	fOut
	fInCounts
	fOutCounts
	fReduction
	fScale
	fRoot
	fPeer
	fTag
	fMore
)

var fieldNames = []string{"Buf", "In", "Out", "InCounts", "OutCounts", "Reduction", "Scale", "Root", "Peer", "Tag", "More"}

// usedBy lists the fields of each operation.
var usedBy = [transport.NumOps]field{
	AllReduce:     fBuf | fReduction | fScale | fMore,
	ReduceScatter: fIn | fOut | fInCounts | fReduction | fScale | fMore,
	AllGather:     fIn | fOut | fOutCounts | fMore,
	AllToAll:      fIn | fOut | fInCounts | fOutCounts,
	Broadcast:     fBuf | fRoot,
	Send:          fBuf | fPeer | fTag,
	Recv:          fBuf | fPeer | fTag,
	Barrier:       0,
}

// given lists the fields that are set.
func (c *Call) given() field {
	is := func(f field, set bool) field {
		if set {
			return f
		}
		return 0
	}
	return is(fBuf, c.Buf != nil) | is(fIn, c.In != nil) | is(fOut, c.Out != nil) |
		is(fInCounts, c.InCounts != nil) | is(fOutCounts, c.OutCounts != nil) |
		is(fReduction, c.Reduction != Sum) | is(fScale, c.Scale != 0) |
		is(fRoot, c.Root != 0) | is(fPeer, c.Peer != 0) | is(fTag, c.Tag != 0) | is(fMore, c.More != nil)
}

// check turns a Call of the rank at position pos, one of n, into a request. Of the header it fills in what follows from
// the Call. The error is a sentence's end: it does not name the rank and the call.
func (c *request) check(from *Call, pos int, ranks []int) error {
	n := len(ranks)
	c.Pos, c.PeerPos = pos, -1
	c.Program, c.Op, c.Peer, c.before = from.Program, from.Op, -1, from.Before
	if from.Op == 0 || from.Op >= transport.NumOps {
		return errors.Errorf("%s is no operation", from.Op)
	}
	if extra := from.given() &^ usedBy[from.Op]; extra != 0 {
		for i, name := range fieldNames {
			if extra&(1<<i) != 0 {
				return errors.Errorf("%s has no %s; leave the field empty", from.Op, name)
			}
		}
	}
	switch from.Op {
	case Broadcast, Send, Recv:
		c.PeerPos = from.Root + from.Peer // one of them is 0
		if c.PeerPos < 0 || c.PeerPos >= n {
			return errors.Errorf("position %d is outside the group of %d ranks; use 0 to %d", c.PeerPos, n, n-1)
		}
		c.Peer, c.Tag = ranks[c.PeerPos], from.Tag
		if from.Op != Broadcast && c.PeerPos == pos {
			return errors.Errorf("a rank cannot exchange with itself; copy instead")
		}
	}
	if err := c.checkBuffers(from); err != nil {
		return err
	}
	if err := c.checkCounts(from, n); err != nil {
		return err
	}
	if err := c.checkReduction(from); err != nil {
		return err
	}
	return c.checkMore(from, pos, ranks)
}

// checkMore makes a call of each buffer, if there are several.
func (c *request) checkMore(from *Call, pos int, ranks []int) error {
	if len(from.More) == 0 {
		return nil
	}
	c.many = make([]request, 1+len(from.More))
	c.many[0].Call = c.Call
	for i, b := range from.More {
		one := *from
		one.More, one.Buf, one.In, one.Out, one.InCounts, one.OutCounts = nil, b.Buf, b.In, b.Out, b.InCounts, b.OutCounts
		p := &c.many[1+i]
		if err := p.check(&one, pos, ranks); err != nil {
			return errors.WithMessagef(err, "buffer %d of %d", 1+i, len(c.many))
		}
		if p.DType != c.DType {
			return errors.Errorf("buffer %d holds %s and the first %s; make a call for each type", 1+i, p.DType, c.DType)
		}
		c.Bytes += p.Bytes
	}
	c.Buffers = len(c.many)
	for i := range c.many {
		c.many[i].Buffers = c.Buffers
		c.Parts = append(c.Parts, &c.many[i].Call)
	}
	return nil
}

// Begin implements transport.Owner: the call's clock starts, and the flight recorder has it as started. Again it does nothing.
func (c *request) Begin() {
	if c.begun {
		return
	}
	c.begun, c.Began = true, c.of.group.world.base.Now()
	if r := &c.of.local.recorder; c.Async {
		r.set(c.ticket, Started, c.Began)
	} else {
		c.ticket = r.add(&c.Header, Started, c.Began)
	}
}

// identify gives the calls of several buffers what the call got when its turn came.
func (c *request) identify() {
	for _, p := range c.Parts {
		p.Group, p.Seq, p.Owner, p.Async, p.Began = c.Group, c.Seq, c.Owner, c.Async, c.Began
	}
}

func (c *request) checkBuffers(from *Call) error {
	switch {
	case usedBy[c.Op]&fBuf != 0:
		b, err := givenBuffer("Buf", from.Buf)
		if err != nil {
			return err
		}
		c.In, c.Out = b, b
	case usedBy[c.Op]&fIn != 0:
		var err error
		if c.In, err = givenBuffer("In", from.In); err != nil {
			return err
		}
		if c.Out, err = givenBuffer("Out", from.Out); err != nil {
			return err
		}
		if c.In.DType != c.Out.DType {
			return errors.Errorf("In holds %s and Out %s; they must be the same", c.In.DType, c.Out.DType)
		}
	}
	c.DType, c.Bytes = c.In.DType, c.In.Bytes()
	return nil
}

func givenBuffer(name string, flat any) (transport.Buffer, error) {
	if flat == nil {
		return transport.Buffer{}, errors.Errorf("%s is missing; give a slice", name)
	}
	b, ok := transport.BufferOf(flat)
	if !ok {
		return transport.Buffer{}, errors.Errorf("%s is a %T; give a flat slice of one of GoMLX's element types", name, flat)
	}
	return b, nil
}

func (c *request) checkCounts(from *Call, n int) (err error) {
	uses := usedBy[c.Op]
	if uses&(fInCounts|fOutCounts) == 0 {
		return nil
	}
	c.even = slices.Grow(c.even[:0], 2*n)
	if uses&fInCounts != 0 {
		if c.InCounts, err = c.parts("In", c.In, from.InCounts, n); err != nil {
			return err
		}
	}
	if uses&fOutCounts != 0 {
		if c.OutCounts, err = c.parts("Out", c.Out, from.OutCounts, n); err != nil {
			return err
		}
	}
	var whole, part transport.Buffer
	switch c.Op {
	case ReduceScatter:
		if want := c.InCounts[c.Pos]; c.Out.Len != want {
			return errors.Errorf("Out has %d elements, but this rank's part of In has %d", c.Out.Len, want)
		}
		whole, part = c.In.Part(transport.Total(c.InCounts[:c.Pos]), c.Out.Len), c.Out
	case AllGather:
		if want := c.OutCounts[c.Pos]; c.In.Len != want {
			return errors.Errorf("In has %d elements, but this rank's part of Out has %d", c.In.Len, want)
		}
		whole, part = c.Out.Part(transport.Total(c.OutCounts[:c.Pos]), c.In.Len), c.In
	case AllToAll:
		if a, b := c.InCounts[c.Pos], c.OutCounts[c.Pos]; a != b {
			return errors.Errorf("this rank gives itself %d elements and expects %d", a, b)
		}
	}
	if c.In.Overlaps(c.Out) && !(c.Op != AllToAll && part.Same(whole)) {
		return errors.Errorf("In and Out share memory; use separate buffers")
	}
	return nil
}

// parts checks the counts of a buffer, or makes equal ones.
func (c *request) parts(name string, b transport.Buffer, counts []int, n int) ([]int, error) {
	if counts == nil {
		if b.Len%n != 0 {
			return nil, errors.Errorf("the %d elements of %s do not divide into %d equal parts; give %sCounts", b.Len, name, n, name)
		}
		from := len(c.even)
		for range n {
			c.even = append(c.even, b.Len/n)
		}
		return c.even[from:], nil
	}
	if len(counts) != n {
		return nil, errors.Errorf("%sCounts has %d parts for %d ranks; give one for each", name, len(counts), n)
	}
	for _, k := range counts {
		if k < 0 {
			return nil, errors.Errorf("%sCounts %d has a negative part", name, counts)
		}
	}
	if total := transport.Total(counts); total != b.Len {
		return nil, errors.Errorf("%s has %d elements, but %sCounts %d adds up to %d", name, b.Len, name, counts, total)
	}
	return counts, nil
}

func (c *request) checkReduction(from *Call) error {
	if !c.Op.Reduces() {
		return nil
	}
	c.Reduction, c.Scale = from.Reduction, from.Scale
	if c.Scale == 0 {
		c.Scale = 1
	}
	switch {
	case c.Reduction >= transport.NumReductions:
		return errors.Errorf("%s is no reduction", c.Reduction)
	case !c.Reduction.DefinedFor(c.DType):
		return errors.Errorf("%s has no %s; use sum or prod", c.DType, c.Reduction)
	case math.IsNaN(c.Scale) || math.IsInf(c.Scale, 0):
		return errors.Errorf("the scale %g is not finite", c.Scale)
	case c.Scale != 1 && !transport.Scalable(c.DType):
		return errors.Errorf("%s cannot be scaled by %g; convert to a float type, or use no scale", c.DType, c.Scale)
	}
	return nil
}

// reset forgets the buffers, so that they can be collected, and keeps the memory.
func (c *request) reset() {
	clear(c.many)
	*c = request{even: c.even[:0]}
}
