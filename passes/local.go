// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// localView makes a training program that of one instance among several: it marks what differs between instances,
// gives each its own random bits, and merges gradients, results and state where instances meet. One without gradients has one
// instance, whose results are taken as they are.
func localView(p *ir.Program, o Options) (int, error) {
	if o.Local == nil || o.Local.Replicas*o.Local.MicroBatches == 1 && p.Stages == nil && !(o.inPieces() && p.IsTraining()) {
		return 0, nil
	}
	l := &localiser{p: p, o: o, index: analysis.Of(p), merged: map[*ir.Value]*ir.Value{}, joined: map[*ir.Value]*ir.Value{}, ofState: map[*ir.Op]bool{}}
	// Something to insert before that comes after everything; dropped when all is done.
	l.end = p.NewOp(&ir.Constant{Value: ir.Literal{Shape: shapes.Make(dtypes.Bool), Flat: []bool{false}}}, nil, shapes.Make(dtypes.Bool))
	p.Main.Append(l.end)
	defer func() { p.Main.Ops = p.Main.Ops[:len(p.Main.Ops)-1] }()
	local := *o.Local
	p.Local = &local
	l.mark()
	if p.IsTraining() {
		if err := l.readCollections(); err != nil {
			return 0, err
		}
		if err := l.weigh(); err != nil {
			return 0, err
		}
		l.gradients()
		if err := l.apply(); err != nil {
			return 0, err
		}
		l.metrics()
	}
	err := l.outputs()
	return len(l.merged), err
}

type localiser struct {
	p        *ir.Program
	o        Options
	index    *analysis.Index // as it was: of stages only
	end      *ir.Op
	instance *ir.Value               // the instance's number, once it is needed
	how      map[*ir.Value]ir.Merge  // what collections say
	weight   *ir.Value               // the InstanceWeight, if there is one
	ratios   *ratios                 // what values are divided by
	weights  map[weightKey]*weight   // what was computed of them
	merged   map[*ir.Value]*ir.Value // local → merged
	joined   map[*ir.Value]*ir.Value // local → concatenated, for sparse gradients
	ofState  map[*ir.Op]bool         // what reads the new state of metrics that add up, and what makes it
}

func (l *localiser) readCollections() error {
	l.how = map[*ir.Value]ir.Merge{}
	in := map[*ir.Value]string{}
	for _, w := range ways {
		for _, v := range l.p.Collection(w.key) {
			way := ir.Merge{How: w.how, Worker: w.worker && l.o.PerWorker != nil}
			switch other, twice := in[v]; {
			case twice && other != w.key:
				return errors.Errorf("epl: %s is in the collections %s and %s: say one way to merge it", v.Op, other, w.key)
			case w.how == ir.Concat && v.Shape.Rank() == 0:
				return errors.Errorf("epl: %s is a scalar and cannot be concatenated, as its collection %s says; use GlobalMean or GlobalSum, or reshape it to [1]", v.Op, w.key)
			case way.Worker && l.o.Spanning:
				return errors.Errorf("epl: %s is in the collection %s, but model replicas have devices of several workers, so that none has one by itself; "+
					"use the Global one", v.Op, w.key)
			case way.Worker && w.how == ir.Concat && l.p.Local.Shares != nil:
				return errors.Errorf("epl: %s is in the collection LocalConcat, but model replicas have different numbers of micro-batches, %v, "+
					"so that its shape would differ between workers; use GlobalConcat", v.Op, l.p.Local.Shares)
			case way.Worker && w.how == ir.Concat && slices.Max(l.o.PerWorker) != slices.Min(l.o.PerWorker):
				return errors.Errorf("epl: %s is in the collection LocalConcat, but the workers have different numbers of devices, "+
					"so that its shape would differ between them; use GlobalConcat, or give all workers as many devices", v.Op)
			}
			in[v], l.how[v] = w.key, way
		}
	}
	switch w := l.p.Collection("InstanceWeight"); len(w) {
	case 0:
	case 1:
		l.weight = w[0]
		for v, way := range l.how {
			if way.Worker && way.How == ir.Mean {
				return errors.Errorf("epl: %s is in the collection LocalMean, and the mean of a program with an InstanceWeight is that of all workers; "+
					"use GlobalMean or LocalSum", v.Op)
			}
		}
		if l.o.SumGradients {
			return errors.New("epl: InstanceWeight makes a weighted mean of instances; " +
				"it does not go with communication.gradients_reduce_method = \"sum\"")
		}
	default:
		return errors.Errorf("epl: InstanceWeight has %d values, a program has one weight per instance", len(w))
	}
	return nil
}

