// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec/lower"
	"github.com/easyparallel/epl/ir"
)

// JointOptions say which devices run segments together.
type JointOptions struct {
	// Worker is whose a device is, by rank.
	Worker func(rank int) int
	// First is what makes the ranks of the schedule those of all workers.
	First int
	// Can is nil if the devices with these ranks, those of a place in all model replicas, can run segments together, else the reason why not.
	Can func(ranks []int) error
	// Half is that of [ir.Mesh].
	Half float64
}

// Joint makes the lists of devices that run segments together: what follows each other on a place, segments, exchanges and merges, becomes
// one segment with the collectives inside. With one micro-batch that is the whole step of a program with one stage; with more, it is what is done
// for a micro-batch, sums included, and what is done once. What takes the host stays between segments: data, values of other stages, offloaded
// variables. Instances that a step lacks run, too: their values are selected away, not multiplied by zero, since they may be no numbers.
//
// A place where that cannot be done keeps its list; why says so, by place. If there is no other place, joint is nil.
func (p *Program) Joint(o JointOptions) (joint *Program, why []error) {
	p = p.withoutSums()
	q := *p
	q.Segments, q.Buckets, q.Places = nil, slices.Clone(p.Buckets), nil
	any := false
	for place := range p.Places {
		j := &joiner{p: p, q: &q, o: o, place: place, summed: map[*ir.Value]bool{}, kept: map[int]int{}, made: map[string]int{}}
		err := j.can()
		if err == nil {
			err = j.join()
		}
		if why = append(why, err); err != nil {
			for i, b := range q.Buckets {
				if b.Place == place {
					q.Buckets[i].Inside, q.Buckets[i].Host = false, ""
				}
			}
			j.list = nil
			for _, in := range p.Places[place] {
				j.keep(in)
			}
		}
		if any = any || err == nil; err == nil && j.found.Refused != nil {
			q.Checks = &j.found
		}
		q.Places = append(q.Places, j.list)
	}
	if !any {
		return nil, why
	}
	for place := range q.Places {
		for i := range q.Places[place] {
			q.Places[place][i].Frees = nil
		}
	}
	for i, b := range q.Buckets { // After is for timelines: the number of a segment
		q.Buckets[i].After = max(slices.IndexFunc(q.Segments, func(s *Segment) bool { return s.Place == b.Place }), 0)
	}
	q.frees()
	for _, s := range q.Segments {
		if s.First == nil {
			s.First = lower.Lower(s.Segment, nil)
		}
	}
	if err := q.Check(); err != nil {
		return nil, []error{err}
	}
	return &q, why
}

// joiner makes the list of one place.
type joiner struct {
	p, q   *Program
	o      JointOptions
	place  int
	mesh   *ir.Mesh
	list   []Instr
	block  *block             // that is open
	last   map[Slot]int       // the last instruction that reads a slot
	stays  map[slotAt]bool    // what a step leaves
	summed map[*ir.Value]bool // whose sums over micro-batches have begun
	kept   map[int]int        // segments as they were: their numbers now
	made   map[string]int     // segments that were made, by what they are
	found  Checks             // what checks leave
}

// can makes the mesh of the place, and tells why its devices cannot run segments together.
func (j *joiner) can() error {
	group := j.p.Groups[j.place]
	j.mesh = &ir.Mesh{Replicas: j.p.Local.Replicas, Model: len(group), Instances: j.p.Local.Instances(), Half: j.o.Half}
	var workers []int
	for _, replica := range j.p.Ranks {
		for _, device := range group {
			j.mesh.Ranks, workers = append(j.mesh.Ranks, j.o.First+replica[device]), append(workers, j.o.Worker(replica[device]))
		}
	}
	if slices.Max(workers) > slices.Min(workers) {
		j.mesh.Workers = workers
	}
	if err := j.o.Can(j.mesh.Ranks); err != nil {
		return err
	}
	return j.pad()
}

// pad is an error if devices have unequal parts of a value, and cannot run something together that reads or makes it: what they run has one shape.
func (j *joiner) pad() error {
	var ops []*ir.Op
	for _, s := range j.p.Segments {
		if s.Place == j.place {
			ops = append(ops, s.Ops...)
		}
	}
	for _, in := range j.p.Places[j.place] {
		if in.Kind == Exchange {
			ops = append(ops, in.Ops()...)
		}
	}
	for _, b := range j.p.Buckets {
		if b.Place == j.place {
			ops = append(ops, b.Merges...)
		}
	}
	for _, op := range ops {
		if err := lower.CanPad(op); err != nil {
			return err
		}
	}
	return nil
}

