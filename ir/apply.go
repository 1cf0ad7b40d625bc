// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

// PlaceApply gives apply ops, and the optimizer's own variables, the TaskGraph of the variable whose update they
// compute. What serves variables of several TaskGraphs (the learning rate, the step, a norm over all gradients)
// gets the given one, which may be nil: outside.
func (p *Program) PlaceApply(shares *TaskGraph) {
	if !p.IsTraining() {
		return
	}
	const shared, undecided = -2, -1
	home := map[*Value]int{} // values that apply starts from, by the TaskGraph of their variable
	for _, v := range p.Variables {
		if t := v.Param.Op; t.Phase != Apply && t.TaskGraph != nil {
			home[v.Param] = t.TaskGraph.ID
		}
	}
	for _, g := range p.Gradients {
		if id, ok := home[g.Variable.Param]; ok {
			home[g.Value] = id
		}
	}
	becomes := map[*Op]*Value{} // the new value of a variable
	for _, v := range p.Variables {
		if v.Update != nil {
			becomes[v.Param.Op] = v.Update
		}
	}
	place := make(map[*Op]int, len(p.Main.Ops))
	users := make(map[*Op][]*Op, len(p.Main.Ops))
	var apply []*Op
	for _, op := range p.Main.Ops {
		if op.Phase != Apply {
			continue
		}
		apply = append(apply, op)
		place[op] = undecided
		op.Uses(func(v *Value) { users[v.Op] = append(users[v.Op], op) })
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
	fromInputs := func(op *Op) int {
		at := undecided
		op.Uses(func(v *Value) {
			if id, ok := home[v]; ok {
				at = join(at, id)
			} else if id, ok := place[v.Op]; ok && !v.Op.IsLeaf() {
				at = join(at, id)
			}
		})
		return at
	}
	fromUsers := func(op *Op) int {
		at := undecided
		if v := becomes[op]; v != nil && len(users[op]) == 0 { // nothing reads it
			if id, ok := home[v]; ok {
				return id
			} else if id, ok := place[v.Op]; ok {
				return id
			}
		}
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
		op.TaskGraph = shares
		if id := place[op]; id >= 0 {
			op.TaskGraph, op.Origin = p.TaskGraphs[id], FollowsVariable
		}
	}
}
