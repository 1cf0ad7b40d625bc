// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
)

// amp lets a training program compute in the low type where that is fast and safe: mixed precision of level O1. Variables,
// gradients as they leave backward, the optimizer and results stay float32.
//
// Every float32 value of main keeps its identity, and with it everything that refers to it: an op that is to compute in the low
// type becomes a new op, and the old one the cast of its result, which dies if nobody needs it.
func amp(p *ir.Program, o Options) (int, error) {
	if o.AMP == dtypes.InvalidDType || !p.IsTraining() {
		return 0, nil
	}
	a := &mixer{p: p, dtype: o.AMP, name: strings.ToLower(o.AMP.String()), barriers: o.AMPBarriers,
		wanted: map[*ir.Value]bool{}, leaves: map[*ir.Value]bool{}, lonely: map[*ir.Value]bool{}, small: map[*ir.Value]bool{},
		state: map[*ir.Value]precision{}, lows: map[*ir.Value]*ir.Value{}, saved: map[*ir.Value]*ir.Value{}, casts: map[castKey]*ir.Value{},
		compared: comparing{map[*ir.Value]int{}, map[*ir.Value]int{}, map[*ir.Value]bool{}, map[*ir.Op]bool{}, map[*ir.Value]bool{}, map[*ir.Value]bool{}},
		before:   map[*ir.Op][]*ir.Op{}, after: map[*ir.Op][]*ir.Op{}, by: map[*ir.Value]*ir.Value{}}
	a.log = func(format string, args ...any) {
		if o.AMPLog != nil {
			o.AMPLog(fmt.Sprintf("epl: amp: "+format, args...))
		}
	}
	unfuseDense(p)
	a.look()
	for _, op := range p.Main.Ops {
		if op.Phase != ir.Apply {
			a.op(op)
		}
	}
	n := a.finish()
	o.note(fmt.Sprintf("mixed precision: %d of %d float32 ops of forward and backward compute in %s, of them %d dots and convolutions; "+
		"%d other results are kept in it", a.lowered, a.ops, a.name, a.dots, a.rounds))
	return n, nil
}

// precision is what is known of a float32 value of the program.
type precision uint8

const (
	// neutral values were not made by an op that needs float32: variables, constants, data that dots read, and what follows from
	// them by moving and adding. They may be cast where that helps.
	neutral precision = iota
	// exact values are float32 for a reason, so that what is computed from them is, too. Data are that no dot reads: labels and
	// targets may have more digits than the low type.
	exact
	// rounded values exist in the low type; in float32 they are a cast of that.
	rounded
)

type mixer struct {
	p     *ir.Program
	dtype dtypes.DType // the low type
	name  string       // of it
	log   func(format string, args ...any)
	// barriers keep what is rounded, see Options.
	barriers bool

	wanted map[*ir.Value]bool // a dot or a convolution reads it, perhaps moved
	leaves map[*ir.Value]bool // it leaves the program: new values of variables, the loss, results
	lonely map[*ir.Value]bool // it is read at once, in float32 only

	state map[*ir.Value]precision
	lows  map[*ir.Value]*ir.Value // rounded values, in the low type
	small map[*ir.Value]bool      // a reduction made it, and nothing has spread it since
	saved map[*ir.Value]*ir.Value // exact values of forward that backward reads, in the low type
	casts map[castKey]*ir.Value
	// compared says where rounding would make values differ that must be equal.
	compared comparing
	// before and after are the new ops, by the op of the program beside which they stand.
	before, after map[*ir.Op][]*ir.Op
	by            map[*ir.Value]*ir.Value // casts of the model that are not needed

	ops, lowered, dots, rounds, dropped int
}

// castKey is a cast: one per value and type for what a TaskGraph does in a phase, so that no cast waits for another phase.
type castKey struct {
	value *ir.Value
	dtype dtypes.DType
	at    *ir.TaskGraph
	phase ir.Phase
}

func is32(v *ir.Value) bool { return v != nil && v.Shape.DType == dtypes.Float32 }

// class is that of the op in this program.
func (a *mixer) class(op *ir.Op) class {
	c := classes[op.Type()]
	if c == low && !(is32(op.Inputs[0]) && is32(op.Inputs[1]) && is32(op.Outputs[0])) {
		return full // its types are the model's business
	}
	if c == move && len(op.Outputs) != 1 {
		return full // a barrier for several
	}
	return c
}

