// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package passes rewrites programs, and applies the decisions of a plan to them.
//
// What goes in is a verified program as recorded, and [Options]: what the plan says, with the [Choices] for single ops and variables.
// What comes out is a verified program that computes the same values: bit for bit, or within rounding where the pass says so. After
// the pass shard it is SPMD. Passes never choose: a pass whose choice is missing is an internal error.
//
// [Table] lists every pass in the order in which they run, with its reason. [Run] runs those that are
// switched on, and verifies the program after each. What a pass may assume of the program is declared as facts: [Fact].
// [Switches] are those of the CPU engine, which runs what passes leave.
package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// Pass is one transformation.
type Pass struct {
	Name string
	Why  string // one sentence
	// Exact tells whether results stay the same bit for bit.
	Exact bool
	// Needed passes make the program what the plan says; they cannot be switched off.
	Needed bool
	// XLA passes are for other programs do not go through them.
	XLA bool
	// Asked passes run only if the list of passes names them, or all: nobody has seen them help.
	Asked bool
	// Needs must hold in the program that goes in. Leaves hold afterwards, whether or not there was something to do, and Ends
	// no more. Nothing else says where a pass belongs in the order.
	Needs, Leaves, Ends []Fact
	// Once: a program may go through it only once. Other passes change nothing when they run again.
	Once bool
	// Run changes the program in place and returns how many things it changed.
	Run func(*ir.Program, Options) (int, error)
}

// Options are what passes need to know of the plan.
type Options struct {
	// Trial: nobody runs what comes of it, so that it need not be verified.
	Trial bool
	// Local is how many instances a step has; nil or 1 instance: the program runs once.
	Local *ir.Local
	// SumGradients adds gradients of instances up; otherwise their mean is taken.
	SumGradients bool
	// DenseGradients merges gradients of gathers as dense tensors; otherwise as indices and rows.
	DenseGradients bool
	// PerWorker is how many model replicas each of the workers has; nil: there is one worker.
	PerWorker []int
	// Spanning: a model replica has devices of several workers.
	Spanning bool
	// Places are, for each TaskGraph, the devices of a model replica that it runs on, by their index in it. Nil: one for all.
	Places [][]int
	// Weights are, for each TaskGraph, those of its devices, among which dims are divided in proportion. Nil, or nil for a TaskGraph: they are equal.
	Weights [][]int
	// Colocate: all TaskGraphs share the same devices, and run one after the other.
	Colocate bool
	// StagesPerDevice is how many TaskGraphs share a device otherwise; 0 means 1.
	StagesPerDevice int
	// Regions: forward and backward are divided into regions, though nothing is recomputed.
	Regions bool
	// Checkpoint says which values of forward are kept for backward, where others are computed again: "collection" those that
	// the user put into Checkpoints, "auto" those that go from region to region. "": nothing is recomputed.
	Checkpoint string
	// CheckpointEnd is the number of TaskGraphs, from the first, whose ops are recomputed; 0: all.
	CheckpointEnd int
	// CheckGradients compares gradients with those that are computed without recomputing anything.
	CheckGradients bool
	// Share says what is divided over the model replicas.
	Share Sharing
	// GatherFactors: gradients of wide layers are computed from factors that model replicas gather.
	GatherFactors bool
	// OneBucket: gradients of a dtype travel in one bucket, so that none stays whole where others are divided.
	OneBucket bool
	// ApplyGroups is how many groups of variables the optimizer takes one after the other; 0 means 1.
	ApplyGroups int
	// Offload: variables are kept on the host.
	Offload bool
	// AMP is the type of mixed precision, float16 or bfloat16; invalid: none.
	AMP dtypes.DType
	// AMPBarriers guards values that were rounded to that type from an inner compiler that takes a cast and its way back for
	// nothing, as XLA does, and then keeps them in float32 beside.
	AMPBarriers bool
	// Attention tells whether what runs the program has an attention, and its gradient, as one op; nil: it has none.
	Attention func(*ir.Op) bool
	// Fused tells the same of another fused op; nil: it has all of them.
	Fused func(*ir.Op) bool
	// AMPLog is told what mixed precision decides about every op; nil: nobody.
	AMPLog func(line string)
	// Choices are what was chosen for single ops and variables.
	Choices Choices
	// Before is called before each pass that runs, and may write the choices for it: as plan.Choose does. nil: they are there.
	Before func(pass string, p *ir.Program, o *Options) error
	// Timeline: a step runs in pieces, even on one device, because a timeline is made of them.
	Timeline bool
	// Note is told what a user should know of what passes did; nil: nobody.
	Note func(line string)
	// Table is told notes that are a table; nil: nobody. A heading that starts with ">" is of numbers.
	Table func(head []string, rows [][]string)
	// Warn is told what users should know without asking, once for each kind; nil: it is a note like others.
	Warn func(kind, line string)
}

