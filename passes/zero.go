// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/compute/support/humanize"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// Sharing says what is divided over the model replicas.
type Sharing int

// The levels, each with what the one before has.
const (
	ShareNothing   Sharing = iota
	ShareState             // v0: what the optimizer keeps for weights
	ShareGradients         // v1: gradients, after they are merged
	ShareWeights           // v2: weights, which are gathered where they are used
)

// zero divides optimizer state, gradients and weights over the model replicas, so that each keeps and computes a part of
// them: the elements of a tensor, laid out flat. Every op of the optimizer that works element by element, a sum over all
// elements included, works on a part as well; what needs the whole of something gets it gathered.
func zero(p *ir.Program, o Options) (int, error) {
	if o.Share == ShareNothing && o.Choices.Zero == nil || !p.IsTraining() {
		return 0, nil
	}
	if p.Local == nil || p.Local.Replicas == 1 {
		o.warn("zero.level without effect", "zero.level has no effect: the program has one model replica, so that there is nobody to share with; use more devices, or leave it out")
		return 0, nil
	}
	if o.Choices.Zero == nil {
		return 0, open("zero")
	}
	z := newDivision(p)
	if err := z.apply(o.Choices.Zero, o.note); err != nil {
		return 0, err
	}
	z.findNeeds()
	before := p.Main.Ops
	p.Main.Ops = nil
	for _, op := range before {
		switch {
		case op.IsLeaf():
			z.put(op)
		case IsApply(op):
			z.optimize(op)
		case z.factored[op]:
			z.multiply(op)
		case len(op.Outputs) > 0 && z.needs[op.Outputs[0]]: // computed where it is read
		default:
			op.Inputs = ir.Through(op.Inputs, func(in *ir.Value) *ir.Value { return z.nearTo(in, op) })
			z.put(op)
		}
	}
	z.outputs()
	n := z.tell(o)
	analysis.Sweep(p)
	return n, nil
}

// division divides values over the model replicas, as placements.
type division struct {
	*analysis.Index
	p        *ir.Program
	n        int                // model replicas
	weights  map[*ir.Value]bool // divided variables that instances read
	needs    map[*ir.Value]bool // values that do not differ between instances, and are computed from those
	near     map[nearby]*ir.Value
	made     map[form]*ir.Value      // values in another placement than they were computed in
	homes    map[*ir.Value]*ir.Op    // by parameter: what computes the variable's new value, where it lives
	captured map[*ir.Value]bool      // functions of the optimizer read it from outside: it must be there as it is
	factored map[*ir.Op]bool         // merges of gradients whose factors are gathered
	joined   map[*ir.Value]*ir.Value // factors of all samples, by those of an instance
	number   *ir.Value               // of the model replica
}

// nearby is a value for the ops of a region.
type nearby struct {
	v      *ir.Value
	phase  ir.Phase
	region int
}

// form is a value in another placement.
type form struct {
	v    *ir.Value
	kind ir.PlacementKind
}

func newDivision(p *ir.Program) *division {
	z := &division{Index: analysis.Of(p), p: p, n: p.Local.Replicas, weights: map[*ir.Value]bool{}, needs: map[*ir.Value]bool{},
		near: map[nearby]*ir.Value{}, made: map[form]*ir.Value{}, homes: map[*ir.Value]*ir.Op{}, captured: map[*ir.Value]bool{},
		factored: map[*ir.Op]bool{}, joined: map[*ir.Value]*ir.Value{}}
	for _, op := range p.Main.Ops {
		if IsApply(op) {
			op.Captures(func(v *ir.Value) { z.captured[v] = true })
		}
	}
	for _, x := range p.Variables {
		if x.Update != nil {
			z.homes[x.Param] = x.Update.Op
		}
	}
	return z
}

