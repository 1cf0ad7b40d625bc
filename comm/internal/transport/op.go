// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
)

// Op is what a call does.
type Op uint8

// The operations. Their names ("all-reduce", …) are the keys of [World.Counters].
const (
	AllReduce     Op = iota + 1 // every rank gets the reduction of all buffers
	ReduceScatter               // every rank gets its part of the reduction
	AllGather                   // every rank gets the parts of all
	AllToAll                    // every rank gives every rank a part
	Broadcast                   // every rank gets the root's buffer
	Send                        // gives a buffer to one rank
	Recv                        // takes a buffer from one rank
	Barrier                     // nobody leaves before all have come
	NumOps
)

var opNames = [NumOps]string{
	"invalid", "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "send", "recv", "barrier",
}

// String returns the name that reports and counters use.
func (o Op) String() string {
	if o >= NumOps {
		return fmt.Sprintf("Op(%d)", uint8(o))
	}
	return opNames[o]
}

// PointToPoint tells the operations between two ranks from those of the whole group.
func (o Op) PointToPoint() bool { return o == Send || o == Recv }

// Reduces tells whether the operation computes.
func (o Op) Reduces() bool { return o == AllReduce || o == ReduceScatter }

// Reduction is how the elements of several ranks become one.
type Reduction uint8

// The reductions. For booleans Sum and Max are "or", Prod and Min are "and". Integers wrap around. Max and Min of
// floats are NaN if any is; complex numbers have none.
const (
	Sum Reduction = iota
	Max
	Min
	Prod
	NumReductions
)

var reductionNames = [NumReductions]string{"sum", "max", "min", "prod"}

// String returns the name that reports use.
func (r Reduction) String() string {
	if r >= NumReductions {
		return fmt.Sprintf("Reduction(%d)", uint8(r))
	}
	return reductionNames[r]
}

// DefinedFor tells whether elements of the type can be reduced so.
func (r Reduction) DefinedFor(dtype dtypes.DType) bool {
	return !dtype.IsComplex() || r == Sum || r == Prod
}

// Scalable tells whether elements of the type can be multiplied by a fraction.
func Scalable(dtype dtypes.DType) bool { return dtype.IsFloat() || dtype.IsComplex() }
