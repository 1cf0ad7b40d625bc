package passes

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/compute/support/humanize"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// ZeroLevel says what is divided over the model replicas.
type ZeroLevel int

// The levels, each with what the one before has.
const (
	ZeroOff       ZeroLevel = iota
	ZeroState               // v0: what the optimizer keeps for weights
	ZeroGradients           // v1: gradients, after they are merged
	ZeroWeights             // v2: weights, which are gathered where they are used
)

// zero divides optimizer state, gradients and weights over the model replicas, so that each keeps and computes a part of
// them: the elements of a tensor, laid out flat. Every op of the optimizer that works element by element, a sum over all
// elements included, works on a part as well; what needs the whole of something gets it gathered.
func zero(p *ir.Program, o Options) (int, error) {
	if o.Zero == ZeroOff || !p.IsTraining() {
		return 0, nil
	}
	if p.Local == nil || p.Local.Replicas == 1 {
		o.warn("zero.level without effect", "zero.level has no effect: the program has one model replica, so that there is nobody to share with; use more devices, or leave it out")
		return 0, nil
	}
	if o.Choices.Zero == nil {
		return 0, open("zero")
	}
	z := newZeroer(p)
	z.note, z.warn = o.note, o.warn
	if err := z.apply(o.Choices.Zero); err != nil {
		return 0, err
	}
	z.spread()
	before := p.Main.Ops
	p.Main.Ops = nil
	for _, op := range before {
		if !isApply(op) {
			z.instance(op)
		}
	}
	n := z.outputs()
	z.tell(o.Zero)
	analysis.Sweep(p)
	return n, nil
}

func newZeroer(p *ir.Program) *zeroer {
	z := &zeroer{Index: analysis.Of(p), p: p, n: p.Local.Replicas, divided: map[*ir.Value]bool{}, weights: map[*ir.Value]bool{},
		native: map[*ir.Value]bool{}, wholes: map[at]*ir.Value{}, parts: map[at]*ir.Value{}, terms: map[at]*ir.Value{}, emitted: map[*ir.Op]bool{},
		replica: map[int]*ir.Value{}, local: map[nearby]*ir.Value{}, needs: map[*ir.Value]bool{},
		homes: map[*ir.Value][]int{}, captured: map[*ir.Value]bool{}}
	z.read()
	return z
}

// apply takes what was chosen.
func (z *zeroer) apply(c *PartChoice) error {
	for _, line := range c.Whole {
		z.note(line)
	}
	variables := map[string]*ir.Variable{}
	for i, name := range z.p.VariableNames() {
		variables[name] = z.p.Variables[i]
	}
	for _, names := range []struct {
		names []string
		into  map[*ir.Value]bool
	}{{c.Divided, z.divided}, {c.Weights, z.weights}} {
		for _, name := range names.names {
			x := variables[name]
			if x == nil {
				return errors.Errorf("epl: the plan divides variable %q over the model replicas, and the program has none", name)
			}
			z.divide(x, names.into)
		}
	}
	for _, i := range c.Gradients {
		if i < 0 || i >= len(z.p.Main.Ops) || !z.addsGradients(z.p.Main.Ops[i]) {
			return errors.Errorf("epl: the plan divides the gradient of op %d over the model replicas, which is none in the program here", i)
		}
		z.scatter(z.p.Main.Ops[i])
	}
	return nil
}

// isApply tells whether the op is computed by the optimizer.
func isApply(op *ir.Op) bool {
	return op.Phase == ir.Apply && !op.IsLeaf() && !op.IsMerge()
}

type zeroer struct {
	*analysis.Index
	p    *ir.Program
	n    int // model replicas
	note func(string)
	warn func(kind, line string)
	// divided are the values at the start of the step of variables that are divided; weights, those among them that instances
	// read. If the devices of a stage share such a variable, they are what the devices have of it.
	divided, weights map[*ir.Value]bool
	// native values are computed in parts.
	native map[*ir.Value]bool
	// What there is of a value in the new program, on a device: all of it, a part, or a term of a sum over model replicas.
	wholes, parts, terms map[at]*ir.Value
	emitted              map[*ir.Op]bool
	replica              map[int]*ir.Value
	needs                map[*ir.Value]bool // values that do not differ between instances, and are computed from divided weights
	local                map[nearby]*ir.Value
	homes                map[*ir.Value][]int // by parameter: the devices where a variable lives
	captured             map[*ir.Value]bool  // functions of the optimizer read it from outside: it must be there as it is
}

// at is a value on a device of the model replica.
type at struct {
	v     *ir.Value
	place int
}

// nearby is a value for the ops of a region.
type nearby struct {
	at
	phase  ir.Phase
	region int
}

