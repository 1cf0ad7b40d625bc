// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"
)

// filler puts random values, none of them zero, into attributes of every kind.
type filler struct{ *rand.Rand }

func (r filler) fill(v reflect.Value) {
	switch v.Type() {
	case shapeType:
		v.Set(reflect.ValueOf(r.shape()))
		return
	case dtypeType:
		v.Set(reflect.ValueOf(r.dtype()))
		return
	case literalType:
		v.Set(reflect.ValueOf(r.literal(r.dtype(), r.IntN(2*shortLiteral+2))))
		return
	case valueType:
		return // values are inputs of the op, not attributes
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(r.int(v.Type()))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(r.Float32()) - 2)
	case reflect.String:
		v.SetString(fmt.Sprintf("name %d, \"quoted\"\n", r.IntN(100)))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(3), 3))
		for i := range v.Len() {
			r.fill(v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			r.fill(v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		r.fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			r.fill(v.Field(i))
		}
	default:
		panic(fmt.Sprintf("attributes have a new kind, %s: teach the filler, and codec.go", v.Type()))
	}
}

// int draws a number, or a named value of an enumeration.
func (r filler) int(t reflect.Type) int64 {
	if !t.Implements(stringer) {
		return int64(r.IntN(100)) - 120
	}
	names := map[string]int64{}
	var named []int64
	for i := range int64(maxEnum) {
		v := reflect.New(t).Elem()
		v.SetInt(i)
		name := v.Interface().(fmt.Stringer).String()
		if _, twice := names[name]; !twice {
			names[name] = i
			named = append(named, i)
		}
	}
	return named[1+r.IntN(len(named)-1)]
}

func (r filler) dtype() dtypes.DType {
	all := slices.DeleteFunc(slices.Clone(dtypes.DTypeValues()), func(d dtypes.DType) bool { return !d.IsSupported() })
	return all[r.IntN(len(all))]
}

// shape draws one with fixed, dynamic, named and unnamed axes.
func (r filler) shape() shapes.Shape {
	s := shapes.Shape{DType: r.dtype()}
	named := r.IntN(2) == 0
	for i := range r.IntN(5) {
		d := r.IntN(9)
		if r.IntN(4) == 0 {
			d = shapes.DynamicDim
		}
		s.Dimensions = append(s.Dimensions, d)
		if named {
			s.AxisNames = append(s.AxisNames, []string{"batch", "heads \"x\"", "z"}[(i+r.IntN(2))%3])
		}
	}
	return s
}

// literal draws a vector of n elements of random bits, which are numbers of any kind.
func (r filler) literal(d dtypes.DType, n int) Literal {
	flat := reflect.MakeSlice(reflect.SliceOf(d.GoType()), n, n)
	raw := dtypes.UnsafeByteSliceFromAny(flat.Interface())
	for i := range raw {
		raw[i] = byte(r.Uint32())
		if d == dtypes.Bool {
			raw[i] &= 1
		}
	}
	return Literal{Shape: shapes.Make(d, n), Flat: flat.Interface()}
}

// same compares attributes; floats, also those inside literals, bit by bit.
func same(a, b any) bool { return sameValue(reflect.ValueOf(a), reflect.ValueOf(b)) }

