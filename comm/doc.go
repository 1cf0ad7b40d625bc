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
// slices of a call are lent to it until then. Ranks are goroutines of this process, see [NewInProcess]; they read and
// write each other's slices directly. Other transports come behind the same types.
//
// # What it assumes
//
// All ranks of a group make the same collective calls in the same order. Who does not is found out: if the calls that
// meet differ, all ranks get the same [MismatchError]; if a rank does not come within [Options].Timeout of the first, all
// who wait get the same [TimeoutError], with the last calls of those concerned from their [FlightRecorder]. A call that
// fails breaks its communicator on all ranks. [World.Abort] breaks all of them at once.
//
// # Reductions
//
// Each element is reduced in the order of the group's positions, ((x₀ + x₁) + x₂) + …, once, and copied to whoever needs
// it. So all ranks get the same bits, and so do all runs, whatever the sizes and segments (only which of several NaNs
// comes out is not promised). A scale is applied to the reduced element, in the same pass. Float16 and bfloat16 are
// accumulated, and scaled, in float32, and rounded once, to nearest even. For booleans, sum and max are "or", prod and
// min are "and". Integers wrap around.
//
// Sums of floats use vector instructions in programs that are built with GOEXPERIMENT=simd, for amd64, on machines that
// have AVX2 or AVX-512: same bits, several times the speed.
package comm
