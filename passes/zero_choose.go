// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// partChooser finds what is divided over the model replicas.
type partChooser struct {
	*division
	PartChoice
	small int // elements that are not worth dividing
}

// ChooseParts finds what the pass zero divides; nil: nothing is to be divided.
func ChooseParts(p *ir.Program, o Options) *PartChoice {
	if !p.IsTraining() || p.Local == nil || p.Local.Replicas == 1 {
		return nil
	}
	z := &partChooser{division: newDivision(p)}
	if o.Share > ShareNothing {
		z.variables(o.Share)
	}
	// With one micro-batch a gradient is merged once: where the optimizer reads a part of it, a reduce-scatter sends half of what an all-reduce does.
	if o.Share >= ShareGradients || len(z.Divided) > 0 && p.Local.MicroBatches == 1 {
		z.gradients(o.OneBucket)
	}
	if o.GatherFactors && !o.OneBucket && !o.splits() {
		z.factors()
	}
	if o.Share == ShareNothing && len(z.Factored) == 0 {
		return nil
	}
	return &z.PartChoice
}

// stays says why something is not divided.
func (z *partChooser) stays(line string) { z.Whole = append(z.Whole, line) }

// variables finds those that are divided.
func (z *partChooser) variables(level Sharing) {
	gradient := map[*ir.Variable]bool{}
	for _, g := range z.p.Gradients {
		gradient[g.Variable] = true
	}
	z.cutoff(gradient)
	var weights []int
	names := z.p.VariableNames()
	for i, x := range z.p.Variables {
		switch {
		case x.Update == nil || z.isSmall(x.Param.Shape):
		case gradient[x]:
			weights = append(weights, i)
		case !x.Trainable && z.onlyApply(x):
			if op := z.undivided(x); op != nil {
				z.stays(fmt.Sprintf("zero.level: %q stays whole on every model replica, because %s needs all of it", x.Path, op))
				continue
			}
			z.Divided = append(z.Divided, names[i])
		}
	}
	if level < ShareWeights {
		return
	}
	for _, i := range weights {
		if op, why := z.elsewhere(z.p.Variables[i]); op != nil {
			z.stays(fmt.Sprintf("zero.level: %q stays whole on every model replica, because %s reads it: %s", z.p.Variables[i].Path, why, op))
			continue
		}
		z.Divided, z.Weights = append(z.Divided, names[i]), append(z.Weights, names[i])
	}
}

// cutoff finds out what is too small to be divided. Gathering something small takes as long as gathering something larger, so
// that the smallest variables stay whole, as long as they are a fiftieth of what a model replica keeps in the end.
func (z *partChooser) cutoff(gradient map[*ir.Variable]bool) {
	var sizes []int
	all := 0
	for x := range gradient {
		sizes = append(sizes, x.Param.Shape.Size())
		all += x.Param.Shape.Size()
	}
	slices.Sort(sizes)
	z.small = z.n - 1
	sum := 0
	for i, n := range sizes {
		if sum += n; sum > all/(50*z.n) {
			break
		}
		if i+1 == len(sizes) || sizes[i+1] > n { // all that are as large
			z.small = max(z.small, n)
		}
	}
}

// isSmall tells whether something is not divided.
func (z *partChooser) isSmall(s shapes.Shape) bool {
	return s.Size() <= z.small || s.DType.ValuesPerStorageUnit() > 1
}

// onlyApply tells whether only the optimizer reads a variable, and computes its new value.
func (z *partChooser) onlyApply(x *ir.Variable) bool {
	return IsApply(x.Update.Op) && !slices.ContainsFunc(z.Users(x.Param), func(u *ir.Op) bool { return !IsApply(u) })
}

// undivided is an op for which a variable of the optimizer must be whole, nil if there is none.
func (z *partChooser) undivided(x *ir.Variable) *ir.Op {
	for _, op := range append([]*ir.Op{x.Update.Op}, z.Users(x.Param)...) {
		if !partable(op) && reduction(op) == 0 {
			return op
		}
	}
	return nil
}

