// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"cmp"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec/lower"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// Options of a schedule.
type Options struct {
	// MaxSplits is the most buckets that gradients of one dtype are fused into, for each group of devices that merges: a stage.
	MaxSplits int
	// Splits are how many of them there are, by group; nil, or 0: as many as MaxSplits. Gradients that cannot be in one bucket may need more.
	Splits []int
	// Strategy is the order in which stages work on micro-batches; "" is PreferBackward.
	Strategy Strategy
	// Groups is how many groups of devices the stages are dealt to; 0: each has its own.
	Groups int
	// Ranks are the devices of each model replica, by place. Nil: replica r is device r.
	Ranks [][]int
	// Offload keeps weights and what the optimizer keeps for them on the host.
	Offload bool
	// Phases ends a segment between forward and backward of a program with one stage, so that a timeline tells them apart.
	Phases bool
	// InPlace: devices see a part of a tensor without a copy, so that model replicas update theirs of a variable where it lies.
	InPlace bool
}

// Build makes the schedule of a program with a local view.
func Build(p *ir.Program, o Options) (*Program, error) {
	if p.Local == nil {
		return nil, errors.Errorf("epl: internal error: program %q has no local view to schedule", p.Name)
	}
	if o.Ranks == nil {
		for r := range p.Local.Replicas {
			o.Ranks = append(o.Ranks, []int{r})
		}
	}
	stages := max(len(p.Stages), 1)
	b := &builder{Index: analysis.Of(p), o: o, p: p, kind: map[*ir.Op]TaskKind{}, order: map[*ir.Op]turn{}, tasks: map[taskKey]*task{},
		input: map[*ir.Value]bool{}, trips: map[trip][]int{}, wanted: map[valueAt]bool{},
		s: &Program{homes: map[*ir.Value][]int{}, inPlace: map[*ir.Value]*ir.Value{}, Name: p.Name, Local: *p.Local, Ranks: o.Ranks, Groups: p.Groups(), Divisions: p.Divisions(),
			Pipeline: Pipeline{Strategy: cmp.Or(o.Strategy, PreferBackward), Stages: stages, Groups: cmp.Or(o.Groups, stages), Micro: p.Local.MicroBatches}}}
	order, err := b.s.Pipeline.Order()
	if err != nil {
		return nil, err
	}
	b.read()
	if err := b.buckets(max(o.MaxSplits, 1)); err != nil {
		return nil, err
	}
	b.makeTasks()
	for _, t := range b.sorted {
		b.segments(t)
	}
	b.placeBuckets()
	b.once()
	b.transfers()
	b.lists(order)
	for place := range b.s.Places {
		b.gatherAhead(place)
		b.gatherTogether(place)
		if o.Offload {
			b.offload(place)
		}
	}
	b.sums()
	b.s.findGathered()
	b.s.frees()
	if o.InPlace {
		for place := range b.s.Places {
			b.updateInPlace(place)
		}
	}
	for _, s := range b.s.Segments {
		s.First = lower.Lower(s.Segment, nil)
		if d := b.s.Divisions[s.Place]; d.Weights != nil {
			for position := range d.Devices {
				s.Parts = append(s.Parts, lower.Lower(s.Segment, ir.Coordinates{0, position}))
			}
		}
	}
	return b.s, b.s.Check()
}

type builder struct {
	*analysis.Index
	o      Options
	p      *ir.Program
	s      *Program
	kind   map[*ir.Op]TaskKind // of what instances compute: the task they belong to
	order  map[*ir.Op]turn     // where those ops stand in their task
	input  map[*ir.Value]bool
	tasks  map[taskKey]*task
	sorted []*task        // by place, in the order of a micro-batch
	after  [][]int        // by segment: the buckets that can start after it, on its place
	trips  map[trip][]int // the transfers
	wants  [][]*ir.Value  // what the step leaves on each place
	wanted map[valueAt]bool
	apply  []piece // what runs once, in an order in which each has what it needs
	turns  []turn  // by segment of a task: where it stands in it
}

// single tells whether forward and backward of a micro-batch follow each other on the same devices.
func (b *builder) single() bool { return b.s.Pipeline.Stages == 1 }

// isGather tells whether the op makes a whole of a variable that model replicas share. It waits for nothing.
func isGather(op *ir.Op) bool {
	if !op.IsExchange() || !op.Inputs[0].Op.IsLeaf() {
		return false
	}
	axis, _ := op.Change()
	return axis == ir.Replicas
}

