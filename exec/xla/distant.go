// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/pjrt"
)

var _ exec.Distant = (*Device)(nil)

// Reaches implements exec.Distant.
func (d *Device) Reaches(rank int) bool {
	c := d.client
	return c.opts.Send && c.opts.Opening.Peers != nil && rank < len(c.ranks) && c.Plugin().CrossHost()
}

// count numbers the copies from one rank to another: both ends make them in the same order.
func (c *client) count(from, to int) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent == nil {
		c.sent = map[[2]int]int64{}
	}
	c.sent[[2]int{from, to}]++
	return int64(from)<<48 | int64(to)<<32 | c.sent[[2]int{from, to}]
}

func (d *Device) rank() int { return slices.Index(d.client.ranks, d.gpu) }

// SendTo implements exec.Distant.
func (d *Device) SendTo(x compute.Buffer, rank int) (func() error, error) {
	b, ok := x.(*buffer)
	if !ok || b.device != d {
		return nil, errors.Errorf("epl: a %T of another device cannot be sent by %s", x, d.DeviceDescription(0))
	}
	var sent *pjrt.Event
	err := d.client.call(fmt.Sprintf("send to device %d", rank), func() (err error) {
		sent, err = b.data.Send(d.client.ranks[rank], d.client.count(d.rank(), rank))
		return err
	})
	if err != nil {
		return nil, err
	}
	return func() error { return b.late(d.client.finish(b.of, sent)) }, nil
}

// ReceiveFrom implements exec.Distant.
func (d *Device) ReceiveFrom(rank int, shape shapes.Shape) (compute.Buffer, func() error, error) {
	var got *pjrt.Buffer
	err := d.client.call(fmt.Sprintf("receive from device %d", rank), func() (err error) {
		got, err = d.gpu.Receive(d.client.ranks[rank], d.client.count(rank, d.rank()), pjrt.Type(shape.DType), dims(shape)...)
		return err
	})
	if err != nil {
		return nil, nil, d.refused(err, shape, d.gpu.DefaultMemory)
	}
	b := &buffer{device: d, data: got, shape: shape}
	return b, d.Later(b), nil
}
