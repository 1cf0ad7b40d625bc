package passes

import (
	"reflect"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// What an op of the optimizer needs of a value is made when it is asked for: all of it, the model replica's part, or its term
// of a sum over model replicas.

// whole is all of a value, for an op of the optimizer on a device.
func (z *zeroer) whole(v *ir.Value, site *ir.Op, place int) *ir.Value {
	place = z.home(v, place)
	if w := z.wholes[at{v, place}]; w != nil {
		return w
	}
	w := v
	switch {
	case z.native[v]:
		w = z.gather(site, place, z.part(v, site, place), v.Shape)
	case z.needs[v]: // of instances, and computed from weights
		w = z.clone(v.Op, site, place, func(in *ir.Value) *ir.Value { return z.whole(in, site, place) }).Outputs[v.Index]
	case !isApply(v.Op): // it is there
	default:
		if t := z.term(v, place); t != nil {
			how := ir.ReduceBySum
			switch summed(v.Op).(type) {
			case *ir.ReduceMax:
				how = ir.ReduceByMax
			case *ir.ReduceMin, *ir.ReduceLogicalAnd:
				how = ir.ReduceByMin
			}
			w = z.resolve(v, t, how, place)
			break
		}
		if !z.emitted[v.Op] {
			for i, in := range v.Op.Inputs {
				if in != nil {
					v.Op.Inputs[i] = z.whole(in, v.Op, v.Op.Place)
				}
			}
			v.Op.Captures(func(c *ir.Value) { z.whole(c, v.Op, v.Op.Place) })
			z.put(v.Op)
		}
	}
	z.wholes[at{v, place}] = w
	return w
}

// summed is the attributes of the reduction that a term comes from.
func summed(op *ir.Op) ir.Attrs {
	for !sumsAll(op) {
		op = op.Inputs[0].Op
	}
	return op.Attrs
}

// resolve reduces terms over the model replicas.
func (z *zeroer) resolve(v, term *ir.Value, how ir.Reduction, place int) *ir.Value {
	exchange := &ir.Exchange{How: ir.AllReduceOf, Reduce: how, Places: []int{place}, Replicas: true}
	if v.Shape.DType != dtypes.Bool {
		return z.add(v.Op, place, exchange, v.Shape, term)
	}
	number := v.Shape.Clone()
	number.DType = dtypes.Int32
	n := z.add(v.Op, place, &ir.ConvertDType{DType: dtypes.Int32}, number, term)
	n = z.add(v.Op, place, exchange, number, n)
	return z.add(v.Op, place, &ir.ConvertDType{DType: dtypes.Bool}, v.Shape, n)
}

// term is the model replica's share of a sum over all elements of something that is computed in parts, or of the sum of such
// sums; nil if the value is no such thing.
func (z *zeroer) term(v *ir.Value, place int) *ir.Value {
	place = z.home(v, place)
	key := at{v, place}
	if t, ok := z.terms[key]; ok {
		return t
	}
	if z.captured[v] {
		return nil
	}
	var t *ir.Value
	op := v.Op
	switch op.Attrs.(type) {
	case *ir.Reshape, *ir.Identity:
		if v.Shape.Rank() == 0 && isApply(op.Inputs[0].Op) {
			if x := z.term(op.Inputs[0], place); x != nil {
				t = z.add(op, place, op.Attrs, v.Shape, x)
			}
		}
	case *ir.Add, *ir.LogicalAnd, *ir.Max, *ir.Min:
		if v.Shape.Rank() != 0 || !isApply(op.Inputs[0].Op) || !isApply(op.Inputs[1].Op) {
			break
		}
		x, y := z.term(op.Inputs[0], place), z.term(op.Inputs[1], place)
		if x != nil && y != nil && sameWay(op, summed(op.Inputs[0].Op), summed(op.Inputs[1].Op)) {
			t = z.add(op, place, op.Attrs, v.Shape, x, y)
		}
	default:
		if sumsAll(op) && z.native[op.Inputs[0]] {
			t = z.add(op, place, wholeAxes(op.Attrs), v.Shape, z.masked(op.Inputs[0], op, place))
		}
	}
	z.terms[key] = t
	return t
}

// sameWay tells whether an op joins two reductions to one of the same kind.
func sameWay(op *ir.Op, x, y ir.Attrs) bool {
	if x.OpType() != y.OpType() {
		return false
	}
	switch x.(type) {
	case *ir.ReduceSum:
		return op.Type() == ir.OpAdd
	case *ir.ReduceMax:
		return op.Type() == ir.OpMax
	case *ir.ReduceMin:
		return op.Type() == ir.OpMin
	}
	return op.Type() == ir.OpLogicalAnd
}

// wholeAxes reduce the only dim of a part.
func wholeAxes(a ir.Attrs) ir.Attrs {
	switch a.(type) {
	case *ir.ReduceSum:
		return &ir.ReduceSum{}
	case *ir.ReduceMax:
		return &ir.ReduceMax{}
	case *ir.ReduceMin:
		return &ir.ReduceMin{}
	}
	return &ir.ReduceLogicalAnd{}
}

// part is the model replica's part of a value, for an op of the optimizer on a device.
func (z *zeroer) part(v *ir.Value, site *ir.Op, place int) *ir.Value {
	place = z.home(v, place)
	key := at{v, place}
	if w := z.parts[key]; w != nil {
		return w
	}
	op, shape := v.Op, ir.PartShape(v.Shape, z.n)
	var w *ir.Value
	switch a := op.Attrs.(type) {
	case *ir.BroadcastInDim:
		if in := op.Inputs[0]; isApply(op) && in.Shape.Size() == 1 {
			scalar := z.whole(in, op, place)
			if in.Shape.Rank() > 0 {
				scalar = z.add(op, place, &ir.Reshape{}, shapes.Make(in.Shape.DType), scalar)
			}
			w = z.add(op, place, &ir.BroadcastInDim{OutputShape: shape}, shape, scalar)
		}
	case *ir.Reshape:
		if isApply(op) {
			w = z.part(op.Inputs[0], site, place)
		}
	case *ir.Parameter:
		if z.divided[v] {
			w = z.add(site, place, &ir.PartOf{Dim: -1}, shape, v)
		}
	case *ir.ShardOf:
		if z.divided[v] {
			w = z.add(site, place, &ir.PartOf{Dim: a.Dim, Start: a.Start, Size: a.Size}, shape, op.Inputs[0])
		}
	default:
		if isApply(op) && op.IsElementwise() {
			inputs := make([]*ir.Value, len(op.Inputs))
			for i, in := range op.Inputs {
				if in.Shape.Rank() == 0 {
					inputs[i] = z.whole(in, op, place)
				} else {
					inputs[i] = z.part(in, op, place)
				}
			}
			w = z.add(op, place, op.Attrs, shape, inputs...)
		}
	}
	if w == nil {
		w = z.take(z.whole(v, site, place), site, place)
	}
	z.parts[key] = w
	return w
}

// number is that of the model replica.
func (z *zeroer) number(site *ir.Op, place int) *ir.Value {
	if z.replica[place] == nil {
		z.replica[place] = z.add(site, place, &ir.Replica{}, ir.ReplicaShape)
	}
	return z.replica[place]
}

// take computes the part of a whole.
func (z *zeroer) take(v *ir.Value, site *ir.Op, place int) *ir.Value {
	n, part := v.Shape.Size(), ir.PartShape(v.Shape, z.n)
	c, d := part.Dimensions[0], v.Shape.DType
	w := v
	if v.Shape.Rank() != 1 {
		w = z.add(site, place, &ir.Reshape{Dimensions: []int{n}}, shapes.Make(d, n), w)
	}
	if pad := z.n*c - n; pad > 0 {
		w = z.add(site, place, &ir.Pad{AxesConfig: []compute.PadAxis{{End: pad}}}, shapes.Make(d, z.n*c), w, z.constant(site, place, d, 0))
	}
	w = z.add(site, place, &ir.Reshape{Dimensions: []int{z.n, c}}, shapes.Make(d, z.n, c), w)
	index := z.add(site, place, &ir.Reshape{Dimensions: []int{1}}, shapes.Make(dtypes.Int32, 1), z.number(site, place))
	return z.add(site, place, &ir.Gather{IndexVectorAxis: 0, OffsetOutputAxes: []int{0}, CollapsedSliceAxes: []int{0}, StartIndexMap: []int{0},
		SliceSizes: []int{1, c}, IndicesAreSorted: true}, part, w, index)
}

// masked is a part, with what lies past the end of the tensor set to what changes nothing in a reduction.
func (z *zeroer) masked(v *ir.Value, op *ir.Op, place int) *ir.Value {
	part := z.part(v, op, place)
	c, n := part.Shape.Size(), v.Shape.Size()
	if c*z.n == n {
		return part
	}
	ints := shapes.Make(dtypes.Int64, c)
	first := z.add(op, place, &ir.ConvertDType{DType: dtypes.Int64}, shapes.Make(dtypes.Int64), z.number(op, place))
	first = z.add(op, place, &ir.Mul{}, shapes.Make(dtypes.Int64), first, z.constant(op, place, dtypes.Int64, float64(c)))
	index := z.add(op, place, &ir.Add{}, ints, z.add(op, place, &ir.Iota{Shape: ints}, ints), first)
	inside := z.add(op, place, &ir.LessThan{}, shapes.Make(dtypes.Bool, c), index, z.constant(op, place, dtypes.Int64, float64(n)))
	d := v.Shape.DType
	var neutral *ir.Value
	switch op.Attrs.(type) {
	case *ir.ReduceLogicalAnd:
		neutral = z.constant(op, place, d, 1)
	case *ir.ReduceMax:
		neutral = z.literal(op, place, d.LowestValue(), d)
	case *ir.ReduceMin:
		neutral = z.literal(op, place, d.HighestValue(), d)
	default:
		neutral = z.constant(op, place, d, 0)
	}
	return z.add(op, place, &ir.Where{}, part.Shape, inside, part, z.add(op, place, &ir.BroadcastInDim{OutputShape: part.Shape}, part.Shape, neutral))
}

func (z *zeroer) constant(site *ir.Op, place int, d dtypes.DType, x float64) *ir.Value {
	return z.literal(site, place, shapes.CastAsDType(x, d), d)
}

// literal is a scalar.
func (z *zeroer) literal(site *ir.Op, place int, x any, d dtypes.DType) *ir.Value {
	s := shapes.Make(d)
	return z.add(site, place, &ir.Constant{Value: ir.Literal{Shape: s, Flat: sliceOf(x)}}, s)
}

func sliceOf(x any) any {
	v := reflect.ValueOf(x)
	s := reflect.MakeSlice(reflect.SliceOf(v.Type()), 0, 1)
	return reflect.Append(s, v).Interface()
}
