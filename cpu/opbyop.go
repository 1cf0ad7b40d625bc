// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// isDynamic tells whether some shape of a segment is known only when it runs: then it runs op by op.
func isDynamic(s *ir.Segment) bool {
	dynamic := func(v *ir.Value) bool { return v.Shape.IsDynamic() }
	return slices.ContainsFunc(s.Inputs, dynamic) || slices.ContainsFunc(s.Ops, func(op *ir.Op) bool { return slices.ContainsFunc(op.Outputs, dynamic) })
}

// opByOp runs a whole segment on GoMLX's backend.
type opByOp struct {
	backend *Backend
	exec    compute.Executable
}

var _ compute.Executable = (*opByOp)(nil)

// Finalize implements compute.Executable.
func (x *opByOp) Finalize() { x.exec.Finalize() }

// Inputs implements compute.Executable.
func (x *opByOp) Inputs() ([]string, []shapes.Shape) { return x.exec.Inputs() }

// Outputs implements compute.Executable.
func (x *opByOp) Outputs() []shapes.Shape { return x.exec.Outputs() }

// Execute implements compute.Executable.
func (x *opByOp) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	b := x.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	ins, all := make([]compute.Buffer, len(inputs)), make([]bool, len(inputs))
	for i, in := range inputs {
		buf, ok := in.(*Buffer)
		if !ok || buf.backend != b {
			return nil, errors.Errorf("epl: input %d is a %T of another device", i, in)
		}
		flat, err := buf.Data()
		if err != nil {
			return nil, err
		}
		if ins[i], err = b.Backend.BufferFromFlatData(0, flat, buf.shape); err != nil {
			return nil, err
		}
		all[i] = true
	}
	outs, err := x.exec.Execute(ins, all, device)
	if err != nil {
		return nil, err
	}
	for i, o := range outs {
		if outs[i], err = b.adopt(o); err != nil {
			return nil, err
		}
	}
	for i, in := range inputs {
		if i < len(donate) && donate[i] {
			if err := in.Finalize(); err != nil {
				return nil, err
			}
			in.(*Buffer).donated = true
		}
	}
	return outs, nil
}

// adopt makes a buffer of GoMLX's backend one of the device, if it is none yet.
func (b *Backend) adopt(o compute.Buffer) (*Buffer, error) {
	if buf, ok := o.(*Buffer); ok {
		return buf, nil
	}
	shape, err := o.Shape()
	if err != nil {
		return nil, err
	}
	flat, err := o.Data()
	if err != nil {
		return nil, err
	}
	return &Buffer{backend: b, shape: shape, bytes: anyBytes(flat, shape.DType), owner: o}, nil
}