// read notes where variables are, and what functions of the optimizer read.
func (z *zeroer) read() {
	for _, op := range z.p.Main.Ops {
		if isApply(op) {
			op.Captures(func(v *ir.Value) { z.captured[v] = true })
		}
	}
	for _, x := range z.p.Variables {
		for _, v := range x.Updates() {
			z.homes[x.Param] = append(z.homes[x.Param], v.Place())
		}
	}
}

// home is the device that has a value, or computes it, for an op on another: what does not depend on merged values can be
// computed anywhere, and variables are where they live.
func (z *zeroer) home(v *ir.Value, place int) int {
	switch homes := z.homes[v]; {
	case z.Bound(v.Op) || v.IsPart():
		return v.Place()
	case homes != nil && !slices.Contains(homes, place):
		return homes[0]
	}
	return place
}

// held are what devices have of a variable before it is divided.
func held(x *ir.Variable) []*ir.Value {
	if x.Shards != nil {
		return x.Shards
	}
	return []*ir.Value{x.Param}
}

func (z *zeroer) divide(x *ir.Variable, into map[*ir.Value]bool) {
	for _, v := range held(x) {
		into[v] = true
	}
}

// partable tells whether a part of the op's result can be computed from parts of its inputs.
func partable(op *ir.Op) bool {
	if len(op.Outputs) != 1 || op.Outputs[0].Shape.Rank() == 0 {
		return false
	}
	_, reshape := op.Attrs.(*ir.Reshape)
	return reshape || op.IsElementwise()
}

// sumsAll tells whether the op reduces all elements to one.
func sumsAll(op *ir.Op) bool {
	switch op.Attrs.(type) {
	case *ir.ReduceSum, *ir.ReduceMax, *ir.ReduceMin, *ir.ReduceLogicalAnd:
		return op.Outputs[0].Shape.Rank() == 0
	}
	return false
}

// scatter gives every model replica a part of a gradient only.
func (z *zeroer) scatter(op *ir.Op) {
	m := op.Attrs.(*ir.Merge)
	parts := *m
	parts.Parts = true
	op.Attrs = &parts
	for i, v := range op.Outputs {
		whole := &ir.Value{Op: op, Index: i, Shape: v.Shape} // what others mean by it
		for _, u := range z.Users(v) {
			for j, in := range u.Inputs {
				if in == v {
					u.Inputs[j] = whole
				}
			}
		}
		for j, out := range z.p.Main.Outputs {
			if out == v {
				z.p.Main.Outputs[j] = whole
			}
		}
		v.Shape = ir.PartShape(v.Shape, z.n)
		z.native[whole] = true
		z.parts[at{whole, v.Place()}] = v
	}
}

// addsGradients tells whether the op adds up gradients of instances.
func (z *zeroer) addsGradients(op *ir.Op) bool {
	m, ok := op.Attrs.(*ir.Merge)
	return ok && op.Phase == ir.Backward && m.How.Adds() && !m.Worker
}

// kindOf is equal for gradients that can be in one bucket.
func kindOf(op *ir.Op) string { return fmt.Sprint(op.Outputs[0].Shape.DType, op.Places()) }

// spread finds what is computed in parts: what needs something of the same size that is.
func (z *zeroer) spread() {
	for v := range z.divided {
		z.native[v] = true
	}
	for _, op := range z.p.Main.Ops {
		if !isApply(op) || !partable(op) || z.captured[op.Outputs[0]] {
			continue
		}
		for _, in := range op.Inputs {
			if z.native[in] && in.Shape.Size() == op.Outputs[0].Shape.Size() {
				z.native[op.Outputs[0]] = true
			}
		}
	}
	for _, op := range z.p.Main.Ops {
		if op.IsLeaf() || op.Varying || isApply(op) || op.IsExchange() || op.IsMerge() {
			continue
		}
		op.Uses(func(v *ir.Value) {
			if z.weights[v] || z.needs[v] {
				for _, w := range op.Outputs {
					z.needs[w] = true
				}
			}
		})
	}
}

// instance copies an op of instances. Divided weights are gathered for each region that reads them, and what is computed from
// them alone is computed there.
func (z *zeroer) instance(op *ir.Op) {
	if !op.IsLeaf() && len(op.Outputs) > 0 && z.needs[op.Outputs[0]] {
		return // where it is read
	}
	for i, in := range op.Inputs {
		if in != nil && !op.IsLeaf() && (z.weights[in] || z.needs[in]) {
			op.Inputs[i] = z.near(in, op, op.PlaceOf(i))
		}
	}
	z.put(op)
}

func (z *zeroer) put(op *ir.Op) {
	op.Func = z.p.Main
	z.p.Main.Ops = append(z.p.Main.Ops, op)
	z.emitted[op] = true
}