// host is why devices do not merge a bucket by themselves; "": they do.
func (j *joiner) host(bucket int) string {
	b := j.p.Buckets[bucket]
	circles := j.mesh.Circles(b.Merges[0])
	for _, c := range circles {
		if len(c) != len(circles[0]) {
			return "workers have different numbers of these devices"
		}
	}
	if isCheck(b.How) {
		return j.unchecked()
	}
	return ""
}

// join makes the list.
func (j *joiner) join() error {
	for i, b := range j.p.Buckets {
		if b.Place == j.place {
			j.q.Buckets[i].Host = j.host(i)
			j.q.Buckets[i].Inside = j.q.Buckets[i].Host == ""
		}
	}
	list := j.sorted()
	j.stays, j.last = j.q.stays(), map[Slot]int{}
	for i, in := range list {
		for _, at := range j.reads(in) {
			j.last[at] = i
		}
	}
	for i, in := range list {
		var err error
		if j.block != nil && j.ends(in) {
			err = j.close(i)
		}
		switch {
		case err != nil:
		case j.joins(in):
			err = j.open(in.Micro).add(in)
		case j.block == nil:
			j.keep(in)
		case in.Kind == Feed || in.Kind == Wait || in.Kind == Send && j.p.Transfers[in.Transfer].Input:
			j.block.before = append(j.block.before, in) // it waits for nothing that the devices compute
		default:
			j.block.after = append(j.block.after, in)
		}
		if err != nil {
			return err
		}
	}
	return j.close(len(list))
}

// sorted is the list with what is inside segments where its values are: what a micro-batch gathers while another one runs comes with the first
// that it runs itself, parts are merged when they are there, and other merges when they are waited for.
func (j *joiner) sorted() (list []Instr) {
	var early []Instr
	for _, in := range j.p.Places[j.place] {
		if in.Kind == Merge || in.Kind == Wait {
			if x := j.q.Buckets[in.Bucket]; x.Inside && x.Parts != (in.Kind == Merge) {
				continue
			}
		}
		if in.Kind == Accumulate {
			if x := j.q.Buckets[in.Bucket]; x.Inside && !x.How.Adds() {
				continue // all are kept, until they are merged
			}
		}
		if in.Kind == Exchange && in.Micro != Once && isGather(in.Op) {
			early = append(early, in)
			continue
		}
		if in.Kind == Run {
			early = slices.DeleteFunc(early, func(x Instr) bool {
				if x.Micro == in.Micro {
					list = append(list, x)
				}
				return x.Micro == in.Micro
			})
		}
		list = append(list, in)
	}
	return append(list, early...)
}

// joins tells whether an instruction becomes part of a segment.
func (j *joiner) joins(in Instr) bool {
	switch in.Kind {
	case Run, Exchange:
		return true
	case Accumulate, Merge, Wait:
		return j.q.Buckets[in.Bucket].Inside
	}
	return false
}

// ends tells whether an instruction is not part of the segment that is open: it is for another micro-batch, or needs something that is done after it.
// With one micro-batch there is no other.
func (j *joiner) ends(in Instr) bool {
	other := j.p.Local.MicroBatches > 1 && in.Micro != j.block.micro
	switch in.Kind {
	case Run, Exchange:
		return other || slices.ContainsFunc(j.block.after, func(x Instr) bool { return x.Kind == Send })
	case Accumulate, Merge, Wait:
		if j.q.Buckets[in.Bucket].Inside {
			return other
		}
		return in.Kind == Wait && slices.ContainsFunc(j.block.after, func(x Instr) bool { return x.Kind == Merge && x.Bucket == in.Bucket })
	}
	if in.Kind == Feed || in.Kind == Send && j.p.Transfers[in.Transfer].Input {
		return other // what it waits for may wait for what this micro-batch sends
	}
	return in.Kind == Receive || in.Kind == Load || in.Kind == Store
}

