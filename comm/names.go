// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import "github.com/easyparallel/epl/comm/internal/transport"

// What transports see too is theirs; here are the names for everybody else.

// Op is what a call does.
type Op = transport.Op

// The operations. Their names ("all-reduce", …) are the keys of [World.Counters].
const (
	AllReduce     = transport.AllReduce     // every rank gets the reduction of all buffers
	ReduceScatter = transport.ReduceScatter // every rank gets its part of the reduction
	AllGather     = transport.AllGather     // every rank gets the parts of all
	AllToAll      = transport.AllToAll      // every rank gives every rank a part
	Broadcast     = transport.Broadcast     // every rank gets the root's buffer
	Send          = transport.Send          // gives a buffer to one rank
	Recv          = transport.Recv          // takes a buffer from one rank
	Barrier       = transport.Barrier       // nobody leaves before all have come
)

// Reduction is how the elements of several ranks become one.
type Reduction = transport.Reduction

// The reductions. For booleans Sum and Max are "or", Prod and Min are "and". Integers wrap around. Max and Min of
// floats are NaN if any is; complex numbers have none.
const (
	Sum  = transport.Sum
	Max  = transport.Max
	Min  = transport.Min
	Prod = transport.Prod
)

// Header is what a call carries besides data. Ranks compare it when they meet; reports print it.
type Header = transport.Header

// Layout says where the ranks of a world live.
type Layout = transport.Layout

// Place is a worker: the number of its ranks, which follow those of the workers before it, and its host. Workers of equal
// hosts can share memory.
type Place = transport.Place

// Mesh is how the workers of a job reach each other, besides the data that a world moves. Package rendezvous has one.
type Mesh = transport.Mesh

// Health is what a mesh knows of a worker.
type Health = transport.Health

// ErrClosed is why calls fail after [World.Close].
var ErrClosed = transport.ErrClosed

// MismatchError says which two ranks made different calls where they had to make the same. All ranks of the group get
// the same one.
type MismatchError = transport.MismatchError

// CorruptionError says that what one worker sent another was changed on its way, see [Options].Unchecked. Who noticed has
// it, the others hear of it through the mesh.
type CorruptionError = transport.CorruptionError

// EndedError says that a worker has ended its part of the job, and so will not come to a call in which others wait for it.
type EndedError = transport.EndedError

// LostError says that the connection between two workers broke, for a reason that nobody told.
type LostError = transport.LostError