// apply takes what was chosen: the placements of variables and gradients.
func (z *division) apply(c *PartChoice, note func(string)) error {
	for _, line := range c.Whole {
		note(line)
	}
	variables := map[string]*ir.Variable{}
	for i, name := range z.p.VariableNames() {
		variables[name] = z.p.Variables[i]
	}
	for _, name := range c.Divided {
		x := variables[name]
		if x == nil {
			return errors.Errorf("epl: the plan divides variable %q over the model replicas, and the program has none", name)
		}
		x.Param.SetOn(ir.Replicas, flat, z.n)
	}
	for _, name := range c.Weights {
		if variables[name] != nil {
			z.weights[variables[name].Param] = true
		}
	}
	for _, i := range c.Gradients {
		if i < 0 || i >= len(z.p.Main.Ops) || !addsGradients(z.p.Main.Ops[i]) {
			return errors.Errorf("epl: the plan divides the gradient of op %d over the model replicas, which is none in the program here", i)
		}
		z.p.Main.Ops[i].Outputs[0].SetOn(ir.Replicas, flat, z.n)
	}
	for _, i := range c.Factored {
		if !slices.Contains(c.Gradients, i) {
			return errors.Errorf("epl: the plan gathers the factors of the gradient of op %d, which it does not divide", i)
		}
		if _, ok := factorsOf(z.p.Main.Ops[i]); !ok {
			return errors.Errorf("epl: the plan gathers the factors of the gradient of op %d, which is no product in the program here", i)
		}
		z.factored[z.p.Main.Ops[i]] = true
	}
	return nil
}

var flat = ir.Placement{Kind: ir.Flat}

// isFlat tells whether each model replica has a part of a value.
func isFlat(v *ir.Value) bool { return v.On(ir.Replicas).Kind == ir.Flat }

// IsApply tells whether the op is computed by the optimizer.
func IsApply(op *ir.Op) bool { return op.Phase == ir.Apply && !op.IsLeaf() && !op.IsMerge() }

// addsGradients tells whether the op adds up gradients of instances.
func addsGradients(op *ir.Op) bool {
	m, ok := op.Attrs.(*ir.Merge)
	return ok && op.Phase == ir.Backward && m.How.Adds() && !m.Worker
}

// partable tells whether a part of the op's result can be computed from parts of its inputs.
func partable(op *ir.Op) bool {
	if len(op.Outputs) != 1 || op.Outputs[0].Shape.Rank() == 0 {
		return false
	}
	_, reshape := op.Attrs.(*ir.Reshape)
	return reshape || op.IsElementwise()
}

// reduction is how the op reduces all elements to one; 0 if it does not.
func reduction(op *ir.Op) ir.Reduction {
	if len(op.Outputs) != 1 || op.Outputs[0].Shape.Rank() > 0 {
		return 0
	}
	return reductions[op.Type()]
}

// reductions are how ops reduce elements, and joins how they join what was reduced so.
var (
	reductions = map[ir.OpType]ir.Reduction{ir.OpReduceSum: ir.ReduceBySum, ir.OpReduceMax: ir.ReduceByMax,
		ir.OpReduceMin: ir.ReduceByMin, ir.OpReduceLogicalAnd: ir.ReduceByMin}
	joins = map[ir.OpType]ir.Reduction{ir.OpAdd: ir.ReduceBySum, ir.OpMax: ir.ReduceByMax,
		ir.OpMin: ir.ReduceByMin, ir.OpLogicalAnd: ir.ReduceByMin}
)