// note tells the user something.
func (o Options) note(line string) {
	if o.Note != nil {
		o.Note(line)
	}
}

// warn tells the user something that others should hear, too.
func (o Options) warn(kind, line string) {
	o.note(line)
	if o.Warn != nil {
		o.Warn(kind, line)
	}
}

// forXLA tells whether passes for mixed precision on XLA apply to a program. They round differently, so that float32 keeps its bits, and the
// engine for CPUs has no use for them.
func (o Options) forXLA(p *ir.Program) bool {
	return o.AMP != dtypes.InvalidDType && o.AMPBarriers && p.IsTraining()
}

// splits tells whether TaskGraphs run on several devices each, which divide dims of values.
func (o Options) splits() bool {
	return slices.ContainsFunc(o.Places, func(devices []int) bool { return len(devices) > 1 })
}

// inPieces tells whether a step has to run in pieces, even on one device.
func (o Options) inPieces() bool { return o.Divides() || o.ApplyGroups > 1 || o.Timeline }

// WriteOut is the name of the pass that writes out what only some engines have as one op.
const WriteOut = "write-out"

// Table holds all passes in order.
var Table = []Pass{
	{Name: "taskgraphs", Needed: true, Once: true, Run: taskGraphs,
		Needs: []Fact{OpOf, GlobalView}, Leaves: []Fact{Stages},
		Why: "ops outside every scope join the TaskGraph next to them that costs least traffic"},
	{Name: WriteOut, Needed: true, Run: writeOut,
		Needs: []Fact{GlobalView}, Ends: []Fact{OpOf},
		Why: "attention is one op for engines that have it, and written out for others"},
	{Name: "fused", Run: always(fused),
		Needs: []Fact{GlobalView}, Ends: []Fact{OpOf},
		Why: "gradients go through the written-out twin of a fused op: in training only the twin is computed"},
	{Name: "empty", Exact: true, Run: always(empty),
		Needs: []Fact{GlobalView}, Ends: []Fact{OpOf},
		Why: "tensors without elements become zeros: inner backends fail on some of them"},
	{Name: "dead-code", Exact: true, Run: always(analysis.Sweep),
		Ends: []Fact{OpOf},
		Why:  "what no output needs is dropped"},
	{Name: "common", Exact: true, Run: always(common),
		Needs: []Fact{Stages, GlobalView}, Ends: []Fact{OpOf},
		Why: "equal ops on equal inputs are computed once"},
	{Name: "gelu", XLA: true, Run: gelu,
		Needs: []Fact{Stages, GlobalView}, Ends: []Fact{OpOf},
		Why: "GELU by a sigmoid takes one exponential, which backward computes again"},
	{Name: "layer-norm", XLA: true, Run: layerNorm,
		Needs: []Fact{Stages, GlobalView}, Ends: []Fact{OpOf},
		Why: "gradients of layer norms by one formula read less, and keep only the input"},
	{Name: "softmax", XLA: true, Run: softmax,
		Needs: []Fact{Stages, GlobalView}, Ends: []Fact{OpOf},
		Why: "backward computes exponentials again, and a loss reads logits once less"},
	{Name: "amp", Needed: true, Once: true, Run: amp,
		Needs: []Fact{Stages, GlobalView}, Leaves: []Fact{Precision}, Ends: []Fact{OpOf},
		Why: "dots compute in half precision; weights, sums and norms stay float32"},
	{Name: "variance", XLA: true, Run: variance,
		Needs: []Fact{Stages, Precision, GlobalView}, Ends: []Fact{OpOf},
		Why: "mean and variance of bfloat16 values are taken at once"},
	{Name: "pad", XLA: true, Run: pad,
		Needs: []Fact{Stages, Precision, GlobalView}, Ends: []Fact{OpOf},
		Why: "dims of products, such as a vocabulary, are padded to a multiple of a tile, and masked"},
	{Name: "concat", XLA: true, Run: concat,
		Needs: []Fact{Stages, GlobalView}, Ends: []Fact{OpOf},
		Why: "gradients of parts of a value are concatenated, not padded with zeros and added up"},
	{Name: "split", XLA: true, Run: split,
		Needs: []Fact{Stages, Precision, GlobalView}, Ends: []Fact{OpOf},
		Why: "parts of a product that are used apart, such as queries and keys, are multiplied apart"},
	{Name: "kernels", XLA: true, Run: kernels,
		Needs: []Fact{Stages, Precision, GlobalView}, Ends: []Fact{OpOf},
		Why: "gradients of layer norms and GELUs are kernels that read and write everything once"},
	{Name: "norm-kernels", XLA: true, Asked: true, Run: normKernels,
		Needs: []Fact{Stages, Precision, GlobalView}, Ends: []Fact{OpOf},
		Why: "layer norms are a kernel that reads a row once"},
	{Name: "sums", XLA: true, Asked: true, Run: sums,
		Needs: []Fact{Stages, Precision, GlobalView}, Ends: []Fact{OpOf},
		Why: "sums of backward read values before they are rounded, so that XLA can fuse them"},
	{Name: "transpose", Exact: true, Run: always(transposes),
		Needs: []Fact{Stages, GlobalView}, Ends: []Fact{OpOf},
		Why: "transposes that change nothing, or undo each other, are dropped"},
	{Name: "regions", Needed: true, Once: true, Run: regions,
		Needs: []Fact{Stages, Precision, GlobalView}, Leaves: []Fact{Regions},
		Why: "forward and backward are divided where the model repeats, for recompute, ZeRO v2 and offload"},
	{Name: "local-view", Needed: true, Once: true, Run: localView,
		Needs: []Fact{Stages, Precision, Regions, GlobalView}, Leaves: []Fact{Instances}, Ends: []Fact{GlobalView},
		Why: "gradients, state and results of instances (replicas and micro-batches) are merged"},
	{Name: "guard", Needed: true, Once: true, Run: guard,
		Needs: []Fact{Instances},
		Why:   "a step that is not finite leaves variables as they are (reliability.nan, amp.loss_scale)"},
	{Name: "places", Needed: true, Run: places,
		Needs: []Fact{Stages, Instances}, Leaves: []Fact{Places}, Ends: []Fact{OpOf},
		Why: "every op runs on the device group of its stage"},
	{Name: "shard", Needed: true, Once: true, Run: partition,
		Needs: []Fact{Places}, Leaves: []Fact{SPMD}, Ends: []Fact{OpOf},
		Why: "values get placements on the mesh of their stage, and reshards where a placement changes"},
	{Name: "recompute", Needed: true, Once: true, Run: recompute,
		Needs: []Fact{Regions, Instances, SPMD}, Leaves: []Fact{Copies}, Ends: []Fact{OpOf},
		Why: "backward computes forward again, region by region, from checkpoints"},
	{Name: "zero", Needed: true, Once: true, Run: zero,
		Needs: []Fact{Regions, Instances, SPMD, Copies}, Leaves: []Fact{Parts}, Ends: []Fact{OpOf},
		Why: "optimizer state, gradients and weights are sharded over the model replicas"},
	{Name: "apply-groups", Needed: true, Run: applyGroups,
		Needs: []Fact{Instances, Parts},
		Why:   "the optimizer updates variables group by group (optimizer.num_apply_group)"},
}

