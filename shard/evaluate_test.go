package shard_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	_ "github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

func newBackend(t testing.TB) compute.Backend {
	t.Helper()
	b, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Finalize)
	return b
}

// tensor is the content of a value: a slice of the Go type of its dtype.
type tensor struct {
	shape shapes.Shape
	flat  reflect.Value
}

func newTensor(s shapes.Shape) tensor {
	return tensor{s, reflect.MakeSlice(reflect.SliceOf(s.DType.GoType()), s.Size(), s.Size())}
}

// random draws the content of a value; integers are below limit.
func random(rng *rand.Rand, s shapes.Shape, limit int) tensor {
	x := newTensor(s)
	for i := range s.Size() {
		switch at := x.flat.Index(i); {
		case s.DType == dtypes.Bool:
			at.SetBool(rng.IntN(2) == 0)
		case s.DType.IsUnsigned():
			at.SetUint(uint64(rng.IntN(limit)))
		case s.DType.IsInt():
			at.SetInt(int64(rng.IntN(limit)))
		default:
			setFloat(at, rng.Float64()*2-1)
		}
	}
	return x
}

// setFloat rounds a number to the type of an element.
func setFloat(at reflect.Value, x float64) {
	switch at.Interface().(type) {
	case bfloat16.BFloat16:
		at.Set(reflect.ValueOf(bfloat16.FromFloat32(float32(x))))
	case float16.Float16:
		at.Set(reflect.ValueOf(float16.FromFloat32(float32(x))))
	default:
		at.SetFloat(x)
	}
}

// evaluate computes all values of main, op by op, from those that are given. It is one instance, and all instances of a
// step are the same.
func evaluate(t testing.TB, b compute.Backend, p *ir.Program, given map[string]tensor) map[*ir.Value]tensor {
	t.Helper()
	values := map[*ir.Value]tensor{}
	for _, op := range p.Main.Ops {
		var in []tensor
		for _, v := range op.Inputs {
			if v != nil {
				in = append(in, values[v])
			}
		}
		var out []tensor
		switch a := op.Attrs.(type) {
		case *ir.Parameter:
			x, ok := given[a.Name]
			if !ok {
				t.Fatalf("%s is not given", a.Name)
			}
			out = []tensor{x}
		case *ir.Instance, *ir.InstanceCount:
			out = []tensor{newTensor(op.Outputs[0].Shape)}
			if _, count := op.Attrs.(*ir.InstanceCount); count {
				out[0].flat.Index(0).SetFloat(float64(p.Local.Instances()))
			}
		case *ir.ShardOf:
			out = []tensor{part(in[0], a.Dim, a.Start, a.Start+a.Size)}
		case *ir.Exchange:
			out = exchange(op, a, in)
		case *ir.Merge:
			x := in[0]
			if a.Places != nil {
				x = reduce(in, ir.ReduceBySum)
			}
			switch a.How {
			case ir.Concat:
				x = concat(slices.Repeat([]tensor{x}, p.Local.Instances()), 0)
			case ir.Sum:
				x = reduce(slices.Repeat([]tensor{x}, p.Local.Instances()), ir.ReduceBySum)
			}
			out = slices.Repeat([]tensor{x}, len(in))
		default:
			if by := references[op.Type()]; by != nil {
				all := make([]tensor, len(op.Inputs))
				for i, v := range op.Inputs {
					all[i] = values[v] // of an absent one, nothing
				}
				out = by(op, all)
				break
			}
			out = compute1(t, b, op, values)
		}
		for i, v := range op.Outputs {
			if !v.Shape.Equal(out[i].shape) {
				t.Fatalf("%s: %s is %s, not %s", op, v, ir.ShapeText(out[i].shape), ir.ShapeText(v.Shape))
			}
			values[v] = out[i]
		}
	}
	return values
}