// mark finds the varying ops, and gives random ops the state of their instance.
func (l *localiser) mark() {
	for _, op := range slices.Clone(l.p.Main.Ops) {
		switch op.Attrs.(type) {
		case *ir.Parameter:
			op.Varying = slices.Contains(l.p.Inputs, op.Outputs[0])
			continue
		case *ir.RNGBitGenerator:
			if op.Phase != ir.Apply && !op.Inputs[0].Op.Varying && l.p.IsTraining() {
				op.Inputs[0] = l.fold(op, op.Inputs[0])
			}
		}
		op.SetVarying()
	}
}

// spot is where ops are inserted: in front of another, in a phase, for a TaskGraph; nil: that of the other.
type spot struct {
	l     *localiser
	next  *ir.Op
	phase ir.Phase
	home  *ir.TaskGraph
}

// at is a spot for what is made of a value. What forward does with the weight of an instance comes after both.
func (l *localiser) at(next *ir.Op, phase ir.Phase, v *ir.Value, w *weight) spot {
	at := spot{l, next, phase, v.Op.TaskGraph}
	if w != nil && v.Op.Phase == ir.Forward && l.index.StageOf(w.of.Op.TaskGraph) > l.index.StageOf(at.home) {
		at.home = w.of.Op.TaskGraph
	}
	return at
}

func (at spot) insert(a ir.Attrs, shape shapes.Shape, in ...*ir.Value) *ir.Value {
	p := at.l.p
	op := p.NewOp(a, in, shape)
	p.Main.InsertBefore(at.next, op)
	op.Phase = at.phase
	if at.home != nil {
		op.TaskGraph = at.home
	}
	op.SetVarying()
	return op.Outputs[0]
}

// folding is what the number of an instance is multiplied by before it goes into the state of the random number
// generator: odd numbers without a pattern.
var folding = []uint64{0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb}

// Fold mixes the number of an instance into the elements of a state, as programs with several do.
func Fold(state []uint64, instance int) {
	for i := range state {
		state[i] ^= uint64(instance) * folding[i%len(folding)]
	}
}

// fold mixes the instance's number into a state that all instances share. Instance 0 keeps it as it is.
func (l *localiser) fold(next *ir.Op, state *ir.Value) *ir.Value {
	if l.instance == nil {
		op := l.p.NewOp(&ir.Instance{}, nil, shapes.Make(dtypes.Uint64))
		l.p.Main.InsertBefore(l.p.Main.Ops[0], op)
		op.Attribution, op.Varying = ir.Attribution{Phase: ir.Forward}, true
		l.instance = op.Outputs[0]
	}
	s := state.Shape
	factors := make([]uint64, s.Size())
	for i := range factors {
		factors[i] = folding[i%len(folding)]
	}
	at := spot{l, next, next.Phase, nil}
	c := at.insert(&ir.Constant{Value: ir.Literal{Shape: s, Flat: factors}}, s)
	n := at.insert(&ir.BroadcastInDim{OutputShape: s}, s, l.instance)
	return at.insert(&ir.BitwiseXor{}, s, state, at.insert(&ir.Mul{}, s, n, c))
}

// firstApply is the op in front of which merged values are defined: what needs them comes after.
func (l *localiser) firstApply() *ir.Op {
	if i := slices.IndexFunc(l.p.Main.Ops, func(op *ir.Op) bool { return op.Phase == ir.Apply && !op.IsLeaf() }); i >= 0 {
		return l.p.Main.Ops[i]
	}
	return l.end
}

// merge makes one value of those of all instances, in front of next.
func (l *localiser) merge(next *ir.Op, v *ir.Value, way ir.Merge) *ir.Value {
	if l.merged[v] == nil {
		w := l.weightFor(next, v, way)
		l.merged[v] = l.at(next, v.Op.Phase, v, w).merge(v, way, w, v.Op.Phase)
	}
	return l.merged[v]
}

