// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package shard makes a program SPMD: it assigns placements along the model axis of each stage's mesh.
//
// What goes in is a verified program with stages and device groups, after the passes local-view and places; a
// stage may have several devices. What comes out of [Partition] is the same program with placements and reshards: the devices of a
// stage together compute what one device did, exactly up to the order of sums. [Check] verifies every op against its rule. What
// may be assumed of the program is what ir.Program.Verify checks.
//
// Each value of a stage has a [Placement]: Replicated (every device has the whole value), Sharded (each device has some rows of a
// dim), or Partial (each device has a term; a reduction makes the value). A value that is needed in two placements is two
// values, joined by a Reshard. Data of a TaskGraph under Replicate are sharded by samples. Under Split, variables are sharded, and
// so are data if sequences are long: [Search] finds the cheapest [Choice], by estimates. Optimizer state is sharded as its
// variable is.
//
// A [Rule] says what an op does to placements: it maps the dims of inputs and outputs to factors, the indices of the op's
// iteration space. Sharding a factor shards every dim that it maps to; sharding one that the op reduces makes the output
// Partial. An op without a rule is computed by every device, on replicated values: slower, never wrong.
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