// elsewhere is an op for which a weight cannot be gathered, and what of it: a function that reads it, or another stage than
// those where it lives. Nil if there is none.
func (z *partChooser) elsewhere(x *ir.Variable) (found *ir.Op, why string) {
	seen := map[*ir.Op]bool{}
	home := func(op *ir.Op) bool { return z.homes[x.Param] != nil && z.homes[x.Param].Place == op.Place }
	var look func(v *ir.Value)
	look = func(v *ir.Value) {
		for _, u := range z.Users(v) {
			u.Captures(func(w *ir.Value) { // though it may be an input, too
				if w == v && found == nil {
					found, why = u, "a function"
				}
			})
			if seen[u] || found != nil {
				continue
			}
			seen[u] = true
			switch {
			case u.IsLeaf() || IsApply(u):
			case !u.Varying && !u.IsMerge() && !u.IsExchange(): // computed where it is read
				for _, w := range u.Outputs {
					look(w)
				}
			case !home(u):
				found, why = u, "another stage"
			}
		}
	}
	look(x.Param)
	return found, why
}

// gradients finds those that are divided: what backward adds up and only the optimizer reads. Small ones stay whole, unless all
// of a kind have to travel in one bucket.
func (z *partChooser) gradients(oneBucket bool) {
	undivided := map[string]*ir.Op{} // by kind: a gradient that cannot be divided
	if oneBucket {
		for _, op := range z.p.Main.Ops {
			if addsGradients(op) && !z.scatters(op) && undivided[kindOf(op)] == nil {
				undivided[kindOf(op)] = op
				z.stays(fmt.Sprintf("zero.level: gradients of %s stay whole on every model replica, because %s is needed whole and "+
					"communication.max_splits = 1 leaves no bucket of its own for it", strings.ToLower(op.Outputs[0].Shape.DType.String()), op))
			}
		}
	}
	for i, op := range z.p.Main.Ops {
		if addsGradients(op) && z.scatters(op) && (oneBucket || !z.isSmall(op.Outputs[0].Shape)) && undivided[kindOf(op)] == nil {
			z.Gradients = append(z.Gradients, i)
		}
	}
}

// scatters tells whether a merged gradient can be divided: only the optimizer reads it.
func (z *partChooser) scatters(op *ir.Op) bool {
	if s := op.Outputs[0].Shape; isEmpty(s) || s.DType.ValuesPerStorageUnit() > 1 {
		return false
	}
	v := op.Outputs[0]
	return !z.captured[v] && !slices.ContainsFunc(z.Users(v), func(u *ir.Op) bool { return !IsApply(u) })
}

// kindOf is equal for gradients that can be in one bucket.
func kindOf(op *ir.Op) string {
	return fmt.Sprint(op.Outputs[0].Shape.DType, op.Place, op.Inputs[0].On(ir.Model).Kind == ir.Partial)
}

// factors finds the gradients that are computed from gathered factors. Those that would not be divided otherwise are, if the optimizer keeps nothing of them.
func (z *partChooser) factors() {
	if z.p.Local.MicroBatches > 1 || z.p.Local.Shares != nil { // instances add up, or have samples of different weights
		return
	}
	for i, op := range z.p.Main.Ops {
		if !addsGradients(op) || !z.scatters(op) {
			continue
		}
		divided := slices.Contains(z.Gradients, i)
		if f, ok := factorsOf(op); !ok || !f.pay(op.Outputs[0].Shape, z.n) || !divided && z.feedsState(op) {
			continue
		}
		if !divided {
			z.Gradients = append(z.Gradients, i)
		}
		z.Factored = append(z.Factored, i)
	}
}

// feedsState tells whether the optimizer keeps something of the size of a gradient that depends on it: who asks for no ZeRO has all of that on every model replica.
func (z *partChooser) feedsState(gradient *ir.Op) bool {
	reached := map[*ir.Value]bool{}
	var reach func(v *ir.Value)
	reach = func(v *ir.Value) {
		if !reached[v] && v.Shape.Size() == gradient.Outputs[0].Shape.Size() {
			reached[v] = true
			for _, u := range z.Users(v) {
				for _, w := range u.Outputs {
					reach(w)
				}
			}
		}
	}
	reach(gradient.Outputs[0])
	return slices.ContainsFunc(z.p.Variables, func(x *ir.Variable) bool { return !x.Trainable && reached[x.Update] })
}