// compute1 computes one op on the inner backend.
func compute1(t testing.TB, b compute.Backend, op *ir.Op, values map[*ir.Value]tensor) []tensor {
	t.Helper()
	s := &ir.Segment{Name: "op", Ops: []*ir.Op{op}, Outputs: op.Outputs}
	var in []compute.Buffer
	op.Uses(func(v *ir.Value) {
		if slices.Contains(s.Inputs, v) {
			return
		}
		buffer, err := b.BufferFromFlatData(0, values[v].flat.Interface(), v.Shape)
		if err != nil {
			t.Fatal(err)
		}
		s.Inputs, in = append(s.Inputs, v), append(in, buffer)
	})
	exec, err := emit.Segment(b, s)
	if err != nil {
		t.Fatal(err)
	}
	defer exec.Finalize()
	buffers, err := exec.Execute(in, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []tensor
	for i, v := range op.Outputs {
		x := newTensor(v.Shape)
		if err := buffers[i].ToFlatData(x.flat.Interface()); err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
	}
	return out
}

// exchange computes a collective. What each device gets is as large as the output says.
func exchange(op *ir.Op, a *ir.Exchange, in []tensor) []tensor {
	out := make([]tensor, len(in))
	from := 0
	for i, v := range op.Outputs {
		switch a.How {
		case ir.AllReduceOf:
			out[i] = reduce(in, a.Reduce)
			continue
		case ir.AllGatherOf:
			out[i] = concat(in, a.Dim)
			continue
		}
		to := from + v.Shape.Dimensions[a.Split]
		var pieces []tensor
		for _, x := range in {
			pieces = append(pieces, part(x, a.Split, from, to))
		}
		if from = to; a.How == ir.ReduceScatterOf {
			out[i] = reduce(pieces, a.Reduce)
		} else {
			out[i] = concat(pieces, a.Dim)
		}
	}
	return out
}

// blocks is how many times rows of a dim follow each other in memory, and how many elements one has.
func (x tensor) blocks(dim int) (n, row int) {
	n, row = 1, 1
	for d, size := range x.shape.Dimensions {
		switch {
		case d < dim:
			n *= size
		case d > dim:
			row *= size
		}
	}
	return n, row
}

// part is some rows of a dim.
func part(x tensor, dim, from, to int) tensor {
	s := x.shape.Clone()
	s.Dimensions[dim] = to - from
	r := tensor{s, reflect.MakeSlice(x.flat.Type(), 0, s.Size())}
	n, row := x.blocks(dim)
	all := x.shape.Dimensions[dim] * row
	for i := range n {
		r.flat = reflect.AppendSlice(r.flat, x.flat.Slice(i*all+from*row, i*all+to*row))
	}
	return r
}

// concat puts tensors one after the other along a dim.
func concat(in []tensor, dim int) tensor {
	s := in[0].shape.Clone()
	s.Dimensions[dim] = 0
	for _, x := range in {
		s.Dimensions[dim] += x.shape.Dimensions[dim]
	}
	r := tensor{s, reflect.MakeSlice(in[0].flat.Type(), 0, s.Size())}
	n, row := r.blocks(dim)
	for i := range n {
		for _, x := range in {
			all := x.shape.Dimensions[dim] * row
			r.flat = reflect.AppendSlice(r.flat, x.flat.Slice(i*all, (i+1)*all))
		}
	}
	return r
}

// reduce reduces element by element; integers stay integers.
func reduce(in []tensor, how ir.Reduction) tensor {
	r := newTensor(in[0].shape)
	for i := range r.flat.Len() {
		at := r.flat.Index(i)
		var all []reflect.Value
		for _, x := range in {
			all = append(all, x.flat.Index(i))
		}
		switch t := r.shape.DType; {
		case t.IsUnsigned():
			at.SetUint(fold(all, how, reflect.Value.Uint))
		case t.IsInt():
			at.SetInt(fold(all, how, reflect.Value.Int))
		default:
			setFloat(at, fold(all, how, number))
		}
	}
	return r
}

func fold[T int64 | uint64 | float64](all []reflect.Value, how ir.Reduction, of func(reflect.Value) T) T {
	acc := of(all[0])
	for _, x := range all[1:] {
		switch y := of(x); how {
		case ir.ReduceBySum:
			acc += y
		case ir.ReduceByMax:
			acc = max(acc, y)
		case ir.ReduceByMin:
			acc = min(acc, y)
		}
	}
	return acc
}

func number(v reflect.Value) float64 {
	if half, ok := v.Interface().(interface{ Float32() float32 }); ok {
		return float64(half.Float32())
	}
	switch {
	case v.Kind() == reflect.Bool:
		if v.Bool() {
			return 1
		}
		return 0
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	}
	return v.Float()
}

// same compares two tensors: up to the order of sums.
func same(t testing.TB, what string, want, got tensor) {
	t.Helper()
	if !want.shape.Equal(got.shape) {
		t.Errorf("%s is %s, want %s", what, ir.ShapeText(got.shape), ir.ShapeText(want.shape))
		return
	}
	for i := range want.flat.Len() {
		x, y := want.flat.Index(i), got.flat.Index(i)
		if x.Equal(y) || reals(want.shape.DType) && near(number(x), number(y), want.shape.DType.IsHalfPrecision()) {
			continue
		}
		t.Errorf("%s, element %d: %v, want %v", what, i, y, x)
		return
	}
}

func reals(t dtypes.DType) bool { return t.IsFloat() || t.IsHalfPrecision() }

func near(x, y float64, half bool) bool {
	tolerance := 1e-5
	if half {
		tolerance = 1e-2
	}
	return math.IsNaN(x) && math.IsNaN(y) || math.Abs(x-y) <= tolerance*(1+math.Abs(x))
}