// counted is a number with a noun.
var counted = words.Count

// always makes a pass of a rewrite that needs no options and cannot fail.
func always(rewrite func(*ir.Program) int) func(*ir.Program, Options) (int, error) {
	return func(p *ir.Program, _ Options) (int, error) { return rewrite(p), nil }
}

// Set says which passes run, and which switches are on.
type Set map[string]bool

// String lists the passes that run, in order, then the switches that are on.
func (s Set) String() string {
	return strings.Join(slices.DeleteFunc(names(false), func(name string) bool { return !s[name] }), ",")
}

// gone holds passes of earlier versions, with what became of them: lists of users still name them.
var gone = map[string]string{
	"swap-dot":   "the engine for CPUs multiplies transposed operands as they are",
	"dot-layout": "the engine for CPUs multiplies operands of any layout as they are",
	"sum-dot":    "the engine for CPUs sums on all cores",
}

// Parse reads a list such as "all", "none", "-fused", "none,common": words apply from left to right to what is on by
// default; a name switches a pass on, -name off. warn is told what the user should change in the list, though it works.
func Parse(spec string, warn func(line string)) (Set, error) {
	s, optional := Set{}, names(true)
	all := func(on bool) {
		for _, name := range names(false) {
			s[name] = on || !slices.Contains(optional, name)
		}
	}
	all(true)
	for _, p := range Table {
		if p.Asked {
			s[p.Name] = false
		}
	}
	for word := range strings.SplitSeq(spec, ",") {
		word = strings.ToLower(strings.TrimSpace(word))
		name, off := strings.CutPrefix(word, "-")
		why, isGone := gone[name]
		switch {
		case word == "":
		case word == "all", word == "none":
			all(word == "all")
		case isGone:
			line := fmt.Sprintf("epl: pass %q (in %q) is gone: %s; leave it out", name, spec, why)
			if !off {
				return nil, errors.New(line)
			}
			if warn != nil {
				warn(line)
			}
		case !slices.Contains(optional, name):
			return nil, errors.Errorf("epl: there is no pass %q (in %q); write all, none, or names, with - in front to switch off: %s",
				name, spec, strings.Join(optional, ", "))
		default:
			s[name] = !off
		}
	}
	return s, nil
}

