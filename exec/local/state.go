// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/state"
)

// Source gives regions of a tensor, such as from a checkpoint. It may be called at the same time.
type Source func(r state.Region, to []byte) error

// From makes a buffer whose data are read when they are used: each device reads its part. With equal all workers have to give it the same; else the first
// one's counts, as of any value that no step has made.
func (d *Runner) From(shape shapes.Shape, source Source, equal bool) compute.Buffer {
	return &Buffer{runner: d, shape: shape, source: source, equal: equal}
}

// Held tells which ranks hold which regions of a variable; equal is false if it is a value that workers may have different ones of, since no step
// has made it, and the first worker's counts.
func (d *Runner) Held(from compute.Buffer) (held []state.Held, equal bool, err error) {
	b, ok := from.(*Buffer)
	if !ok || b.runner != d {
		return nil, false, errors.Errorf("epl: internal error: a %T is no buffer of this worker", from)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, false, errGone
	}
	if b.equal && b.held != nil {
		return b.held(), true, nil
	}
	ranks := []int{0}
	if d.Job != nil && b.equal {
		ranks = d.Job.Firsts()
	}
	return []state.Held{{Region: state.Whole(b.shape.Dimensions), Ranks: ranks}}, b.equal, nil
}

// look gives the data of a buffer, to be read at once: without a copy, where the device shares memory with the host.
func look(x compute.Buffer, shape shapes.Shape) (any, error) {
	if h, ok := x.(*hostBuffer); ok {
		if h.flat != nil {
			return h.flat, nil
		}
		return toHost(h.pinned, shape)
	}
	flat, _, err := hostView(x.Backend(), x, shape)
	return flat, err
}

// region is the part of a tensor that the rows are, without padding.
func (r rows) region(s shapes.Shape) state.Region {
	x := state.Whole(s.Dimensions)
	if r.dim >= 0 {
		x.Start[r.dim], x.Limit[r.dim] = r.start, r.start+r.size
		x = state.Box(x.Start, x.Limit)
	}
	if r.parts > 0 {
		all, n := x.To, r.shape(s).Size()
		x.From, x.To = min(r.part*n, all), min((r.part+1)*n, all)
	}
	return x
}

// held are the regions of a variable that the program updates, and the ranks that have them.
func (x *stepper) held(home schedule.Variable) (all []state.Held) {
	add := func(r state.Region, rank int) {
		i := slices.IndexFunc(all, func(h state.Held) bool { return h.Region.Equal(r) })
		if i < 0 {
			i = len(all)
			all = append(all, state.Held{Region: r})
		}
		if !slices.Contains(all[i].Ranks, rank) {
			all[i].Ranks = append(all[i].Ranks, rank)
		}
	}
	shape := home.Param.Shape
	for replica := range x.schedule.Ranks {
		for _, place := range home.Places {
			for position, rank := range x.ranks(replica, place) {
				r, _ := rowsOf(home.Param, seat{replica, place, position}.at())
				add(r.region(shape), rank)
			}
		}
	}
	return all
}

// readSource reads some rows into a part, without padding. The lock is held.
func (b *Buffer) readSource(want rows, part any) error {
	r := want.region(b.shape)
	return b.source(r, dtypes.UnsafeByteSliceFromAny(part)[:state.Bytes(b.shape.DType, r.Size())])
}

// readPart copies some rows into a part, without padding: from where they are, or straight from their source. The lock is held.
func (b *Buffer) readPart(want rows, part any) error {
	isThere := func(x compute.Buffer) bool { return x != nil }
	if b.source != nil && b.flat == nil && !slices.ContainsFunc(b.shards, isThere) {
		return b.readSource(want, part)
	}
	flat, err := b.look()
	if err != nil {
		return err
	}
	want.cut(part, flat, b.shape)
	return nil
}
