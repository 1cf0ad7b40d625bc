// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// sharding says how variables are placed.
type sharding struct {
	placed map[*ir.Variable]Placement // those that are sharded
	byNum  []Placement                // by the number of the parameter
	chosen []*ir.Variable             // of these, those that the optimizer does not keep for others
	shared []*ir.Variable             // those that should be sharded, but that other stages read
	offers map[*ir.Op][]offer         // by the first op that reads the value
}

// offer is data of which every device has its rows at hand.
type offer struct {
	value int
	Placement
}

// of is the placement of a variable; nil is none, and whole.
func (s *sharding) of(x *ir.Variable) Placement { return s.placed[x] }

// shard reads a choice. The variables that the optimizer keeps for a variable are placed as the variable is.
func (x *problem) shard(choice Choice) (*sharding, error) {
	s := &sharding{placed: map[*ir.Variable]Placement{}, byNum: make([]Placement, len(x.values)), offers: map[*ir.Op][]offer{}}
	x.offer(s, choice)
	for _, v := range x.p.Variables {
		p, ok := choice[v.Param]
		if !ok || p.Kind == Replicated {
			continue
		}
		g := x.of[v.TaskGraph]
		shape := v.Param.Shape
		if g == nil || p.Kind != Sharded || p.Dim < 0 || p.Dim >= shape.Rank() || !fits(shape.Dimensions[p.Dim], p.Unit, len(g.places)) {
			return nil, errors.Errorf("epl: variable %q, %s, cannot be sharded as chosen, %s: choose another dim, or use fewer devices",
				v.Path, ir.ShapeText(shape), p)
		}
		if len(g.places) == 1 {
			continue
		}
		all := x.withSlots(v)
		if slices.ContainsFunc(all, func(v *ir.Variable) bool { return x.foreign[v] }) {
			s.shared = append(s.shared, v)
			continue
		}
		s.chosen = append(s.chosen, v)
		for _, v := range all {
			s.placed[v] = p
			s.byNum[x.number[v.Param]] = p
		}
	}
	return s, nil
}

// withSlots are a variable and those that the optimizer keeps for it.
func (x *problem) withSlots(v *ir.Variable) []*ir.Variable {
	return append([]*ir.Variable{v}, x.slots[v]...)
}

// offer reads what a choice says about data. They come whole to the first op of a split stage that reads them.
func (x *problem) offer(s *sharding, choice Choice) {
	for _, d := range x.data {
		v := x.values[d.value].v
		if p := choice[v]; p.Kind == Sharded && fits(dims(v)[p.Dim], p.Unit, len(d.reader.g.places)) {
			s.offers[d.reader.op] = append(s.offers[d.reader.op], offer{d.value, p})
		}
	}
}

// findForeign finds the variables that devices of other stages need: they read them, or compute their new value, or read what is
// made of variables alone, which everyone computes who needs it.
func (x *problem) findForeign() {
	x.foreign, x.loose = map[*ir.Variable]bool{}, make([]bool, len(x.values))
	from := make([][]*ir.Variable, len(x.values)) // of values that do not differ between instances, nor are merged
	bound := make([]bool, len(x.values))
	for i := range x.values {
		if v := &x.values[i]; v.by == nil && v.of != nil {
			from[i] = []*ir.Variable{v.of}
		}
	}
	for _, t := range x.tasks {
		_, bounds := t.op.Attrs.(*ir.Merge)
		var of []*ir.Variable
		for _, v := range t.in {
			if v < 0 {
				continue
			}
			bounds = bounds || bound[v]
			for _, y := range from[v] {
				if t.g != x.of[y.TaskGraph] {
					x.foreign[y] = true
				}
				if !slices.Contains(of, y) {
					of = append(of, y)
				}
			}
		}
		for _, v := range t.out {
			if bound[v] = bounds; !bounds && !t.op.Varying && x.p.Local != nil {
				from[v], x.loose[v] = of, true
			}
		}
	}
	for _, v := range x.p.Variables {
		if by := v.Update; by != nil && (by.Op.IsLeaf() && by != v.Param || !by.Op.IsLeaf() && x.groupOf(by.Op) != x.of[v.TaskGraph]) {
			x.foreign[v] = true
		}
	}
}
