package shard

import (
	"reflect"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// Mostly a device does with its rows what one device did with all of them. The ops here are different: what a device has to do
// depends on which rows it has, or devices have to exchange something on the way.

// specials write such ops down, for all devices. They return nil if the op, with these placements, is like others.
var specials = map[ir.OpType]func(*writing) [][]*ir.Value{
	ir.OpIota: (*writing).iota, ir.OpSlice: (*writing).slice, ir.OpPad: (*writing).pad, ir.OpConcatenate: (*writing).concatenate,
	ir.OpDynamicSlice: (*writing).dynamicSlice, ir.OpGather: (*writing).gather,
	ir.OpScatterSum: (*writing).scatter, ir.OpScatterMax: (*writing).scatter, ir.OpScatterMin: (*writing).scatter,
	ir.OpArgMinMax: (*writing).argMinMax, ir.OpSort: (*writing).sort, ir.OpFusedSoftmax: (*writing).softmax,
	ir.OpReduceProduct: (*writing).reduce, ir.OpReduceBitwiseAnd: (*writing).reduce, ir.OpReduceBitwiseOr: (*writing).reduce,
	ir.OpReduceBitwiseXor: (*writing).reduce, ir.OpReduceLogicalAnd: (*writing).reduce, ir.OpReduceLogicalOr: (*writing).reduce,
	ir.OpReduceLogicalXor: (*writing).reduce,
}

// special writes an op down for each device, given what they have of its inputs, and returns the values of each output per
// device; nil if there is nothing special about it.
func (e *expansion) special(op *ir.Op, g *group, s strategy, ins [][]*ir.Value) [][]*ir.Value {
	if write := specials[op.Type()]; write != nil {
		return write(&writing{expansion: e, op: op, g: g, strategy: s, ins: ins})
	}
	return nil
}

// writing is an op to be written down for the devices of its stage.
type writing struct {
	*expansion
	op *ir.Op
	g  *group
	strategy
	ins [][]*ir.Value // per input and device
}

// each writes an op with one output down, device by device.
func (t *writing) each(write func(d *device) *ir.Value) [][]*ir.Value {
	return [][]*ir.Value{t.all(write)}
}

// all computes something on each device.
func (t *writing) all(write func(d *device) *ir.Value) []*ir.Value {
	values := make([]*ir.Value, len(t.g.places))
	for j, place := range t.g.places {
		d := &device{t: t, index: j, place: place}
		for _, in := range t.ins {
			d.in = append(d.in, in[j])
		}
		values[j] = write(d)
	}
	return values
}

// allGather gives every device what all have, one after the other along a dim.
func (t *writing) allGather(values []*ir.Value, dim int) []*ir.Value {
	s := values[0].Shape.Clone()
	s.Dimensions[dim] = 0
	for _, v := range values {
		s.Dimensions[dim] += dims(v)[dim]
	}
	x := &ir.Exchange{How: ir.AllGatherOf, Dim: dim, Places: t.g.places}
	return t.add(siteOf(t.op), t.g.places[0], x, values, slices.Repeat([]shapes.Shape{s}, len(values))...).Outputs
}

// allReduce gives every device the reduction of what all have.
func (t *writing) allReduce(values []*ir.Value, how ir.Reduction) []*ir.Value {
	x := &ir.Exchange{How: ir.AllReduceOf, Reduce: how, Places: t.g.places}
	return t.add(siteOf(t.op), t.g.places[0], x, values, slices.Repeat([]shapes.Shape{values[0].Shape}, len(values))...).Outputs
}

// stack gives every device what all have, in a new first dim.
func (t *writing) stack(values []*ir.Value) []*ir.Value {
	return t.allGather(t.all(func(d *device) *ir.Value {
		v := values[d.index]
		return d.reshape(v, append([]int{1}, dims(v)...)...)
	}), 0)
}

// device is one of those that an op is written down for.
type device struct {
	t            *writing
	index, place int
	in           []*ir.Value // what it has of the op's inputs
}

func (d *device) add(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
	return d.t.add(siteOf(d.t.op), d.place, a, in, s).Outputs[0]
}

// rowsOf are the rows that the device has of a value of the given shape.
func (d *device) rowsOf(p Placement, s shapes.Shape) (from, to int) {
	return p.rows(s, d.index, len(d.t.g.places))
}

// output is the shape of what the device is to make.
func (d *device) output() shapes.Shape {
	return d.t.out[0].local(d.t.op.Outputs[0].Shape, d.index, len(d.t.g.places))
}

// constant is a number.
func (d *device) constant(x any) *ir.Value {
	flat := reflect.MakeSlice(reflect.SliceOf(reflect.TypeOf(x)), 1, 1)
	flat.Index(0).Set(reflect.ValueOf(x))
	s := shapes.Make(dtypes.FromGoType(reflect.TypeOf(x)))
	return d.t.add(site{}, 0, &ir.Constant{Value: ir.Literal{Shape: s, Flat: flat.Interface()}}, nil, s).Outputs[0]
}

// integer is a number of an integer type; where the type is too small for it, it wraps around as it does when one counts.
func (d *device) integer(t dtypes.DType, n int) *ir.Value {
	return d.constant(reflect.ValueOf(n).Convert(t.GoType()).Interface())
}

func (d *device) reshape(v *ir.Value, dimensions ...int) *ir.Value {
	return d.add(&ir.Reshape{Dimensions: dimensions}, shapes.Make(v.Shape.DType, dimensions...), v)
}

func (d *device) broadcast(v *ir.Value, s shapes.Shape, axes ...int) *ir.Value {
	s = shapes.Make(v.Shape.DType, s.Dimensions...)
	return d.add(&ir.BroadcastInDim{OutputShape: s, BroadcastAxes: axes}, s, v)
}

func (d *device) convert(v *ir.Value, t dtypes.DType) *ir.Value {
	if v.Shape.DType == t {
		return v
	}
	return d.add(&ir.ConvertDType{DType: t}, shapes.Make(t, dims(v)...), v)
}

func (d *device) rows(v *ir.Value, dim, from, to int) *ir.Value {
	return d.t.rows(siteOf(d.t.op), d.place, v, dim, from, to)
}

func (d *device) join(dim int, pieces ...*ir.Value) *ir.Value {
	return d.t.join(siteOf(d.t.op), d.place, pieces[0], dim, pieces)
}

// isShardedAlong tells whether a placement shards one of the dims.
func (p Placement) isShardedAlong(dims ...int) bool {
	return p.Kind == Sharded && slices.Contains(dims, p.Dim)
}
