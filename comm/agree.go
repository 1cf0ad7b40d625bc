package comm

import (
	"fmt"
	"slices"

	"github.com/pkg/errors"
)

// disagreement says how the calls of two ranks differ that have to be one collective; empty if they do not.
// The parts of AllToAll are not compared.
func disagreement(a, b *call) string {
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
	case a.peer != b.peer:
		return "the roots differ"
	case a.Op == ReduceScatter && !slices.Equal(a.inCounts, b.inCounts):
		return fmt.Sprintf("the elements of the parts differ, %d and %d", a.inCounts, b.inCounts)
	case a.Op == AllGather && !slices.Equal(a.outCounts, b.outCounts):
		return fmt.Sprintf("the elements of the parts differ, %d and %d", a.outCounts, b.outCounts)
	case (a.Op == AllReduce || a.Op == Broadcast) && a.Bytes != b.Bytes:
		return "the sizes differ"
	}
	return ""
}

// checkAgreement compares calls of some ranks of a group, whose ranks are given by position, in the order of their positions.
func checkAgreement(ranks []int, calls []*call) error {
	mismatch := func(a, b *call, detail string) error {
		return &MismatchError{Ranks: [2]int{ranks[a.pos], ranks[b.pos]}, Calls: [2]Header{a.Header, b.Header}, Detail: detail}
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
			if give, take := a.inCounts[b.pos], b.outCounts[a.pos]; give != take {
				return mismatch(a, b, fmt.Sprintf("rank %d gives %d elements, rank %d expects %d", ranks[a.pos], give, ranks[b.pos], take))
			}
		}
	}
	return nil
}

// checkPair compares a send and the receive that it meets.
func checkPair(ranks []int, send, recv *call) error {
	detail := ""
	switch {
	case send.Program != recv.Program:
		detail = "the programs differ"
	case send.DType != recv.DType:
		detail = "the element types differ"
	case send.Bytes != recv.Bytes:
		detail = "the sizes differ"
	default:
		return checkApart(ranks, []*call{send, recv})
	}
	return &MismatchError{Ranks: [2]int{ranks[send.pos], ranks[recv.pos]}, Calls: [2]Header{send.Header, recv.Header}, Detail: detail}
}

// checkApart refuses memory that one rank writes and another reads or writes. Only ranks that share an address space
// can have such.
func checkApart(ranks []int, calls []*call) error {
	for i, a := range calls {
		for _, b := range calls[:i] {
			if a.writes().overlaps(b.in) || a.writes().overlaps(b.out) || b.writes().overlaps(a.in) {
				return errors.Errorf("epl: rank %d and rank %d gave memory that overlaps to %s; give every rank a buffer of its own",
					ranks[b.pos], ranks[a.pos], a.Header)
			}
		}
	}
	return nil
}
