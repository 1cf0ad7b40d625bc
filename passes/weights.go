// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// weight says how much instances count in a mean.
type weight struct {
	of     *ir.Value // what the value of an instance is multiplied by
	counts *ir.Value // whether the instance counts at all: whatever one of weight 0 computes, a NaN too, is left out
	total  *ir.Value // what the sum over instances is divided by; never 0
	any    *ir.Value // whether some instance of the step counts
}

// weightKey is a weight in means over all instances, or over those of a worker.
type weightKey struct {
	ratio
	worker bool
}

// weigh finds the weight of the loss, and so of gradients: the user's, or the divisor of the loss.
func (l *localiser) weigh() error {
	l.ratios, l.weights = &ratios{l.p, map[*ir.Value]verdict{}, map[*ir.Value]bool{}}, map[weightKey]*weight{}
	if l.weight != nil {
		if !l.weight.Op.Varying {
			return errors.Errorf("epl: the InstanceWeight %s does not depend on the data: leave it out", l.weight.Op)
		}
		return nil
	}
	if l.p.Loss == nil || l.o.SumGradients || l.p.Local.Instances() == 1 {
		return nil
	}
	if found := l.ratios.of(l.p.Loss); found.kind == shared {
		l.o.note(fmt.Sprintf("the loss is divided by %s, a sum over the data: model replicas and micro-batches are weighted by it, as by an InstanceWeight",
			found.ratio.by.Op))
	} else if v := l.ratios.unweighted(l.p.Loss); v != nil {
		where := string(v.Op.Source) // without its number, which is another one in every program
		if where == "" {
			where = v.Op.String()
		}
		l.o.warn("mean of means at "+where, fmt.Sprintf("the loss is divided by a number that differs between batches, at %s, in a way that EPL cannot take apart: "+
			"its mean over model replicas and micro-batches is a mean of means, not what one device gets from all samples. "+
			"Add the number that the loss of a batch is divided by to the collection InstanceWeight (epl.AddToCollection)", where))
	}
	return nil
}

// weightFor is the weight of instances in the mean of a value; nil: all count alike. Gradients count as the loss does.
func (l *localiser) weightFor(next *ir.Op, v *ir.Value, way ir.Merge) *weight {
	key := weightKey{worker: way.Worker}
	switch {
	case way.How != ir.Mean:
		return nil
	case l.weight != nil:
		key.ratio = ratio{by: l.weight, sum: l.weight}
	case v == nil || l.o.SumGradients || l.p.Local.Instances() == 1:
		return nil
	default:
		found := l.ratios.of(v)
		if found.kind != shared {
			return nil
		}
		key.ratio = found.ratio
	}
	if l.weights[key] == nil {
		l.weights[key] = l.newWeight(next, key)
	}
	return l.weights[key]
}

// newWeight computes a weight, in front of next.
func (l *localiser) newWeight(next *ir.Op, key weightKey) *weight {
	at := spot{l, next, ir.Forward, key.by.Op.TaskGraph} // no earlier than the sum
	isNonzero := func(v *ir.Value) *ir.Value {
		return at.insert(&ir.NotEqual{}, shapes.Make(dtypes.Bool), v, at.number(v.Shape.DType, 0))
	}
	number := func(v *ir.Value) *ir.Value { // a scalar that can be added up
		v = at.reshaped(v, nil)
		return at.convert(v, wide(v.Shape.DType))
	}
	mine := number(key.sum)
	w := &weight{of: number(key.by), counts: isNonzero(mine)}
	// The sum may be merged as a result, too: this is a copy of its own.
	all := at.insert(&ir.Merge{How: ir.Sum, Worker: key.worker}, mine.Shape, at.insert(&ir.Identity{}, mine.Shape, mine))
	w.any = isNonzero(all)
	total := all
	if key.by != key.sum {
		sum := at.reshaped(at.convert(all, key.sum.Shape.DType), key.sum.Shape.Dimensions)
		total = number(at.reapplied(key.by, map[*ir.Value]*ir.Value{key.sum: sum}))
	}
	w.total = at.insert(&ir.Where{}, total.Shape, w.any, total, at.number(total.Shape.DType, 1))
	return w
}

// reapplied computes what follows from some values of the instances from merged ones instead.
func (at spot) reapplied(v *ir.Value, by map[*ir.Value]*ir.Value) *ir.Value {
	if by[v] == nil {
		if !v.Op.Varying {
			return v
		}
		in := ir.Through(v.Op.Inputs, func(x *ir.Value) *ir.Value { return at.reapplied(x, by) })
		by[v] = at.insert(v.Op.Attrs, v.Shape, in...)
	}
	return by[v]
}

// number is a constant.
func (at spot) number(d dtypes.DType, x float64) *ir.Value {
	s := shapes.Make(d)
	return at.insert(&ir.Constant{Value: ir.Literal{Shape: s, Flat: shapes.CastAsDType([]float64{x}, d)}}, s)
}

// reshaped is a value of one element with other dims.
func (at spot) reshaped(v *ir.Value, dims []int) *ir.Value {
	if v.Shape.Rank() == len(dims) {
		return v
	}
	return at.insert(&ir.Reshape{Dimensions: dims}, shapes.Make(v.Shape.DType, dims...), v)
}

// convert is a value in another type.
func (at spot) convert(v *ir.Value, d dtypes.DType) *ir.Value {
	return inserter(at.insert).convert(v, d)
}

// typed is a shape with another type of elements.
func typed(s shapes.Shape, d dtypes.DType) shapes.Shape {
	s = s.Clone()
	s.DType = d
	return s
}

// wide is the type in which values are weighted and added up: float32 at least, since half precision may not have the results.
func wide(d dtypes.DType) dtypes.DType {
	if d.IsHalfPrecision() {
		return dtypes.Float32
	}
	return d
}

// weighted multiplies the value of an instance by its weight.
func (at spot) weighted(v *ir.Value, w *weight) *ir.Value {
	v = at.convert(v, wide(v.Shape.DType))
	v = at.insert(&ir.Where{}, v.Shape, w.counts, v, at.number(v.Shape.DType, 0))
	return at.insert(&ir.Mul{}, v.Shape, v, at.convert(w.of, v.Shape.DType))
}

// divided divides a sum of weighted values, and gives it the type that they had.
func (at spot) divided(sum *ir.Value, w *weight, d dtypes.DType) *ir.Value {
	return at.convert(at.insert(&ir.Div{}, sum.Shape, sum, at.convert(w.total, sum.Shape.DType)), d)
}
