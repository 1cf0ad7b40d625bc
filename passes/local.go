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
	if o.Local == nil || o.Local.Instances() == 1 && p.Stages == nil && !(o.inPieces() && p.IsTraining()) {
		return 0, nil
	}
	l := &localiser{p: p, index: analysis.Of(p), sum: o.SumGradients, dense: o.DenseGradients, perWorker: o.PerWorker, spanning: o.Spanning, merged: map[*ir.Value]*ir.Value{}, joined: map[*ir.Value]*ir.Value{}, ofState: map[*ir.Op]bool{}}
	// Something to insert before that comes after everything; dropped when all is done.
	l.end = p.NewOp(&ir.Constant{Value: ir.Literal{Shape: shapes.Make(dtypes.Bool), Flat: []bool{false}}}, nil, shapes.Make(dtypes.Bool))
	p.Main.Append(l.end)
	defer func() { p.Main.Ops = p.Main.Ops[:len(p.Main.Ops)-1] }()
	local := *o.Local
	p.Local = &local
	if !p.IsTraining() {
		l.mark()
		l.results()
		return len(l.merged), nil
	}
	if err := l.readCollections(); err != nil {
		return 0, err
	}
	l.mark()
	if err := l.weigh(o); err != nil {
		return 0, err
	}
	l.gradients()
	if err := l.apply(); err != nil {
		return 0, err
	}
	l.metrics()
	if err := l.outputs(); err != nil {
		return 0, err
	}
	return len(l.merged), nil
}

type localiser struct {
	p         *ir.Program
	index     *analysis.Index // as it was: of stages only
	end       *ir.Op
	sum       bool
	dense     bool
	spanning  bool                    // some model replica is on several workers
	perWorker []int                   // model replicas of each worker; nil: there is one
	home      *ir.TaskGraph           // of what is inserted; nil: that of the op it is put in front of
	instance  *ir.Value               // the instance's number, once it is needed
	how       map[*ir.Value]ir.Merge  // what collections say
	weight    *ir.Value               // the InstanceWeight, if there is one
	ratios    *ratios                 // what values are divided by
	weights   map[weightKey]*weight   // what was computed of them
	merged    map[*ir.Value]*ir.Value // local → merged
	joined    map[*ir.Value]*ir.Value // local → concatenated, for sparse gradients
	ofState   map[*ir.Op]bool         // what reads the new state of metrics that add up, and what makes it
}