// look finds out, from the last op to the first, what will be read in which type.
func (a *mixer) look() {
	for _, v := range a.p.Main.Outputs {
		a.leaves[v] = true
	}
	readers, fullReaders := map[*ir.Value]int{}, map[*ir.Value]int{}
	for _, op := range slices.Backward(a.p.Main.Ops) {
		if op.Phase == ir.Apply {
			continue
		}
		c := a.class(op)
		a.compared.look(op)
		for _, v := range op.Outputs {
			// What several ops read of a sum, as of a residual connection, is worth keeping small.
			sum := op.Type() == ir.OpAdd || op.Type() == ir.OpSub
			a.lonely[v] = readers[v] == fullReaders[v] && (readers[v] <= 1 || !sum)
		}
		for _, in := range op.Inputs {
			if is32(in) && (c == low || c == move && a.wanted[op.Outputs[0]]) {
				a.wanted[in] = true
			}
		}
		op.Uses(func(v *ir.Value) {
			readers[v]++
			if v.Op.Phase == op.Phase && (c == full || c == follow && a.lonely[op.Outputs[0]]) {
				fullReaders[v]++
			}
		})
	}
	for _, v := range a.p.Inputs {
		if is32(v) && !a.wanted[v] {
			a.state[v] = exact
		}
	}
}

// op decides about one op.
func (a *mixer) op(op *ir.Op) {
	reads, gives := slices.ContainsFunc(op.Inputs, is32), slices.ContainsFunc(op.Outputs, is32)
	if op.IsLeaf() || !reads && !gives || a.modelCast(op) {
		return
	}
	a.ops++
	c, name := a.class(op), op.String()
	inLow, reason := a.decide(op, c)
	if inLow {
		a.lower(op)
		a.log("%s computes in %s: %s", name, a.name, reason)
		return
	}
	state := neutral
	switch {
	case c == follow && op.Phase == ir.Backward: // what gradients start from is small
		state = exact
	case c == full && !reads && !ofBools(op): // integers, random numbers
		state = exact
	}
	allLow := a.notLow(op) == nil
	for i, in := range op.Inputs {
		if is32(in) {
			if c == full || a.state[in] != neutral || a.lacked(in) {
				state = exact
			}
			op.Inputs[i] = a.full(in, op)
		}
	}
	for _, v := range op.Outputs {
		if is32(v) {
			a.small[v] = a.isSmall(op, v)
			if a.state[v] = state; a.wanted[v] {
				a.state[v], a.lows[v] = rounded, a.behind(v) // for all who read it: it is stored once, in the low type
				a.compared.copied[v] = a.compared.ops[op] && !allLow
				reason += fmt.Sprintf("; dots read its result, which is rounded to %s", a.name)
			}
		}
	}
	a.log("%s computes in float32: %s", name, reason)
}

// ofBools tells whether the op casts bools, which every type has: a mask does not ask for float32.
func ofBools(op *ir.Op) bool {
	_, ok := op.Attrs.(*ir.ConvertDType)
	return ok && op.Inputs[0].Shape.DType == dtypes.Bool
}

// isSmall tells whether a result is smaller than what it was computed from, itself or by way of others.
func (a *mixer) isSmall(op *ir.Op, v *ir.Value) bool {
	var largest int64
	all := true
	for _, in := range op.Inputs {
		if is32(in) && in.Op.Type() != ir.OpConstant {
			largest = max(largest, in.Bytes())
			all = all && a.small[in]
		}
	}
	return v.Bytes() < largest || all && v.Bytes() == largest
}

// modelCast deals with casts of the model between float32 and the low type: whoever reads one may read what was cast.
func (a *mixer) modelCast(op *ir.Op) bool {
	if _, ok := op.Attrs.(*ir.ConvertDType); !ok {
		return false
	}
	in, out := op.Inputs[0], op.Outputs[0]
	switch {
	case is32(in) && out.Shape.DType == a.dtype:
		if a.state[in] == rounded {
			a.by[out] = a.lows[in]
			a.dropped++
			a.log("%s is not needed: what it casts is %s already", op, a.name)
		}
	case is32(out) && in.Shape.DType == a.dtype:
		a.state[out], a.lows[out] = rounded, in
		a.casts[castKey{out, dtypes.Float32, op.TaskGraph, op.Phase}] = out
	default:
		return false
	}
	return true
}