// keep takes an instruction over as it is.
func (j *joiner) keep(in Instr) {
	if in.Kind == Run {
		n, ok := j.kept[in.Segment]
		if !ok {
			n = len(j.q.Segments)
			j.kept[in.Segment] = n
			j.q.Segments = append(j.q.Segments, j.p.Segments[in.Segment])
		}
		in.Segment = n
	}
	j.list = append(j.list, in)
}

// block is instructions that become one segment.
type block struct {
	*joiner
	micro         int
	parts         []string // what it consists of
	before, after []Instr
	ops           []*ir.Op
	barriers      []int
	region        int
	first         *Segment           // of those that it is made of
	is            map[Slot]*ir.Value // the values in the segment
	slot          map[*ir.Value]Slot // what a value stands for
	inputs        []*ir.Value        // that it takes
	news          []Slot             // that it makes
	theres        map[int]*ir.Value  // by micro-batch: see there
	counts        [2]*ir.Value       // of instances: see count
	scratch       *ir.Program        // for new ops
	bad           []*ir.Value        // by check: not 0 if it refuses the step
}

// open is the block of a micro-batch.
func (j *joiner) open(micro int) *block {
	if j.block == nil {
		j.block = &block{joiner: j, micro: micro, is: map[Slot]*ir.Value{}, slot: map[*ir.Value]Slot{}, theres: map[int]*ir.Value{},
			scratch: ir.NewProgram("joint"), region: -1}
	}
	return j.block
}

// take makes a slot an input, unless the block has it.
func (b *block) take(v *ir.Value, at Slot) error {
	if is := b.is[at]; is == v || given(v) && slices.Contains(b.inputs, v) {
		return nil
	} else if was, ok := b.slot[v]; is != nil || ok && was != at {
		return errors.Errorf("epl: internal error: %s stands for two values of micro-batch %d", v, at.Micro)
	}
	b.is[at], b.slot[v] = v, at
	b.inputs = append(b.inputs, v)
	return nil
}

// put notes that the block makes a slot.
func (b *block) put(v *ir.Value, at Slot) {
	b.is[at] = v
	if _, ok := b.slot[v]; !ok {
		b.slot[v] = at
	}
	if !slices.Contains(b.news, at) {
		b.news = append(b.news, at)
	}
}

// add adds an instruction.
func (b *block) add(in Instr) error {
	p := b.p
	switch in.Kind {
	case Run:
		s := p.Segments[in.Segment]
		if b.first == nil {
			b.first = s
		}
		b.parts = append(b.parts, fmt.Sprintf("run %d", in.Segment))
		for i, at := range p.Takes(in) {
			if err := b.take(s.Inputs[i], at); err != nil {
				return err
			}
		}
		b.begin(s)
		b.ops = append(b.ops, s.Ops...)
		for i, at := range p.Gives(in) {
			if b.is[at] == s.Outputs[i] && slices.Contains(b.inputs, s.Outputs[i]) {
				continue // it is handed through
			}
			b.put(s.Outputs[i], at)
		}
	case Exchange:
		for _, op := range in.Ops() {
			b.parts = append(b.parts, fmt.Sprintf("exchange %s", op))
			if err := b.take(op.Inputs[0], p.slot(op.Inputs[0], in.Micro)); err != nil {
				return err
			}
			b.ops = append(b.ops, op)
			b.put(op.Outputs[0], Slot{op.Outputs[0], in.Micro})
		}
	case Accumulate:
		b.parts = append(b.parts, fmt.Sprintf("accumulate %d", in.Bucket))
		vs, _ := p.Buckets[in.Bucket].Values()
		for _, v := range vs {
			if err := b.take(v, Slot{v, in.Micro}); err != nil {
				return err
			}
			b.sum(b.counted(v, in.Micro), v)
		}
	case Merge, Wait:
		x := p.Buckets[in.Bucket]
		b.parts = append(b.parts, fmt.Sprintf("merge %d", in.Bucket))
		for _, of := range x.Merges {
			m, err := b.merged(of, b.merges(of.Inputs[0], x, in.Micro))
			if err == nil && isCheck(x.How) {
				m, err = b.check(m, of)
			}
			if err != nil {
				return err
			}
			b.ops = append(b.ops, m)
			if out := m.Outputs[0]; x.Parts {
				b.slot[out] = Slot{out, in.Micro}
				b.sum(out, out)
			} else {
				b.put(out, Slot{out, Once})
			}
		}
	}
	return nil
}

