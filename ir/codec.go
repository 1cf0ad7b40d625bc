// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// This file prints and parses attributes by reflection, so that a new operation needs no code here. The text of a
// struct is {Field: value, ...} with fields at their zero value left out; lists are [a, b]; enumerations use their
// names; shapes and literals have forms of their own.

var (
	shapeType   = reflect.TypeFor[shapes.Shape]()
	dtypeType   = reflect.TypeFor[dtypes.DType]()
	literalType = reflect.TypeFor[Literal]()
	valueType   = reflect.TypeFor[compute.Value]()
	stringer    = reflect.TypeFor[fmt.Stringer]()
)

// shortLiteral is how many elements a literal may have to be printed as numbers; larger ones are base64.
const shortLiteral = 16

// maxEnum bounds the search for the number of an enumeration's name.
const maxEnum = 64

type attrPrinter struct {
	strings.Builder
	elide bool // replace long literals by their size
}

func attrsText(a Attrs, elide bool) string {
	w := attrPrinter{elide: elide}
	w.value(reflect.ValueOf(a).Elem())
	if s := w.String(); s != "{}" {
		return s
	}
	return ""
}

func (w *attrPrinter) value(v reflect.Value) {
	switch v.Type() {
	case shapeType:
		w.WriteString(ShapeText(v.Interface().(shapes.Shape)))
		return
	case dtypeType:
		w.WriteString(strings.ToLower(v.Interface().(dtypes.DType).String()))
		return
	case literalType:
		w.literal(v.Interface().(Literal))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		w.WriteString(strconv.FormatBool(v.Bool()))
	case reflect.Int:
		if v.Type().Implements(stringer) {
			w.WriteString(strconv.Quote(v.Interface().(fmt.Stringer).String()))
		} else {
			w.WriteString(strconv.FormatInt(v.Int(), 10))
		}
	case reflect.Float32:
		w.WriteString(strconv.FormatFloat(v.Float(), 'g', -1, 32))
	case reflect.Float64:
		w.WriteString(strconv.FormatFloat(v.Float(), 'g', -1, 64))
	case reflect.String:
		w.WriteString(strconv.Quote(v.String()))
	case reflect.Slice, reflect.Array:
		w.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				w.WriteString(", ")
			}
			w.value(v.Index(i))
		}
		w.WriteByte(']')
	case reflect.Pointer:
		w.value(v.Elem())
	case reflect.Struct:
		w.WriteByte('{')
		first := true
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Type == valueType || isZero(v.Field(i)) {
				continue
			}
			if !first {
				w.WriteString(", ")
			}
			first = false
			w.WriteString(f.Name)
			w.WriteString(": ")
			w.value(v.Field(i))
		}
		w.WriteByte('}')
	default:
		panic(errors.Errorf("ir: attributes of kind %s cannot be printed: teach ir/codec.go", v.Type()))
	}
}

// isZero tells whether a field may be left out; -0 is not zero.
func isZero(v reflect.Value) bool {
	if v.CanFloat() {
		return math.Float64bits(v.Float()) == 0
	}
	return v.IsZero()
}

// ShapeText prints a shape as "float32[8,20]"; a dynamic axis is "?", a named one "batch=8".
func ShapeText(s shapes.Shape) string { return string(appendShape(nil, s)) }

