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
func (l *localiser) weigh(o Options) error {
	l.ratios, l.weights = newRatios(l.p), map[weightKey]*weight{}
	if l.weight != nil {
		if !l.weight.Op.Varying {
			return errors.Errorf("epl: the InstanceWeight %s does not depend on the data: leave it out", l.weight.Op)
		}
		return nil
	}
	if l.p.Loss == nil || l.sum || l.p.Local.Instances() == 1 {
		return nil
	}
	if found := l.ratios.of(l.p.Loss); found.kind == shared {
		o.note(fmt.Sprintf("the loss is divided by %s, a sum over the data: model replicas and micro-batches are weighted by it, as by an InstanceWeight",
			found.ratio.by.Op))
	} else if op := l.ratios.unweighted(l.p.Loss); op != nil {
		where := op.String()
		if op.Source != "" { // without its number, which is another one in every program
			where = string(op.Source)
		}
		o.warn("mean of means at "+where, fmt.Sprintf("the loss is divided by a number that differs between batches, at %s, in a way that EPL cannot take apart: "+
			"its mean over model replicas and micro-batches is a mean of means, not what one device gets from all samples. "+
			"Add the number that the loss of a batch is divided by to the collection InstanceWeight (epl.AddToCollection)", where))
	}
	return nil
}

// weightFor is the weight of instances in the mean of a value; nil: all count alike.
func (l *localiser) weightFor(next *ir.Op, v *ir.Value, gradient bool, way ir.Merge) *weight {
	key := weightKey{worker: way.Worker}
	switch {
	case way.How != ir.Mean:
		return nil
	case l.weight != nil:
		key.ratio = ratio{by: l.weight, sum: l.weight}
	case l.sum || l.p.Local.Instances() == 1:
		return nil
	default:
		if gradient {
			v = l.p.Loss
		}
		if v == nil {
			return nil
		}
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
	before := l.home
	l.home = key.by.Op.TaskGraph // no earlier than the sum
	defer func() { l.home = before }()
	insert := func(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
		return l.insert(next, ir.Forward, a, s, in...)
	}
	isNonzero := func(v *ir.Value) *ir.Value {
		return insert(&ir.NotEqual{}, shapes.Make(dtypes.Bool), v, l.number(next, ir.Forward, v.Shape.DType, 0))
	}
	number := func(v *ir.Value) *ir.Value { // a scalar that can be added up
		if v.Shape.Rank() > 0 {
			v = insert(&ir.Reshape{}, shapes.Make(v.Shape.DType), v)
		}
		if v.Shape.DType.IsHalfPrecision() {
			v = insert(&ir.ConvertDType{DType: dtypes.Float32}, shapes.Make(dtypes.Float32), v)
		}
		return v
	}
	mine := number(key.sum)
	w := &weight{of: number(key.by), counts: isNonzero(mine)}
	// The sum may be merged as a result, too: this is a copy of its own.
	all := insert(&ir.Merge{How: ir.Sum, Worker: key.worker}, mine.Shape, insert(&ir.Identity{}, mine.Shape, mine))
	w.any = isNonzero(all)
	total := all
	if key.by != key.sum {
		total = number(l.reapplied(next, key.by, map[*ir.Value]*ir.Value{key.sum: l.like(next, all, key.sum.Shape)}))
	}
	w.total = insert(&ir.Where{}, total.Shape, w.any, total, l.number(next, ir.Forward, total.Shape.DType, 1))
	return w
}

// like makes a scalar a value of the given shape and type, of one element.
func (l *localiser) like(next *ir.Op, v *ir.Value, s shapes.Shape) *ir.Value {
	if v.Shape.DType != s.DType {
		v = l.insert(next, ir.Forward, &ir.ConvertDType{DType: s.DType}, shapes.Make(s.DType), v)
	}
	if s.Rank() > 0 {
		v = l.insert(next, ir.Forward, &ir.Reshape{Dimensions: s.Dimensions}, s, v)
	}
	return v
}

// reapplied computes what follows from some values of the instances from merged ones instead.
func (l *localiser) reapplied(next *ir.Op, v *ir.Value, by map[*ir.Value]*ir.Value) *ir.Value {
	if to := by[v]; to != nil || !v.Op.Varying {
		if to == nil {
			to = v
		}
		return to
	}
	in := make([]*ir.Value, len(v.Op.Inputs))
	for i, x := range v.Op.Inputs {
		in[i] = l.reapplied(next, x, by)
	}
	by[v] = l.insert(next, ir.Forward, v.Op.Attrs, v.Shape, in...)
	return by[v]
}

// number is a constant.
func (l *localiser) number(next *ir.Op, phase ir.Phase, d dtypes.DType, x float64) *ir.Value {
	s := shapes.Make(d)
	return l.insert(next, phase, &ir.Constant{Value: ir.Literal{Shape: s, Flat: shapes.CastAsDType([]float64{x}, d)}}, s)
}

// in converts a scalar to the type of what it is multiplied with.
func (l *localiser) in(next *ir.Op, phase ir.Phase, v *ir.Value, d dtypes.DType) *ir.Value {
	if v.Shape.DType == d {
		return v
	}
	return l.insert(next, phase, &ir.ConvertDType{DType: d}, shapes.Make(d), v)
}

// weighted multiplies the value of an instance by its weight: in float32 at least, since half precision may not have the product.
func (l *localiser) weighted(next *ir.Op, phase ir.Phase, v *ir.Value, w *weight) *ir.Value {
	s := v.Shape
	if s.DType.IsHalfPrecision() {
		s = s.Clone()
		s.DType = dtypes.Float32
		v = l.insert(next, phase, &ir.ConvertDType{DType: s.DType}, s, v)
	}
	v = l.insert(next, phase, &ir.Where{}, s, w.counts, v, l.number(next, phase, s.DType, 0))
	return l.insert(next, phase, &ir.Mul{}, s, v, l.in(next, phase, w.of, s.DType))
}

// divided divides a sum of weighted values, and gives it the type that they had.
func (l *localiser) divided(next *ir.Op, phase ir.Phase, sum *ir.Value, w *weight, d dtypes.DType) *ir.Value {
	s := sum.Shape
	m := l.insert(next, phase, &ir.Div{}, s, sum, l.in(next, phase, w.total, s.DType))
	if s.DType != d {
		s = s.Clone()
		s.DType = d
		m = l.insert(next, phase, &ir.ConvertDType{DType: d}, s, m)
	}
	return m
}