// decide says whether the op is to compute in the low type, and why.
func (a *mixer) decide(op *ir.Op, c class) (inLow bool, reason string) {
	switch c {
	case low:
		return true, "it is on the allow list"
	case full:
		if r := why[op.Type()]; r != "" {
			return false, "it " + r
		}
		if classes[op.Type()] == low {
			return false, "its types are the model's"
		}
		return false, "it is on no list"
	}
	if a.leaves[op.Outputs[0]] {
		return false, "its result leaves the program"
	}
	if v := a.notLow(op); v != nil && a.compared.ops[op] {
		return false, fmt.Sprintf("its result is compared, and %s is float32", v)
	}
	inputs := op.Inputs
	switch op.Attrs.(type) {
	case *ir.SchedulingBarrier:
		inputs = inputs[:1] // the others it only waits for
	case *ir.OptimizationBarrier:
		if a.saves(inputs[0], op) {
			return true, "backward keeps in " + a.name + " what it reads"
		}
	}
	var have, lack int64
	for _, in := range inputs {
		switch {
		case !is32(in):
		case a.state[in] == exact && in.Op.IsLeaf():
			return false, fmt.Sprintf("it reads %s, which is data", in)
		case a.state[in] == exact:
			return false, fmt.Sprintf("it reads %s, which is float32 for a reason", in)
		case a.lacked(in):
			return false, fmt.Sprintf("it reads %s, a number that %s does not have", in, a.name)
		case a.state[in] == rounded:
			have += in.Bytes()
		default:
			lack += castBytes(in)
		}
	}
	switch {
	case have == 0 && c == move && a.wanted[op.Outputs[0]]:
		return true, "dots read what it moves"
	case have == 0:
		return false, "nothing that it reads is " + a.name
	case c == follow && a.lonely[op.Outputs[0]] && op.Type() != ir.OpGather: // what it reads is larger than what it gives
		return false, "its result is needed in float32 only"
	case lack > have:
		return false, "more would have to be cast than it reads in " + a.name
	}
	return true, "what it reads is " + a.name
}

// lacked tells whether a value is a constant that the low type does not have: too large, as in masks of attention, or, in float16,
// too small, as what keeps a logarithm finite.
func (a *mixer) lacked(v *ir.Value) bool {
	c, ok := v.Op.Attrs.(*ir.Constant)
	if !ok {
		return false
	}
	largest, least := 65504., 0x1p-14
	if a.dtype == dtypes.BFloat16 {
		largest, least = 0x1.fep127, 0
	}
	flat, ok := c.Value.Flat.([]float32)
	return ok && slices.ContainsFunc(flat, func(x float32) bool {
		y := math.Abs(float64(x))
		return y > largest && !math.IsInf(y, 0) || y > 0 && y < least
	})
}

// castBytes is how much must be cast to have a value in the low type.
func castBytes(v *ir.Value) int64 {
	switch v.Op.Attrs.(type) {
	case *ir.Constant:
		return 0
	case *ir.BroadcastInDim:
		return castBytes(v.Op.Inputs[0])
	}
	return v.Bytes()
}

// lower lets an op compute in the low type. The old one becomes the cast of its result.
func (a *mixer) lower(op *ir.Op) {
	if a.class(op) == low {
		a.dots++
	}
	inputs := ir.Through(op.Inputs, func(in *ir.Value) *ir.Value { return a.lowOf(in, op) })
	v := op.Outputs[0]
	made := a.beside(op, a.attrs(op.Attrs), typed(v.Shape, a.dtype), inputs...)
	op.Attrs, op.Inputs = &ir.ConvertDType{DType: dtypes.Float32}, []*ir.Value{made}
	a.state[v], a.lows[v] = rounded, made
	a.casts[castKey{v, dtypes.Float32, op.TaskGraph, op.Phase}] = v
	a.lowered++
}

// attrs are those of an op in the low type. Dots add up in float32, as all backends do them.
func (a *mixer) attrs(attrs ir.Attrs) ir.Attrs {
	switch t := attrs.(type) {
	case *ir.DotGeneral:
		d := *t
		d.Config = compute.DotGeneralConfig{AccumulatorDType: dtypes.Float32, OutputDType: a.dtype}
		return &d
	case *ir.BroadcastInDim:
		b := *t
		b.OutputShape = typed(b.OutputShape, a.dtype)
		return &b
	}
	return attrs
}

