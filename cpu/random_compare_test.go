// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/ir"
)

// bits tells whether two results are the same, to the sign of zero (but NaN is NaN).
func bits(a, b any) error {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.Len() {
		u, v := x.Index(i), y.Index(i)
		if !u.Equal(v) && !(math.IsNaN(get(u)) && math.IsNaN(get(v))) || math.Signbit(get(u)) != math.Signbit(get(v)) && !math.IsNaN(get(u)) {
			return fmt.Errorf("element %d: %v and %v", i, u, v)
		}
	}
	return nil
}

// same tells whether two results are the same numbers (NaN is NaN), or within a relative error.
func same(a, b any, tolerance float64) error {
	x := reflect.ValueOf(a)
	largest := 0.0
	for i := range x.Len() {
		if f := math.Abs(get(x.Index(i))); !math.IsInf(f, 0) {
			largest = max(largest, f)
		}
	}
	if math.IsNaN(largest) {
		largest = 0
	}
	return within(a, b, tolerance*largest)
}

// within tells whether two results differ by no more than an error.
func within(a, b any, most float64) error {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.Len() {
		u, v := x.Index(i), y.Index(i)
		f, g := get(u), get(v)
		if !u.Equal(v) && f != g && !(math.IsNaN(f) && math.IsNaN(g)) && !(math.Abs(f-g) <= most) {
			return fmt.Errorf("element %d: %v and %v, not within %g", i, u, v, most)
		}
	}
	return nil
}

// ulps is the distance of two floats of a type, in units of the last place.
func ulps(d dtypes.DType, a, b reflect.Value) int64 {
	order := func(v reflect.Value) int64 {
		var i int64
		switch x := v.Interface().(type) {
		case float32:
			i = int64(int32(math.Float32bits(x)))
		case float64:
			i = int64(math.Float64bits(x))
		case bfloat16.BFloat16:
			i = int64(int16(x.Bits()))
		case float16.Float16:
			i = int64(int16(x.Bits()))
		}
		if i < 0 {
			i = math.MinInt64>>(64-d.Bits()) - i
		}
		return i
	}
	return max(order(a)-order(b), order(b)-order(a))
}

// nearly tells whether two results differ by a unit in the last place at most.
func nearly(d dtypes.DType, a, b any) error {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.Len() {
		u, v := x.Index(i), y.Index(i)
		if !(math.IsNaN(get(u)) && math.IsNaN(get(v))) && (math.IsNaN(get(u)) != math.IsNaN(get(v)) || ulps(d, u, v) > 1) {
			return fmt.Errorf("element %d: %v and %v, more than a unit in the last place", i, u, v)
		}
	}
	return nil
}

// rounding is the relative error of an operation.
func rounding(d dtypes.DType) float64 {
	switch d {
	case dtypes.Float64:
		return 0x1p-53
	case dtypes.BFloat16:
		return 0x1p-8
	case dtypes.Float16:
		return 0x1p-11
	}
	return 0x1p-24
}

// limit is a number that is not much below the largest of a type.
func limit(d dtypes.DType) float64 {
	switch d {
	case dtypes.Float64:
		return 1e308
	case dtypes.Float16:
		return 6e4
	}
	return 3e38
}

// largest is the largest number of a tensor, and how many are not finite.
func largest(flat any) (m float64, odd int) {
	v := reflect.ValueOf(flat)
	for i := range v.Len() {
		if f := math.Abs(get(v.Index(i))); math.IsNaN(f) || math.IsInf(f, 0) {
			odd++
		} else {
			m = max(m, f)
		}
	}
	return m, odd
}

