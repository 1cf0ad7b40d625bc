// Package shard spreads the ops of a stage over the stage's devices.
//
// What goes in is a verified program with stages, after the local view: its ops say which TaskGraph they belong to, and a
// stage may have several devices. What comes out of [Partition] is the same program with placements: the devices of a stage compute
// together what one device did, exactly up to the order of sums.
//
// Each value of a stage has a [Placement]: all of it is on every device (Replicated), each device has some rows of it
// (Sharded), or the devices have terms of it that must still be reduced (Partial). It may be there in several placements at
// once. Data of a TaskGraph that is replicated are sharded by samples. Of a TaskGraph that is split, variables are sharded, and
// data, if sequences are long: as [Choose] says, or whoever makes a [Choice] and has an [Estimator] tell what it would cost. What
// the optimizer keeps for a variable is sharded as the variable is.
//
// A [Rule] says what an op does to placements: it maps the dims of inputs and outputs to factors, the indices of the op's
// iteration space. Sharding a factor shards every dim that it maps to; sharding one that the op reduces makes the output
// Partial. An op without a rule is computed on whole values by every device: slower, never wrong.
//
// The work has these parts:
//
//   - problem.go reads the program once, whatever the choice, and variables.go the choice. If data are sharded, unflatten.go has
//     prepared the program for it;
//   - propagate.go chooses placements: every op takes the cheapest strategy (strategy.go) to go on from what there is, in two
//     rounds, of which the second knows where Partial values are reduced best (partial.go). Where a value is needed in another
//     placement, reach.go finds the cheapest step there: a collective, or cutting rows out of what every device has. The
//     result is a plan (plan.go) of ops and such steps, for all devices of a stage together;
//   - sink.go looks at the plan from behind: of what is needed in part, only that part is computed or reduced;
//   - assign.go writes the program down as the plan says, with placements and reshards, and special.go the ops of which a device does
//     something that depends on which rows it has: from its position. check.go tells whether placements are what the rules allow.
package shard