// like makes an op that stands beside another.
func (a *mixer) like(op *ir.Op, attrs ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Op {
	made := a.p.NewOp(attrs, in, s)
	made.Func, made.Attribution = op.Func, op.Attribution
	return made
}

// lowOf is the value, which may have been float32, in the low type, for an op that reads it. What is not rounded is cast where it is
// used, once for what a TaskGraph does in a phase: casts of weights live no longer than that.
func (a *mixer) lowOf(v *ir.Value, user *ir.Op) *ir.Value {
	switch {
	case !is32(v):
		return v
	case a.state[v] == rounded:
		return a.lows[v]
	case a.saves(v, user):
		return a.save(v)
	}
	if _, ok := v.Op.Attrs.(*ir.BroadcastInDim); ok {
		return a.cast(v, user, a.attrs(v.Op.Attrs), a.dtype, a.lowOf(v.Op.Inputs[0], user))
	}
	return a.cast(v, user, &ir.ConvertDType{DType: a.dtype}, a.dtype, v)
}

// cast is a value in a type, made from one for an op that reads it.
func (a *mixer) cast(v *ir.Value, user *ir.Op, attrs ir.Attrs, d dtypes.DType, from *ir.Value) *ir.Value {
	key := castKey{v, d, user.TaskGraph, user.Phase}
	if a.casts[key] == nil {
		a.casts[key] = a.beside(user, attrs, typed(v.Shape, d), from)
	}
	return a.casts[key]
}

// saves tells whether an op of backward reads, of what forward computes, what is kept in the low type: unless it is small, or compared, or
// a state that a fused op keeps for its gradient, or float16, which may not have it: an exponential, or what is divided by.
func (a *mixer) saves(v *ir.Value, user *ir.Op) bool {
	return a.state[v] == exact && !a.compared.whole[v] && v.Op.Phase < user.Phase && !v.Op.IsLeaf() && !a.small[v] && v.Index == 0 &&
		a.dtype == dtypes.BFloat16
}

// save is what is kept of a value in the low type.
func (a *mixer) save(v *ir.Value) *ir.Value {
	if a.saved[v] == nil {
		a.saved[v] = a.behind(v)
	}
	return a.saved[v]
}

// full is the value in float32, for an op that reads it. What was rounded is kept so, and cast back where it is used, unless it is
// compared with what was not. So is what is saved for backward.
func (a *mixer) full(v *ir.Value, user *ir.Op) *ir.Value {
	from := a.lows[v]
	switch {
	case a.compared.copied[v] && a.compared.ops[user]:
		return v
	case a.state[v] == rounded:
	case a.saves(v, user):
		from = a.save(v)
	default:
		return v
	}
	return a.cast(v, user, &ir.ConvertDType{DType: dtypes.Float32}, dtypes.Float32, from)
}

// beside makes an op in front of the one that reads it.
func (a *mixer) beside(user *ir.Op, attrs ir.Attrs, s shapes.Shape, from ...*ir.Value) *ir.Value {
	made := a.like(user, attrs, s, from...)
	a.before[user] = append(a.before[user], made)
	return made.Outputs[0]
}

// behind casts a value to the low type right behind the op that computes it.
func (a *mixer) behind(v *ir.Value) *ir.Value {
	made := a.like(v.Op, &ir.ConvertDType{DType: a.dtype}, typed(v.Shape, a.dtype), v)
	a.after[v.Op] = append(a.after[v.Op], made)
	a.rounds++
	return made.Outputs[0]
}

// keepRounded puts barriers behind what was rounded and is read in float32, too. It returns them, with what they guard.
func (a *mixer) keepRounded() map[*ir.Op]*ir.Value {
	made := map[*ir.Op]*ir.Value{}
	if !a.barriers {
		return made
	}
	back := map[*ir.Value]bool{}
	for key := range a.casts {
		back[key.value] = back[key.value] || key.dtype == dtypes.Float32
	}
	for _, op := range a.p.Main.Ops {
		for _, cast := range slices.Clone(a.after[op]) {
			if x := cast.Inputs[0]; !back[x] || a.saved[x] != nil && a.class(op) != full {
				continue // what backward can cheaply compute again need not be kept
			}
			v := cast.Outputs[0]
			barrier := a.like(cast, &ir.OptimizationBarrier{}, v.Shape, v)
			a.after[op] = append(a.after[op], barrier)
			a.by[v], made[barrier] = barrier.Outputs[0], v
		}
	}
	return made
}

// finish puts the new ops in their places.
func (a *mixer) finish() int {
	checkpoints := a.p.Collection("Checkpoints") // what is kept is what backward reads
	for i, v := range checkpoints {
		checkpoints[i] = cmp.Or(a.lows[v], v)
	}
	barriers := a.keepRounded()
	var ops []*ir.Op
	for _, op := range a.p.Main.Ops {
		ops = append(append(append(ops, a.before[op]...), op), a.after[op]...)
	}
	a.p.Main.Ops = ops
	n := a.lowered + a.rounds + a.dropped
	if n > 0 {
		a.p.ReplaceUses(a.by)
		for barrier, v := range barriers {
			barrier.Inputs[0] = v
		}
		analysis.Sweep(a.p)
	}
	return n
}