// appendShape appends the text of a shape.
func appendShape(b []byte, s shapes.Shape) []byte {
	for _, c := range []byte(s.DType.String()) {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	b = append(b, '[')
	for i, d := range s.Dimensions {
		if i > 0 {
			b = append(b, ',')
		}
		if i < len(s.AxisNames) && s.AxisNames[i] != "" {
			b = append(strconv.AppendQuote(b, s.AxisNames[i]), '=')
		}
		if d == shapes.DynamicDim {
			b = append(b, '?')
		} else {
			b = strconv.AppendInt(b, int64(d), 10)
		}
	}
	return append(b, ']')
}

func (w *attrPrinter) literal(l Literal) {
	w.WriteString(ShapeText(l.Shape))
	if l.Flat == nil {
		return
	}
	if text, ok := shortText(l.Flat); ok {
		w.WriteByte('(')
		w.WriteString(text)
		w.WriteByte(')')
		return
	}
	raw := dtypes.UnsafeByteSliceFromAny(l.Flat)
	if w.elide {
		fmt.Fprintf(w, "(%d bytes)", len(raw))
		return
	}
	w.WriteString(strconv.Quote(base64.StdEncoding.EncodeToString(raw)))
}

// shortText prints a few numbers, if that loses nothing.
func shortText(flat any) (string, bool) {
	v := reflect.ValueOf(flat)
	if v.Len() > shortLiteral {
		return "", false
	}
	parts := make([]string, v.Len())
	for i := range parts {
		e := v.Index(i)
		switch e.Kind() {
		case reflect.Bool:
			parts[i] = strconv.FormatBool(e.Bool())
		case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			parts[i] = strconv.FormatInt(e.Int(), 10)
		case reflect.Uint8, reflect.Uint32, reflect.Uint64:
			parts[i] = strconv.FormatUint(e.Uint(), 10)
		case reflect.Uint16:
			if e.Type() != reflect.TypeFor[uint16]() { // float16 and bfloat16 are bit patterns of this kind
				return "", false
			}
			parts[i] = strconv.FormatUint(e.Uint(), 10)
		case reflect.Float32, reflect.Float64:
			if math.IsNaN(e.Float()) { // its bits may matter
				return "", false
			}
			parts[i] = strconv.FormatFloat(e.Float(), 'g', -1, e.Type().Bits())
		default:
			return "", false
		}
	}
	return strings.Join(parts, ", "), true
}

// parseAttrs reads what attrsText printed.
func (s *scanner) parseAttrs(t OpType) (Attrs, error) {
	make, ok := newAttrs[t]
	if !ok {
		return nil, s.errorf("unknown operation %q", t)
	}
	a := make()
	if s.peek() != '{' {
		return a, nil
	}
	return a, s.parseInto(reflect.ValueOf(a).Elem())
}

func (s *scanner) parseInto(v reflect.Value) error {
	switch v.Type() {
	case shapeType:
		shape, err := s.parseShape()
		v.Set(reflect.ValueOf(shape))
		return err
	case dtypeType:
		d, err := s.parseDType()
		v.Set(reflect.ValueOf(d))
		return err
	case literalType:
		l, err := s.parseLiteral()
		v.Set(reflect.ValueOf(l))
		return err
	}
	switch v.Kind() {
	case reflect.Bool, reflect.Float32, reflect.Float64:
		return s.parseNumber(v)
	case reflect.Int:
		if v.Type().Implements(stringer) {
			return s.parseEnum(v)
		}
		return s.parseNumber(v)
	case reflect.String:
		text, err := s.quoted()
		v.SetString(text)
		return err
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		return s.list('[', ']', func(int) error {
			e := reflect.New(v.Type().Elem()).Elem()
			if err := s.parseInto(e); err != nil {
				return err
			}
			v.Set(reflect.Append(v, e))
			return nil
		})
	case reflect.Array:
		return s.list('[', ']', func(i int) error {
			if i >= v.Len() {
				return s.errorf("more than %d elements", v.Len())
			}
			return s.parseInto(v.Index(i))
		})
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return s.parseInto(v.Elem())
	case reflect.Struct:
		return s.list('{', '}', func(int) error {
			name := s.word()
			f := v.FieldByName(name)
			if !f.IsValid() || f.Type() == valueType {
				return s.errorf("%s has no attribute %q", v.Type().Name(), name)
			}
			if err := s.expect(":"); err != nil {
				return err
			}
			return s.parseInto(f)
		})
	}
	return s.errorf("attributes of kind %s cannot be parsed", v.Type())
}

func (s *scanner) parseEnum(v reflect.Value) error {
	name, err := s.quoted()
	if err != nil {
		return err
	}
	for i := range int64(maxEnum) {
		v.SetInt(i)
		if v.Interface().(fmt.Stringer).String() == name {
			return nil
		}
	}
	return s.errorf("%q is not a %s", name, v.Type())
}

func (s *scanner) parseNumber(v reflect.Value) error {
	word := s.word()
	var err error
	switch v.Kind() {
	case reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(word)
		v.SetBool(b)
	case reflect.Float32, reflect.Float64:
		var f float64
		f, err = strconv.ParseFloat(word, v.Type().Bits())
		v.SetFloat(f)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		var n int64
		n, err = strconv.ParseInt(word, 10, v.Type().Bits())
		v.SetInt(n)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		var n uint64
		n, err = strconv.ParseUint(word, 10, v.Type().Bits())
		v.SetUint(n)
	default:
		return s.errorf("a %s cannot be written as a number", v.Type())
	}
	if err != nil {
		return s.errorf("%q is not a %s", word, v.Type())
	}
	return nil
}

func (s *scanner) parseDType() (dtypes.DType, error) {
	word := s.word()
	d, err := dtypes.DTypeString(word)
	if err != nil {
		return dtypes.InvalidDType, s.errorf("%q is not a dtype", word)
	}
	return d, nil
}

func (s *scanner) parseShape() (shapes.Shape, error) {
	d, err := s.parseDType()
	if err != nil {
		return shapes.Shape{}, err
	}
	shape := shapes.Shape{DType: d}
	err = s.list('[', ']', func(i int) error {
		name := ""
		if s.peek() == '"' {
			if name, err = s.quoted(); err != nil {
				return err
			}
			if err := s.expect("="); err != nil {
				return err
			}
		}
		dim := shapes.DynamicDim
		if s.peek() == '?' {
			_ = s.expect("?")
		} else if err := s.parseInto(reflect.ValueOf(&dim).Elem()); err != nil {
			return err
		} else if dim < 0 {
			return s.errorf("dimension %d is negative", dim)
		}
		shape.Dimensions = append(shape.Dimensions, dim)
		if name != "" && shape.AxisNames == nil {
			shape.AxisNames = make([]string, i)
		}
		if shape.AxisNames != nil {
			shape.AxisNames = append(shape.AxisNames, name)
		}
		return nil
	})
	return shape, err
}

func (s *scanner) parseLiteral() (Literal, error) {
	shape, err := s.parseShape()
	if err != nil {
		return Literal{}, err
	}
	l := Literal{Shape: shape}
	if !shape.DType.IsSupported() {
		return l, s.errorf("a literal of dtype %s is not supported", shape.DType)
	}
	elem := shape.DType.GoType()
	switch s.peek() {
	case '(':
		flat := reflect.MakeSlice(reflect.SliceOf(elem), 0, shortLiteral)
		err = s.list('(', ')', func(int) error {
			e := reflect.New(elem).Elem()
			if err := s.parseNumber(e); err != nil {
				return err
			}
			flat = reflect.Append(flat, e)
			return nil
		})
		l.Flat = flat.Interface()
	case '"':
		var text string
		if text, err = s.quoted(); err != nil {
			return l, err
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw)%int(elem.Size()) != 0 {
			return l, s.errorf("a literal's base64 text is damaged")
		}
		n := len(raw) / int(elem.Size())
		flat := reflect.MakeSlice(reflect.SliceOf(elem), n, n)
		copy(dtypes.UnsafeByteSliceFromAny(flat.Interface()), raw)
		l.Flat = flat.Interface()
	}
	return l, err
}