// read notes what is needed to know of every op.
func (b *builder) read() {
	for _, v := range b.p.Inputs {
		b.input[v] = true
	}
	for _, op := range slices.Backward(b.p.Main.Ops) {
		if b.PerInstance(op) {
			b.kind[op] = b.kindOf(op)
		}
	}
	for _, op := range b.p.Main.Ops {
		if !b.PerInstance(op) {
			continue
		}
		first := turn{region: op.Region}
		if isGather(op) {
			first.level = -1
		}
		if b.o.Phases && b.single() {
			first.phase = op.Phase
		}
		b.order[op] = first
		op.Uses(func(v *ir.Value) {
			if !b.PerInstance(v.Op) || b.Stage(v.Op) != b.Stage(op) || b.kind[v.Op] != b.kind[op] {
				return
			}
			before := b.order[v.Op]
			if v.Op.IsExchange() {
				before.level++ // after a gather, that of the region's first ops
			}
			x := b.order[op]
			b.order[op] = turn{max(x.phase, before.phase), max(x.region, before.region), max(x.level, before.level)}
		})
	}
}

// kindOf says which task an op belongs to. Its users are known already.
func (b *builder) kindOf(op *ir.Op) TaskKind {
	switch {
	case b.single():
		return BackwardTask
	case op.Phase == ir.Forward:
		return ForwardTask
	case b.s.Pipeline.Strategy != ZeroBubble:
		return BackwardTask
	}
	// What other stages wait for comes first; gradients of weights can wait.
	for _, v := range op.Outputs {
		for _, u := range b.Users(v) {
			if b.PerInstance(u) && (b.Stage(u) != b.Stage(op) || b.kind[u] == BackwardTask) {
				return BackwardTask
			}
		}
	}
	return WeightsTask
}

// buckets groups the merges by the places that have them. Gradients come first, in the order in which backward computes
// them; then everything else, by the way it is merged.
func (b *builder) buckets(maxSplits int) error {
	type family struct {
		place int
		terms bool
	}
	var families []family
	gradients, others := map[family][]*ir.Op{}, map[family][]*ir.Op{}
	for _, op := range b.p.Main.Ops {
		m, ok := op.Attrs.(*ir.Merge)
		if !ok {
			continue
		}
		key := family{op.Place, op.Inputs[0].On(ir.Model).Kind == ir.Partial}
		if !slices.Contains(families, key) {
			families = append(families, key)
		}
		if op.Phase == ir.Backward && m.How.Adds() && !m.Worker {
			gradients[key] = append(gradients[key], op)
		} else {
			others[key] = append(others[key], op)
		}
	}
	slices.SortStableFunc(families, func(x, y family) int { return x.place - y.place })
	for _, key := range families {
		of := func(merges []*ir.Op, like Bucket) []*ir.Op {
			return slices.DeleteFunc(slices.Clone(merges), func(op *ir.Op) bool {
				m := op.Attrs.(*ir.Merge)
				return m.How != like.How || m.Worker != like.Worker || isParts(op) != like.Parts
			})
		}
		add := func(merges []*ir.Op, splits map[dtypes.DType]int, like Bucket) {
			groups := fuse(merges, splits)
			if like.Parts && b.Regions() > 1 {
				groups = fuseRegions(merges, splits, b.region)
			}
			for _, group := range groups {
				like.Place, like.Terms, like.Merges = key.place, key.terms, group
				b.s.Buckets = append(b.s.Buckets, like)
			}
		}
		slices.SortStableFunc(gradients[key], func(x, y *ir.Op) int { return cmp.Compare(b.Position(x.Inputs[0].Op), b.Position(y.Inputs[0].Op)) })
		kinds := []Bucket{{How: ir.Mean, Parts: true}, {How: ir.Sum, Parts: true}, {How: ir.Mean}, {How: ir.Sum}}
		byKind := make([][]*ir.Op, len(kinds))
		for i, kind := range kinds {
			byKind[i] = of(gradients[key], kind)
			if kind.Parts {
				slices.SortStableFunc(byKind[i], func(x, y *ir.Op) int { return cmp.Compare(b.region(x), b.region(y)) })
			}
		}
		wanted := maxSplits
		if b.o.Splits != nil {
			wanted = cmp.Or(b.o.Splits[key.place], maxSplits)
		}
		splits, err := share(byKind, maxSplits, wanted)
		if err != nil {
			return err
		}
		for i, kind := range kinds {
			add(byKind[i], splits[i], kind)
		}
		for _, kind := range []Bucket{{How: ir.Mean}, {How: ir.Sum}, {How: ir.Mean, Worker: true}, {How: ir.Sum, Worker: true}} {
			add(of(others[key], kind), nil, kind)
		}
		for _, op := range others[key] {
			if m := op.Attrs.(*ir.Merge); !m.How.Adds() {
				add([]*ir.Op{op}, nil, Bucket{How: m.How, Worker: m.Worker})
			}
		}
	}
	return nil
}

// region is the region that computes what is merged.
func (b *builder) region(merge *ir.Op) int { return b.order[merge.Inputs[0].Op].region }

// isParts tells whether each model replica gets a part of what is merged.
func isParts(merge *ir.Op) bool { return merge.Outputs[0].On(ir.Replicas).Kind == ir.Flat }

func dedupe(vs []*ir.Value) []*ir.Value {
	seen := map[*ir.Value]bool{}
	return slices.DeleteFunc(vs, func(v *ir.Value) bool {
		was := seen[v]
		seen[v] = true
		return was
	})
}
