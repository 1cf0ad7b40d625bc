// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla

import (
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt"
)

var _ emit.Grouper = (*Device)(nil)

// CanGroup implements emit.Grouper.
func (d *Device) CanGroup(ranks []int) error {
	all := d.client.ranks
	switch {
	case len(ranks) == 1:
		return nil
	case d.client.opts.Share > 1:
		return errors.New("several devices are one GPU")
	case slices.Max(ranks) >= len(all):
		return errors.New("GPUs of other workers are not in the client of this one (communication.backend)")
	}
	return nil
}

// Group implements emit.Grouper: the devices run one module, each on its own data, and NCCL does the collectives.
func (d *Device) Group(s *ir.Segment) (compute.Executable, error) {
	ranks := s.Mesh.Ranks
	if len(ranks) == 1 {
		return d.Compile(s, nil)
	}
	c := d.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.groups[s]; x != nil {
		x.users++
		return &executable{code: x, device: d}, nil
	}
	gpus := make([]*pjrt.Device, len(ranks))
	for i, r := range ranks {
		gpus[i] = c.ranks[r]
	}
	x, err := newCode(c, d, s, gpus...)
	if err != nil {
		return nil, err
	}
	if c.groups == nil {
		c.groups = map[*ir.Segment]*code{}
	}
	c.groups[s] = x
	return &executable{code: x, device: d}, nil
}

// meet is where the devices of this process meet that run a segment together: the last one that comes starts it for all.
type meet struct {
	mu     sync.Mutex
	come   sync.Cond
	next   *round
	failed error // a device does not come
}

// round is one run.
type round struct {
	args [][]*pjrt.Buffer // by device
	n    int              // devices that came
	outs [][]*pjrt.Buffer
	err  error
	over bool
}

// together runs the segment on a device, with the others of this process. Those of other processes do the same by themselves.
func (x *code) together(gpu *pjrt.Device, args []*pjrt.Buffer, donate []bool) ([]*pjrt.Buffer, error) {
	if len(x.here) == 1 {
		outs, err := x.run([][]*pjrt.Buffer{args}, donate)
		if err != nil {
			return nil, err
		}
		return outs[0], nil
	}
	m := &x.meet
	m.mu.Lock()
	defer m.mu.Unlock()
	m.come.L = &m.mu
	if m.next == nil {
		m.next = &round{args: make([][]*pjrt.Buffer, len(x.here))}
	}
	r, me := m.next, slices.Index(x.here, gpu)
	r.args[me] = args
	if r.n++; r.n == len(x.here) {
		m.next = nil
		r.outs, r.err = x.run(r.args, donate)
		r.over = true
		m.come.Broadcast()
	}
	for !r.over && m.failed == nil {
		m.come.Wait()
	}
	switch {
	case !r.over:
		return nil, m.failed
	case r.err != nil:
		return nil, r.err
	}
	return r.outs[me], nil
}

// Abort implements emit.Joint.
func (x *code) Abort(err error) {
	x.meet.mu.Lock()
	defer x.meet.mu.Unlock()
	if x.meet.failed == nil {
		x.meet.failed = err
	}
	x.meet.come.Broadcast()
}

// Reset implements emit.Joint.
func (x *code) Reset() {
	x.meet.mu.Lock()
	defer x.meet.mu.Unlock()
	x.meet.failed, x.meet.next = nil, nil
}
