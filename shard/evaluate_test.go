// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

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
	"github.com/easyparallel/epl/exec/lower"
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

// evaluate computes all values of main, op by op and device by device, from those that are given, and puts together what the
// devices have. It is one instance, and all instances of a step are the same.
func evaluate(t testing.TB, b compute.Backend, p *ir.Program, given map[string]tensor) map[*ir.Value]tensor {
	t.Helper()
	e := &evaluation{t: t, b: b, p: p, given: given, groups: p.Groups(), values: map[*ir.Value][]tensor{}, padded: map[*ir.Value][]tensor{}}
	if !slices.ContainsFunc(p.Main.Ops, func(op *ir.Op) bool { return op.IsReshard() || op.LastAxis() >= 0 }) {
		for i := range e.groups { // it is not partitioned
			e.groups[i] = []int{i}
		}
	}
	whole := map[*ir.Value]tensor{}
	for _, op := range p.Main.Ops {
		if op.IsLeaf() {
			if _, position := op.Attrs.(*ir.Position); !position {
				whole[op.Outputs[0]] = e.leaf(op)
			}
			continue
		}
		e.op(op)
		for _, v := range op.Outputs {
			if x, ok := e.whole(v); ok {
				whole[v] = x
			}
		}
	}
	return whole
}

type evaluation struct {
	t      testing.TB
	b      compute.Backend
	p      *ir.Program
	given  map[string]tensor
	groups [][]int
	values map[*ir.Value][]tensor // by device of its group
	padded map[*ir.Value][]tensor // the same, as devices have it that run ops together
}

// leaf is what is given, whole.
func (e *evaluation) leaf(op *ir.Op) tensor {
	switch a := op.Attrs.(type) {
	case *ir.Parameter:
		x, ok := e.given[a.Name]
		if !ok {
			e.t.Fatalf("%s is not given", a.Name)
		}
		return x
	case *ir.Constant:
		return compute1(e.t, e.b, op, nil)[0]
	}
	x := newTensor(op.Outputs[0].Shape)
	if _, count := op.Attrs.(*ir.InstanceCount); count {
		x.flat.Index(0).SetFloat(float64(e.p.Local.Instances()))
	}
	return x
}

// at is what a device has of a value.
func (e *evaluation) at(v *ir.Value, j, k int) tensor {
	switch {
	case !v.Op.IsLeaf():
		return e.values[v][j]
	case v.Op.Type() == ir.OpPosition:
		x := newTensor(v.Shape)
		x.flat.Index(0).SetInt(int64(j))
		return x
	}
	return cut(e.leaf(v.Op), v, j)
}

// cut is what a device gets of a whole.
func cut(x tensor, v *ir.Value, j int) tensor {
	p := v.On(ir.Model)
	if p.Kind != ir.Sharded {
		return x
	}
	from, to := p.Rows(x.shape.Dimensions[p.Dim], j, v.Division(ir.Model))
	return part(x, p.Dim, from, to)
}

// whole puts together what devices have of a value; ok is false if each has its own.
func (e *evaluation) whole(v *ir.Value) (x tensor, ok bool) {
	all := e.values[v]
	switch p := v.On(ir.Model); p.Kind {
	case ir.Each:
		return x, false
	case ir.Sharded:
		return concat(all, p.Dim), true
	case ir.Partial:
		return reduce(all, p.Reduce), true
	}
	for _, y := range all[1:] {
		same(e.t, v.String()+" on another device", all[0], y)
	}
	return all[0], true
}

func (e *evaluation) op(op *ir.Op) {
	e.t.Helper()
	k := len(e.groups[op.Place])
	var out [][]tensor // by device
	for j := range k {
		switch a := op.Attrs.(type) {
		case *ir.Reshard:
			if op.IsExchange() || op.IsTransfer() {
				out = append(out, []tensor{e.moved(op, a, j, k)})
				continue
			}
		case *ir.Merge:
			v := op.Inputs[0]
			x := e.at(v, j, k)
			if v.On(ir.Model).Kind == ir.Partial {
				x, _ = e.whole(v)
			}
			switch a.How {
			case ir.Concat:
				x = concat(slices.Repeat([]tensor{x}, e.p.Local.Instances()), 0)
			case ir.Sum:
				x = reduce(slices.Repeat([]tensor{x}, e.p.Local.Instances()), ir.ReduceBySum)
			}
			out = append(out, []tensor{x})
			continue
		}
		out = append(out, e.local(op, j, k))
	}
	for i, v := range op.Outputs {
		for j, x := range out {
			if want := v.LocalShape(ir.Coordinates{0, j}); !want.Equal(x[i].shape) {
				e.t.Fatalf("%s: device %d has %s of %s, not %s", op, j, ir.ShapeText(x[i].shape), v, ir.ShapeText(want))
			}
			e.values[v] = append(e.values[v], x[i])
		}
	}
	if !op.IsMerge() {
		e.together(op, k)
	}
}

// moved is what a device gets by a collective or a transfer.
func (e *evaluation) moved(op *ir.Op, a *ir.Reshard, j, k int) tensor {
	v := op.Inputs[0]
	var all []tensor
	if v.Op.IsLeaf() {
		for i := range k {
			all = append(all, e.at(v, i, k))
		}
		e.values[v] = all
		defer delete(e.values, v)
	}
	if a.Stack {
		for i, x := range e.values[v] {
			s := shapes.Make(x.shape.DType, append([]int{1}, x.shape.Dimensions...)...)
			if all = append(all, tensor{s, x.flat}); i == k-1 {
				return concat(all, 0)
			}
		}
	}
	x, _ := e.whole(v)
	return cut(x, op.Outputs[0], j)
}

// local computes an op on a device.
func (e *evaluation) local(op *ir.Op, j, k int) []tensor {
	e.t.Helper()
	s := &ir.Segment{Name: "op", Ops: []*ir.Op{op}, Outputs: op.Outputs}
	op.Uses(func(v *ir.Value) {
		if !slices.Contains(s.Inputs, v) {
			s.Inputs = append(s.Inputs, v)
		}
	})
	l := lower.Lower(s, ir.Coordinates{0, j})
	values := map[*ir.Value]tensor{}
	for i, v := range l.Inputs {
		values[v] = e.at(s.Inputs[i], j, k)
	}
	for _, op := range l.Ops {
		for i, x := range e.here(op, values) {
			values[op.Outputs[i]] = x
		}
	}
	var out []tensor
	for _, v := range l.Outputs {
		out = append(out, values[v])
	}
	return out
}

// here computes one op.
func (e *evaluation) here(op *ir.Op, values map[*ir.Value]tensor) []tensor {
	e.t.Helper()
	by := references[op.Type()]
	if by == nil {
		return compute1(e.t, e.b, op, values)
	}
	all := make([]tensor, len(op.Inputs))
	for i, v := range op.Inputs {
		all[i] = values[v] // of an absent one, nothing
	}
	return by(op, all)
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
