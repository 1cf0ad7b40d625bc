// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"slices"

	"github.com/pkg/errors"
)

// disagreement says how the calls of two ranks differ that have to be one collective; empty if they do not.
// The parts of AllToAll are not compared.
func disagreement(a, b *Call) string {
	switch {
	case a.Seq != b.Seq:
		return fmt.Sprintf("they have made %d and %d calls", a.Seq, b.Seq)
	case a.Op != b.Op:
		return "the operations differ"
	case a.Program != b.Program:
		return "the programs differ"
	case a.DType != b.DType:
		return "the element types differ"
	case a.Reduction != b.Reduction || a.Scale != b.Scale:
		return "the reductions differ"
	case a.Buffers != b.Buffers:
		return "the numbers of buffers differ"
	case a.PeerPos != b.PeerPos:
		return "the roots differ"
	case a.Op == ReduceScatter && !slices.Equal(a.InCounts, b.InCounts):
		return fmt.Sprintf("the elements of the parts differ, %d and %d", a.InCounts, b.InCounts)
	case a.Op == AllGather && !slices.Equal(a.OutCounts, b.OutCounts):
		return fmt.Sprintf("the elements of the parts differ, %d and %d", a.OutCounts, b.OutCounts)
	case (a.Op == AllReduce || a.Op == Broadcast) && a.Bytes != b.Bytes:
		return "the sizes differ"
	}
	return ""
}

// CheckAgreement compares calls of some ranks of a group, whose ranks are given by position, in the order of their positions.
func CheckAgreement(ranks []int, calls []*Call) error {
	mismatch := func(a, b *Call, detail string) error {
		return &MismatchError{Ranks: [2]int{ranks[a.Pos], ranks[b.Pos]}, Calls: [2]Header{a.Header, b.Header}, Detail: detail}
	}
	for _, c := range calls[1:] {
		if d := disagreement(calls[0], c); d != "" {
			return mismatch(calls[0], c, d)
		}
	}
	if calls[0].Op != AllToAll {
		return nil
	}
	for _, a := range calls {
		for _, b := range calls {
			if give, take := a.InCounts[b.Pos], b.OutCounts[a.Pos]; give != take {
				return mismatch(a, b, fmt.Sprintf("rank %d gives %d elements, rank %d expects %d", ranks[a.Pos], give, ranks[b.Pos], take))
			}
		}
	}
	return nil
}

// CheckPair compares a send and the receive that it meets.
func CheckPair(ranks []int, send, recv *Call) error {
	detail := ""
	switch {
	case send.Program != recv.Program:
		detail = "the programs differ"
	case send.DType != recv.DType:
		detail = "the element types differ"
	case send.Bytes != recv.Bytes:
		detail = "the sizes differ"
	default:
		return CheckApart(ranks, []*Call{send, recv})
	}
	return &MismatchError{Ranks: [2]int{ranks[send.Pos], ranks[recv.Pos]}, Calls: [2]Header{send.Header, recv.Header}, Detail: detail}
}

// CheckApart refuses memory that one rank writes and another reads or writes. Only ranks that share an address space
// can have such.
func CheckApart(ranks []int, calls []*Call) error {
	for i, a := range calls {
		for _, b := range calls[:i] {
			one := a.Op == AllGather && a.Out == b.Out // both get the same
			if a.writes().Overlaps(b.In) || !one && a.writes().Overlaps(b.Out) || b.writes().Overlaps(a.In) {
				return errors.Errorf("epl: rank %d and rank %d gave memory that overlaps to %s; give every rank a buffer of its own",
					ranks[b.Pos], ranks[a.Pos], a.Header)
			}
		}
	}
	return nil
}
