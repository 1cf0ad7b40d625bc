// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"reflect"
	"slices"
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
	b.guardOutputs()
	if len(p.TaskGraphs) > 0 {
		p.PlaceApply(b.def)
	}
	if len(p.TaskGraphs) == 0 {
		b.implicitTaskGraph()
	}
	for _, v := range p.Variables {
		v.TaskGraph = v.Param.Op.TaskGraph
	}
	if err := b.checkPins(); err != nil {
		return err
	}
	modelScopes(p)
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

// guardOutputs adds the verdict on the step to the outputs, and returns for the loss what is to be reported.
func (b *Builder) guardOutputs() {
	p := b.program
	if b.verdict == nil {
		return
	}
	for i, o := range p.Outputs {
		if o.Updates != nil {
			p.Outputs[i].Always = slices.Contains(b.always, o.Updates.Path)
		} else if b.reported != nil && isLoss(p, p.Main.Outputs[i]) {
			p.Main.Outputs[i] = b.reported
		}
	}
	p.Main.Outputs = append(p.Main.Outputs, b.verdict)
	p.Outputs = append(p.Outputs, ir.Output{Guard: true})
}

// isLoss tells whether a value is the loss, or computed as it is: GoMLX adds terms up anew for every metric.
func isLoss(p *ir.Program, v *ir.Value) bool {
	return v == p.Loss || v.Op.Type() == p.Loss.Op.Type() && !v.Op.IsLeaf() && len(v.Op.Funcs) == 0 && v.Index == p.Loss.Index &&
		slices.Equal(v.Op.Inputs, p.Loss.Op.Inputs) && reflect.DeepEqual(v.Op.Attrs, p.Loss.Op.Attrs)
}

// implicitTaskGraph makes a program without annotations one TaskGraph: it is data parallel.
func (b *Builder) implicitTaskGraph() {
	t := b.newTaskGraph(Strategy{Kind: ir.Replicate, Devices: 1}, "")
	t.Implicit = true
	for _, op := range b.program.Main.Ops {
		op.TaskGraph = t
	}
}