// scattered computes a scatter by its definition, for the oracle is wrong where a window is smaller than the tensor along an axis
// that it has: it walks the tensor there, not the window.
func scattered(op *ir.Op, x, indices, updates any) any {
	var vector int
	var window, inserted, axes []int
	combine := func(a, b float64) float64 { return a + b }
	switch a := op.Attrs.(type) {
	case *ir.ScatterSum:
		vector, window, inserted, axes = a.IndexVectorAxis, a.UpdateWindowAxes, a.InsertedWindowAxes, a.ScatterAxesToOperandAxes
	case *ir.ScatterMax:
		vector, window, inserted, axes = a.IndexVectorAxis, a.UpdateWindowAxes, a.InsertedWindowAxes, a.ScatterAxesToOperandAxes
		combine = func(a, b float64) float64 { return max(a, b) }
	case *ir.ScatterMin:
		vector, window, inserted, axes = a.IndexVectorAxis, a.UpdateWindowAxes, a.InsertedWindowAxes, a.ScatterAxesToOperandAxes
		combine = func(a, b float64) float64 { return min(a, b) }
	}
	from, list, u := reflect.ValueOf(x), reflect.ValueOf(indices), reflect.ValueOf(updates)
	out := reflect.MakeSlice(from.Type(), from.Len(), from.Len())
	reflect.Copy(out, from)
	dims, shape, inner := op.Inputs[0].Shape.Dimensions, op.Inputs[2].Shape.Dimensions, product(op.Inputs[1].Shape.Dimensions[vector+1:])
	type add struct{ batch, from, to int }
	var adds []add
	for i := range u.Len() {
		at := make([]int, len(dims))
		batch, k := 0, 0
		position, rest := make([]int, len(shape)), i
		for j := len(shape) - 1; j >= 0; j-- {
			position[j] = rest % shape[j]
			rest /= shape[j]
		}
		for j, p := range position {
			if !slices.Contains(window, j) {
				batch = batch*shape[j] + p
				continue
			}
			for slices.Contains(inserted, k) {
				k++
			}
			at[k] += p
			k++
		}
		for j, axis := range axes {
			at[axis] += int(get(list.Index(batch/inner*inner*len(axes) + j*inner + batch%inner)))
		}
		o := 0
		for j, p := range at {
			o = o*dims[j] + p
		}
		adds = append(adds, add{batch, i, o})
	}
	slices.SortStableFunc(adds, func(a, b add) int { return a.batch - b.batch })
	for _, a := range adds {
		put(out.Index(a.to), combine(get(out.Index(a.to)), get(u.Index(a.from))))
	}
	return out.Interface()
}

// agree compares what an op gave on the engine with what it gives on the oracle for the same inputs: the same bits, or, where
// the order of additions or a function differs, what rounding may do.
func agree(op *ir.Op, in []any, want, got any) error {
	d := op.Outputs[0].Shape.DType
	switch op.Attrs.(type) {
	case *ir.ScatterSum, *ir.ScatterMax, *ir.ScatterMin:
		if d.Bits() < 64 {
			want = scattered(op, in[0], in[1], in[2])
		}
	}
	if !isFloat(d) {
		return bits(want, got)
	}
	sum := func(n int, terms float64) error {
		highest, _ := largest(want)
		if terms *= float64(n); terms > limit(d) {
			return nil // what overflows depends on the order
		}
		return within(want, got, 4*float64(n+1)*terms*min(rounding(d), 0x1p-24)+2*rounding(d)*highest)
	}
	switch a := op.Attrs.(type) {
	case *ir.Exp, *ir.Tanh, *ir.Erf, *ir.Logistic, *ir.Log, *ir.Log1p, *ir.Expm1, *ir.Sin, *ir.Cos, *ir.Pow, *ir.Atan2, *ir.Rsqrt:
		return nearly(d, want, got)
	case *ir.ReduceSum:
		x, _ := largest(in[0])
		return sum(op.Inputs[0].Shape.Size()/max(1, op.Outputs[0].Shape.Size()), x)
	case *ir.DotGeneral:
		x, odd1 := largest(in[0])
		y, odd2 := largest(in[len(in)-1])
		if odd1+odd2 > 0 && d != dtypes.Float32 && d != dtypes.Float64 {
			return nil
		}
		return sum(op.Inputs[0].Shape.Dimensions[a.LHSContractingAxes[0]], x*y)
	case *ir.ReduceProduct:
		x, odd := largest(in[0])
		if n := op.Inputs[0].Shape.Size() / max(1, op.Outputs[0].Shape.Size()); odd > 0 || math.Pow(max(1, x), float64(n)) > limit(d) {
			return nil // what overflows depends on the order
		}
		m, _ := largest(want)
		return within(want, got, m*(1e4*min(rounding(d), 0x1p-24)+4*rounding(d))+0x1p-120) // it may be denormal half way
	case *ir.FusedSoftmax, *ir.FusedLayerNorm, *ir.FusedGelu, *ir.FusedDense:
		for _, x := range in {
			if m, odd := largest(x); odd > 0 || m > 1e3 {
				return nil
			}
		}
		if _, odd := largest(want); odd > 0 {
			return nil
		}
		x, _ := largest(in[0])
		y, _ := largest(want)
		if a, ok := op.Attrs.(*ir.FusedLayerNorm); ok { // what is left of equal numbers is divided by as little as this
			x /= math.Sqrt(a.Epsilon)
		}
		return within(want, got, 1e4*max(x, y)*min(rounding(d), 0x1p-24)+4*y*rounding(d))
	}
	return bits(want, got)
}
