// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/record"
)

// Compiler makes an executable of the inner backend out of a recorded program.
type Compiler func(inner compute.Backend, p *ir.Program) (compute.Executable, error)

// Recorder is the smallest engine: it keeps the programs that GoMLX built, and runs them as its compiler likes. Tests
// use it to look at programs as recorded, and to run them in ways that EPL itself does not offer.
type Recorder struct {
	Programs []*ir.Program // as recorded, in order

	inner   compute.Backend
	backend compute.Backend
	compile Compiler
}

var _ record.Engine = (*Recorder)(nil)

// NewRecorder makes a backend for GoMLX, on [Plain], with the engine behind it. A nil compiler runs programs op by op.
func NewRecorder(compile Compiler) (compute.Backend, *Recorder) {
	if compile == nil {
		compile = emit.Program
	}
	r := &Recorder{inner: Plain(), compile: compile}
	r.backend = record.NewBackend(r, record.Options{Over: r.inner.Description()})
	return r.backend, r
}

// Compile implements record.Engine.
func (r *Recorder) Compile(p *ir.Program) (compute.Executable, error) {
	r.Programs = append(r.Programs, p.Clone())
	exec, err := r.compile(r.inner, p)
	if err != nil {
		return nil, err
	}
	return executable{exec, r}, nil
}

// Finalize implements record.Engine.
func (r *Recorder) Finalize() { r.inner.Finalize() }

// Closed implements record.Engine.
func (r *Recorder) Closed() error { return nil }

// BufferFromFlatData implements compute.DataInterface.
func (r *Recorder) BufferFromFlatData(device compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	b, err := r.inner.BufferFromFlatData(device, flat, shape)
	return buffer{b, r}, err
}

// HasSharedBuffers implements compute.DataInterface.
func (r *Recorder) HasSharedBuffers() bool { return false }

// NewSharedBuffer implements compute.DataInterface, by an error.
func (r *Recorder) NewSharedBuffer(compute.DeviceNum, shapes.Shape) (compute.Buffer, any, error) {
	return nil, nil, errors.New("equiv: a Recorder's buffers are not shared with the host")
}

// buffer is one of the inner backend, which GoMLX takes for one of the recorder's.
type buffer struct {
	compute.Buffer
	r *Recorder
}

// Backend implements compute.Buffer.
func (b buffer) Backend() compute.Backend { return b.r.backend }

// CopyToDevice implements compute.Buffer.
func (b buffer) CopyToDevice(device compute.DeviceNum) (compute.Buffer, error) {
	c, err := b.Buffer.CopyToDevice(device)
	return buffer{c, b.r}, err
}

// executable is one of the inner backend that runs on the recorder's buffers.
type executable struct {
	compute.Executable
	r *Recorder
}

// Execute implements compute.Executable.
func (e executable) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	ins := make([]compute.Buffer, len(inputs))
	for i, b := range inputs {
		ins[i] = b.(buffer).Buffer
	}
	outs, err := e.Executable.Execute(ins, donate, device)
	for i, b := range outs {
		outs[i] = buffer{b, e.r}
	}
	return outs, err
}
