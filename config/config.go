// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import "time"

// Config is the configuration of one worker. [New] builds it; fields may be changed afterwards, and count as set by
// code from then on. Init refuses a Config that New did not build, and calls [Config.Validate] on the others.
// Copies are independent of each other.
type Config struct {
	Pipeline           Pipeline
	GradientCheckpoint GradientCheckpoint
	Zero               Zero
	Offload            Offload
	AMP                AMP
	Optimizer          Optimizer
	Cluster            Cluster
	Communication      Communication
	IO                 IO
	Auto               Auto
	Recovery           Recovery
	Reliability        Reliability

	// origins is what New resolved, by key. It is never written afterwards (copies share it); a field that differs
	// from its origin was changed by code since.
	origins map[string]origin
}

// origin is the value New gave to a key, and where it found it.
type origin struct {
	value  any
	source Source
}

// Pipeline configures how a step is cut into micro-batches and how stages take turns.
type Pipeline struct {
	// NumMicroBatch is M, the number of micro-batches that each model replica consumes in one step: at least 1. With
	// one stage it is gradient accumulation. The global batch is replicas × micro-batch size × M.
	NumMicroBatch int

	// NumStages is how many stages auto-parallelism cuts the model into. 0 means not set. It needs
	// auto.auto_parallel, because annotated programs have as many stages as TaskGraphs.
	NumStages int

	// Strategy is the order in which a stage runs forwards and backwards: [PreferBackward] (1F1B, the default),
	// [PreferForward] (GPipe), [PreferBackwardOptimizer], [Interleaved] or [ZeroBubble]. It changes memory and idle
	// time, never results.
	Strategy string

	// StagesPerDevice is v, the number of stages that share one group of devices under [Interleaved]: a replica of S
	// stages then uses S/v groups, and TaskGraph i sits on group i mod (S/v). 1, the default, is one stage per group
	// and what every other strategy requires; Interleaved requires at least 2.
	StagesPerDevice int
}

// GradientCheckpoint configures recomputation: activations are dropped after the forward pass and computed again
// for the backward pass.
type GradientCheckpoint struct {
	// Type says which activations are kept: [CheckpointCollection] those that the user added to the collection
	// Checkpoints, [CheckpointAuto] those that EPL chooses. "" means that nothing is recomputed.
	Type string

	// EndTaskgraph is the index of the last TaskGraph that recomputation applies to, counted from 0. -1 means all of
	// them.
	EndTaskgraph int

	// CheckGradients compares, at run time, recomputed gradients with those of the plain program. It is for finding
	// bugs.
	CheckGradients bool
}

// Zero configures the partitioning of training state over model replicas.
type Zero struct {
	// Level says what each replica holds only a part of: [ZeroV0] optimizer states, [ZeroV1] also gradients,
	// [ZeroV2] also weights. "" means that every replica holds everything.
	Level string
}

// Offload configures what lives in host memory instead of device memory.
type Offload struct {
	// Level is [OffloadV0] for weights in host memory, fetched when they are used. "" means that nothing is
	// offloaded.
	Level string
}

// AMP configures automatic mixed precision.
type AMP struct {
	// Level is [AMPO1] for mixed precision: weights stay float32 and are cast to DType when used. "" means off.
	Level string

	// DebugLog prints what was cast, and why.
	DebugLog bool

	// LossScale is what the loss is multiplied by, and gradients divided by, so that small float16 gradients do not
	// vanish: dynamic (the default) or a fixed positive number.
	LossScale LossScale

	// DType is the type that ops compute in: [Float16] (the default) or [BFloat16], which needs no loss scale.
	DType string

	// TF32 lets GPUs round the operands of float32 products and convolutions to TF32, which has 10 bits of mantissa. It
	// works without Level.
	TF32 bool
}

// Optimizer configures how gradients are applied.
type Optimizer struct {
	// NumApplyGroup is the number of groups of variables that are updated one after the other: at least 1. More
	// groups need less temporary memory. 1, the default, updates all variables at once.
	NumApplyGroup int
}

