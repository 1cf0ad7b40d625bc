// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/pjrt"
)

var _ exec.HostMemory = (*Device)(nil)

// HasHostMemory implements exec.HostMemory.
func (d *Device) HasHostMemory() bool { return d.pinned != nil }

// ToHost implements exec.HostMemory.
func (d *Device) ToHost(b compute.Buffer) (compute.Buffer, error) { return d.moved(b, d.pinned) }

// ToDevice implements exec.HostMemory.
func (d *Device) ToDevice(b compute.Buffer) (compute.Buffer, error) {
	return d.moved(b, d.gpu.DefaultMemory)
}

// moved begins to copy a buffer of the device to its other memory.
func (d *Device) moved(b compute.Buffer, to *pjrt.Memory) (compute.Buffer, error) {
	x, ok := b.(*buffer)
	if !ok || x.device != d {
		return nil, errors.Errorf("epl: a %T of another device cannot be copied by %s", b, d.DeviceDescription(0))
	}
	c, err := x.data.CopyToMemory(to)
	if err != nil {
		return nil, d.refused(err, x.shape, to)
	}
	return &buffer{device: d, data: c, shape: x.shape, of: x.of, by: x.by, host: to == d.pinned}, nil
}

// HostFromFlatData implements exec.HostMemory.
func (d *Device) HostFromFlatData(flat any, shape shapes.Shape) (compute.Buffer, error) {
	return d.upload(d.pinned, flat, shape)
}

// Await implements exec.HostMemory.
func (d *Device) Await(b compute.Buffer) error { return d.Later(b)() }

// Later implements exec.HostMemory.
func (d *Device) Later(b compute.Buffer) func() error {
	x := b.(*buffer)
	ready, err := x.data.ReadyEvent()
	return func() error {
		if err == nil {
			err = d.client.finish(x.of, ready)
		}
		return x.late(err)
	}
}

// refused is the error of a copy to a memory.
func (d *Device) refused(err error, shape shapes.Shape, to *pjrt.Memory) error {
	if to != d.pinned {
		return errors.WithMessagef(err, "epl: %s cannot be copied to %s", shape, d.DeviceDescription(0))
	}
	return errors.WithMessagef(err, "epl: %s cannot be kept in pinned memory of the host, of which XLA takes at most 64 GiB, or as many as XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB says", shape)
}
