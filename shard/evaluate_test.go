package shard_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
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
			at.SetFloat(rng.Float64()*2 - 1)
		}
	}
	return x
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
		case *ir.Exchange:
			if a.How == ir.AllReduceOf {
				out = slices.Repeat([]tensor{reduce(in, a.Reduce)}, len(in))
			} else {
				out = slices.Repeat([]tensor{concat(in)}, len(in))
			}
		case *ir.Merge:
			x := in[0]
			if a.Places != nil {
				x = reduce(in, ir.ReduceBySum)
			}
			switch a.How {
			case ir.Concat:
				x = concat(slices.Repeat([]tensor{x}, p.Local.Instances()))
			case ir.Sum:
				x = reduce(slices.Repeat([]tensor{x}, p.Local.Instances()), ir.ReduceBySum)
			}
			out = slices.Repeat([]tensor{x}, len(in))
		default:
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

func concat(in []tensor) tensor {
	s := in[0].shape.Clone()
	s.Dimensions[0] = 0
	flat := reflect.MakeSlice(in[0].flat.Type(), 0, 0)
	for _, x := range in {
		s.Dimensions[0] += x.shape.Dimensions[0]
		flat = reflect.AppendSlice(flat, x.flat)
	}
	return tensor{s, flat}
}

func reduce(in []tensor, how ir.Reduction) tensor {
	r := newTensor(in[0].shape)
	for i := range r.flat.Len() {
		acc := number(in[0].flat.Index(i))
		for _, x := range in[1:] {
			switch y := number(x.flat.Index(i)); how {
			case ir.ReduceBySum:
				acc += y
			case ir.ReduceByMax:
				acc = max(acc, y)
			case ir.ReduceByMin:
				acc = min(acc, y)
			}
		}
		r.flat.Index(i).Set(reflect.ValueOf(acc).Convert(r.flat.Type().Elem()))
	}
	return r
}

func number(v reflect.Value) float64 {
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
		if x.Equal(y) {
			continue
		}
		if d := math.Abs(number(x) - number(y)); x.CanFloat() && d <= 1e-5*(1+math.Abs(number(x))) {
			continue
		}
		t.Errorf("%s, element %d: %v, want %v", what, i, y, x)
		return
	}
}
