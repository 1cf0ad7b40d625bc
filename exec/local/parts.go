// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"reflect"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// rows are a part of a tensor: some rows of one of its dims, all if dim is -1. Of these, if parts is not 0, it is one of so many
// parts of consecutive elements, the last filled up with zeros.
type rows struct{ dim, start, size, part, parts int }

// rowsOf are what a device has of a value that several share; ok is false if it has all of it.
func rowsOf(v *ir.Value, at ir.Coordinates) (r rows, ok bool) {
	r.dim = -1
	if p := v.On(ir.Model); p.Kind == ir.Sharded {
		r.dim = p.Dim
		from, to := p.Rows(v.Shape.Dimensions[p.Dim], at.At(ir.Model), v.Division(ir.Model))
		r.start, r.size = from, to-from
	}
	if v.On(ir.Replicas).Kind == ir.Flat {
		r.part, r.parts = at.At(ir.Replicas), v.Devices(ir.Replicas)
	}
	return r, r.dim >= 0 || r.parts > 0
}

// box is the shape of the rows.
func (r rows) box(s shapes.Shape) shapes.Shape {
	if r.dim < 0 {
		return s
	}
	s = s.Clone()
	s.Dimensions[r.dim] = r.size
	return s
}

// shape is that of the part.
func (r rows) shape(s shapes.Shape) shapes.Shape {
	s = r.box(s)
	if r.parts > 0 {
		s = ir.PartShape(s, r.parts)
	}
	return s
}

// inBox copies the part of rows out of a whole, or, back, into it.
func (r rows) inBox(part, whole any, s shapes.Shape, back bool) {
	shape, rows := r.box(s), rows{dim: r.dim, start: r.start, size: r.size}
	box := whole
	if r.dim >= 0 {
		box = newFlat(shape)
		rows.cut(box, whole, s)
	}
	n := r.shape(s).Size()
	bytes := func(elements int) int { return min(elements, shape.Size()) * int(s.DType.Size()) }
	mine, its := dtypes.UnsafeByteSliceFromAny(part), dtypes.UnsafeByteSliceFromAny(box)[bytes(r.part*n):bytes((r.part+1)*n)]
	if !back {
		copy(mine, its)
		return
	}
	copy(its, mine)
	if r.dim >= 0 {
		rows.paste(whole, box, s)
	}
}

// block is where the part lies in memory: so many runs of consecutive bytes, each in front of the run of the whole that
// holds it.
type block struct{ runs, bytes, whole, offset int }

func (r rows) block(s shapes.Shape) block {
	inner := int(s.DType.Size())
	for _, n := range s.Dimensions[r.dim+1:] {
		inner *= n
	}
	runs := 1
	for _, n := range s.Dimensions[:r.dim] {
		runs *= n
	}
	return block{runs: runs, bytes: r.size * inner, whole: s.Dimensions[r.dim] * inner, offset: r.start * inner}
}

// cut copies the part out of a whole of shape s.
func (r rows) cut(part, whole any, s shapes.Shape) {
	if r.parts > 0 {
		r.inBox(part, whole, s, false)
		return
	}
	b := r.block(s)
	to, from := dtypes.UnsafeByteSliceFromAny(part), dtypes.UnsafeByteSliceFromAny(whole)
	for i := range b.runs {
		copy(to[i*b.bytes:(i+1)*b.bytes], from[i*b.whole+b.offset:])
	}
}

// paste copies the part into a whole of shape s.
func (r rows) paste(whole, part any, s shapes.Shape) {
	if r.parts > 0 {
		r.inBox(part, whole, s, true)
		return
	}
	b := r.block(s)
	to, from := dtypes.UnsafeByteSliceFromAny(whole), dtypes.UnsafeByteSliceFromAny(part)
	for i := range b.runs {
		copy(to[i*b.whole+b.offset:], from[i*b.bytes:(i+1)*b.bytes])
	}
}

// piece is a part of a variable, and who has it.
type piece struct {
	rows
	local  int     // the device of this worker that has it; -1: none
	remote *remote // another worker that has it, if no device of this one does
}

