// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"strconv"
)

// Values of pipeline.strategy.
const (
	PreferBackward          = "PreferBackward"          // 1F1B: a backward as soon as one is ready
	PreferForward           = "PreferForward"           // GPipe: all forwards, then all backwards
	PreferBackwardOptimizer = "PreferBackwardOptimizer" // 1F1B with one more warm-up forward on all stages but the last, which hides communication
	Interleaved             = "Interleaved"             // 1F1B with several stages on each group of devices
	ZeroBubble              = "ZeroBubble"              // 1F1B with backwards cut into input and weight halves
)

// Values of gradient_checkpoint.type.
const (
	CheckpointCollection = "collection" // keep the tensors of the collection Checkpoints
	CheckpointAuto       = "auto"       // keep what EPL chooses
)

// Values of zero.level; each includes the one before.
const (
	ZeroV0 = "v0" // optimizer states are partitioned
	ZeroV1 = "v1" // gradients too
	ZeroV2 = "v2" // weights too
)

// OffloadV0 is the value of offload.level that keeps weights in host memory.
const OffloadV0 = "v0"

// AMPO1 is the value of amp.level that turns mixed precision on.
const AMPO1 = "O1"

// Values of amp.dtype.
const (
	Float16  = "float16"
	BFloat16 = "bfloat16"
)

// Values of reliability.nan.
const (
	NaNIgnore = "ignore" // nobody looks
	NaNSkip   = "skip"   // the step changes nothing
	NaNStop   = "stop"   // the step changes nothing, and the job ends
)

// Values of communication.gradients_reduce_method.
const (
	ReduceMean = "mean"
	ReduceSum  = "sum"
)

// Values of communication.backend.
const (
	BackendAuto = "auto" // NCCL, in-process, shared memory or TCP
	BackendMPI  = "mpi"
	BackendNCCL = "nccl" // an error without GPUs
)

// LossScale is the value of amp.loss_scale: dynamic, or the fixed factor Value. Exactly one of the two is set.
type LossScale struct {
	Dynamic bool    // starts at 2^15, grows after good steps, halves when a step is not finite
	Value   float64 // from 2^-126 to 2^126; 0 when Dynamic
}

// String returns "dynamic" or the number, as amp.loss_scale accepts it.
func (s LossScale) String() string {
	if s.Dynamic {
		return dynamic
	}
	if s.Value == math.Trunc(s.Value) && math.Abs(s.Value) < 1<<53 { // 1048576 reads better than 1.048576e+06
		return strconv.FormatInt(int64(s.Value), 10)
	}
	return strconv.FormatFloat(s.Value, 'g', -1, 64)
}

// dynamic is how a LossScale that is not a number is written.
const dynamic = "dynamic"
