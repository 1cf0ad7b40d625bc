// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"hash/crc32"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/state"
)

// left is what the last step has left of the variables: devices that hold the same must hold the same bits.
type left struct {
	checked bool
	buffers []*Buffer // by variable of the schedule
}

var _ exec.Checked = (*stepper)(nil)

// after looks at what a step has left of the variables.
func (x *stepper) after(inputs, outs []compute.Buffer) error {
	if x.opts.Check == nil && x.opts.Flip == nil {
		return nil
	}
	l := &left{}
	for _, home := range x.schedule.Variables {
		from := inputs[x.param[home.Param]] // it does not change
		if home.Update != nil {
			i := slices.IndexFunc(x.program.Outputs, func(o ir.Output) bool { return o.Updates != nil && o.Updates.Param == home.Param })
			from = outs[i]
		}
		b, _ := from.(*Buffer)
		l.buffers = append(l.buffers, b)
	}
	x.left = l
	if err := x.flip(); err != nil {
		return err
	}
	if every := x.opts.CheckEvery; every > 0 && x.count%uint64(every) == 0 {
		return x.check()
	}
	return nil
}

// CheckNow implements exec.Checked.
func (x *stepper) CheckNow() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.check()
}

// check has what several devices hold compared.
func (x *stepper) check() error {
	if x.opts.Check == nil || x.left == nil || x.left.checked {
		return nil
	}
	if x.replicated == nil {
		x.replicated = x.findReplicated()
	}
	all := make([]exec.Copies, len(x.replicated))
	for i, r := range x.replicated {
		all[i] = exec.Copies{Variable: r.path, Region: r.text, Ranks: r.Ranks, Hashes: map[int]uint32{}}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, len(x.devices))
	for d := range x.devices {
		wg.Go(func() {
			rank := x.first + d
			var room room
			for i, r := range x.replicated {
				if !slices.Contains(r.Ranks, rank) {
					continue
				}
				sum, found, err := x.left.buffers[r.variable].hash(d, x.rows(r.variable, d), r.Region, &room)
				if err != nil {
					errs[d] = errors.WithMessagef(err, "epl: reliability.check_every: variable %q on device %d", r.path, rank)
					return
				}
				if found {
					mu.Lock()
					all[i].Hashes[rank] = sum
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if err := firstCause(errs); err != nil {
		return err
	}
	x.left.checked = true
	return x.opts.Check(x.count, all)
}

// replicated is a region of a variable that several devices hold.
type replicated struct {
	variable   int // of the schedule
	path, text string
	state.Held
}

// findReplicated lists them, in the same order on all workers. There is a list also if there are none.
func (x *stepper) findReplicated() []replicated {
	all := []replicated{}
	for i, home := range x.schedule.Variables {
		path, held := x.program.Variable(home.Param).Path, x.held(home)
		for _, h := range held {
			if len(h.Ranks) < 2 || h.Size() == 0 {
				continue
			}
			r := replicated{i, path, "", h}
			if len(held) > 1 {
				r.text = h.String()
			}
			slices.Sort(r.Ranks)
			all = append(all, r)
		}
	}
	return all
}

// rows are those of a variable of the schedule that a device has; nil: all.
func (x *stepper) rows(variable, device int) *rows {
	if r, shared := rowsOf(x.schedule.Variables[variable].Param, x.seat(x.first+device).at()); shared {
		return &r
	}
	return nil
}

// at is where a device has some rows, or all if they are nil; nil: it has them not. The lock is held.
func (b *Buffer) at(device int, want *rows) *compute.Buffer {
	on := b.shards
	if want != nil {
		if on = b.parts; device >= len(b.rows) || b.rows[device] != *want {
			return nil
		}
	}
	if b.gone || device >= len(on) || on[device] == nil {
		return nil
	}
	return &on[device]
}

// hash hashes the bits that a device has of a region; found is false if it has none: the program has set or let go of the variable meanwhile.
func (b *Buffer) hash(device int, want *rows, region state.Region, room *room) (sum uint32, found bool, err error) {
	if b == nil {
		return 0, false, nil
	}
	b.mu.Lock()
	at, shape, flat := b.at(device, want), b.shape, b.flat
	if b.gone || at == nil && (flat == nil || want != nil) {
		b.mu.Unlock()
		return 0, false, nil
	}
	var on compute.Buffer
	if at != nil {
		on = *at
	}
	over := make(chan struct{}) // nobody frees it meanwhile
	b.readers = append(slices.DeleteFunc(slices.Clone(b.readers), isOver), over)
	b.mu.Unlock()
	defer close(over)
	if on != nil {
		if want != nil {
			shape = want.shape(shape)
		}
		if flat, err = room.look(on, shape); err != nil {
			return 0, false, err
		}
	}
	bits := dtypes.UnsafeByteSliceFromAny(flat)[:state.Bytes(shape.DType, region.Size())] // without padding
	return crc32.Checksum(bits, castagnoli), true, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// room is memory for what is read from a device, by type.
type room struct{ of map[dtypes.DType]any }

// look is the memory of a buffer, or a copy that is good until the next call.
func (r *room) look(x compute.Buffer, shape shapes.Shape) (any, error) {
	h, host := x.(*hostBuffer)
	switch {
	case host && h.flat != nil:
		return h.flat, nil
	case !host && x.Backend().HasSharedBuffers():
		return x.Data()
	}
	n := shape.Size()
	if per := shape.DType.ValuesPerStorageUnit(); per > 1 {
		n = (n + per - 1) / per
	}
	flat := r.of[shape.DType]
	if flat == nil || reflect.ValueOf(flat).Len() < n {
		if r.of == nil {
			r.of = map[dtypes.DType]any{}
		}
		flat = newFlat(shape)
		r.of[shape.DType] = flat
	}
	flat = slice(flat, 0, n)
	return flat, x.ToFlatData(flat)
}

// flip changes a bit of a variable on the devices that are to have such a fault.
func (x *stepper) flip() error {
	if x.opts.Flip == nil {
		return nil
	}
	for d := range x.devices {
		rank := x.first + d
		path, changed, flips := x.opts.Flip(rank)
		if !flips {
			continue
		}
		var has []string
		best, most, shared := -1, 0, false
		for i, home := range x.schedule.Variables {
			b, name := x.left.buffers[i], x.program.Variable(home.Param).Path
			if b == nil || !b.has(d, x.rows(i, d)) {
				continue
			}
			has = append(has, name)
			for _, h := range x.held(home) {
				if !slices.Contains(h.Ranks, rank) || h.Size() == 0 || path != "" && path != name {
					continue
				}
				bytes, several := state.Bytes(home.Param.Shape.DType, h.Size()), len(h.Ranks) > 1
				if best < 0 || several && !shared || several == shared && bytes > most { // the largest that several devices hold, if there is one
					best, most, shared = i, bytes, several
				}
			}
		}
		if best < 0 {
			return errors.Errorf("epl: a bit of variable %q is to change on rank %d, which does not hold it; it holds %s", path, rank, strings.Join(has, ", "))
		}
		if err := x.left.buffers[best].flip(d, x.rows(best, d)); err != nil {
			return err
		}
		changed(x.program.Variable(x.schedule.Variables[best].Param).Path)
	}
	return nil
}

// has tells whether a device has some rows, or all if they are nil.
func (b *Buffer) has(device int, want *rows) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at(device, want) != nil
}

// flip changes a bit of what a device has.
func (b *Buffer) flip(device int, want *rows) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, region, shape := b.at(device, want), state.Whole(b.shape.Dimensions), b.shape
	if want != nil {
		region, shape = want.region(b.shape), want.shape(b.shape)
	}
	flat, err := toHost(*at, shape)
	if err != nil {
		return err
	}
	bits, size := dtypes.UnsafeByteSliceFromAny(flat), max(int(shape.DType.Size()), 1)
	middle := min(region.Size()/2*size+size/2, state.Bytes(shape.DType, region.Size())-1)
	bits[middle] ^= 1
	var wrong compute.Buffer
	h, host := (*at).(*hostBuffer)
	switch {
	case !host:
		wrong, err = b.runner.devices[device].BufferFromFlatData(0, flat, shape)
	case h.pinned != nil:
		c := &hostBuffer{backend: h.backend, shape: h.shape}
		c.pinned, err = hostMemory(h.backend).HostFromFlatData(flat, shape)
		wrong = c
	default:
		wrong = &hostBuffer{backend: h.backend, shape: h.shape, flat: flat}
	}
	if err != nil {
		return err
	}
	b.readers.wait()
	old := *at
	*at = wrong
	return old.Finalize()
}

// spoil lets a gradient among what a segment has computed be no number, on a device that is to have such a fault.
func (r *run) spoil(gives []schedule.Slot, outs []compute.Buffer) error {
	if r.opts.Spoil == nil {
		return nil
	}
	spoiled, spoils := r.opts.Spoil(r.id)
	if !spoils {
		return nil
	}
	for i, at := range gives {
		isGradient := slices.ContainsFunc(r.schedule.Buckets, func(b schedule.Bucket) bool {
			return slices.ContainsFunc(b.Merges, func(m *ir.Op) bool { return m.Phase == ir.Backward && m.Inputs[0] == at.Value })
		})
		shape := at.Value.LocalShape(r.at())
		if !isGradient || !shape.DType.IsFloat() || shape.Size() == 0 {
			continue
		}
		flat, err := toHost(outs[i], shape)
		if err != nil {
			return err
		}
		end := dtypes.UnsafeByteSliceFromAny(flat)[:shape.DType.Size()]
		end[len(end)-2], end[len(end)-1] = 0xff, 0x7f // the exponent, in every type
		b, err := r.device.backend.BufferFromFlatData(0, flat, shape)
		if err != nil {
			return err
		}
		old := outs[i]
		outs[i] = b
		spoiled()
		return old.Finalize()
	}
	return nil
}
