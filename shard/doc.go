// Package shard spreads the ops of a stage over the stage's devices.
//
// What goes in is a verified program with stages, after the local view: its ops say which TaskGraph they belong to, and a
// stage may have several devices. What comes out of [Partition] is the same program with every op on one device, and with
// local shapes: the devices of a stage compute together what one device did, exactly up to the order of sums.
//
// Each value of a stage has a [Placement]: all of it is on every device (Replicated), each device has some rows of it
// (Sharded), or the devices have terms of it that must still be reduced (Partial). A [Rule] says what an op does to
// placements: it maps the dims of inputs and outputs to factors, the indices of the op's iteration space. Sharding a
// factor shards every dim that it maps to; sharding one that the op reduces makes the output Partial. An op without a
// rule is computed on whole values by every device: slower, never wrong.
//
// The work has two parts. propagate.go chooses placements: the batch is sharded over its first dim, and every op takes the
// cheapest way to go on from there. expand.go writes the ops of each device down; a value that is needed in another
// placement is converted by ops of its own (reshard.go), or on its way from one stage to another (bridge.go).
package shard
