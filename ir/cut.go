package ir

// Segment is a piece of a function that can be compiled and run by itself: it takes Inputs and computes Outputs.
type Segment struct {
	Name string
	// Inputs are given to the function, or values that another segment computes.
	Inputs []*Value
	// Ops are what it computes, in order, constants included.
	Ops     []*Op
	Outputs []*Value
}

// Cut takes out of f the ops chosen by keep that are needed for outputs. What they use and keep does not choose
// becomes an input of the segment; constants are computed in every segment that uses them. An output may also be a
// value the segment does not compute: it is then an input that is handed through.
//
// Everything that runs a program in pieces (data parallelism, pipelines, recomputation, overlapped communication)
// comes down to cuts.
func Cut(f *Func, name string, keep func(*Op) bool, outputs []*Value) *Segment {
	s := &Segment{Name: name, Outputs: outputs}
	needed := map[*Op]bool{}
	isInput := map[*Value]bool{}
	need := func(v *Value) {
		if v.Op.Func != f {
			return // local to a closure that comes along whole
		}
		_, isConst := v.Op.Attrs.(*Constant)
		switch {
		case isConst || !v.Op.isGiven() && keep(v.Op):
			needed[v.Op] = true
		case !isInput[v]:
			isInput[v] = true
			s.Inputs = append(s.Inputs, v)
		}
	}
	for _, o := range outputs {
		need(o)
	}
	// Ops come in order, so users are met before what they use when walking backwards.
	for i := len(f.Ops) - 1; i >= 0; i-- {
		if op := f.Ops[i]; needed[op] {
			op.Uses(need)
		}
	}
	for _, op := range f.Ops {
		if needed[op] {
			s.Ops = append(s.Ops, op)
		}
	}
	return s
}

// Crossing lists the values that ops chosen by from compute and that others use, or that leave f, in order of
// computation. Parameters and constants do not cross: every segment has them.
func Crossing(f *Func, from func(*Op) bool) []*Value {
	crosses := map[*Value]bool{}
	see := func(v *Value) {
		if v.Op.Func == f && !v.Op.IsLeaf() && from(v.Op) {
			crosses[v] = true
		}
	}
	for _, op := range f.Ops {
		if !from(op) {
			op.Uses(see)
		}
	}
	for _, o := range f.Outputs {
		see(o)
	}
	var r []*Value
	for _, op := range f.Ops {
		for _, v := range op.Outputs {
			if crosses[v] {
				r = append(r, v)
			}
		}
	}
	return r
}
