// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"reflect"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapeinference"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// The pure-Go backend lacks complex numbers, and ops that XLA has. They are recorded all the same: an engine without them refuses the program
// when it is compiled, with the user's line. They are no capabilities, because not every engine has them.

// of is a value of a shape.
func (f rules) of(s shapes.Shape, err error) (compute.Value, error) {
	if err != nil {
		return nil, err
	}
	zero, err := f.Function.Constant([]float32{0})
	if err == nil {
		zero, err = f.ConvertDType(zero, s.DType)
	}
	if err != nil {
		return nil, err
	}
	return f.BroadcastInDim(zero, s, nil)
}

// Parameter implements compute.Function.
func (f rules) Parameter(name string, s shapes.Shape, sharding *compute.ShardingSpec) (compute.Value, error) {
	if !s.DType.IsComplex() {
		return f.Function.Parameter(name, s, sharding)
	}
	return f.of(s, nil)
}

// Constant implements compute.Function.
func (f rules) Constant(flat any, dims ...int) (compute.Value, error) {
	v := reflect.ValueOf(flat)
	if v.Kind() != reflect.Slice || !dtypes.FromGoType(v.Type().Elem()).IsComplex() {
		return f.Function.Constant(flat, dims...)
	}
	s := shapes.Make(dtypes.FromGoType(v.Type().Elem()), dims...)
	if s.Size() != v.Len() {
		return nil, errors.Errorf("epl: a constant of %s has %d elements", s, v.Len())
	}
	return f.of(s, nil)
}

// parts has complex types by the type of their parts.
var parts = map[dtypes.DType]dtypes.DType{dtypes.Float32: dtypes.Complex64, dtypes.Float64: dtypes.Complex128}

// Complex implements compute.Function.
func (f rules) Complex(re, im compute.Value) (compute.Value, error) {
	x, err := f.Add(re, im)
	if err != nil {
		return nil, err
	}
	s, err := f.Shape(x)
	if s.DType = parts[s.DType]; err == nil && s.DType == dtypes.InvalidDType {
		err = errors.New("epl: Complex takes float32 and float64")
	}
	return f.of(s, err)
}

// part is the real or imaginary one.
func (f rules) part(z compute.Value) (compute.Value, error) {
	s, err := f.Shape(z)
	switch s.DType {
	case dtypes.Complex64:
		s.DType = dtypes.Float32
	case dtypes.Complex128:
		s.DType = dtypes.Float64
	}
	return f.of(s, err)
}

// Real implements compute.Function.
func (f rules) Real(z compute.Value) (compute.Value, error) { return f.part(z) }

// Imag implements compute.Function.
func (f rules) Imag(z compute.Value) (compute.Value, error) { return f.part(z) }

// Conj implements compute.Function.
func (f rules) Conj(z compute.Value) (compute.Value, error) { return f.of(f.Shape(z)) }

// Abs implements compute.Function.
func (f rules) Abs(x compute.Value) (compute.Value, error) {
	if s, err := f.Shape(x); err == nil && s.DType.IsComplex() {
		return f.part(x)
	}
	return f.Function.Abs(x)
}

// FFT implements compute.Function.
func (f rules) FFT(x compute.Value, kind compute.FFTType, length []int) (compute.Value, error) {
	s, err := f.Shape(x)
	if err != nil {
		return nil, err
	}
	if s = s.Clone(); len(length) == 0 || len(length) > s.Rank() {
		return nil, errors.Errorf("epl: FFT of %s has %d lengths", s, len(length))
	}
	last := &s.Dimensions[s.Rank()-1]
	switch kind {
	case compute.FFTForwardReal:
		s.DType, *last = parts[s.DType], length[len(length)-1]/2+1
	case compute.FFTInverseReal:
		s.DType, *last = map[dtypes.DType]dtypes.DType{dtypes.Complex64: dtypes.Float32, dtypes.Complex128: dtypes.Float64}[s.DType], length[len(length)-1]
	}
	if s.DType == dtypes.InvalidDType {
		return nil, errors.Errorf("epl: %s takes no %s", kind, s)
	}
	return f.of(s, nil)
}

// Clamp implements compute.Function.
func (f rules) Clamp(_, x, _ compute.Value) (compute.Value, error) { return f.of(f.Shape(x)) }

// Atan2 implements compute.Function.
func (f rules) Atan2(y, x compute.Value) (compute.Value, error) { return f.Add(y, x) }

// DynamicSlice implements compute.Function.
func (f rules) DynamicSlice(x compute.Value, _ []compute.Value, dims []int) (compute.Value, error) {
	s, err := f.Shape(x)
	if err != nil {
		return nil, err
	}
	return f.of(shapeinference.DynamicSlice(s, dims))
}

// DynamicUpdateSlice implements compute.Function.
func (f rules) DynamicUpdateSlice(x, update compute.Value, _ []compute.Value) (compute.Value, error) {
	s, err := f.Shape(x)
	if err != nil {
		return nil, err
	}
	u, err := f.Shape(update)
	if err != nil {
		return nil, err
	}
	return f.of(shapeinference.DynamicUpdateSlice(s, u))
}

// EqualTotalOrder implements compute.Function.
func (f rules) EqualTotalOrder(a, b compute.Value) (compute.Value, error) { return f.Equal(a, b) }

// NotEqualTotalOrder implements compute.Function.
func (f rules) NotEqualTotalOrder(a, b compute.Value) (compute.Value, error) { return f.Equal(a, b) }

// GreaterOrEqualTotalOrder implements compute.Function.
func (f rules) GreaterOrEqualTotalOrder(a, b compute.Value) (compute.Value, error) {
	return f.GreaterThan(a, b)
}

// GreaterThanTotalOrder implements compute.Function.
func (f rules) GreaterThanTotalOrder(a, b compute.Value) (compute.Value, error) {
	return f.GreaterThan(a, b)
}

// LessOrEqualTotalOrder implements compute.Function.
func (f rules) LessOrEqualTotalOrder(a, b compute.Value) (compute.Value, error) {
	return f.GreaterThan(a, b)
}

// LessThanTotalOrder implements compute.Function.
func (f rules) LessThanTotalOrder(a, b compute.Value) (compute.Value, error) {
	return f.GreaterThan(a, b)
}
