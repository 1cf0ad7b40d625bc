// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"path"
	"strings"

	"github.com/easyparallel/epl/ir"
)

// metricScope is where GoMLX keeps the state of its metrics: a scope for each.
const metricScope = "/metrics/"

// metrics merges the state of metrics that add up, such as a total and the number of samples of it. One device adds what all
// samples of a step give, so the terms of all instances are added: their mean would give a step that lacks instances the weight
// of a full one. Other state, such as moving averages, is the mean over instances, like that of batch normalisation.
func (l *localiser) metrics() {
	scopes := map[string][]*ir.Variable{}
	for _, v := range l.p.Variables {
		if scope := path.Dir(v.Path); v.Update != nil && strings.HasPrefix(v.Path, metricScope) {
			scopes[scope] = append(scopes[scope], v)
		}
	}
	for _, v := range l.p.Variables { // in order
		if scope := path.Dir(v.Path); scopes[scope] != nil {
			l.addUp(scopes[scope])
			delete(scopes, scope)
		}
	}
	for _, op := range l.p.Main.Ops {
		op.Uses(func(v *ir.Value) {
			if l.ofState[v.Op] {
				l.ofState[op] = true
			}
		})
	}
}

// addUp merges the variables of a metric, if all add up and some of what they add differs between instances.
func (l *localiser) addUp(metric []*ir.Variable) {
	terms, varying := make([]*ir.Value, len(metric)), 0
	for i, v := range metric {
		term := termOf(v)
		if _, said := l.how[v.Update]; term == nil || said || v.Trainable || l.merged[v.Update] != nil {
			return
		}
		if terms[i] = term; term.Op.Varying {
			varying++
		}
	}
	if varying == 0 {
		return
	}
	for i, v := range metric {
		l.merged[v.Update], l.ofState[v.Update.Op] = l.accumulate(v, terms[i], varying < len(metric)), true
	}
}

// accumulate adds the terms of all instances to a variable. Where a metric counts samples by a number that is the same for
// all instances, the others of its terms are means over these, and follow the weights of instances if there are any.
func (l *localiser) accumulate(x *ir.Variable, term *ir.Value, means bool) *ir.Value {
	at := l.at(l.end, x.Update.Op.Phase, x.Update, nil)
	s, mean := x.Update.Shape, ir.Merge{How: ir.Mean}
	if weighted := means && term.Op.Varying && l.weightFor(l.end, term, mean) != nil; term.Op.Varying && !weighted {
		own := at.insert(&ir.Identity{}, s, term) // the term may be a result, too, and merged by its mean
		return at.insert(&ir.Add{}, s, x.Param, at.insert(&ir.Merge{How: ir.Sum}, s, own))
	} else if weighted {
		term = l.merge(l.end, term, mean)
	}
	return at.insert(&ir.Add{}, s, x.Param, at.insert(&ir.Mul{}, s, term, inserter(at.insert).instances(s.DType)))
}

// termOf is what the new value of a variable adds to the old one; nil if it does something else.
func termOf(v *ir.Variable) *ir.Value {
	op := v.Update.Op
	for op.Type() == ir.OpIdentity {
		op = op.Inputs[0].Op
	}
	if op.Type() != ir.OpAdd {
		return nil
	}
	for i, in := range op.Inputs {
		term := op.Inputs[1-i]
		if in == v.Param && term.Shape.Equal(in.Shape) && firstOf(term, func(x *ir.Value) bool { return x == v.Param }) == nil {
			return term
		}
	}
	return nil
}

// again computes a result once more from merged state: the mean of a total, a ratio of counts. It is nil if the result needs
// anything else that differs between instances, and where there is no such state in it.
func (l *localiser) again(v *ir.Value) *ir.Value {
	op := v.Op
	switch {
	case l.merged[v] != nil:
		return l.merged[v]
	case !l.ofState[op] || len(op.Outputs) != 1 || len(op.Funcs) > 0:
		return nil
	}
	inputs := make([]*ir.Value, len(op.Inputs))
	for i, in := range op.Inputs {
		switch {
		case in == nil:
		case l.ofState[in.Op]:
			if inputs[i] = l.again(in); inputs[i] == nil {
				return nil
			}
		case in.Op.Varying:
			return nil
		default:
			inputs[i] = in
		}
	}
	l.merged[v] = l.at(l.end, op.Phase, v, nil).insert(op.Attrs, v.Shape, inputs...)
	return l.merged[v]
}
