package shard

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Partition rewrites the program so that every op runs on one device, with what that device has of its operands. Variables
// are sharded as chosen. Stages of one device stay as they are, but for what they read from others.
//
// Afterwards results, new values of variables and gradients are those on the first device of their stage;
// [ir.Variable.Copies] are the same on the others, or the other parts of a variable that is sharded. The loss and
// collections may be the part that the first device has.
func Partition(p *ir.Program, choice Choice) (*Report, error) {
	if !slices.ContainsFunc(p.Stages, func(s ir.Stage) bool { return len(s.Places) > 1 }) {
		return &Report{}, nil
	}
	if choice.ofData(p) {
		unflatten(p)
	}
	x, err := newProblem(p)
	if err != nil {
		return nil, err
	}
	vars, err := x.shard(choice)
	if err != nil {
		return nil, err
	}
	todo := x.propagate(vars)
	if err := x.expand(vars, todo); err != nil {
		return nil, err
	}
	return x.report(vars, todo), nil
}

// ofData tells whether anything but variables is sharded.
func (c Choice) ofData(p *ir.Program) bool {
	n := len(c)
	for _, v := range p.Variables {
		if _, ok := c[v.Param]; ok {
			n--
		}
	}
	return n > 0
}

// check tells whether a TaskGraph can use k devices.
func (x *problem) check(t *ir.TaskGraph, k int) error {
	if k == 1 || t.Kind == ir.Replicate {
		return nil
	}
	most, largest := 0, (*ir.Variable)(nil)
	for _, v := range x.p.Variables {
		if v.TaskGraph != t || !v.Trainable {
			continue
		}
		for _, n := range dims(v.Param) {
			if n > most {
				most, largest = n, v
			}
		}
	}
	if largest != nil && most < k {
		return errors.Errorf("epl: TaskGraph %q (%s) asks for %d devices, but no dim of its variables has as many rows: the largest is %s of %q: use fewer devices",
			t.Title(), t.Source, k, ir.ShapeText(largest.Param.Shape), largest.Path)
	}
	return nil
}
