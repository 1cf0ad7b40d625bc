package shard

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// Rule says how an op can be sharded.
type Rule struct {
	Factors []Factor
	Linear  Linearity
}

// Factor is an index of the op's iteration space: in a dot bik,bkj→bij the factors are b, i, j and k. Sharding it shards the
// dims that it maps to.
type Factor struct {
	Size    int
	In, Out []Ref        // per input and output
	Reduce  ir.Reduction // the op reduces over this factor: sharding it makes the outputs Partial
}

// Ref maps a factor to a dim of an operand. One step of the factor is Mul rows of the dim.
type Ref struct{ Dim, Mul int }

// Operands that have no dim for a factor.
const (
	whole = -1 // every device needs all of it
	term  = -2 // it is added to the result: it must be added once only
)

// Linearity says which Partial inputs an op passes through to its output.
type Linearity uint8

// The linearities.
const (
	NotLinear Linearity = iota
	Moves               // it only moves elements: any Partial
	Sums                // it is linear in its input: Partial sums
	Adds                // it is linear in all inputs together: Partial sums, all of them
	Scales              // it is linear in each input: a Partial sum times a number
	Divides             // it is linear in the first input: a Partial sum divided by a number
	Keeps               // it is linear in the second input: a Partial sum, or zeros
)

// rules holds how the rule of each operation is made.
var rules = map[ir.OpType]func(*ir.Op) *Rule{}

// RuleOf returns the rule of an op, nil if there is none: it is then computed on whole values. Some
// operations have no rule at all; others have none if a shape is known only when the program runs, or if elements are smaller
// than a byte.
func RuleOf(op *ir.Op) *Rule {
	odd := func(v *ir.Value) bool { return v != nil && (v.Shape.IsDynamic() || v.Shape.DType.IsPacked()) }
	if slices.ContainsFunc(op.Inputs, odd) || slices.ContainsFunc(op.Outputs, odd) {
		return nil
	}
	captures := false
	op.Captures(func(*ir.Value) { captures = true })
	if make := rules[op.Type()]; make != nil && !captures {
		return make(op)
	}
	return nil
}

// factor adds a factor, with a dim per input and then per output; inputs that are absent have none. Factors that reduce what
// cannot be reduced between devices are left out.
func (r *Rule) factor(op *ir.Op, size int, reduce ir.Reduction, dims ...int) {
	if size < 2 || reduce != 0 && !reducible(op.Outputs[0].Shape.DType) {
		return
	}
	refs := make([]Ref, len(dims))
	n := len(op.Inputs)
	for i, d := range dims {
		if i < n && op.Inputs[i] == nil {
			d = whole
		}
		refs[i] = Ref{d, 1}
	}
	r.Factors = append(r.Factors, Factor{Size: size, In: refs[:n:n], Out: refs[n:], Reduce: reduce})
}

// reducible tells whether devices can reduce values of the type.
func reducible(t dtypes.DType) bool { return t.IsFloat() || t.IsInt() }

// sameDims is the rule of an op whose dims chosen by ok are the same in all inputs, those of the list whole aside, and all
// outputs.
func sameDims(op *ir.Op, ok func(dim int) bool, wholes ...int) *Rule {
	r := &Rule{}
	for d, n := range dims(op.Outputs[0]) {
		if !ok(d) {
			continue
		}
		refs := slices.Repeat([]int{d}, len(op.Inputs)+len(op.Outputs))
		for _, i := range wholes {
			refs[i] = whole
		}
		r.factor(op, n, 0, refs...)
	}
	return r
}

func dims(v *ir.Value) []int { return v.Shape.Dimensions }

// unitOf translates the rows of an operand that stay together into steps of the factor, if the operand is sharded along its dim.
func (f *Factor) unitOf(r Ref, p Placement, s shapes.Shape, k int) (unit int, ok bool) {
	switch {
	case p.Kind != Sharded || p.Dim != r.Dim:
		return 0, false
	case p.Unit%r.Mul == 0:
		return p.Unit / r.Mul, fits(s.Dimensions[r.Dim], p.Unit, k)
	}
	// Units that do not fit may still give whole steps.
	return 1, fits(f.Size, 1, k) && same(p, shardOf(r.Dim, r.Mul), s, k)
}

// placement is that of an operand when the factor is sharded in the given units.
func (f *Factor) placement(r Ref, unit int) Placement {
	switch r.Dim {
	case whole:
		return Placement{}
	case term:
		return partialOf(ir.ReduceBySum)
	}
	return shardOf(r.Dim, unit*r.Mul)
}