// part returns what a device is to have of a variable: what it has, or a copy out of the whole.
func (b *Buffer) part(device int, want rows) (compute.Buffer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, errGone
	}
	if device < len(b.parts) && b.parts[device] != nil && b.rows[device] == want {
		h, host := b.parts[device].(*hostBuffer)
		if !host {
			return b.parts[device], nil
		}
		x, err := h.on(b.runner.devices[device])
		if err != nil {
			return nil, err
		}
		b.serving.Lock()
		defer b.serving.Unlock()
		b.parts[device] = x
		b.readers.wait()
		return x, h.Finalize()
	}
	if len(b.pieces) > 0 { // in other parts: put together, then divided anew
		if err := b.assemble(); err != nil {
			return nil, err
		}
	}
	x, err := b.copied(device, want)
	if err != nil {
		return nil, err
	}
	b.serving.Lock()
	defer b.serving.Unlock()
	if len(b.parts) == 0 {
		b.parts, b.rows = make([]compute.Buffer, len(b.runner.devices)), make([]rows, len(b.runner.devices))
	}
	if old := b.parts[device]; old != nil {
		b.readers.wait()
		if err := old.Finalize(); err != nil {
			return nil, err
		}
	}
	b.parts[device], b.rows[device] = x, want
	return x, nil
}

// copied is a copy of some rows, on a device. The lock is held.
func (b *Buffer) copied(device int, want rows) (compute.Buffer, error) {
	shape, backend := want.shape(b.shape), b.runner.devices[device]
	if !backend.HasSharedBuffers() {
		part := newFlat(shape)
		if err := b.readPart(want, part); err != nil {
			return nil, err
		}
		return backend.BufferFromFlatData(0, part, shape)
	}
	x, part, err := backend.NewSharedBuffer(0, shape)
	if err != nil {
		return nil, err
	}
	if want.parts > 0 {
		reflect.ValueOf(part).Clear() // padding is zero
	}
	if err := b.readPart(want, part); err != nil {
		_ = x.Finalize()
		return nil, err
	}
	return x, nil
}

// view is a part on a device that another program has otherwise.
type view struct {
	device int
	rows
}

// view returns what a program that changes nothing reads of a variable: what the device has, or a copy, which stays as long as the
// variable is as it is.
func (b *Buffer) view(device int, want rows) (compute.Buffer, error) {
	b.mu.Lock()
	has := len(b.pieces) == 0 || device < len(b.parts) && b.parts[device] != nil && b.rows[device] == want
	b.mu.Unlock()
	if has {
		return b.part(device, want)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at := view{device, want}
	switch {
	case b.gone:
		return nil, errGone
	case b.views[at] != nil:
		return b.views[at], nil
	}
	x, err := b.copied(device, want)
	if err != nil {
		return nil, err
	}
	if b.views == nil {
		b.views = map[view]compute.Buffer{}
	}
	b.views[at] = x
	return x, nil
}

// assemble makes one whole of the parts. The lock is held.
func (b *Buffer) assemble() error {
	flat, err := b.host()
	if err != nil {
		return err
	}
	x, err := b.runner.devices[0].BufferFromFlatData(0, flat, b.shape)
	if err != nil {
		return err
	}
	b.serving.Lock()
	defer b.serving.Unlock()
	for d, p := range b.parts {
		if p != nil {
			b.readers.wait()
			if err := p.Finalize(); err != nil {
				return err
			}
			b.parts[d] = nil
		}
	}
	b.pieces, b.shards = nil, []compute.Buffer{x}
	return nil
}

// gather puts the parts together on the host. The lock is held.
func (b *Buffer) gather() (any, error) {
	flat := newFlat(b.shape)
	for _, p := range b.pieces {
		var part any
		var err error
		shape := p.shape(b.shape)
		switch {
		case p.local >= 0:
			part, err = toHost(b.parts[p.local], shape)
		case p.remote != nil:
			part, err = p.remote.fetch(b.runner.Job, shape)
		default:
			err = errors.New("epl: internal error: nobody has a part of a variable")
		}
		if err != nil {
			return nil, errors.WithMessage(err, fmt.Sprintf("rows %d to %d of dim %d", p.start, p.start+p.size, p.dim))
		}
		p.paste(flat, part, b.shape)
	}
	return flat, nil
}
