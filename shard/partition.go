// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Partition makes an SPMD program: ops stay as they are, and say how the devices of their stage hold what they compute. Where a
// value is needed in another placement there is a Reshard. Variables are sharded as chosen.
func Partition(p *ir.Program, choice Choice) (*Report, error) {
	if !Partitions(p) {
		return &Report{}, nil
	}
	if choice.ofData(p) {
		unflatten(p)
	}
	x, err := newProblem(p, ir.Apply)
	if err != nil {
		return nil, err
	}
	vars, err := x.shard(choice)
	if err != nil {
		return nil, err
	}
	todo := x.propagate(vars)
	x.assign(vars, todo)
	return x.report(vars, todo), Check(p)
}

// Partitions tells whether a stage has several devices.
func Partitions(p *ir.Program) bool {
	return slices.ContainsFunc(p.Stages, func(s ir.Stage) bool { return len(s.Places) > 1 })
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
