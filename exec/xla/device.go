// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla

import (
	"fmt"
	"log"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt"
)

// Device is a GPU. It implements compute.Backend, and emit.Compiler: segments of the IR run on the GPU.
type Device struct {
	compute.Backend // for what GoMLX may ask of a backend besides: nothing is built with it
	client          *client
	gpu             *pjrt.Device
	pinned          *pjrt.Memory // of the host; nil: there is none
	cudnn           bool         // it computes attention
	tf32            bool         // float32 products round their operands

	once sync.Once
}

var (
	_ emit.Compiler = (*Device)(nil)
	_ exec.Neighbor = (*Device)(nil)
)

// Name implements compute.Backend.
func (d *Device) Name() string { return "xla" }

// String implements compute.Backend.
func (d *Device) String() string { return "xla" }

// Description implements compute.Backend.
func (d *Device) Description() string {
	return fmt.Sprintf("%s, %s, through PJRT", d.gpu.Kind, d.client.PlatformVersion())
}

// DeviceDescription implements compute.Backend.
func (d *Device) DeviceDescription(compute.DeviceNum) string {
	return fmt.Sprintf("%s number %d", d.gpu.Kind, d.gpu.ID)
}

// AllowTF32 says whether float32 products and convolutions may round their operands to TF32, in programs that are compiled from now on.
func (d *Device) AllowTF32(yes bool) { d.tf32 = yes }

// Memory is how many bytes of tensors the device holds; 0: the plugin does not tell.
func (d *Device) Memory() int64 {
	s, err := d.gpu.MemoryStats()
	if err != nil || s.Limit < 0 {
		return 0
	}
	return s.Limit / int64(max(d.client.opts.Share, 1))
}

// Allocated is how many bytes the GPU had for tensors when it had most.
func (d *Device) Allocated() int64 {
	s, err := d.gpu.MemoryStats()
	if err != nil {
		return 0
	}
	return s.PeakInUse
}

// Finalize implements compute.Backend. With the last device of a client goes all that it had.
func (d *Device) Finalize() {
	d.once.Do(func() {
		d.Backend.Finalize()
		if err := d.client.release(); err != nil {
			log.Printf("epl: %v", err)
		}
	})
}

// HasSharedBuffers implements compute.DataInterface.
func (d *Device) HasSharedBuffers() bool { return false }

// NewSharedBuffer implements compute.DataInterface, by an error.
func (d *Device) NewSharedBuffer(compute.DeviceNum, shapes.Shape) (compute.Buffer, any, error) {
	return nil, nil, errors.New("epl: memory of a GPU is not shared with the host: use BufferFromFlatData")
}

// BufferFromFlatData implements compute.DataInterface.
func (d *Device) BufferFromFlatData(_ compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	return d.upload(d.gpu.DefaultMemory, flat, shape)
}

// upload copies data of the program to a memory.
func (d *Device) upload(to *pjrt.Memory, flat any, shape shapes.Shape) (compute.Buffer, error) {
	var data []byte
	if shape.Size() > 0 {
		data = dtypes.UnsafeByteSliceFromAny(flat)
	}
	b, err := to.FromHost(data, pjrt.Type(shape.DType), dims(shape)...)
	if err != nil {
		return nil, d.refused(err, shape, to)
	}
	return &buffer{device: d, data: b, shape: shape, host: to == d.pinned}, nil
}

func dims(s shapes.Shape) []int64 {
	all := make([]int64, s.Rank())
	for i, n := range s.Dimensions {
		all[i] = int64(n)
	}
	return all
}

// buffer is a tensor on a GPU. It implements compute.Buffer.
type buffer struct {
	device *Device
	data   *pjrt.Buffer
	shape  shapes.Shape
	of     string // the program that computes it; "": it came from the host
	by     *Device
	host   bool // it is in memory of the host
}

// Backend implements compute.Buffer.
func (b *buffer) Backend() compute.Backend { return b.device }

// Finalize implements compute.Buffer.
func (b *buffer) Finalize() error { return b.device.client.free(b.data) }

// Shape implements compute.Buffer.
func (b *buffer) Shape() (shapes.Shape, error) { return b.shape, nil }

// DeviceNum implements compute.Buffer.
func (b *buffer) DeviceNum() (compute.DeviceNum, error) { return 0, nil }

// ToFlatData implements compute.Buffer. It waits for the program that computes the tensor, and returns its error.
func (b *buffer) ToFlatData(flat any) error {
	if b.shape.Size() == 0 {
		return nil
	}
	done, err := b.data.ToHost(dtypes.UnsafeByteSliceFromAny(flat))
	if err == nil {
		err = b.device.client.finish(b.of, done)
	}
	return b.late(err)
}

// late is an error that came when something was waited for.
func (b *buffer) late(err error) error {
	if err != nil && b.of != "" {
		err = errors.WithMessagef(err, "epl: %s failed on %s", b.of, b.by.DeviceDescription(0))
	}
	return err
}

// Data implements compute.Buffer, by an error.
func (b *buffer) Data() (any, error) {
	return nil, errors.New("epl: memory of a GPU is not shared with the host: use ToFlatData")
}

// CopyToDevice implements compute.Buffer: a copy on the same device.
func (b *buffer) CopyToDevice(compute.DeviceNum) (compute.Buffer, error) { return b.on(b.device) }

// on begins to copy a buffer to a device of the same client.
func (b *buffer) on(d *Device) (compute.Buffer, error) {
	c, err := b.data.CopyToMemory(d.gpu.DefaultMemory)
	switch {
	case err == nil:
		return &buffer{device: d, data: c, shape: b.shape, of: b.of, by: b.by}, nil
	case b.device.gpu != d.gpu:
		return nil, d.refused(err, b.shape, d.gpu.DefaultMemory)
	}
	flat := dtypes.MakeAnySlice(b.shape.DType, b.shape.Size()) // plugins may refuse a copy to where it is already
	if err := b.ToFlatData(flat); err != nil {
		return nil, err
	}
	return d.BufferFromFlatData(0, flat, b.shape)
}

// Near implements exec.Neighbor.
func (d *Device) Near(other compute.Backend) bool {
	o, ok := other.(*Device)
	return ok && o.client == d.client
}

// CopyFrom implements exec.Neighbor.
func (d *Device) CopyFrom(x compute.Buffer) (compute.Buffer, func() error, error) {
	b, ok := x.(*buffer)
	if !ok || !d.Near(b.device) {
		return nil, nil, errors.Errorf("epl: a %T of another client cannot be copied by %s", x, d.DeviceDescription(0))
	}
	c, err := b.on(d)
	if err != nil {
		return nil, nil, err
	}
	return c, d.Later(c), nil
}

// Compile implements emit.Compiler. The module is compiled when the program is first run, unless it is made ready before: then it is known
// which inputs are donated.
func (d *Device) Compile(s *ir.Segment, _ func(*ir.Segment) (compute.Executable, error)) (compute.Executable, error) {
	x, err := newCode(d.client, d, s, d.gpu)
	return &executable{code: x, device: d}, err
}