// Cluster configures which devices there are and how TaskGraphs are laid out on them.
type Cluster struct {
	// DevicePlacePreferIntraNode deals devices worker by worker, which keeps a model replica inside a node. False
	// deals them by device index across workers.
	DevicePlacePreferIntraNode bool

	// RunVisibleDevices lists the indices of the devices that this worker may use, such as "0,2", in the order given.
	// "" means all of them. It may differ between the workers of a job. VisibleDevices returns it as numbers.
	RunVisibleDevices string

	// ColocateSplitAndReplicate lets all TaskGraphs share the same devices and run one after the other on them, as
	// one stage.
	ColocateSplitAndReplicate bool

	// DeviceMemory is the memory of a virtual device in bytes. A plan that needs more is an error with its account.
	// 0 means the memory of the machine.
	DeviceMemory int64

	// Description describes what the devices can do and what connects them: a file, or a word such as "1x2xV100-32". docs/profiles.md has its form.
	// Model replicas on faster devices take more micro-batches. "" means that devices are alike.
	Description string

	// Measure lets all devices compute a matrix product at the start, and shares micro-batches by how fast they are, as if Description said so. Links between CPU devices are
	// measured, too.
	Measure bool

	// CoresPerDevice is how many threads a virtual CPU device has. 0 divides the machine's cores by the devices that the job
	// has on it; every device has one thread at least. It is of EPL's own engine for CPUs.
	CoresPerDevice int
}

// Communication configures collectives, above all the reduction of gradients.
type Communication struct {
	// NumCommunicators is how many independent communicators run buckets at the same time: at least 1.
	NumCommunicators int

	// SparseAsDense turns sparse (gathered) gradients into dense ones before they travel. False sends values and
	// indices.
	SparseAsDense bool
	// GatherFactors lets model replicas gather the factors of a wide layer's gradient, where they are less than half as large: what the layer
	// read and the gradient of what it gave. Each then computes its part of the gradient.
	GatherFactors bool

	// MaxSplits is the most buckets that the gradients of one dtype are fused into: at least 1. It is a hard cap for each
	// dtype and each group of devices that reduces together. If nobody sets it, plans have fewer where links are known by which fewer take less time.
	MaxSplits int

	// FP16 lets gradients travel as float16.
	FP16 bool

	// FP16Scale is what gradients are multiplied by before they are cast for FP16, and divided by afterwards: at
	// least 1. A gradient that would overflow by it, or all of which would be below 1, gets a power of two that fits.
	FP16Scale int

	// ClipAfterAllreduce clips the reduced gradients. False clips the local ones, and reduces what is left.
	ClipAfterAllreduce bool

	// GradientsReduceMethod combines the gradients of all replicas and micro-batches: [ReduceMean] (the default) or
	// [ReduceSum].
	GradientsReduceMethod string

	// Backend carries the collectives: [BackendAuto] (the default: NCCL between GPUs, else in-process, shared memory or
	// TCP, whatever reaches the peer), [BackendMPI] or [BackendNCCL].
	Backend string

	// Timeout is how long a collective waits for a rank before it fails with that rank's name. It is positive:
	// every wait has an end.
	Timeout time.Duration

	// Checksum lets data that travel over TCP carry a CRC-32C, so that those that a network changes end the job, with
	// the names of both ranks, and are never used. TLS checks by itself; memory is not checked.
	Checksum bool

	// Streams is how many TCP connections two workers use at once.
	Streams int
}

// IO configures how input files are dealt to workers.
type IO struct {
	// Slicing deals the list of input files to the workers. False lets every worker go through all files.
	Slicing bool

	// UnbalancedIOSlicing allows workers to get unequal numbers of files. It wins over DropLastFiles.
	UnbalancedIOSlicing bool

	// DropLastFiles drops the files that cannot be dealt evenly. False lets every worker read all files when they
	// cannot.
	DropLastFiles bool
}

// Recovery configures what a job can go on from when workers are lost.
type Recovery struct {
	// Copies is how many copies of the training state are kept in memory that outlives workers: 1, or 0, which is the default, for none. It is for elastic
	// jobs: after a failure they go on from the copy, and at most one complete step is repeated.
	Copies int
}

// Auto configures what EPL decides by itself.
type Auto struct {
	// AutoParallel lets EPL choose the strategies; annotations by scope are then errors. False leaves them to the
	// user.
	AutoParallel bool

	// GlobalBatch is how many samples a step has whatever EPL chooses, a multiple of the dataset's batch. 0 means as many as plain data
	// parallelism would take: the dataset's batch on every device; or, if Pipeline.NumMicroBatch is given, as many as that makes.
	GlobalBatch int
}

// Reliability configures what EPL does about errors that nobody sees by themselves.
type Reliability struct {
	// CheckEvery is after how many training steps what several devices hold of the variables is compared, bit for bit. 0, the default: never.
	CheckEvery int

	// NaN says what becomes of a training step whose loss or gradients are not finite: "ignore", "skip" or "stop".
	NaN string
}

// VisibleDevices returns RunVisibleDevices as numbers, in its order; nil means all devices.
func (c Cluster) VisibleDevices() ([]int, error) {
	devices, ok := parseDevices(c.RunVisibleDevices)
	if !ok {
		return nil, row("cluster.run_visible_devices").refuse(c.RunVisibleDevices, Source{Origin: Code})
	}
	return devices, nil
}