func (l *localiser) readCollections() error {
	l.how = map[*ir.Value]ir.Merge{}
	in := map[*ir.Value]string{}
	for _, w := range ways {
		for _, v := range l.p.Collection(w.key) {
			if other, twice := in[v]; twice && other != w.key {
				return errors.Errorf("epl: %s is in the collections %s and %s: say one way to merge it", v.Op, other, w.key)
			}
			in[v], l.how[v] = w.key, ir.Merge{How: w.how, Worker: w.worker && l.perWorker != nil}
			if w.how == ir.Concat && v.Shape.Rank() == 0 {
				return errors.Errorf("epl: %s is a scalar and cannot be concatenated, as its collection %s says; use GlobalMean or GlobalSum, or reshape it to [1]", v.Op, w.key)
			}
			if l.how[v].Worker && l.spanning {
				return errors.Errorf("epl: %s is in the collection %s, but model replicas have devices of several workers, so that none has one by itself; "+
					"use the Global one", v.Op, w.key)
			}
			if l.how[v].Worker && w.how == ir.Concat && slices.Max(l.perWorker) != slices.Min(l.perWorker) {
				return errors.Errorf("epl: %s is in the collection LocalConcat, but the workers have different numbers of devices, "+
					"so that its shape would differ between them; use GlobalConcat, or give all workers as many devices", v.Op)
			}
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
		if l.sum {
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

// insert puts a new op in front of another, in the phase given.
func (l *localiser) insert(next *ir.Op, phase ir.Phase, a ir.Attrs, shape shapes.Shape, in ...*ir.Value) *ir.Value {
	op := l.p.NewOp(a, in, shape)
	l.p.Main.InsertBefore(next, op)
	op.Phase = phase
	if l.home != nil {
		op.TaskGraph = l.home
	}
	op.SetVarying()
	return op.Outputs[0]
}

// folding is what the number of an instance is multiplied by before it goes into the state of the random number
// generator: odd numbers without a pattern.
var folding = []uint64{0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb}

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
	c := l.insert(next, next.Phase, &ir.Constant{Value: ir.Literal{Shape: s, Flat: factors}}, s)
	n := l.insert(next, next.Phase, &ir.BroadcastInDim{OutputShape: s}, s, l.instance)
	return l.insert(next, next.Phase, &ir.BitwiseXor{}, s, state, l.insert(next, next.Phase, &ir.Mul{}, s, n, c))
}

// firstApply is the op in front of which merged values are defined: what needs them comes after.
func (l *localiser) firstApply() *ir.Op {
	if i := slices.IndexFunc(l.p.Main.Ops, func(op *ir.Op) bool { return op.Phase == ir.Apply && !op.IsLeaf() }); i >= 0 {
		return l.p.Main.Ops[i]
	}
	return l.end
}

// at lets what is inserted belong to the TaskGraph of a value, until the returned function is called. What forward does
// with the weight of an instance comes after both.
func (l *localiser) at(v *ir.Value, w *weight) (leave func()) {
	before := l.home
	l.home = v.Op.TaskGraph
	if w != nil && v.Op.Phase == ir.Forward && l.index.StageOf(w.of.Op.TaskGraph) > l.index.StageOf(l.home) {
		l.home = w.of.Op.TaskGraph
	}
	return func() { l.home = before }
}

// merge makes one value of those of all instances, in front of next.
func (l *localiser) merge(next *ir.Op, v *ir.Value, way ir.Merge) *ir.Value {
	if m := l.merged[v]; m != nil {
		return m
	}
	w := l.weightFor(next, v, false, way)
	defer l.at(v, w)()
	phase, s := v.Op.Phase, v.Shape
	if w != nil {
		x := l.weighted(next, phase, v, w)
		sum := l.insert(next, phase, &ir.Merge{How: ir.Sum, Worker: way.Worker}, x.Shape, x)
		l.merged[v] = l.divided(next, phase, sum, w, s.DType)
		return l.merged[v]
	}
	if way.How == ir.Concat {
		n := l.p.Local.Instances()
		if way.Worker {
			n = l.perWorker[0] * l.p.Local.MicroBatches
		}
		s = s.Clone()
		s.Dimensions[0] *= n
	}
	l.merged[v] = l.insert(next, phase, &way, s, v)
	return l.merged[v]
}

// gradients merges the gradients, in their order. Those of weighted instances travel as a sum; dividing it belongs to apply, where each
// model replica may have a part of it only.
func (l *localiser) gradients() {
	way := ir.Merge{How: ir.Mean}
	if l.sum {
		way.How = ir.Sum
	}
	next := l.firstApply()
	for i, g := range l.p.Gradients {
		if isEmpty(g.Value.Shape) && !g.Value.Op.Varying {
			continue // nothing is to be merged
		}
		w := l.weightFor(next, g.Value, true, way)
		if l.merged[g.Value] == nil {
			leave := l.at(g.Value, w)
			if s, ok := sparseGradient(g.Value); ok && !l.dense {
				l.mergeSparse(next, g.Value, s, way.How, w)
			} else if w != nil {
				x := l.weighted(next, ir.Backward, g.Value, w)
				sum := l.insert(next, ir.Backward, &ir.Merge{How: ir.Sum}, x.Shape, x)
				phase := ir.Apply
				if x.Shape.DType != g.Value.Shape.DType { // the gradient is what has the variable's type
					phase = ir.Backward
				}
				l.merged[g.Value] = l.divided(next, phase, sum, w, g.Value.Shape.DType)
			} else {
				l.merged[g.Value] = l.insert(next, g.Value.Op.Phase, &ir.Merge{How: way.How}, g.Value.Shape, g.Value)
			}
			leave()
		}
		l.p.Gradients[i].Value = l.merged[g.Value]
		if m := l.merged[g.Value].Op; m.Phase == ir.Apply {
			l.p.Gradients[i].Value = m.Inputs[0] // the sum that is divided
		}
	}
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

// results lets the only instance give all that leaves the program.
func (l *localiser) results() {
	for i, v := range l.p.Main.Outputs {
		if !v.Op.Varying {
			continue
		}
		l.p.Main.Outputs[i] = l.merge(l.end, v, ir.Merge{How: ir.First})
		if x := l.p.Outputs[i].Updates; x != nil {
			x.Update = l.p.Main.Outputs[i]
		}
	}
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
			if w := l.weightFor(l.end, v, false, way); state && w != nil {
				l.p.Main.Outputs[i] = l.orBefore(l.p.Main.Outputs[i], x, w, v)
			}
		}
		if x != nil {
			x.Update = l.p.Main.Outputs[i]
		}
	}
	return nil
}

// orBefore is the new value of a variable, or the one before the step if no instance counts. v is what instances make of it.
func (l *localiser) orBefore(m *ir.Value, x *ir.Variable, w *weight, v *ir.Value) *ir.Value {
	defer l.at(v, w)()
	return l.insert(l.end, v.Op.Phase, &ir.Where{}, m.Shape, w.any, m, x.Param)
}

// defaultWay is how a varying value is merged if it is no gradient.
func (l *localiser) defaultWay(v *ir.Value) ir.Merge {
	if way, ok := l.how[v]; ok {
		return way
	}
	if analysis.RandomState(v) {
		return ir.Merge{How: ir.First}
	}
	if d := v.Shape.DType; d.IsFloat() || d.IsComplex() {
		return ir.Merge{How: ir.Mean}
	}
	return ir.Merge{How: ir.Agree}
}
