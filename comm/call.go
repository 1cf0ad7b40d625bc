package comm

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute/dtypes"
)

// Call describes one operation of one rank: what [Communicator.Do] does and [Communicator.Start] queues.
// A field that the operation does not use must be zero.
//
//	AllReduce      Buf is reduced in place. Reduction, Scale.
//	ReduceScatter  In is reduced, Out gets this rank's part. InCounts, Reduction, Scale.
//	AllGather      In is this rank's part, Out gets all. OutCounts.
//	AllToAll       In is one part for each rank, Out gets one part from each. InCounts, OutCounts.
//	Broadcast      Buf is the root's buffer, or where it goes. Root.
//	Send, Recv     Buf goes to Peer, or comes from it. Tag.
//	Barrier        nothing.
//
// Buffers are flat slices of GoMLX's element types. They are lent to the call until it is over. Out may be this rank's
// part of In (ReduceScatter), In this rank's part of Out (AllGather); otherwise no two buffers of a call may share
// memory if one of them is written, be they of one rank or of two: that is an error.
type Call struct {
	// Program is whose call this is: a name for reports. Ranks that meet must agree in it.
	Program string

	Op           Op
	Buf, In, Out any

	// InCounts and OutCounts are the elements of each part of In and of Out, by position in the group. Parts may be
	// empty. Nil means equal parts.
	InCounts, OutCounts []int

	Reduction Reduction

	// Scale multiplies the result of a reduction, in the same pass: 1/K makes a mean. Only for floats and complex
	// numbers. Zero means one, which changes no bit.
	Scale float64

	// Before, if not nil, is called when the turn of the call has come, before its buffers are read: it may fill them from what
	// earlier calls of the communicator gave. What it does counts as part of the call.
	Before func()

	Root int // the position in the group of who broadcasts
	Peer int // the position in the group of the other end of Send and Recv
	Tag  int // sends and receives with different tags do not meet
}

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
	Peer      int   // the rank of the root, or of the other end; -1 if there is none
	Tag       int   // of Send and Recv
}

// String writes the header as it appears in errors: all-reduce #3 of group [0-3] (program "train", sum, Float32, 4096 bytes).
func (h Header) String() string {
	return fmt.Sprintf("%s #%d of group %s%s", h.verb(), h.Seq, h.Group, h.details())
}

// verb says what the call does, to whom.
func (h Header) verb() string {
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
	if h.Op.reduces() {
		d = append(d, h.reduction())
	}
	if h.DType != dtypes.InvalidDType {
		d = append(d, h.DType.String(), fmt.Sprintf("%d bytes", h.Bytes))
	}
	if d == nil {
		return ""
	}
	return " (" + strings.Join(d, ", ") + ")"
}

// reduction is "sum", or "sum·0.25" when scaled.
func (h Header) reduction() string {
	if h.Scale != 1 {
		return fmt.Sprintf("%s·%g", h.Reduction, h.Scale)
	}
	return h.Reduction.String()
}