// merged is a merge of what some slots have: if that is not one value as it is, a parameter stands for each. It also takes which instances there are, but of
// sums over micro-batches, which have what counts; and how many, for a mean.
func (b *block) merged(m *ir.Op, from []Slot) (*ir.Op, error) {
	v, way := m.Inputs[0], m.Attrs.(*ir.Merge)
	c := *m
	if c.Inputs = nil; b.p.Local.MicroBatches == 1 || way.How.Adds() {
		if err := b.take(v, from[0]); err != nil || !b.lacks() {
			return m, err
		}
		if c.Inputs = append(c.Inputs, v); from[0].Micro != Once {
			c.Inputs = append(c.Inputs, b.there(from[0].Micro))
		}
		if way.How == ir.Mean {
			c.Inputs = append(c.Inputs, b.count(way.Worker))
		}
		return &c, nil
	}
	for _, at := range from {
		if b.is[at] == nil {
			x := b.scratch.NewOp(&ir.Parameter{Name: "instance", Shape: v.Shape}, nil, v.Shape).Outputs[0]
			x.PlaceLike(v)
			if err := b.take(x, at); err != nil {
				return nil, err
			}
		}
		c.Inputs = append(c.Inputs, b.is[at])
	}
	for _, at := range from {
		if b.lacks() {
			c.Inputs = append(c.Inputs, b.there(at.Micro))
		}
	}
	return &c, nil
}

// lacks tells whether steps may lack instances: the last one, where there are several.
func (b *block) lacks() bool { return b.p.Local.Instances() > 1 }

// there tells whether there is the device's instance of a micro-batch.
func (b *block) there(micro int) *ir.Value {
	if b.theres[micro] == nil {
		b.theres[micro] = b.give(&ir.Present{}, dtypes.Bool, micro)
	}
	return b.theres[micro]
}

// count is how many instances the step has, or those of this worker.
func (b *block) count(worker bool) *ir.Value {
	i := 0
	if worker = worker && b.mesh.Workers != nil; worker {
		i = 1
	}
	if b.counts[i] == nil {
		b.counts[i] = b.give(&ir.InstanceCount{Worker: worker}, dtypes.Float32, b.micro)
	}
	return b.counts[i]
}

// give makes something an input that a device knows of a step.
func (b *block) give(a ir.Attrs, d dtypes.DType, micro int) *ir.Value {
	v := b.scratch.NewOp(a, nil, shapes.Make(d)).Outputs[0]
	b.slot[v] = Slot{v, micro}
	b.inputs = append(b.inputs, v)
	return v
}

// counted is a value of a micro-batch, or zeros if the step lacks the instance.
func (b *block) counted(v *ir.Value, micro int) *ir.Value {
	if !b.lacks() {
		return v
	}
	add := func(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
		op := b.scratch.NewOp(a, in, s)
		op.Attribution, op.Varying = v.Op.Attribution, true
		b.ops = append(b.ops, op)
		return op.Outputs[0]
	}
	zero := ir.Literal{Shape: shapes.Make(v.Shape.DType), Flat: dtypes.MakeAnySlice(v.Shape.DType, 1)}
	x := add(&ir.Where{}, v.Shape, b.there(micro), v, add(&ir.Constant{Value: zero}, zero.Shape))
	x.PlaceLike(v)
	return x
}

// sum adds x, what counts of a value v of the micro-batch, to that of the micro-batches before. The first is the sum.
func (b *block) sum(x, v *ir.Value) {
	at := Slot{v, Once}
	if !b.summed[v] || b.p.Local.MicroBatches == 1 {
		b.summed[v] = true
		b.parts = append(b.parts, "first")
		b.put(x, at)
		return
	}
	before, sum := added(b.scratch, x, v)
	b.slot[before] = at
	b.inputs = append(b.inputs, before)
	b.ops = append(b.ops, sum.Op)
	b.put(sum, at)
}

// begin puts a barrier in front of a segment of another region: it computes, or gathers, again what one before it has.
func (b *block) begin(s *Segment) {
	region := -1
	for _, op := range s.Ops {
		region = max(region, op.Region)
	}
	if b.region >= 0 && region != b.region && s.Kind != Apply {
		b.barriers = append(b.barriers, len(b.ops))
	}
	b.region = region
}

