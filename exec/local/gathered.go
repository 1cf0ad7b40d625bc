// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// Devices of one worker that have the same memory gather a variable into one tensor, which all of them read: it is written once instead of once for each.

// gathering is an all-gather of the model replicas' devices at a position of their place.
type gathering struct {
	op              *ir.Op
	micro, position int
}

// gatherings are those to which some devices have not come.
type gatherings struct {
	mu  sync.Mutex
	all map[gathering]*gathered
}

// gathered is the memory of a gathering.
type gathered struct {
	buffers []compute.Buffer // by model replica; all have the same memory
	left    int              // that have not come
}

// take returns a replica's buffer. The first that comes makes those of all, so that none depends on what another does with its own.
func (x *gatherings) take(at gathering, replica int, create func() ([]compute.Buffer, error)) (compute.Buffer, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	g := x.all[at]
	if g == nil {
		buffers, err := create()
		if err != nil {
			return nil, err
		}
		g = &gathered{buffers, len(buffers)}
		if x.all == nil {
			x.all = map[gathering]*gathered{}
		}
		x.all[at] = g
	}
	if g.left--; g.left == 0 {
		delete(x.all, at)
	}
	return g.buffers[replica], nil
}

// gathersInto is memory for what a device gathers: that of its peers, too, if they have the same memory.
func (r *run) gathersInto(op *ir.Op, micro int, shape shapes.Shape) (b compute.Buffer, flat any, err error) {
	peers := r.peers()
	// What is gathered once is the new value of a variable, which devices overwrite.
	if _, how := op.Change(); micro == schedule.Once || how != ir.AllGatherOf || !r.shareMemory(peers) {
		return r.fresh(shape)
	}
	b, err = r.gatherings.take(gathering{op, micro, r.position}, r.replica, func() ([]compute.Buffer, error) { return r.buffersOf(peers, shape) })
	if err != nil {
		return nil, nil, err
	}
	flat, err = b.Data()
	return b, flat, err
}

// sharing tells whether devices of a worker have one memory.
func sharing(devices []compute.Backend) bool {
	return !slices.ContainsFunc(devices, func(b compute.Backend) bool { _, ok := b.(exec.Sharer); return !ok })
}

// shareMemory tells whether ranks are devices of this worker that see the memory of each other.
func (r *run) shareMemory(ranks []int) bool {
	for _, rank := range ranks {
		if !r.near(rank, r.id) || !r.device.shares() {
			return false
		}
	}
	return true
}

// buffersOf makes a buffer of each device, all with the same memory.
func (r *run) buffersOf(ranks []int, shape shapes.Shape) ([]compute.Buffer, error) {
	own, _, err := r.fresh(shape)
	if err != nil {
		return nil, err
	}
	all := make([]compute.Buffer, len(ranks))
	for i, rank := range ranks {
		if rank == r.id {
			all[i] = own
		} else if all[i], err = r.devices[rank-r.step.first].backend.(exec.Sharer).Share(own); err != nil {
			return nil, err
		}
	}
	return all, nil
}
