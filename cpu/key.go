// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"reflect"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu/isa"
	"github.com/easyparallel/epl/ir"
)

// keyOf covers all that a plan depends on: ops and their attributes, which values they read, shapes, what the engine may do. False: there is none, because ops have
// functions, or read what the segment does not have.
func keyOf(s *ir.Segment, o options) (key planKey, ok bool) {
	w := &keyWriter{number: make(map[*ir.Value]int, len(s.Inputs)+len(s.Ops)), ok: true}
	w.text(isa.Current().String())
	w.any(reflect.ValueOf(o))
	for _, v := range s.Inputs {
		w.define(v)
	}
	for _, op := range s.Ops {
		w.op(op)
	}
	w.values(s.Outputs)
	return sha256.Sum256(w.bytes), w.ok
}

// keyWriter writes a segment as bytes that differ where segments do.
type keyWriter struct {
	bytes  []byte
	number map[*ir.Value]int
	ok     bool
}

func (w *keyWriter) int(n int)        { w.bytes = binary.AppendVarint(w.bytes, int64(n)) }
func (w *keyWriter) text(text string) { w.int(len(text)); w.bytes = append(w.bytes, text...) }

// define numbers a value. One that is there twice has its first number.
func (w *keyWriter) define(v *ir.Value) {
	if _, twice := w.number[v]; !twice {
		w.number[v] = len(w.number)
	}
	w.int(w.number[v])
	w.shape(v.Shape)
}

func (w *keyWriter) shape(s shapes.Shape) {
	w.int(int(s.DType))
	w.int(len(s.Dimensions))
	for _, d := range s.Dimensions {
		w.int(d)
	}
	w.ok = w.ok && !s.IsTuple()
}

func (w *keyWriter) op(op *ir.Op) {
	switch op.Type() {
	case ir.OpScatterSum, ir.OpScatterMax, ir.OpScatterMin: // they tell of wrong indices which op has them
		w.text(op.String())
		w.text(string(op.Source))
	}
	w.ok = w.ok && len(op.Funcs) == 0
	w.text(string(op.Type()))
	w.any(reflect.ValueOf(op.Attrs))
	w.values(op.Inputs)
	w.int(len(op.Outputs))
	for _, v := range op.Outputs {
		w.define(v)
	}
}

func (w *keyWriter) values(list []*ir.Value) {
	w.int(len(list))
	for _, v := range list {
		n, known := w.number[v]
		switch {
		case v == nil:
			n = -1
		case !known:
			w.ok = false
		}
		w.int(n)
	}
}

// any writes an attribute, whatever it is.
func (w *keyWriter) any(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		n := 0
		if v.Bool() {
			n = 1
		}
		w.int(n)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.int(int(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		w.int(int(v.Uint()))
	case reflect.Float32, reflect.Float64:
		w.bytes = binary.LittleEndian.AppendUint64(w.bytes, math.Float64bits(v.Float()))
	case reflect.String:
		w.text(v.String())
	case reflect.Struct:
		for i := range v.NumField() {
			w.any(v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		w.list(v)
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			w.int(0)
			return
		}
		w.int(1)
		if v.Kind() == reflect.Interface {
			w.text(v.Elem().Type().String())
		}
		w.any(v.Elem())
	default:
		w.ok = false
	}
}

// list writes a slice or an array; what has no pointers in it as it lies in memory.
func (w *keyWriter) list(v reflect.Value) {
	w.int(v.Len())
	if v.Kind() == reflect.Slice && dtypes.FromGoType(v.Type().Elem()) != dtypes.InvalidDType && v.Type().Elem().Kind() != reflect.String {
		w.bytes = append(w.bytes, unsafe.Slice((*byte)(v.UnsafePointer()), v.Len()*int(v.Type().Elem().Size()))...)
		return
	}
	for i := range v.Len() {
		w.any(v.Index(i))
	}
}