// merge makes one value of those of all instances. A mean with weights travels as a sum, which is divided in a phase of its own.
func (at spot) merge(v *ir.Value, way ir.Merge, w *weight, divide ir.Phase) *ir.Value {
	if w != nil {
		x := at.weighted(v, w)
		sum := at.insert(&ir.Merge{How: ir.Sum, Worker: way.Worker}, x.Shape, x)
		at.phase = divide
		return at.divided(sum, w, v.Shape.DType)
	}
	s := v.Shape
	if way.How == ir.Concat {
		n := at.l.p.Local.Instances()
		if way.Worker {
			n = at.l.o.PerWorker[0] * at.l.p.Local.MicroBatches
		}
		s = s.Clone()
		s.Dimensions[0] *= n
	}
	return at.insert(&way, s, v)
}

// gradients merges the gradients, in their order. Those of weighted instances travel as a sum; dividing it belongs to apply, where each
// model replica may have a part of it only.
func (l *localiser) gradients() {
	way := ir.Merge{How: ir.Mean}
	if l.o.SumGradients {
		way.How = ir.Sum
	}
	next, sums, stay := l.firstApply(), false, l.sumsStay()
	for i, g := range l.p.Gradients {
		v := g.Value
		if isEmpty(v.Shape) && !v.Op.Varying {
			continue // nothing is to be merged
		}
		if l.merged[v] == nil {
			w := l.weightFor(next, l.p.Loss, way)
			at, divide := l.at(next, ir.Backward, v, w), ir.Apply
			if s, ok := sparseGradient(v); ok && !l.o.DenseGradients {
				l.merged[v] = at.mergeSparse(v, s, way.How, w)
			} else if w == nil && way.How == ir.Mean && stay[v.Shape.DType] {
				at.phase = v.Op.Phase
				l.merged[v], sums = at.mergeSum(v), true
			} else {
				if w == nil {
					at.phase = v.Op.Phase
				} else if wide(v.Shape.DType) != v.Shape.DType { // the gradient is what has the variable's type
					divide = ir.Backward
				}
				l.merged[v] = at.merge(v, way, w, divide)
			}
		}
		l.p.Gradients[i].Value = l.merged[v]
		if m := l.merged[v].Op; m.Phase == ir.Apply {
			l.p.Gradients[i].Value = m.Inputs[0] // the sum that is divided
		}
	}
	if sums {
		l.o.note("gradients are added up over micro-batches, and apply takes their mean")
	}
}

// sumsStay tells of which types sums over micro-batches are all that the merges of gradients have to do: there is one model replica. Then apply makes the means of them while
// it has the elements at hand. The bits are those of a merge, which also multiplies by the inverse, in the type of the sum; but where several stages have parts of a gradient,
// these are added up first. All gradients of a type are merged alike, so that they fit into one bucket.
func (l *localiser) sumsStay() map[dtypes.DType]bool {
	stay := map[dtypes.DType]bool{}
	if l.p.Local.Replicas > 1 || l.p.Local.MicroBatches == 1 {
		return stay
	}
	for _, g := range l.p.Gradients {
		d := g.Value.Shape.DType
		before, seen := stay[d]
		stay[d] = (before || !seen) && (d == dtypes.Float32 || d == dtypes.Float64) && !l.readWhole(g.Value, map[*ir.Value]bool{})
	}
	return stay
}

// readWhole tells whether apply reads all elements of a gradient before it updates any, as for a norm: the means of all gradients would be there beside the sums.
func (l *localiser) readWhole(v *ir.Value, seen map[*ir.Value]bool) bool {
	seen[v] = true
	return slices.ContainsFunc(l.index.Users(v), func(op *ir.Op) bool {
		return op.Phase == ir.Apply && (!partable(op) || !seen[op.Outputs[0]] && l.readWhole(op.Outputs[0], seen))
	})
}

// mergeSum merges by a sum, of which apply makes the mean.
func (at spot) mergeSum(v *ir.Value) *ir.Value {
	sum := at.insert(&ir.Merge{How: ir.Sum}, v.Shape, v)
	at.phase = ir.Apply
	d := v.Shape.DType
	inverse := at.insert(&ir.Div{}, shapes.Make(d), at.number(d, 1), inserter(at.insert).instances(d))
	return at.insert(&ir.Mul{}, v.Shape, sum, inverse)
}