// add makes an op where and when another is.
func (z *zeroer) add(site *ir.Op, place int, a ir.Attrs, shape shapes.Shape, in ...*ir.Value) *ir.Value {
	op := z.p.NewOp(a, in, shape)
	op.Attribution = site.Attribution
	op.Place = place
	z.put(op)
	return op.Outputs[0]
}

// near is a weight, or what is computed from weights, for an op of an instance.
func (z *zeroer) near(v *ir.Value, site *ir.Op, place int) *ir.Value {
	key := nearby{at{v, place}, site.Phase, site.Region}
	if len(z.p.Stages) < 2 && site.Phase == ir.Backward && site.Region == z.Regions() {
		// The last region of forward is the first of backward: its weights are there.
		if w := z.local[nearby{at{v, place}, ir.Forward, z.Regions() - 1}]; w != nil {
			return w
		}
	}
	if w := z.local[key]; w != nil {
		return w
	}
	var w *ir.Value
	switch {
	case z.weights[v]:
		w = z.gather(site, place, z.part(v, site, place), v.Shape)
	case z.needs[v]:
		c := z.clone(v.Op, site, place, func(in *ir.Value) *ir.Value {
			if z.weights[in] || z.needs[in] {
				return z.near(in, site, place)
			}
			return in
		})
		for i, out := range c.Outputs {
			z.local[nearby{at{v.Op.Outputs[i], place}, site.Phase, site.Region}] = out
		}
		return c.Outputs[v.Index]
	}
	z.local[key] = w
	return w
}

// clone repeats an op elsewhere.
func (z *zeroer) clone(op, site *ir.Op, place int, input func(*ir.Value) *ir.Value) *ir.Op {
	inputs := make([]*ir.Value, len(op.Inputs))
	for i, in := range op.Inputs {
		if in != nil {
			inputs[i] = input(in)
		}
	}
	c := z.p.CopyOp(op, inputs)
	c.TaskGraph, c.Phase, c.Region, c.Place = site.TaskGraph, site.Phase, site.Region, place
	z.put(c)
	return c
}

// gather makes a whole of the parts of all model replicas.
func (z *zeroer) gather(site *ir.Op, place int, part *ir.Value, shape shapes.Shape) *ir.Value {
	return z.add(site, place, &ir.Exchange{How: ir.AllGatherOf, Places: []int{place}, Replicas: true}, shape, part)
}

// outputs computes what the step leaves behind, and returns how many variables are divided.
func (z *zeroer) outputs() (n int) {
	update := map[*ir.Variable]*ir.Value{}
	for _, x := range z.p.Variables {
		if x.Update == nil {
			continue
		}
		all := x.Updates()
		if !z.divided[held(x)[0]] {
			for i, v := range all {
				all[i] = z.whole(v, v.Op, v.Place())
			}
		} else {
			n++
			boxes := x.Shards
			x.Shards = nil
			for i, v := range all {
				h := x.Param
				if boxes != nil {
					h = boxes[i]
				}
				x.Shards = append(x.Shards, z.part(h, v.Op, v.Place()))
				all[i] = z.part(v, v.Op, v.Place())
			}
		}
		x.Update, x.Copies = all[0], all[1:]
		update[x] = x.Update
	}
	for i, o := range z.p.Outputs {
		if o.Updates != nil {
			z.p.Main.Outputs[i] = update[o.Updates]
		} else {
			v := z.p.Main.Outputs[i]
			z.p.Main.Outputs[i] = z.whole(v, v.Op, v.Place())
		}
	}
	return n
}

// tell says what is divided.
func (z *zeroer) tell(level ZeroLevel) {
	count, divided := 0, int64(0)
	for _, x := range z.p.Variables {
		if x.Shards == nil {
			continue
		}
		if _, ok := x.Shards[0].Op.Attrs.(*ir.PartOf); ok {
			count++
			divided += x.Param.Bytes()
		}
	}
	gradients := 0
	for _, op := range z.p.Main.Ops {
		if m, ok := op.Attrs.(*ir.Merge); ok && m.Parts {
			gradients += len(op.Outputs)
		}
	}
	if count+gradients == 0 {
		z.warn("zero.level without effect", fmt.Sprintf("zero.level=v%d has no effect: there is nothing to divide, because the optimizer keeps nothing for weights, or needs it whole", level-1))
		return
	}
	line := fmt.Sprintf("zero.level=v%d: %d model replicas share %s of %s", level-1, z.n, counted(count, "variable"), humanize.Bytes(divided))
	if gradients > 0 {
		line += fmt.Sprintf(", and %s when they are merged", counted(gradients, "gradient"))
	}
	z.note(line + ": each keeps a part; the rest, which is small or needed whole, is on all of them")
}
