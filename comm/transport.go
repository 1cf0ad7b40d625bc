package comm

// fabric connects the ranks of a world. It is what a kind of transport implements, with transport.
type fabric interface {
	// connect returns the end of a communicator that belongs to the rank at a position of the group. It is called
	// once for each; all ends of one communicator name it by the same group and channel.
	connect(g *Group, channel, pos int) transport
}

// transport is one rank's end of one communicator.
//
// It gets calls whose own arguments were checked. What it has to promise:
//   - run returns when the call's buffers belong to the caller again, also when it returns an error: from then on
//     nobody reads or writes them.
//   - Collectives come one at a time, in the order of their sequence numbers. Sends and receives come beside them and
//     beside each other, one at a time and in order for each peer and tag.
//   - Calls that do not agree (see disagreement) are errors on all ranks. So is a rank that does not come in time,
//     counted from the first that came. After an error the communicator is broken: all pending and later calls
//     return that error.
//   - A reduction combines the elements in the order of the group's positions, so that the result has the same bits
//     on all ranks and in all runs.
type transport interface {
	run(*call) error
	// fail breaks the communicator, on all ranks. The first error is the one that stays.
	fail(error)
}
