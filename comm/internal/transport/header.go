// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/gomlx/compute/dtypes"
)

// Header is what a call carries besides data. Ranks compare it when they meet; reports print it.
type Header struct {
	Program   string
	Group     string // the ranks, and the channel unless it is 0: "[0-3]", "[0 2]/1"
	Seq       uint64 // counts the collectives of a communicator, or the sends (receives) between two ranks, from 1
	Op        Op
	Reduction Reduction // of AllReduce and ReduceScatter
	Scale     float64   // of AllReduce and ReduceScatter: 1 is none
	DType     dtypes.DType
	Bytes     int64 // of what this rank gives (Recv: takes)
	Buffers   int   // of a call of several; 0: one
	Peer      int   // the rank of the root, or of the other end; -1 if there is none
	Tag       int   // of Send and Recv
}

// String writes the header as it appears in errors: all-reduce #3 of group [0-3] (program "train", sum, Float32, 4096 bytes).
func (h Header) String() string {
	return fmt.Sprintf("%s #%d of group %s%s", h.Verb(), h.Seq, h.Group, h.details())
}

// Verb says what the call does, to whom.
func (h Header) Verb() string {
	switch h.Op {
	case Send:
		return fmt.Sprintf("send to rank %d with tag %d", h.Peer, h.Tag)
	case Recv:
		return fmt.Sprintf("recv from rank %d with tag %d", h.Peer, h.Tag)
	case Broadcast:
		return fmt.Sprintf("broadcast from rank %d", h.Peer)
	}
	return h.Op.String()
}

// details lists the rest in parentheses, or is empty.
func (h Header) details() string {
	var d []string
	if h.Program != "" {
		d = append(d, fmt.Sprintf("program %q", h.Program))
	}
	if h.Op.Reduces() {
		d = append(d, h.ReductionName())
	}
	if h.DType != dtypes.InvalidDType {
		d = append(d, h.DType.String(), fmt.Sprintf("%d bytes", h.Bytes))
	}
	if h.Buffers > 0 {
		d = append(d, fmt.Sprintf("%d buffers", h.Buffers))
	}
	if d == nil {
		return ""
	}
	return " (" + strings.Join(d, ", ") + ")"
}

// ReductionName is "sum", or "sum·0.25" when scaled.
func (h Header) ReductionName() string {
	if h.Scale != 1 {
		return fmt.Sprintf("%s·%g", h.Reduction, h.Scale)
	}
	return h.Reduction.String()
}

// Call is what a rank asks of a transport. Its arguments were checked.
type Call struct {
	Header
	Pos, PeerPos        int    // positions in the group: the caller's; the root's or the other end's
	In, Out             Buffer // in-place operations have the same in both
	InCounts, OutCounts []int
	Async               bool          // runs beside the rank's own goroutine
	Began               time.Duration // when its turn came, in world time
	Ended               time.Duration // when others finished the work of it, in world time; 0: when the rank noticed
	Owner               Owner
	Parts               []*Call // of a call of several buffers: one for each; nil: it has one
	Posted              uint64  // what a Poster calls what it offered; 0: nothing
}

// Part is the call of one of its buffers.
func (c *Call) Part(i int) *Call {
	if c.Parts == nil {
		return c
	}
	return c.Parts[i]
}

// Begin tells the owner that the call begins, before it waits. Steps of a larger call have no owner: that has begun.
func (c *Call) Begin() {
	if c.Owner != nil {
		c.Owner.Begin()
	}
}

// Owner is who made a call.
type Owner interface {
	// overdue is asked now and then while the call waits for ranks that have not come, since a time. It returns nil while they
	// may be late, and else why they will not come. It does not wait.
	Overdue(missing []int, since time.Duration) error
	// Begin sets when the call began and writes it down, once.
	Begin()
}

// Digest condenses what the calls of a collective must agree in, as disagreement compares it. Parts of all-to-all are not
// in it: pairs compare theirs.
func (c *Call) Digest() uint64 {
	h := uint64(14695981039346656037)
	mix := func(x uint64) {
		h = (h ^ x) * 1099511628211
		h ^= h >> 32
	}
	mix(c.Seq)
	mix(uint64(c.Op) | uint64(c.Reduction)<<8 | uint64(c.DType)<<16 | uint64(c.Buffers)<<32)
	mix(uint64(c.PeerPos)<<32 ^ uint64(len(c.Program)))
	mix(math.Float64bits(c.Scale))
	for i := range len(c.Program) {
		mix(uint64(c.Program[i]))
	}
	var counts []int
	switch c.Op {
	case AllReduce, Broadcast:
		mix(uint64(c.Bytes))
	case ReduceScatter:
		counts = c.InCounts
	case AllGather:
		counts = c.OutCounts
	}
	for _, n := range counts {
		mix(uint64(n))
	}
	return h
}

// writes returns what a call overwrites, of the rank's own memory.
func (c *Call) writes() Buffer {
	if c.Op == Send || c.Op == Broadcast && c.PeerPos == c.Pos {
		return Buffer{}
	}
	return c.Out
}

// Stream names a stream of messages. Lanes have at most one send and one receive of it under way.
type Stream struct{ From, To, Tag int } // positions

// StreamOf returns the stream of messages that a call belongs to.
func StreamOf(k *Call) Stream {
	if k.Op == Recv {
		return Stream{From: k.PeerPos, To: k.Pos, Tag: k.Tag}
	}
	return Stream{From: k.Pos, To: k.PeerPos, Tag: k.Tag}
}