func sameValue(a, b reflect.Value) bool {
	if a.IsValid() != b.IsValid() || a.IsValid() && a.Type() != b.Type() {
		return false
	}
	if !a.IsValid() {
		return true
	}
	switch a.Kind() {
	case reflect.Float32, reflect.Float64:
		return math.Float64bits(a.Float()) == math.Float64bits(b.Float())
	case reflect.Complex64, reflect.Complex128:
		x, y := a.Complex(), b.Complex()
		return same(real(x), real(y)) && same(imag(x), imag(y))
	case reflect.Interface, reflect.Pointer:
		return sameValue(a.Elem(), b.Elem())
	case reflect.Struct:
		for i := range a.NumField() {
			if !sameValue(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() || a.Kind() == reflect.Slice && a.IsNil() != b.IsNil() {
			return false
		}
		for i := range a.Len() {
			if !sameValue(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// there and back: attributes → text → attributes.
func parsedAttrs(t *testing.T, a Attrs) (Attrs, string) {
	t.Helper()
	text := attrsText(a, false)
	s := &scanner{text: text}
	b, err := s.parseAttrs(a.OpType())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if s.peek() != 0 {
		t.Fatalf("%s: text is left: %q", text, s.text[s.pos:])
	}
	return b, text
}

func TestAttributesOfEveryOperationSurviveTheirText(t *testing.T) {
	for i, name := range slices.Sorted(maps.Keys(newAttrs)) {
		t.Run(string(name), func(t *testing.T) {
			r := filler{rand.New(rand.NewPCG(1, uint64(i)))}
			make := newAttrs[name]
			if got := make().OpType(); got != name {
				t.Fatalf("the table makes the attributes of %s for %s", got, name)
			}
			empty := make()
			if b, text := parsedAttrs(t, empty); !same(empty, b) || text != "" && name != OpConstant && name != OpParameter {
				t.Errorf("%q gives %#v, not %#v", text, b, empty)
			}
			for range 50 {
				a := make()
				r.fill(reflect.ValueOf(a).Elem())
				if b, text := parsedAttrs(t, a); !same(a, b) {
					t.Fatalf("%s\ngives %#v\nnot   %#v", text, b, a)
				}
			}
		})
	}
}

func TestAttributesAtTheirLimitsSurviveTheirText(t *testing.T) {
	negZero := math.Copysign(0, -1)
	for _, a := range []Attrs{
		&FusedLayerNorm{Epsilon: math.Inf(1)}, &FusedLayerNorm{Epsilon: math.Inf(-1)}, &FusedLayerNorm{Epsilon: negZero},
		&FusedLayerNorm{Epsilon: math.MaxFloat64}, &FusedLayerNorm{Epsilon: math.SmallestNonzeroFloat64}, &FusedLayerNorm{Epsilon: 0.1},
		&FusedLayerNorm{Axes: []int{}}, &FusedLayerNorm{Axes: []int{math.MinInt, math.MaxInt, 0}},
		&BatchNormForInference{Epsilon: math.MaxFloat32}, &BatchNormForInference{Epsilon: 0.1},
		&Parameter{Name: ""}, &Parameter{Name: "\x00\xff\u2028"},
	} {
		if b, text := parsedAttrs(t, a); !same(a, b) {
			t.Errorf("%s gives %#v, not %#v", text, b, a)
		}
	}
}

func TestLiteralsOfEveryTypeSurviveTheirText(t *testing.T) {
	r := filler{rand.New(rand.NewPCG(2, 2))}
	var literals []Literal
	for _, d := range dtypes.DTypeValues() {
		if !d.IsSupported() {
			continue
		}
		for _, n := range []int{0, 1, 2, shortLiteral, shortLiteral + 1, 100} {
			literals = append(literals, r.literal(d, n))
		}
	}
	nan, inf, negZero := math.NaN(), math.Inf(1), math.Copysign(0, -1)
	payload := math.Float32frombits(0x7fc01234) // not the NaN that Go makes
	vector := func(flat any) Literal {
		v := reflect.ValueOf(flat)
		return Literal{Shape: shapes.Make(dtypes.FromGoType(v.Type().Elem()), v.Len()), Flat: flat}
	}
	literals = append(literals,
		vector([]float64{nan, inf, -inf, negZero, 0, 1e300, 5e-324, 0.1}),
		vector([]float64{inf, -inf, negZero, 0.1}),
		vector([]float32{float32(inf), float32(-inf), float32(negZero), 1e-45, 0.1, 16777217}),
		vector([]float32{payload, -payload}),
		vector([]float16.Float16{0x7e01, 0x8000, 0x7c00, 1}),
		vector([]bfloat16.BFloat16{0x7fc1, 0x8000, 0xff80, 1}),
		vector([]complex64{complex(payload, float32(negZero))}),
		vector([]complex128{complex(negZero, nan)}),
		vector([]int64{math.MinInt64, math.MaxInt64}),
		vector([]uint64{math.MaxUint64}),
		vector([]uint16{math.MaxUint16}),
		vector([]bool{true, false}),
		Literal{Shape: shapes.Make(dtypes.Float32), Flat: []float32{3}},
		Literal{Shape: shapes.Make(dtypes.Float32, 2, 0, 3), Flat: []float32{}},
		Literal{Shape: shapes.Make(dtypes.Int32, 2, 2), Flat: []int32{1, -2, 3, -4}},
	)
	for _, l := range literals {
		a := &Constant{Value: l}
		b, text := parsedAttrs(t, a)
		raw, again := dtypes.UnsafeByteSliceFromAny(l.Flat), dtypes.UnsafeByteSliceFromAny(b.(*Constant).Value.Flat)
		if !slices.Equal(raw, again) || !b.(*Constant).Value.Shape.Equal(l.Shape) || reflect.TypeOf(b.(*Constant).Value.Flat) != reflect.TypeOf(l.Flat) {
			t.Errorf("%s gives %#v, not %#v", text, b, a)
		}
	}
}

// Values inside attributes become inputs of the op, by code for each type that has them: see hiding in internal/gen.
func TestOnlyKnownTypesOfAttributesHideValues(t *testing.T) {
	hiding := map[string]bool{}
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			look(typ.Elem())
		case reflect.Struct:
			for i := range typ.NumField() {
				if f := typ.Field(i).Type; f == valueType || f.Kind() == reflect.Slice && f.Elem() == valueType {
					hiding[typ.Name()] = true
				} else {
					look(f)
				}
			}
		}
	}
	for _, make := range newAttrs {
		look(reflect.TypeOf(make()))
	}
	want := []string{"DynamicDimensionSpec", "DynamicPadAxis", "Quantization", "ScaledDotProductAttentionConfig"}
	if got := slices.Sorted(maps.Keys(hiding)); !slices.Equal(got, want) {
		t.Errorf("values hide in %v, not in %v", got, want)
	}
}

func TestShortLiteralsAreReadable(t *testing.T) {
	for want, l := range map[string]Literal{
		"{Value: float32[3](1, -0, +Inf)}": {shapes.Make(dtypes.Float32, 3), []float32{1, float32(math.Copysign(0, -1)), float32(math.Inf(1))}},
		"{Value: bool[](true)}":            {shapes.Make(dtypes.Bool), []bool{true}},
		"{Value: uint8[2](0, 255)}":        {shapes.Make(dtypes.Uint8, 2), []uint8{0, 255}},
		"{Value: int32[0]()}":              {shapes.Make(dtypes.Int32, 0), []int32{}},
	} {
		if got := attrsText(&Constant{Value: l}, false); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	long := &Constant{Value: Literal{shapes.Make(dtypes.Float32, 100), make([]float32, 100)}}
	if got, want := attrsText(long, true), "{Value: float32[100](400 bytes)}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestShapesSurviveTheirText(t *testing.T) {
	r := filler{rand.New(rand.NewPCG(3, 3))}
	for range 500 {
		s := r.shape()
		got, err := ParseShape(ShapeText(s))
		if err != nil || !got.Equal(s) {
			t.Fatalf("%s gives %s, %v", ShapeText(s), got, err)
		}
	}
	for _, text := range []string{"", "float32", "float32[", "float32[1", "float32[-1]", "float32[1,,2]", "float32[x]", "nothing[1]", "float32[1] 2", `float32["a"1]`, "float32[99999999999999999999]"} {
		if s, err := ParseShape(text); err == nil {
			t.Errorf("%q gives %s", text, s)
		}
	}
}
