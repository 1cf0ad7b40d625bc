// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// fallbackCompiler compiles a segment for another backend.
type fallbackCompiler func(*ir.Segment) (compute.Executable, error)

// fallback is an op that GoMLX's own backend runs.
type fallback struct {
	op     *ir.Op
	inputs []*ir.Value
	exec   compute.Executable
}

func newFallback(op *ir.Op, inputs []*ir.Value, compile fallbackCompiler) (*fallback, error) {
	exec, err := compile(&ir.Segment{Name: op.String(), Inputs: inputs, Ops: []*ir.Op{op}, Outputs: op.Outputs})
	if err != nil {
		return nil, errors.WithMessagef(err, "%s", op)
	}
	return &fallback{op, inputs, exec}, nil
}

// share gives what GoMLX's backend reads memory of that backend, which is written and read in place: intermediate tensors and
// constants. A tensor that is read in several shapes is there in the first of them, for memory has one shape on that backend.
func (b *builder) share() {
	for _, step := range b.steps {
		for _, t := range step {
			if t.other == nil {
				continue
			}
			for i, v := range t.other.inputs {
				x := &b.tensors[t.mems[i]]
				if x.shared.Ok() || v.Shape.IsDynamic() || v.Shape.IsTuple() {
					continue
				}
				switch x.place {
				case inArena:
					x.place, x.shared = isShared, v.Shape
				case isConst:
					x.shared = v.Shape
				}
			}
		}
	}
}

// share takes memory of GoMLX's backend for a tensor, which it has as long as the executable is there.
func (x *executable) share(n int) error {
	t := &x.plan.tensors[n]
	buf, flat, err := x.backend.Backend.NewSharedBuffer(0, t.shared)
	if err != nil {
		return err
	}
	x.shared[n] = buf
	if bytes := anyBytes(flat, t.shared.DType); len(bytes) > 0 {
		copy(bytes, t.constant)
		x.memory[n] = unsafe.Pointer(unsafe.SliceData(bytes))
	}
	return nil
}

// isCopied tells whether an input of a fallback is copied before it runs: what the segment is given, what it returns, and what is
// read in more than one shape.
func (p *plan) isCopied(t *task, i int) bool {
	x, shape := &p.tensors[t.mems[i]], t.other.inputs[i].Shape
	if x.place == isResult {
		switch x.value.Op.Attrs.(type) {
		case *ir.While, *ir.If:
			return true
		}
		return !sameShape(x.value.Shape, shape)
	}
	return !x.shared.Ok() || !sameShape(x.shared, shape)
}

func sameShape(a, b shapes.Shape) bool { return a.DType == b.DType && a.EqualDimensions(b) }

// copied are the bytes that a fallback copies.
func (p *plan) copied(t *task) (bytes int64) {
	for i := range t.other.inputs {
		if p.isCopied(t, i) {
			bytes += int64(p.tensors[t.mems[i]].bytes)
		}
	}
	return bytes
}

// fallback runs an op on GoMLX's backend. It reads its inputs where they are, if that is memory of that backend, and is never
// given such memory to keep; its results are read where they are.
func (x *executable) fallback(t *task, mem []unsafe.Pointer) error {
	ins, donate := make([]compute.Buffer, t.reads), make([]bool, t.reads)
	for i, v := range t.other.inputs {
		n := t.mems[i]
		tensor := &x.plan.tensors[n]
		switch {
		case x.plan.isCopied(t, i):
			if tensor.place == isInput && x.inputs[tensor.index].owner != nil && sameShape(tensor.value.Shape, v.Shape) {
				ins[i] = x.inputs[tensor.index].owner
				continue
			}
			buf, err := x.backend.Backend.BufferFromFlatData(0, flatOf(unsafe.Slice((*byte)(mem[i]), tensor.bytes), v.Shape), v.Shape)
			if err != nil {
				return err
			}
			ins[i], donate[i] = buf, true
		case tensor.place == isResult:
			ins[i] = x.results[n]
		default:
			ins[i] = x.shared[n]
		}
	}
	outs, err := t.other.exec.Execute(ins, donate, 0)
	if err != nil {
		return err
	}
	for i, o := range outs {
		n := t.mems[t.reads+i]
		x.results[n] = o
		flat, err := o.Data()
		if err != nil {
			return err
		}
		if bytes := anyBytes(flat, x.plan.tensors[n].value.Shape.DType); len(bytes) > 0 {
			x.memory[n] = unsafe.Pointer(unsafe.SliceData(bytes))
		}
	}
	return nil
}