// close makes the segment. What instructions read that come after it leaves it: those from next on, and those that were put off.
func (j *joiner) close(next int) error {
	b := j.block
	if j.block = nil; b == nil {
		return nil
	}
	if err := b.refuse(); err != nil {
		return err
	}
	j.list = append(j.list, b.before...)
	defer func() { j.list = append(j.list, b.after...) }()
	soon := map[Slot]bool{}
	for _, in := range b.after {
		for _, at := range j.reads(in) {
			soon[at] = true
		}
	}
	needed := func(at Slot) bool {
		last, ok := j.last[at]
		return ok && last >= next || soon[at] || j.stays[slotAt{at, j.place}]
	}
	s := &Segment{Place: j.place, Segment: &ir.Segment{Ops: b.ops, Mesh: j.mesh, Barriers: b.barriers}, Kind: Apply}
	in := Instr{Kind: Run, Micro: b.micro}
	if b.first != nil {
		s.Stage, s.Kind, s.Name = b.first.Stage, b.first.Kind, b.first.Name
		if s.Kind == Forward && slices.ContainsFunc(b.ops, func(op *ir.Op) bool { return op.Phase != ir.Forward }) {
			s.Kind = Instance
		}
	}
	for _, at := range b.news {
		if needed(at) && !(slices.Contains(b.inputs, b.is[at]) && b.slot[b.is[at]] == at) {
			s.Outputs, in.Out = append(s.Outputs, b.is[at]), append(in.Out, at)
			b.parts = append(b.parts, fmt.Sprintf("gives %s %t", at.Value, at.Micro == Once))
		}
	}
	if len(in.Out) == 0 {
		return nil // nobody needs it
	}
	b.position()
	for _, v := range b.inputs {
		at := b.slot[v]
		s.Inputs, in.In = append(s.Inputs, v), append(in.In, at)
	}
	what := strings.Join(b.parts, ",")
	n, ok := j.made[what]
	if !ok {
		n = len(j.q.Segments)
		j.made[what] = n
		if s.Name == "" {
			s.Name = "once"
		}
		j.q.Segments = append(j.q.Segments, s)
	}
	in.Segment = n
	j.list = append(j.list, in)
	return nil
}

// position lets the segment know where a device is, if devices have unequal parts of something: what is padding depends on that.
func (b *block) position() {
	uneven := slices.ContainsFunc(b.inputs, lower.Uneven)
	for _, op := range b.ops {
		uneven = uneven || slices.ContainsFunc(op.Outputs, lower.Uneven)
	}
	if !uneven || slices.ContainsFunc(b.inputs, lower.IsPosition) {
		return
	}
	v := b.scratch.NewOp(&ir.Position{Axis: ir.Model}, nil, ir.PositionShape).Outputs[0]
	v.SetOn(ir.Model, ir.Placement{Kind: ir.Each}, b.mesh.Model)
	b.slot[v] = Slot{v, b.micro}
	b.inputs = append(b.inputs, v)
}

// reads are the slots that an instruction that is still to come uses: what segments merge, they read from them.
func (j *joiner) reads(in Instr) (slots []Slot) {
	switch in.Kind {
	case Accumulate, Merge, Wait:
		if !j.q.Buckets[in.Bucket].Inside {
			break
		}
		x := j.p.Buckets[in.Bucket]
		for _, m := range x.Merges {
			switch {
			case in.Kind == Accumulate:
				slots = append(slots, Slot{m.Inputs[0], in.Micro}, Slot{m.Inputs[0], Once})
			default:
				slots = append(slots, j.merges(m.Inputs[0], x, in.Micro)...)
				if x.Parts {
					slots = append(slots, Slot{m.Outputs[0], Once})
				}
			}
		}
		return slots
	}
	return j.p.Uses(in)
}

// merges is where a value is when its bucket is merged.
func (j *joiner) merges(v *ir.Value, x Bucket, micro int) (slots []Slot) {
	switch {
	case x.Parts:
		return []Slot{{v, micro}}
	case j.p.Local.MicroBatches > 1 && x.How.Adds():
		return []Slot{{v, Once}}
	case x.How == ir.First:
		return []Slot{{v, 0}}
	}
	for m := range j.p.Local.MicroBatches {
		slots = append(slots, Slot{v, m})
	}
	return slots
}