// names lists the passes in order, then the switches: all, or those that can be switched off.
func names(optional bool) (names []string) {
	for _, p := range Table {
		if !optional || !p.Needed {
			names = append(names, p.Name)
		}
	}
	for _, x := range Switches {
		names = append(names, x.Name)
	}
	return names
}

// Step is what one pass did.
type Step struct {
	Pass      string
	Changes   int
	OpsBefore int
	OpsAfter  int
}

// Run applies the passes of the set, in the order of the table, and verifies the program after each that changed something, and at the end. after, if not
// nil, is called after every pass that ran, unless it is a trial.
func Run(p *ir.Program, on Set, o Options, after func(Pass, *ir.Program)) ([]Step, error) {
	return run(Table, p, on, o, after)
}

func run(table []Pass, p *ir.Program, on Set, o Options, after func(Pass, *ir.Program)) ([]Step, error) {
	var steps []Step
	var unverified string // the last pass, if it says that it changed nothing
	verify := func(pass string) error {
		unverified = ""
		return errors.WithMessagef(p.Verify(), "after pass %q", pass)
	}
	for _, pass := range table {
		if !on[pass.Name] || pass.XLA && !o.forXLA(p) {
			continue
		}
		if err := pass.begin(p); err != nil {
			return steps, err
		}
		if o.Before != nil {
			if err := o.Before(pass.Name, p, &o); err != nil {
				return steps, err
			}
		}
		before := p.NumOps()
		n, err := pass.Run(p, o)
		if err != nil {
			return steps, err
		}
		steps = append(steps, Step{pass.Name, n, before, p.NumOps()})
		if o.Trial {
			continue
		}
		if n == 0 && p.NumOps() == before {
			unverified = pass.Name
		} else if err := verify(pass.Name); err != nil {
			return steps, err
		}
		if after != nil {
			after(pass, p)
		}
	}
	if unverified != "" {
		return steps, verify(unverified)
	}
	return steps, nil
}

// replace makes users of the keys use what they map to, and drops what dies of it. It returns the number of
// replacements.
func replace(p *ir.Program, by map[*ir.Value]*ir.Value) int {
	if len(by) > 0 {
		p.ReplaceUses(by)
		analysis.Sweep(p)
	}
	return len(by)
}
