package record

import (
	"strings"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// gradientsOf notes the gradients, in the order of the optimizer. Variables are completed by finish.
func (b *Builder) gradientsOf(paths []string, gradients []*ir.Value) {
	for i, path := range paths {
		if param := b.params[path]; param != nil {
			b.program.Gradients = append(b.program.Gradients, ir.Gradient{Variable: b.variable(path, param), Value: gradients[i]})
		}
	}
}

func (b *Builder) variable(path string, param *ir.Value) *ir.Variable {
	v := b.program.Variable(param)
	if v == nil {
		v = &ir.Variable{Path: path, Param: param}
		b.program.Variables = append(b.program.Variables, v)
	}
	return v
}

// finish completes the program from what GoMLX knows once it is built.
func (b *Builder) finish() error {
	p := b.program
	gradients := p.Gradients
	p.Variables = nil
	for _, param := range p.Main.Params {
		if name := param.Op.Attrs.(*ir.Parameter).Name; strings.HasPrefix(name, "/") {
			b.variable(name, param)
		} else {
			p.Inputs = append(p.Inputs, param)
		}
	}
	for i, g := range gradients {
		gradients[i].Variable = p.Variable(g.Variable.Param)
	}
	if err := b.readStore(); err != nil {
		return err
	}
	b.placeApply()
	if len(p.TaskGraphs) == 0 {
		b.implicitTaskGraph()
	}
	for _, v := range p.Variables {
		v.TaskGraph = v.Param.Op.TaskGraph
	}
	if err := b.checkPins(); err != nil {
		return err
	}
	return p.Verify()
}

// readStore takes what the model's store says about variables: which are trainable, and which outputs of the program
// are their new values (model.Exec puts those first, in the order of the store).
func (b *Builder) readStore() error {
	p := b.program
	p.Outputs = make([]ir.Output, len(p.Main.Outputs))
	if b.graph == nil {
		return nil
	}
	p.OutputsKnown = true
	store := model.GetStore(b.graph)
	if store == nil {
		return nil // a plain graph.Exec: it has no variables
	}
	next := 0
	for v := range store.IterVariables() {
		param := b.params[v.Path()]
		if param == nil || !v.InUseByGraph(b.graph) {
			continue
		}
		x := p.Variable(param)
		x.Trainable = v.Trainable
		if !v.ChangedInGraph(b.graph) {
			continue
		}
		update := ValueOf(v.NodeValue(b.graph))
		if next >= len(p.Outputs) || p.Main.Outputs[next] != update.Value {
			return errors.Errorf("epl: internal error: output %d of program %q is not the new value of variable %q, "+
				"as GoMLX's model.Exec lays it out", next, p.Name, v.Path())
		}
		x.Update = update.Value
		p.Outputs[next].Updates = x
		next++
	}
	return nil
}

// implicitTaskGraph makes a program without annotations one TaskGraph: it is data parallel.
func (b *Builder) implicitTaskGraph() {
	t := b.newTaskGraph(Strategy{Kind: ir.Replicate, Devices: 1}, "")
	t.Implicit = true
	for _, op := range b.program.Main.Ops {
		op.TaskGraph = t
	}
}

// placeApply gives apply ops, and the optimizer's own variables, the TaskGraph of the variable whose update they
// compute. What serves variables of several TaskGraphs (the learning rate, the step, a norm over all gradients)
// stays in the default TaskGraph, or outside.
func (b *Builder) placeApply() {
	p := b.program
	if len(p.TaskGraphs) == 0 || !p.IsTraining() {
		return
	}
	const shared, undecided = -2, -1
	home := map[*ir.Value]int{} // values that apply starts from, by the TaskGraph of their variable
	for _, v := range p.Variables {
		if t := v.Param.Op; t.Phase != ir.Apply && t.TaskGraph != nil {
			home[v.Param] = t.TaskGraph.ID
		}
	}
	for _, g := range p.Gradients {
		if id, ok := home[g.Variable.Param]; ok {
			home[g.Value] = id
		}
	}
	place := map[*ir.Op]int{}
	users := map[*ir.Op][]*ir.Op{}
	var apply []*ir.Op
	for _, op := range p.Main.Ops {
		if op.Phase != ir.Apply {
			continue
		}
		apply = append(apply, op)
		place[op] = undecided
		op.Uses(func(v *ir.Value) { users[v.Op] = append(users[v.Op], op) })
	}
	join := func(a, b int) int {
		switch {
		case b < 0 || a == b:
			return a
		case a == undecided:
			return b
		}
		return shared
	}
	fromInputs := func(op *ir.Op) int {
		at := undecided
		op.Uses(func(v *ir.Value) {
			if id, ok := home[v]; ok {
				at = join(at, id)
			} else if id, ok := place[v.Op]; ok && !v.Op.IsLeaf() {
				at = join(at, id)
			}
		})
		return at
	}
	fromUsers := func(op *ir.Op) int {
		at := undecided
		for _, u := range users[op] {
			at = join(at, place[u])
			if place[u] == shared {
				at = shared
			}
		}
		return at
	}
	forward := func() {
		for _, op := range apply {
			if place[op] == undecided && !op.IsLeaf() {
				place[op] = fromInputs(op)
			}
		}
	}
	forward()
	for i := len(apply) - 1; i >= 0; i-- {
		if op := apply[i]; place[op] == undecided {
			place[op] = fromUsers(op)
		}
	}
	forward()
	for _, op := range apply {
		op.TaskGraph = b.def
		if id := place[op]; id >= 0 {
			op.TaskGraph, op.Origin = p.TaskGraphs[id], ir.FollowsVariable
		}
	}
}
