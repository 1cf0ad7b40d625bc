package schedule

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Options of a schedule.
type Options struct {
	// MaxSplits is the most buckets that gradients of one dtype are fused into.
	MaxSplits int
	// Results are the devices that hand over what the program returns besides variables: the first of each worker. Nil is
	// device 0.
	Results []int
}

// Build makes the schedule of a program with a local view: one device per model replica, gradients reduced bucket by
// bucket while backward goes on.
func Build(p *ir.Program, o Options) (*Program, error) {
	if p.Local == nil {
		return nil, errors.Errorf("epl: internal error: program %q has no local view to schedule", p.Name)
	}
	if o.Results == nil {
		o.Results = []int{0}
	}
	b := &builder{p: p, s: &Program{Name: p.Name, Local: *p.Local}, index: map[*ir.Op]int{}}
	for i, op := range p.Main.Ops {
		b.index[op] = i
	}
	b.buckets(max(o.MaxSplits, 1))
	b.segments()
	list := b.list()
	for d := range p.Local.Replicas {
		l := list
		if results := b.results(); !slices.Contains(o.Results, d) && len(results) > 0 {
			l = append(slices.Clone(list), Instr{Kind: Free, Micro: Once, Frees: results})
		}
		b.s.Devices = append(b.s.Devices, l)
	}
	return b.s, b.s.Check()
}

type builder struct {
	p     *ir.Program
	s     *Program
	index map[*ir.Op]int
}

// buckets groups the merges. Gradients come first, in the order in which backward computes them; then everything
// else, by the way it is merged.
func (b *builder) buckets(maxSplits int) {
	var gradients, others []*ir.Op
	for _, op := range b.p.Main.Ops {
		m, ok := op.Attrs.(*ir.Merge)
		switch {
		case !ok:
		case op.Phase == ir.Backward && m.How.Adds():
			gradients = append(gradients, op)
		default:
			others = append(others, op)
		}
	}
	slices.SortStableFunc(gradients, func(x, y *ir.Op) int {
		return cmp.Compare(b.index[x.Inputs[0].Op], b.index[y.Inputs[0].Op])
	})
	how := func(op *ir.Op) ir.How { return op.Attrs.(*ir.Merge).How }
	within := func(op *ir.Op) bool { return op.Attrs.(*ir.Merge).Worker }
	for _, h := range []ir.How{ir.Mean, ir.Sum} {
		for _, group := range fuse(slices.DeleteFunc(slices.Clone(gradients), func(op *ir.Op) bool { return how(op) != h }), maxSplits) {
			b.s.Buckets = append(b.s.Buckets, Bucket{How: h, Merges: group})
		}
	}
	for _, worker := range []bool{false, true} {
		for _, h := range []ir.How{ir.Mean, ir.Sum} {
			for _, group := range fuse(slices.DeleteFunc(slices.Clone(others), func(op *ir.Op) bool { return how(op) != h || within(op) != worker }), 1) {
				b.s.Buckets = append(b.s.Buckets, Bucket{How: h, Worker: worker, Merges: group})
			}
		}
	}
	for _, op := range others {
		if h := how(op); h != ir.Mean && h != ir.Sum {
			b.s.Buckets = append(b.s.Buckets, Bucket{How: h, Worker: within(op), Merges: []*ir.Op{op}})
		}
	}
}