// findNeeds finds what does not differ between instances and is computed from divided weights.
func (z *division) findNeeds() {
	for _, op := range z.p.Main.Ops {
		if op.IsLeaf() || op.Varying || IsApply(op) || op.IsExchange() || op.IsMerge() {
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

// nearTo is a value for an op of an instance. Divided weights are gathered for each region that reads them, and what is computed from
// them alone is computed there.
func (z *division) nearTo(v *ir.Value, site *ir.Op) *ir.Value {
	if !z.weights[v] && !z.needs[v] {
		return v
	}
	key := nearby{v, site.Phase, site.Region}
	if last := (nearby{v, ir.Forward, z.Regions() - 1}); len(z.p.Stages) < 2 && site.Phase == ir.Backward && site.Region == z.Regions() && z.near[last] != nil {
		return z.near[last] // the last region of forward is the first of backward: its weights are there
	}
	if z.near[key] == nil && z.weights[v] {
		z.near[key] = z.add(site.Attribution, &ir.Reshard{}, v, ir.Placement{}, v)
	}
	if z.near[key] != nil {
		return z.near[key]
	}
	c := z.copyOf(v.Op, site.Attribution, func(in *ir.Value) *ir.Value { return z.nearTo(in, site) })
	for i, out := range c.Outputs {
		z.near[nearby{v.Op.Outputs[i], site.Phase, site.Region}] = out
	}
	return c.Outputs[v.Index]
}

func (z *division) put(op *ir.Op) {
	op.Func = z.p.Main
	z.p.Main.Ops = append(z.p.Main.Ops, op)
}

// add makes an op whose result is placed as like is, but for the model replicas.
func (z *division) add(at ir.Attribution, a ir.Attrs, like *ir.Value, p ir.Placement, in ...*ir.Value) *ir.Value {
	op := z.p.NewOp(a, in, like.Shape)
	op.Attribution = at
	op.Outputs[0].PlaceLike(like)
	op.Outputs[0].SetOn(ir.Replicas, p, z.n)
	z.put(op)
	return op.Outputs[0]
}

// copyOf repeats an op elsewhere.
func (z *division) copyOf(op *ir.Op, at ir.Attribution, input func(*ir.Value) *ir.Value) *ir.Op {
	c := z.p.CopyOp(op, ir.Through(op.Inputs, input))
	c.TaskGraph, c.Phase, c.Region, c.Place = at.TaskGraph, at.Phase, at.Region, at.Place
	z.put(c)
	return c
}

// optimize places what an op of the optimizer computes: in parts, if it needs something of the same size that is; as a term of each
// model replica, if it reduces parts, or joins such terms; whole otherwise.
func (z *division) optimize(op *ir.Op) {
	operand := z.whole
	if len(op.Outputs) == 1 && !z.captured[op.Outputs[0]] && !op.IsReshard() {
		out := op.Outputs[0]
		alike := func(in *ir.Value) bool { return isFlat(in) && in.Shape.Size() == out.Shape.Size() }
		if partable(op) && slices.ContainsFunc(op.Inputs, alike) {
			operand = z.operand
			out.SetOn(ir.Replicas, flat, z.n)
		} else if how := z.term(op); how != 0 {
			operand = func(in *ir.Value, _ *ir.Op) *ir.Value { return in }
			if reduction(op) != 0 {
				op.Inputs[0] = z.filled(op)
			}
			out.SetOn(ir.Replicas, ir.Placement{Kind: ir.Partial, Reduce: how}, z.n)
		}
	}
	op.Inputs = ir.Through(op.Inputs, func(in *ir.Value) *ir.Value { return operand(in, op) })
	z.put(op)
}

// operand is a value for an op that each model replica computes a part of.
func (z *division) operand(v *ir.Value, site *ir.Op) *ir.Value {
	if v.Shape.Rank() == 0 {
		return z.whole(v, site)
	}
	return z.part(v, site)
}

// term is how the model replicas' results of an op are reduced to one: it reduces parts, or it joins such terms; 0 if neither.
func (z *division) term(op *ir.Op) ir.Reduction {
	if how := reduction(op); how != 0 && isFlat(op.Inputs[0]) {
		return how
	}
	if op.Outputs[0].Shape.Rank() > 0 {
		return 0
	}
	var how ir.Reduction
	for i, in := range op.Inputs {
		p := in.On(ir.Replicas)
		if p.Kind != ir.Partial || i > 0 && p.Reduce != how {
			return 0
		}
		how = p.Reduce
	}
	if t := op.Type(); t == ir.OpReshape || t == ir.OpIdentity || joins[t] == how {
		return how
	}
	return 0
}

// home is where a value is put together or divided, for an op of the optimizer: where it is computed, or where its variable lives.
func (z *division) home(v *ir.Value, site *ir.Op) ir.Attribution {
	at := site.Attribution
	from := v.Op
	if v.Op.IsLeaf() {
		from = z.homes[v]
	}
	if from != nil && !from.IsLeaf() {
		at.TaskGraph, at.Place = from.TaskGraph, from.Place
	}
	return at
}

// whole is all of a value, for an op of the optimizer.
func (z *division) whole(v *ir.Value, site *ir.Op) *ir.Value {
	p := v.On(ir.Replicas)
	if p.Kind == ir.Replicated && !z.needs[v] {
		return v
	}
	key, at := form{v, ir.Replicated}, z.home(v, site)
	switch {
	case z.made[key] != nil:
	case z.needs[v]: // of instances, and computed from weights
		z.made[key] = z.copyOf(v.Op, at, func(in *ir.Value) *ir.Value { return z.whole(in, site) }).Outputs[v.Index]
	case v.Shape.DType == dtypes.Bool: // devices add numbers
		like := z.p.NewOp(&ir.Identity{}, nil, typed(v.Shape, dtypes.Int32)).Outputs[0]
		like.PlaceLike(v)
		n := z.add(at, &ir.ConvertDType{DType: dtypes.Int32}, like, p, v)
		z.made[key] = z.add(at, &ir.ConvertDType{DType: dtypes.Bool}, v, ir.Placement{}, z.add(at, &ir.Reshard{}, like, ir.Placement{}, n))
	default:
		z.made[key] = z.add(at, &ir.Reshard{}, v, ir.Placement{}, v)
	}
	return z.made[key]
}

// part is the model replica's part of a value, for an op of the optimizer.
func (z *division) part(v *ir.Value, site *ir.Op) *ir.Value {
	if isFlat(v) {
		return v
	}
	key, op := form{v, ir.Flat}, v.Op
	_, broadcast := op.Attrs.(*ir.BroadcastInDim)
	switch {
	case z.made[key] != nil:
	case IsApply(op) && broadcast && op.Inputs[0].Shape.Size() == 1:
		z.made[key] = z.copyOf(op, z.home(v, site), func(in *ir.Value) *ir.Value { return z.whole(in, op) }).Outputs[0]
	case IsApply(op) && partable(op) && !z.captured[v]:
		z.made[key] = z.copyOf(op, z.home(v, site), func(in *ir.Value) *ir.Value { return z.operand(in, op) }).Outputs[0]
	default:
		z.made[key] = z.add(z.home(v, site), &ir.Reshard{}, v, flat, z.whole(v, site), z.position())
	}
	z.made[key].SetOn(ir.Replicas, flat, z.n)
	return z.made[key]
}

// position is the number of the model replica.
func (z *division) position() *ir.Value {
	if z.number == nil {
		z.number = z.p.NewOp(&ir.Position{Axis: ir.Replicas}, nil, ir.PositionShape).Outputs[0]
		z.number.SetOn(ir.Replicas, ir.Placement{Kind: ir.Each}, z.n)
		z.put(z.number.Op)
	}
	return z.number
}

// filled is what a reduction reads, with what lies past the end set to what changes nothing.
func (z *division) filled(op *ir.Op) *ir.Value {
	v := op.Inputs[0]
	d := v.Shape.DType
	var neutral any
	switch op.Attrs.(type) {
	case *ir.ReduceLogicalAnd:
		neutral = true
	case *ir.ReduceMax:
		neutral = d.LowestValue()
	case *ir.ReduceMin:
		neutral = d.HighestValue()
	default:
		neutral = shapes.CastAsDType(0, d)
	}
	return z.add(op.Attribution, &ir.FillEnd{With: ir.NumberOf(neutral)}, v, flat, v, z.position())
}

// outputs lets variables have their new values as they are placed, and results be whole.
func (z *division) outputs() {
	for _, x := range z.p.Variables {
		switch v := x.Update; {
		case v == nil:
		case isFlat(x.Param):
			x.Update = z.part(v, v.Op)
		default:
			x.Update = z.whole(v, v.Op)
		}
	}
	for i, v := range z.p.Main.Outputs {
		if x := z.p.Outputs[i].Updates; x != nil {
			z.p.Main.Outputs[i] = x.Update
		} else {
			z.p.Main.Outputs[i] = z.whole(v, v.Op)
		}
	}
}

// tell says what is divided, and returns how many variables are.
func (z *division) tell(o Options) int {
	if len(z.factored) > 0 {
		o.note(fmt.Sprintf("communication.gather_factors: %d model replicas gather the factors of %s, because they are less than half as large, and each computes and applies a part of them", z.n, counted(len(z.factored), "gradient")))
	}
	if o.Share == ShareNothing {
		return len(z.factored)
	}
	count, gradients, bytes := 0, len(z.factored), int64(0)
	for _, x := range z.p.Variables {
		if isFlat(x.Param) {
			count++
			bytes += x.Param.Shape.ByteSize()
		}
	}
	for _, op := range z.p.Main.Ops {
		if op.IsMerge() && isFlat(op.Outputs[0]) {
			gradients++
		}
	}
	if count+gradients == 0 {
		o.warn("zero.level without effect", fmt.Sprintf("zero.level=v%d has no effect: there is nothing to divide, because the optimizer keeps nothing for weights, or needs it whole", o.Share-1))
		return 0
	}
	line := fmt.Sprintf("zero.level=v%d: %d model replicas share %s of %s", o.Share-1, z.n, counted(count, "variable"), humanize.Bytes(bytes))
	if gradients > 0 {
		line += fmt.Sprintf(", and %s when they are merged", counted(gradients, "gradient"))
	}
	o.note(line + ": each keeps a part; the rest, which is small or needed whole, is on all of them")
	return count
}
