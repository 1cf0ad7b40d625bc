package passes

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// places says on which device of a model replica every op runs: that of its stage. What was inserted since stages were
// found joins what it reads.
func places(p *ir.Program, o Options) (int, error) {
	if p.Stages == nil {
		return 0, nil
	}
	stage := map[*ir.TaskGraph]int{}
	for i, s := range p.Stages {
		for _, t := range s.TaskGraphs {
			stage[t] = i
		}
	}
	if p.Local.MicroBatches > 1 {
		splitMerges(p, stage)
	}
	bound := map[*ir.Op]bool{} // what reads merged values
	for _, op := range p.Main.Ops {
		if op.IsLeaf() {
			continue
		}
		_, merges := op.Attrs.(*ir.Merge)
		var largest *ir.Value
		op.Uses(func(v *ir.Value) {
			if _, m := v.Op.Attrs.(*ir.Merge); m || bound[v.Op] {
				bound[op] = true
			}
			if !v.Op.IsLeaf() && v.Op.TaskGraph != nil && (largest == nil || v.Bytes() > largest.Bytes()) {
				largest = v
			}
		})
		// Merges, and ops between them and apply, were put in front of apply ops, whose TaskGraph they got.
		switch {
		case merges, op.TaskGraph == nil && bound[op], op.Phase != ir.Apply && bound[op]:
			if largest != nil {
				op.TaskGraph = largest.Op.TaskGraph
			}
		}
		if op.TaskGraph == nil {
			op.TaskGraph = p.Stages[0].TaskGraphs[0]
		}
		op.Place = p.Stages[stage[op.TaskGraph]].Places[0]
	}
	return len(p.Stages), nil
}

// splitMerges merges the gradients of a variable that several stages use stage by stage, and adds them up afterwards:
// one gradient per step travels between stages, not one per micro-batch.
func splitMerges(p *ir.Program, stage map[*ir.TaskGraph]int) {
	n := users(p)
	by := map[*ir.Value]*ir.Value{}
	for _, op := range slices.Clone(p.Main.Ops) {
		m, ok := op.Attrs.(*ir.Merge)
		if !ok || !m.How.Adds() || op.Phase != ir.Backward {
			continue
		}
		if sum := splitMerge(p, op, op.Inputs[0], stage, n); sum != nil {
			by[op.Outputs[0]] = sum
		}
	}
	replace(p, by)
}

// splitMerge returns the sum of what merges before the given one, or nil if all of its value is of one stage.
func splitMerge(p *ir.Program, merge *ir.Op, v *ir.Value, stage map[*ir.TaskGraph]int, users map[*ir.Value]int) *ir.Value {
	add, ok := v.Op.Attrs.(*ir.Add)
	if !ok || users[v] != 1 || !v.Shape.Equal(v.Op.Inputs[0].Shape) || !v.Shape.Equal(v.Op.Inputs[1].Shape) {
		return nil
	}
	crosses := false
	for _, in := range v.Op.Inputs {
		if in.Op.IsLeaf() || !in.Op.Varying || users[in] != 1 {
			return nil
		}
		crosses = crosses || stage[in.Op.TaskGraph] != stage[v.Op.TaskGraph]
	}
	if !crosses {
		return nil
	}
	var parts []*ir.Value
	for _, in := range v.Op.Inputs {
		part := splitMerge(p, merge, in, stage, users)
		if part == nil {
			m := *merge.Attrs.(*ir.Merge)
			op := p.NewOp(&m, []*ir.Value{in}, in.Shape)
			p.Main.InsertBefore(merge, op)
			op.TaskGraph = in.Op.TaskGraph
			part = op.Outputs[0]
		}
		parts = append(parts, part)
	}
	sum := p.NewOp(add, parts, v.Shape)
	p.Main.InsertBefore(merge, sum)
	sum.TaskGraph = v.Op.TaskGraph
	return sum.Outputs[0]
}
