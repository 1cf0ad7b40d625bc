package analysis

import "github.com/easyparallel/epl/ir"

// flow says what an op is computed from, in a program with a local view.
type flow struct{ merged, exchanged, bound bool }

func (x *Index) flowOf(op *ir.Op) flow {
	if x.flow == nil {
		x.flow = make(map[*ir.Op]flow, len(x.ops))
		for _, op := range x.ops {
			f := flow{exchanged: op.IsExchange(), bound: op.IsMerge() || op.IsExchange() || op.IsTransfer()}
			op.Uses(func(v *ir.Value) {
				from := x.flow[v.Op]
				f.merged = f.merged || from.merged || v.Op.IsMerge()
				f.exchanged = f.exchanged || from.exchanged
				f.bound = f.bound || from.bound || isPart(v)
			})
			f.exchanged, f.bound = f.exchanged && !op.Varying, f.bound && !op.Varying
			x.flow[op] = f
		}
	}
	return x.flow[op]
}

// isPart tells whether devices have parts of a variable.
func isPart(v *ir.Value) bool {
	_, isParam := v.Op.Attrs.(*ir.Parameter)
	return isParam && v.IsPlaced()
}

// Merged tells whether the op reads what instances were merged to, directly or not.
func (x *Index) Merged(op *ir.Op) bool { return x.flowOf(op).merged }

// Bound tells of an op that does not differ between instances whether it runs on its own device: it merges instances or
// exchanges values, or it reads what does, or parts of variables. Others can be computed on any device.
func (x *Index) Bound(op *ir.Op) bool { return x.flowOf(op).bound }

// PerInstance tells whether every instance computes the op, on its device: what varies, and what devices exchange for that.
// Merges aside, the rest runs once per step.
func (x *Index) PerInstance(op *ir.Op) bool {
	switch {
	case op.IsLeaf() || op.IsMerge():
		return false
	case op.Varying:
		return true
	}
	f := x.flowOf(op)
	return f.exchanged && !f.merged && op.Phase != ir.Apply
}

// RandomState tells whether the value is the state that a random op left behind.
func RandomState(v *ir.Value) bool {
	switch v.Op.Attrs.(type) {
	case *ir.RNGBitGenerator:
		return v.Index == 0
	case *ir.Identity, *ir.OptimizationBarrier, *ir.SchedulingBarrier:
		return RandomState(v.Op.Inputs[v.Index])
	}
	return false
}
