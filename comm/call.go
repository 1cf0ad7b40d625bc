// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

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
// memory if one of them is written, be they of one rank or of two: that is an error. Ranks of one process may all gather
// into the same Out (AllGather), which is then written once.
type Call struct {
	// Program is whose call this is: a name for reports. Ranks that meet must agree in it.
	Program string

	Op           Op
	Buf, In, Out any

	// InCounts and OutCounts are the elements of each part of In and of Out, by position in the group. Parts may be
	// empty. Nil means equal parts.
	InCounts, OutCounts []int

	// More are further buffers of an AllReduce, ReduceScatter or AllGather. They are of the same element type. One call of several buffers
	// does what a call of each does, and ranks meet once for all of them.
	More []Buffers

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

// Buffers are those that a call has besides its first ones: the fields are as in [Call].
type Buffers struct {
	Buf, In, Out        any
	InCounts, OutCounts []int
}
