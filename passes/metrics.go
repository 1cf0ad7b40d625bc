package passes

import (
	"path"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// metricScope is where GoMLX keeps the state of its metrics: a scope for each.
const metricScope = "/metrics/"

// accumulator is a variable to which every step adds something.
type accumulator struct {
	v    *ir.Variable
	term *ir.Value // what an instance adds
}

// metrics merges the state of metrics that add up, such as a total and the number of samples of it. One device adds what all
// samples of a step give, so the terms of all instances are added: their mean would give a step that lacks instances the weight
// of a full one. Other state, such as moving averages, is the mean over instances, like that of batch normalisation.
func (l *localiser) metrics() {
	scopes := map[string][]*ir.Variable{}
	var order []string
	for _, v := range l.p.Variables {
		if v.Update == nil || !strings.HasPrefix(v.Path, metricScope) {
			continue
		}
		scope := path.Dir(v.Path)
		if scopes[scope] == nil {
			order = append(order, scope)
		}
		scopes[scope] = append(scopes[scope], v)
	}
	for _, scope := range order {
		l.addUp(scopes[scope])
	}
	if len(l.ofState) == 0 {
		return
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
	var all []accumulator
	varying, alike := 0, 0
	for _, v := range metric {
		term := termOf(v)
		_, said := l.how[v.Update]
		if term == nil || said || v.Trainable || l.merged[v.Update] != nil {
			return
		}
		if all = append(all, accumulator{v, term}); term.Op.Varying {
			varying++
		} else {
			alike++
		}
	}
	if varying == 0 {
		return
	}
	for _, a := range all {
		l.merged[a.v.Update], l.ofState[a.v.Update.Op] = l.accumulate(a, alike > 0), true
	}
}

// accumulate adds the terms of all instances to an accumulator. Where a metric counts samples by a number that is the same for
// all instances, the others of its terms are means over these, and follow the weights of instances if there are any.
func (l *localiser) accumulate(a accumulator, means bool) *ir.Value {
	update := a.v.Update
	defer l.at(update, nil)()
	phase, s := update.Op.Phase, update.Shape
	sum := a.term
	switch {
	case !a.term.Op.Varying:
	case means && l.weightFor(l.end, a.term, false, ir.Merge{How: ir.Mean}) != nil:
		sum = l.merge(l.end, a.term, ir.Merge{How: ir.Mean})
	default:
		own := l.insert(l.end, phase, &ir.Identity{}, s, a.term) // the term may be a result, too, and merged by its mean
		sum = l.insert(l.end, phase, &ir.Merge{How: ir.Sum}, s, own)
		return l.insert(l.end, phase, &ir.Add{}, s, a.v.Param, sum)
	}
	n := l.insert(l.end, phase, &ir.InstanceCount{}, shapes.Make(dtypes.Float32))
	sum = l.insert(l.end, phase, &ir.Mul{}, s, sum, l.in(l.end, phase, n, s.DType))
	return l.insert(l.end, phase, &ir.Add{}, s, a.v.Param, sum)
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
		if in == v.Param && term.Shape.Equal(in.Shape) && !dependsOn(term, v.Param, map[*ir.Op]bool{}) {
			return term
		}
	}
	return nil
}

// dependsOn tells whether a value is computed from another one.
func dependsOn(v, on *ir.Value, seen map[*ir.Op]bool) (depends bool) {
	if v == on {
		return true
	}
	if seen[v.Op] {
		return false
	}
	seen[v.Op] = true
	v.Op.Uses(func(in *ir.Value) { depends = depends || dependsOn(in, on, seen) })
	return depends
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
	defer l.at(v, nil)()
	l.merged[v] = l.insert(l.end, op.Phase, op.Attrs, v.Shape, inputs...)
	return l.merged[v]
}