// apply lets what runs once per step read merged values.
func (l *localiser) apply() error {
	for _, op := range slices.Clone(l.p.Main.Ops) {
		if op.Phase != ir.Apply || op.IsLeaf() {
			continue
		}
		for i, in := range op.Inputs {
			if in == nil || !in.Op.Varying {
				if m := l.merged[in]; m != nil {
					op.Inputs[i] = m // the gradient of a variable that no data reaches
				}
				continue
			}
			way := l.defaultWay(in)
			if way.Worker {
				return errors.Errorf("epl: %s is in a Local collection, and the optimizer reads it in %s, which must be the same on all workers; "+
					"use the Global one", in.Op, op)
			}
			op.Inputs[i] = l.merge(op, in, way)
		}
		if op.SetVarying(); op.Varying {
			return errors.Errorf("epl: %s, in the optimizer, has a function that captures a value which differs between model replicas; "+
				"pass it as an operand", op)
		}
	}
	return nil
}

// outputs merges what leaves the program.
func (l *localiser) outputs() error {
	for i, v := range l.p.Main.Outputs {
		x := l.p.Outputs[i].Updates
		m := l.merged[v]
		if _, said := l.how[v]; m == nil && !said && (x == nil || !x.Trainable) {
			m = l.again(v)
		}
		if state := x != nil && !x.Trainable; m != nil && !(state && v.Op.Varying && !l.ofState[v.Op]) {
			l.p.Main.Outputs[i] = m
		} else if v.Op.Varying {
			if x != nil && x.Trainable {
				return errors.Errorf("epl: the new value of the trainable variable %q (%s) differs between model replicas: "+
					"wrap the optimizer in epl.Optimizer, and do not update trainable variables outside it", x.Path, v.Op)
			}
			way := l.defaultWay(v)
			if x != nil && way.How == ir.Concat {
				return errors.Errorf("epl: the new value of variable %q cannot be concatenated over instances, as its collection says", x.Path)
			}
			if x != nil && way.Worker {
				return errors.Errorf("epl: the new value of variable %q is in a Local collection, but must be the same on all workers; "+
					"use the Global one", x.Path)
			}
			l.p.Main.Outputs[i] = l.merge(l.end, v, way)
			if w := l.weightFor(l.end, v, way); state && w != nil { // the value before the step, if no instance counts
				m := l.p.Main.Outputs[i]
				l.p.Main.Outputs[i] = l.at(l.end, v.Op.Phase, v, w).insert(&ir.Where{}, m.Shape, w.any, m, x.Param)
			}
		}
		if x != nil {
			x.Update = l.p.Main.Outputs[i]
		}
	}
	return nil
}

// defaultWay is how a varying value is merged if it is no gradient.
func (l *localiser) defaultWay(v *ir.Value) ir.Merge {
	way, said := l.how[v]
	switch d := v.Shape.DType; {
	case said:
	case analysis.RandomState(v) || !l.p.IsTraining(): // which has one instance
		way.How = ir.First
	case d.IsFloat() || d.IsComplex():
		way.How = ir.Mean
	default:
		way.How = ir.Agree
	}
	return way
}

// ways maps collections to the way they merge. With one worker, local and global are the same.
var ways = []struct {
	key    string
	how    ir.How
	worker bool
}{
	{"GlobalMean", ir.Mean, false}, {"GlobalSum", ir.Sum, false}, {"GlobalConcat", ir.Concat, false},
	{"LocalMean", ir.Mean, true}, {"LocalSum", ir.Sum, true}, {"LocalConcat", ir.Concat, true},
}

// collected says in which collections values are, of those that say how instances are merged. That is part of what a value is: two
// that are computed alike but merged in different ways must not become one.
type collected map[*ir.Value]string

func waysOf(p *ir.Program) collected {
	c := collected{}
	for _, w := range ways {
		for _, v := range p.Collection(w.key) {
			c[v] += w.key + " "
		}
	}
	return c
}

// same tells whether the results of two ops with as many outputs are merged in the same ways.
func (c collected) same(a, b *ir.Op) bool {
	for i, v := range a.Outputs {
		if c[v] != c[b.Outputs[i]] {
			return false
		}
	}
	return true
}
