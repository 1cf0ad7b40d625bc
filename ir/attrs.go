// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"maps"
	"reflect"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// OpType names an operation, as the method of compute.Function that builds it.
type OpType string

// OpTypes are all operations, in alphabetical order.
func OpTypes() []OpType { return slices.Sorted(maps.Keys(newAttrs)) }

// Attrs are the static attributes of an op: one struct per operation, generated from the interfaces of GoMLX, so that
// a pass writes
//
//	switch a := op.Attrs.(type) {
//	case *ir.Transpose:
//		use(a.Permutation)
//	}
//
// Attributes are never changed once they are in a program: a pass that wants others makes a new struct. Values that
// GoMLX hides inside attributes (the scale of a quantisation, say) are inputs of the op here.
type Attrs interface {
	// OpType names the operation.
	OpType() OpType
	// Emit replays the operation on a function of any backend, with the op's inputs and functions translated to it.
	Emit(f compute.Function, in *Operands) ([]compute.Value, error)
	arity() arity
}

// Operands feeds an op's inputs and functions, translated to another backend, to [Attrs.Emit], in order.
type Operands struct {
	Values []compute.Value
	Funcs  []compute.Function
}

func (in *Operands) next() compute.Value {
	v := in.Values[0]
	in.Values = in.Values[1:]
	return v
}

// rest takes all values but the last n, for an operation with one list among its inputs.
func (in *Operands) rest(n int) []compute.Value {
	k := len(in.Values) - n
	v := in.Values[:k:k]
	in.Values = in.Values[k:]
	return v
}

func (in *Operands) nextFunc() compute.Function {
	f := in.Funcs[0]
	in.Funcs = in.Funcs[1:]
	return f
}

// Parameter is an input of a function. In main its name is the path of a variable, which starts with "/", or "arg3".
type Parameter struct {
	Name     string
	Shape    shapes.Shape
	Sharding *compute.ShardingSpec
}

// OpType implements Attrs.
func (*Parameter) OpType() OpType { return OpParameter }

// Emit implements Attrs.
func (a *Parameter) Emit(f compute.Function, _ *Operands) ([]compute.Value, error) {
	return one(f.Parameter(a.Name, a.Shape, a.Sharding))
}

// Constant is a value known when the program was recorded.
type Constant struct {
	Value Literal
}

// OpType implements Attrs.
func (*Constant) OpType() OpType { return OpConstant }

// Emit implements Attrs.
func (a *Constant) Emit(f compute.Function, _ *Operands) ([]compute.Value, error) {
	return one(f.Constant(a.Value.Flat, a.Value.Shape.Dimensions...))
}

// Literal is a tensor in the program. Flat is a slice of the Go type of its dtype, owned by the program.
type Literal struct {
	Shape shapes.Shape
	Flat  any
}

// check tells whether the elements are those of a tensor of the literal's shape.
func (l Literal) check() error {
	t := reflect.TypeOf(l.Flat)
	if t == nil || t.Kind() != reflect.Slice || !l.Shape.DType.IsSupported() || t.Elem() != l.Shape.DType.GoType() && t.Elem() != reflect.TypeFor[int]() {
		return errors.Errorf("its elements are %T, not a slice of %s", l.Flat, l.Shape.DType)
	}
	if n := reflect.ValueOf(l.Flat).Len(); l.Shape.IsDynamic() || int64(n)*int64(t.Elem().Size()) != l.Shape.ByteSize() {
		return errors.Errorf("it has %d elements, not those of a %s", n, ShapeText(l.Shape))
	}
	return nil
}

// The two operations that are not methods of the op interfaces.
const (
	OpParameter OpType = "Parameter"
	OpConstant  OpType = "Constant"
)

func one(v compute.Value, err error) ([]compute.Value, error) { return []compute.Value{v}, err }

func list(v []compute.Value, err error) ([]compute.Value, error) { return v, err }

func two(v, w compute.Value, err error) ([]compute.Value, error) {
	return []compute.Value{v, w}, err
}

func three(v, w, x compute.Value, err error) ([]compute.Value, error) {
	return []compute.Value{v, w, x}, err
}

func oneAndList(v compute.Value, s []compute.Value, err error) ([]compute.Value, error) {
	return append([]compute.Value{v}, s...), err
}

// Attributes in which GoMLX hides values are stored without them; these put them back.

func joinQuantization(in *Operands, q *compute.Quantization) *compute.Quantization {
	if q == nil {
		return nil
	}
	r := *q
	r.Scale, r.ZeroPoint = in.next(), in.next()
	return &r
}

func joinAttention(in *Operands, c *compute.ScaledDotProductAttentionConfig) *compute.ScaledDotProductAttentionConfig {
	if c == nil {
		return nil
	}
	r := *c
	r.QuerySeqLen, r.KeyValueSeqLen, r.Bias, r.Mask = in.next(), in.next(), in.next(), in.next()
	return &r
}

func joinDimensions(in *Operands, s []compute.DynamicDimensionSpec) []compute.DynamicDimensionSpec {
	r := make([]compute.DynamicDimensionSpec, len(s))
	for i := range s {
		r[i] = s[i]
		r[i].Value = in.next()
	}
	return r
}

func joinPadAxes(in *Operands, s []compute.DynamicPadAxis) []compute.DynamicPadAxis {
	r := make([]compute.DynamicPadAxis, len(s))
	for i := range s {
		r[i] = s[i]
		r[i].StartValue, r[i].EndValue, r[i].InteriorValue = in.next(), in.next(), in.next()
	}
	return r
}

// arity says how many inputs and functions an op has.
type arity struct {
	inputs  int    // that are fixed
	nilOK   []bool // per fixed input: may it be absent? Those after the last that may be are not in it.
	hasList bool   // a list of inputs stands before fixed input listAt
	listAt  int
	funcs   int
}

func (a arity) required(n int) arity {
	a.inputs += n
	return a
}

func (a arity) optional(n int) arity {
	a.nilOK = append(append(a.nilOK, make([]bool, a.inputs-len(a.nilOK))...), slices.Repeat([]bool{true}, n)...)
	a.inputs += n
	return a
}

func (a arity) list() arity {
	a.hasList, a.listAt = true, a.inputs
	return a
}

func (a arity) functions(n int) arity {
	a.funcs += n
	return a
}

func (*Parameter) arity() arity { return arity{} }
func (*Constant) arity() arity  { return arity{} }

func ifSet(set bool, n int) int {
	if set {
		return n
	}
	return 0
}

// NumberOf is a scalar as a literal.
func NumberOf(x any) Literal {
	flat := reflect.MakeSlice(reflect.SliceOf(reflect.TypeOf(x)), 1, 1)
	flat.Index(0).Set(reflect.ValueOf(x))
	return Literal{Shape: shapes.Make(dtypes.FromGoType(reflect.TypeOf(x))), Flat: flat.Interface()}
}
