// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package comm moves data between the ranks of a job: all-reduce, reduce-scatter, all-gather, all-to-all, broadcast,
// send and recv, barrier.
//
// # What goes in and what comes out
//
// A [World] holds the ranks, a [Group] is some of them in an order, and a [Communicator] is one rank's end of a channel
// of a group. Its methods take flat slices of GoMLX's element types, as GoMLX's buffers give them: bool, integers,
// float16, bfloat16, float32, float64 and complex numbers. (Types of less than a byte travel packed in []uint8; they can
// be moved, but not reduced: their owner has to unpack them. Types that GoMLX has no Go type for, the 8-bit floats, have
// no slices.) Results are written into the callers' slices.
//
// Everything blocks until it is over; [Communicator.Start] queues a [Call] and returns a [Handle] to wait for. The
// slices of a call are lent to it until then.
//
// Ranks of one worker are goroutines of its process, see [NewInProcess]; they read and write each other's slices directly.
// Between workers, see [New], the transport is shared memory on one host and TCP between hosts; where
// several hosts have several workers, one worker of each host communicates for it. Or MPI is the transport for all. [Mesh] makes the connections
// between workers, and package rendezvous has one.
//
// # What it assumes
//
// All ranks of a group make the same collective calls in the same order. Who does not is found out: if the calls that
// meet differ, all ranks get the same [MismatchError]; if a rank does not come within [Options].Timeout of the first, all
// who wait get the same [TimeoutError], with the last calls of those concerned from their [FlightRecorder]. It follows the
// waits to their end, over all workers, before it says who is to blame. Who waits for a worker that has ended gets an
// [EndedError] at once. A call that fails breaks its communicator on all ranks. [World.Abort] breaks all of them at once.
//
// Between workers a call that fails breaks the worlds of all workers: what was under way on a connection, or in shared
// memory, cannot be taken up again. Who notices names what it sees; the others hear of it through the mesh, in this call
// or, if they have got all they need, in the next. A worker that says that it is busy may be late, see [Mesh].
//
// What travels over connections carries a CRC-32C, in records, and no byte of a record is used or passed on before it is known
// to be right: one that was changed on its way is a [CorruptionError]. [Options].Unchecked switches that off.
//
// # Reductions
//
// Each element is reduced in the order of the group's positions, ((x₀ + x₁) + x₂) + …, once, and copied to whoever needs
// it. So all ranks get the same bits, and so do all runs, whatever the sizes and segments (only which of several NaNs
// comes out is not promised). A scale is applied to the reduced element, in the same pass. Float16 and bfloat16 are
// accumulated, and scaled, in float32, and rounded once, to nearest even. For booleans, sum and max are "or", prod and
// min are "and". Integers wrap around.
//
// Workers with one rank each keep that order, on one host or on one host each. A worker with several ranks in the group
// first reduces those, by position, and rounds to the element type; then the workers are reduced, in the order of their
// first positions. Where some workers of the group share a host and others do not, those of a host are reduced in
// between, and rounded likewise. The order depends on the group and on where its ranks live, on nothing else.
//
// Sums of floats use vector instructions in programs that are built with GOEXPERIMENT=simd, for amd64, on machines that
// have AVX2 or AVX-512: same bits, several times the speed.
package comm
