// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir_test

import (
	"reflect"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

func TestACloneIsEqualAndPrintsTheSame(t *testing.T) {
	for _, text := range append(examples(t), everything, instances) {
		p := parse(t, text)
		c := p.Clone()
		if got := c.String(); got != text {
			t.Error(firstDifference(text, got))
		}
		if err := c.Verify(); err != nil {
			t.Error(err)
		}
		if !reflect.DeepEqual(p, c) {
			t.Errorf("the clone of %q differs in depth", p.Name)
		}
	}
}

// Every op, value, function, variable, … of the clone is a new one: the two programs share no memory that changes.
func TestChangingACloneDoesNotChangeTheOriginal(t *testing.T) {
	for what, change := range map[string]func(p *ir.Program){
		"an input of an op":         func(p *ir.Program) { op(p, 4).Inputs[0] = val(p, 1) },
		"an input in a closure":     func(p *ir.Program) { op(p, 30).Inputs[0] = val(p, 0) },
		"an output of a closure":    func(p *ir.Program) { op(p, 8).Funcs[1].Outputs[0] = val(p, 3) },
		"an input in a function":    func(p *ir.Program) { op(p, 21).Inputs[0] = nil },
		"the functions of an op":    func(p *ir.Program) { op(p, 8).Funcs[0] = op(p, 8).Funcs[1] },
		"attributes":                func(p *ir.Program) { op(p, 11).Attrs = &ir.ReduceMax{} },
		"a shape":                   func(p *ir.Program) { val(p, 11).Shape = shapes.Make(dtypes.Int8) },
		"phase, origin and source":  func(p *ir.Program) { op(p, 4).Phase, op(p, 4).Origin, op(p, 4).Source = ir.Apply, ir.VJP, "x" },
		"a scope":                   func(p *ir.Program) { op(p, 4).Scope = "/x" },
		"the TaskGraph of an op":    func(p *ir.Program) { op(p, 4).TaskGraph = p.TaskGraphs[1] },
		"a twin":                    func(p *ir.Program) { op(p, 5).Twin[0] = val(p, 3) },
		"a TaskGraph":               func(p *ir.Program) { p.TaskGraphs[0].Devices = 9 },
		"a pin":                     func(p *ir.Program) { p.TaskGraphs[1].Pins[0].Dim = 9 },
		"a variable":                func(p *ir.Program) { p.Variables[0].Path, p.Variables[0].Update = "/x", nil },
		"an input of the program":   func(p *ir.Program) { p.Inputs[0] = val(p, 3) },
		"a gradient":                func(p *ir.Program) { p.Gradients[0].Value = val(p, 3) },
		"the loss":                  func(p *ir.Program) { p.Loss = nil },
		"an output of the program":  func(p *ir.Program) { p.Main.Outputs[0], p.Outputs[0] = val(p, 3), ir.Output{} },
		"a collection":              func(p *ir.Program) { p.Collections[0].Values[0] = val(p, 3) },
		"a new op":                  func(p *ir.Program) { appendOp(p, ir.Forward, &ir.Tanh{}, matrix(), val(p, 3)) },
		"a new op in a closure":     func(p *ir.Program) { f := op(p, 8).Funcs[0]; f.Append(p.NewOp(&ir.Tanh{}, nil, matrix())) },
		"a new op in a function":    func(p *ir.Program) { p.Funcs[0].Append(p.NewOp(&ir.Tanh{}, nil, matrix())) },
		"no ops":                    func(p *ir.Program) { p.Main.Ops = p.Main.Ops[:0] },
		"replaced uses":             func(p *ir.Program) { p.ReplaceUses(map[*ir.Value]*ir.Value{val(p, 3): val(p, 0)}) },
		"no named functions":        func(p *ir.Program) { p.Funcs[0].Name = "other" },
		"the place among functions": func(p *ir.Program) { p.Funcs[0] = nil; p.Funcs = p.Funcs[:0] },
	} {
		t.Run(what, func(t *testing.T) {
			p := parse(t, everything)
			c := p.Clone()
			change(c)
			if got := p.String(); got != everything {
				t.Error(firstDifference(everything, got))
			}
			if c.String() == everything {
				t.Error("the change does not show: it tests nothing")
			}
		})
	}
	p := parse(t, instances)
	p.Clone().Local.Replicas = 9
	if got := p.String(); got != instances {
		t.Error(firstDifference(instances, got))
	}
}

func TestNewOpsOfACloneHaveNumbersOfTheirOwn(t *testing.T) {
	p := parse(t, everything)
	c := p.Clone()
	for range 2 {
		appendOp(c, ir.Forward, &ir.Tanh{}, matrix(), val(c, 3))
	}
	if err := c.Verify(); err != nil {
		t.Error(err)
	}
}

// A closure that two ops share stays one closure.
func TestSharedClosuresStaySharedInAClone(t *testing.T) {
	p := parse(t, everything)
	iff := op(p, 8)
	second := p.NewOp(&ir.If{}, iff.Inputs, matrix())
	second.Funcs = iff.Funcs
	p.Main.InsertBefore(op(p, 9), second)
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	c := roundTrip(t, p).Clone()
	a, b := op(c, 8).Funcs, op(c, second.ID).Funcs
	if a[0] != b[0] || a[1] != b[1] || a[0] == iff.Funcs[0] {
		t.Error("closures of the clone are not shared as those of the original are")
	}
}
