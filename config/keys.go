// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"strings"
	"time"
)

// key is one row of the table: all that EPL knows about a configuration key.
type key struct {
	name  string            // "category.attribute"
	typ   valueType         // what may be given, and how it becomes the field's value
	def   any               // of the field's Go type
	field func(*Config) any // pointer to the field

	// needs names a key that must be on (not at its default, which is off) for this one to have any effect.
	needs string

	// choice says that the default is a choice like any other, so that giving it explicitly asks for the feature
	// that needs names. Where it is false the default asks for nothing.
	choice bool

	ours      bool // not a key of the original EPL
	perWorker bool // may differ between the workers of a job

	doc string // what it does: sentences that stand alone in a listing
}

// keys is the one list of configuration keys, category by category in the order of Config's fields.
var keys = []key{
	{
		name: "pipeline.num_micro_batch", typ: intType{min: 1}, def: 1,
		field: func(c *Config) any { return &c.Pipeline.NumMicroBatch },
		doc:   "Micro-batches that a model replica consumes in one step. With one stage: gradient accumulation.",
	},
	{
		name: "pipeline.num_stages", typ: intType{min: 1, none: true}, def: 0,
		field: func(c *Config) any { return &c.Pipeline.NumStages },
		needs: "auto.auto_parallel",
		doc:   "How many stages auto-parallelism cuts the model into. none: it chooses.",
	},
	{
		name: "pipeline.strategy", def: PreferBackward,
		typ:   enumType{PreferBackward, PreferForward, PreferBackwardOptimizer, Interleaved, ZeroBubble},
		field: func(c *Config) any { return &c.Pipeline.Strategy },
		doc: "Order in which a stage runs: PreferBackward is 1F1B, PreferForward is GPipe, PreferBackwardOptimizer " +
			"hides communication behind one more warm-up forward. Interleaved and ZeroBubble are not the original's.",
	},
	{
		name: "pipeline.stages_per_device", typ: intType{min: 1}, def: 1, ours: true,
		field: func(c *Config) any { return &c.Pipeline.StagesPerDevice },
		doc:   "Stages that share a group of devices under Interleaved, which needs at least 2; other strategies need 1.",
	},

	{
		name: "gradient_checkpoint.type", typ: enumType{"", CheckpointCollection, CheckpointAuto}, def: "",
		field: func(c *Config) any { return &c.GradientCheckpoint.Type },
		doc: "Recompute activations in the backward pass. collection: between the tensors added to Checkpoints; " +
			"auto: between those that EPL chooses.",
	},
	{
		name: "gradient_checkpoint.end_taskgraph", typ: intType{min: -1}, def: -1,
		field: func(c *Config) any { return &c.GradientCheckpoint.EndTaskgraph },
		needs: "gradient_checkpoint.type",
		doc:   "Index of the last TaskGraph that recomputation applies to. -1: all of them.",
	},
	{
		name: "gradient_checkpoint.check_gradients", typ: boolType{}, def: false,
		field: func(c *Config) any { return &c.GradientCheckpoint.CheckGradients },
		needs: "gradient_checkpoint.type",
		doc:   "Compare recomputed gradients with plain ones at run time.",
	},

	{
		name: "zero.level", typ: enumType{"", ZeroV0, ZeroV1, ZeroV2}, def: "",
		field: func(c *Config) any { return &c.Zero.Level },
		doc:   "Partition training state over replicas. v0: optimizer states; v1: also gradients; v2: also weights.",
	},

	{
		name: "offload.level", typ: enumType{"", OffloadV0}, def: "",
		field: func(c *Config) any { return &c.Offload.Level },
		doc:   "v0: keep weights and optimizer state in host memory and fetch them when used.",
	},

	{
		name: "amp.level", typ: enumType{"", AMPO1}, def: "",
		field: func(c *Config) any { return &c.AMP.Level },
		doc:   "O1: mixed precision. Weights stay float32 and are cast when used.",
	},
	{
		name: "amp.debug_log", typ: boolType{}, def: false,
		field: func(c *Config) any { return &c.AMP.DebugLog },
		needs: "amp.level",
		doc:   "Print what was cast, and why.",
	},
	{
		name: "amp.loss_scale", typ: lossScaleType{}, def: LossScale{Dynamic: true},
		field: func(c *Config) any { return &c.AMP.LossScale },
		needs: "amp.level", choice: true,
		doc: "Factor on the loss that keeps small gradients from vanishing. dynamic: starts at 2^15, doubles after " +
			"2000 good steps; a step that is not finite is skipped and halves it, down to 1.",
	},
	{
		name: "amp.dtype", typ: enumType{Float16, BFloat16}, def: Float16, ours: true,
		field: func(c *Config) any { return &c.AMP.DType },
		needs: "amp.level", choice: true,
		doc: "Type that ops compute in. bfloat16 needs no loss scale.",
	},
	{
		name: "amp.tf32", typ: boolType{}, def: false, ours: true,
		field: func(c *Config) any { return &c.AMP.TF32 },
		doc:   "GPUs may round operands of float32 products and convolutions to TF32 (10 bits of mantissa). It works without amp.level.",
	},

	{
		name: "optimizer.num_apply_group", typ: intType{min: 1}, def: 1,
		field: func(c *Config) any { return &c.Optimizer.NumApplyGroup },
		doc:   "Update variables in this many groups, one after the other, to cap temporary memory.",
	},

	{
		name: "cluster.device_place_prefer_intra_node", typ: boolType{}, def: true,
		field: func(c *Config) any { return &c.Cluster.DevicePlacePreferIntraNode },
		doc:   "Keep a model replica inside a node: deal devices worker by worker. false: by device index across workers.",
	},
	{
		name: "cluster.run_visible_devices", typ: devicesType{}, def: "", perWorker: true,
		field: func(c *Config) any { return &c.Cluster.RunVisibleDevices },
		doc:   "Indices of the devices that this worker may use. Empty: all of them.",
	},
	{
		name: "cluster.colocate_split_and_replicate", typ: boolType{}, def: false,
		field: func(c *Config) any { return &c.Cluster.ColocateSplitAndReplicate },
		doc:   "Let all TaskGraphs share the same devices, as one stage.",
	},
	{
		name: "cluster.device_memory", typ: bytesType{}, def: int64(0), ours: true,
		field: func(c *Config) any { return &c.Cluster.DeviceMemory },
		doc:   "Memory of a virtual device; a plan that needs more is an error with its account. 0: that of the machine.",
	},
	{
		name: "cluster.description", typ: textType{"a file, or what epl plan --cluster takes"}, def: "", ours: true,
		field: func(c *Config) any { return &c.Cluster.Description },
		doc:   "What the devices can do and what connects them, if they are unequal: docs/profiles.md.",
	},
	{
		name: "cluster.measure", typ: boolType{}, def: false, ours: true,
		field: func(c *Config) any { return &c.Cluster.Measure },
		doc:   "Measure at the start how fast devices compute, and the links between CPU devices, instead of cluster.description.",
	},
	{
		name: "cluster.cores_per_device", typ: intType{}, def: 0, ours: true,
		field: func(c *Config) any { return &c.Cluster.CoresPerDevice },
		doc:   "Threads of a virtual CPU device. 0: this machine's cores divided by the devices of the job on it.",
	},

	{
		name: "communication.num_communicators", typ: intType{min: 1}, def: 2,
		field: func(c *Config) any { return &c.Communication.NumCommunicators },
		doc:   "Independent communicators that run buckets at the same time.",
	},
	{
		name: "communication.sparse_as_dense", typ: boolType{}, def: false,
		field: func(c *Config) any { return &c.Communication.SparseAsDense },
		doc:   "Turn sparse (gathered) gradients into dense ones before they are reduced.",
	},
	{
		name: "communication.gather_factors", typ: boolType{}, def: true, ours: true,
		field: func(c *Config) any { return &c.Communication.GatherFactors },
		doc:   "Gather the factors of wide layers' gradients, where they are less than half as large, instead of reducing these.",
	},
	{
		name: "communication.max_splits", typ: intType{min: 1}, def: 5,
		field: func(c *Config) any { return &c.Communication.MaxSplits },
		doc:   "Most buckets that the gradients of one dtype are fused into. Not set: fewer where links are known, and fewer take less time.",
	},
	{
		name: "communication.fp16", typ: boolType{}, def: false,
		field: func(c *Config) any { return &c.Communication.FP16 },
		doc:   "Reduce gradients as float16.",
	},
	{
		name: "communication.fp16_scale", typ: intType{min: 1}, def: 128,
		field: func(c *Config) any { return &c.Communication.FP16Scale },
		needs: "communication.fp16", choice: true,
		doc: "Factor on gradients while they are reduced as float16, where their size allows it.",
	},
	{
		name: "communication.clip_after_allreduce", typ: boolType{}, def: false,
		field: func(c *Config) any { return &c.Communication.ClipAfterAllreduce },
		doc:   "Clip the reduced gradients instead of the local ones.",
	},
	{
		name: "communication.gradients_reduce_method", typ: enumType{ReduceMean, ReduceSum}, def: ReduceMean,
		field: func(c *Config) any { return &c.Communication.GradientsReduceMethod },
		doc:   "How the gradients of all replicas and micro-batches combine.",
	},
	{
		name: "communication.backend", typ: enumType{BackendAuto, BackendMPI, BackendNCCL}, def: BackendAuto, ours: true,
		field: func(c *Config) any { return &c.Communication.Backend },
		doc:   "What carries collectives. auto: NCCL between GPUs, else in-process, shared memory or TCP, whatever reaches the peer.",
	},
	{
		name: "communication.timeout", typ: durationType{}, def: 5 * time.Minute, ours: true,
		field: func(c *Config) any { return &c.Communication.Timeout },
		doc:   "How long a collective waits for a rank before it fails with that rank's name.",
	},
	{
		name: "communication.checksum", typ: boolType{}, def: true, ours: true,
		field: func(c *Config) any { return &c.Communication.Checksum },
		doc:   "CRC-32C on data over TCP without TLS: what a network changes ends the job, and names both ranks.",
	},
	{
		name: "communication.streams", typ: intType{min: 1}, def: 1, ours: true,
		field: func(c *Config) any { return &c.Communication.Streams },
		doc:   "TCP connections that two workers use at once. More than one help where a network limits the speed of each.",
	},

	{
		name: "io.slicing", typ: boolType{}, def: false,
		field: func(c *Config) any { return &c.IO.Slicing },
		doc:   "Deal the list of input files to the workers.",
	},
	{
		name: "io.unbalanced_io_slicing", typ: boolType{}, def: false,
		field: func(c *Config) any { return &c.IO.UnbalancedIOSlicing },
		needs: "io.slicing",
		doc:   "Allow workers to get unequal numbers of files. Wins over io.drop_last_files.",
	},
	{
		name: "io.drop_last_files", typ: boolType{}, def: false,
		field: func(c *Config) any { return &c.IO.DropLastFiles },
		needs: "io.slicing",
		doc:   "Drop the files that cannot be dealt evenly.",
	},

	{
		name: "auto.auto_parallel", typ: boolType{}, def: false,
		field: func(c *Config) any { return &c.Auto.AutoParallel },
		doc:   "Let EPL choose the strategies.",
	},
	{
		name: "auto.global_batch", typ: intType{min: 0}, def: 0, ours: true,
		field: func(c *Config) any { return &c.Auto.GlobalBatch },
		needs: "auto.auto_parallel",
		doc: "Samples of a step, whatever EPL chooses: a multiple of the dataset's batch. 0: the dataset's batch on every device, " +
			"or what pipeline.num_micro_batch makes of it, if that is given.",
	},

	{
		name: "recovery.copies", typ: intType{min: 0, max: 1}, def: 0, ours: true,
		field: func(c *Config) any { return &c.Recovery.Copies },
		doc: "1: after every step, env.Checkpoints copies variables to memory that outlives workers, and an elastic job goes on from there " +
			"when workers are lost.",
	},

	{
		name: "reliability.check_every", typ: intType{min: 0}, def: 0, ours: true,
		field: func(c *Config) any { return &c.Reliability.CheckEvery },
		doc: "After so many training steps, and before a save, variables that several devices hold are compared; an error names who differs. " +
			"0: never.",
	},
	{
		name: "reliability.nan", typ: enumType{NaNIgnore, NaNSkip, NaNStop}, def: NaNIgnore, ours: true,
		field: func(c *Config) any { return &c.Reliability.NaN },
		doc: "A training step whose loss or gradients are not finite. ignore: nobody looks. skip: it changes nothing. " +
			"stop: it changes nothing, and an error names the op, step and batch.",
	},
}

// lookup finds the row of a key; the error names the nearest one.
func lookup(name string) (*key, error) {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i], nil
		}
	}
	return nil, unknownKey(name)
}

// row is lookup for the names that this package itself spells.
func row(name string) *key {
	k, err := lookup(name)
	if err != nil {
		panic(err)
	}
	return k
}

// variable is the environment variable that sets the key.
func (k *key) variable() string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(k.name, ".", "_"))
}

// category is the part of the key's name before the dot.
func (k *key) category() string {
	category, _, _ := strings.Cut(k.name, ".")
	return category
}

// get returns the field's value.
func (k *key) get(c *Config) any { return reflect.ValueOf(k.field(c)).Elem().Interface() }

// set stores v, which must be of the field's type.
func (k *key) set(c *Config, v any) { reflect.ValueOf(k.field(c)).Elem().Set(reflect.ValueOf(v)) }

// on says in words which values turn on a feature that others need.
func (k *key) on() string {
	values, ok := k.typ.(enumType)
	if !ok {
		return "true"
	}
	return values[1:].allowed() // the first is "", off
}