// segments cuts the program: after every bucket of gradients, if there is someone to send it to; then what is left of
// the instances; then what runs once.
func (b *builder) segments() {
	isMerge := func(op *ir.Op) bool { _, ok := op.Attrs.(*ir.Merge); return ok }
	computed := map[*ir.Op]int{} // op → instance segment
	// compute assigns what is still to be computed for the values to a segment, and tells whether there is anything.
	compute := func(want []*ir.Value, segment int) bool {
		any := false
		for _, op := range ir.Cut(b.p.Main, "", func(op *ir.Op) bool { _, done := computed[op]; return !done && !isMerge(op) }, want).Ops {
			if !op.IsLeaf() {
				computed[op] = segment
				any = true
			}
		}
		return any
	}
	wants := [][]*ir.Value{nil} // what is merged after each segment
	var rest []*ir.Value        // what the last one has to compute, too
	for i := range b.s.Buckets {
		bucket := &b.s.Buckets[i]
		var in []*ir.Value
		for _, m := range bucket.Merges {
			in = append(in, m.Inputs[0])
		}
		if b.p.Local.Replicas == 1 || bucket.Merges[0].Phase != ir.Backward || !bucket.How.Adds() {
			bucket.After = -1 // the last, which is not known yet
			rest = append(rest, in...)
			continue
		}
		if next := len(wants); len(wants[next-1]) > 0 && compute(in, next) {
			wants = append(wants, nil)
		} else {
			compute(in, next-1)
		}
		bucket.After = len(wants) - 1
		wants[bucket.After] = append(wants[bucket.After], in...)
	}
	last := len(wants) - 1
	compute(rest, last)
	wants[last] = append(wants[last], rest...)
	for i := range b.s.Buckets {
		if b.s.Buckets[i].After < 0 {
			b.s.Buckets[i].After = last
		}
	}
	for i, want := range wants {
		in := func(op *ir.Op) bool { at, ok := computed[op]; return ok && at == i }
		outs := slices.Clone(want)
		for _, later := range wants[i+1:] {
			outs = append(outs, slices.DeleteFunc(slices.Clone(later), func(v *ir.Value) bool { return v.Op.IsLeaf() })...)
		}
		for _, op := range b.p.Main.Ops {
			if at, ok := computed[op]; ok && at > i {
				op.Uses(func(v *ir.Value) { outs = append(outs, v) })
			}
		}
		outs = slices.DeleteFunc(outs, func(v *ir.Value) bool { // computed by another, or given to every segment
			return !in(v.Op) && !(v.Op.IsLeaf() && slices.Contains(want, v))
		})
		b.s.Segments = append(b.s.Segments, ir.Cut(b.p.Main, fmt.Sprintf("instance.%d", i), in, dedupe(outs)))
	}
	b.delayBuckets(computed)
	// Merged values that leave the program as they are need not pass through a segment.
	outs := slices.DeleteFunc(slices.Clone(b.p.Main.Outputs), func(v *ir.Value) bool { return isMerge(v.Op) })
	b.s.Segments = append(b.s.Segments, ir.Cut(b.p.Main, "once", func(op *ir.Op) bool { return !isMerge(op) && !op.Varying }, dedupe(outs)))
}

// delayBuckets lets a bucket wait for the last segment that reads one of its values: merging overwrites them.
func (b *builder) delayBuckets(computed map[*ir.Op]int) {
	for i := range b.s.Buckets {
		bucket := &b.s.Buckets[i]
		for _, op := range b.p.Main.Ops {
			if at, ok := computed[op]; ok && at > bucket.After {
				op.Uses(func(v *ir.Value) {
					if slices.ContainsFunc(bucket.Merges, func(m *ir.Op) bool { return m.Inputs[0] == v }) {
						bucket.After = at
					}
				})
			}
		}
	}
}

func dedupe(vs []*ir.Value) []*ir.Value {
	seen := map[*ir.Value]bool{}
	return slices.DeleteFunc(vs, func(v *ir.Value) bool {
		was := seen[v]
		seen[v] = true
		return was
	})
}

// list makes the instructions of one device.
func (b *builder) list() []Instr {
	var l []Instr
	local := b.p.Local
	segments := len(b.s.Segments) - 1
	for m := range local.MicroBatches {
		for s := range segments {
			l = append(l, Instr{Kind: Run, Segment: s, Micro: m})
			for i, bucket := range b.s.Buckets {
				if bucket.After != s {
					continue
				}
				if local.MicroBatches > 1 {
					l = append(l, Instr{Kind: Accumulate, Bucket: i, Micro: m})
				}
				if m == local.MicroBatches-1 {
					l = append(l, Instr{Kind: Merge, Bucket: i, Micro: Once})
				}
			}
		}
	}
	for i := range b.s.Buckets {
		l = append(l, Instr{Kind: Wait, Bucket: i, Micro: Once})
	}
	if len(b.s.Segments[segments].Outputs) > 0 { // else everything that leaves the program was merged
		l = append(l, Instr{Kind: Run, Segment: segments, Micro: Once})
	}
	return b.frees(l)
}

// results are what the program returns besides variables: some devices hand them over, the others let go of theirs.
func (b *builder) results() []*ir.Value {
	updates := map[*ir.Value]bool{}
	for i, o := range b.p.Outputs {
		if o.Updates != nil {
			updates[b.p.Main.Outputs[i]] = true
		}
	}
	return dedupe(slices.DeleteFunc(slices.Clone(b.p.Main.Outputs), func(v *ir.Value) bool { return updates[v] }))
}

// frees finds the last use of everything that instances compute.
func (b *builder) frees(l []Instr) []Instr {
	type slot struct {
		v     *ir.Value
		micro int
	}
	merged := map[*ir.Value]bool{}
	for _, bucket := range b.s.Buckets {
		for _, m := range bucket.Merges {
			merged[m.Inputs[0]] = true
		}
	}
	seen := map[slot]bool{}
	for i := len(l) - 1; i >= 0; i-- {
		in := &l[i]
		if in.Kind != Run {
			continue
		}
		for _, v := range b.s.Segments[in.Segment].Inputs {
			if _, given := v.Op.Attrs.(*ir.Merge); !given && v.Op.IsLeaf() {
				continue // parameters are the caller's
			}
			at := slot{v, in.Micro}
			if !seen[at] && !merged[v] {
				in.Frees = append(in.Frees, v)
			}
			seen[at] = true
		}
	}
	return l
}
