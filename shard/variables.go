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
	shared []*ir.Variable             // those that should be sharded, but that other stages read
}

// of is the placement of a variable; nil is none, and whole.
func (s *sharding) of(x *ir.Variable) Placement { return s.placed[x] }

// shard reads a choice. The variables that the optimizer keeps for a variable are placed as the variable is.
func (x *problem) shard(choice Choice) (*sharding, error) {
	s := &sharding{placed: map[*ir.Variable]Placement{}, byNum: make([]Placement, len(x.values))}
	for _, v := range x.p.Variables {
		p, ok := choice[v]
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
		all := append([]*ir.Variable{v}, x.slots[v]...)
		if slices.ContainsFunc(all, func(v *ir.Variable) bool { return x.foreign[v] }) {
			s.shared = append(s.shared, v)
			continue
		}
		for _, v := range all {
			s.placed[v] = p
			s.byNum[x.number[v.Param]] = p
		}
	}
	return s, nil
}

// findForeign finds the variables that devices of other stages read, or compute the new value of.
func (x *problem) findForeign() {
	x.foreign = map[*ir.Variable]bool{}
	for _, t := range x.tasks {
		for _, v := range t.in {
			if v >= 0 && x.values[v].of != nil && t.g != x.of[x.values[v].of.TaskGraph] {
				x.foreign[x.values[v].of] = true
			}
		}
	}
	for _, v := range x.p.Variables {
		if by := v.Update; by != nil && (by.Op.IsLeaf() && by != v.Param || !by.Op.IsLeaf() && x.groupOf(by.Op) != x.of[v.TaskGraph]) {
			x.foreign[v] = true
		}
	}
}
