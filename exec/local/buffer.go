// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/state"
)

// Buffer is a tensor on the devices. It implements compute.Buffer. GoMLX sees the logical shape. The data are one of:
//
//   - one shard, on device 0: what programs that run once take and give;
//   - a shard on each device where a variable lives, all with the same data, after its first training step; if that is no
//     device of this worker, it is fetched from another when it is read;
//   - a part on each of several devices, on this worker and others, for a variable that is split;
//   - a slice on the host: the first value of a variable that is larger than a device, or of one that is kept there;
//   - a source, such as a checkpoint, from which each device reads its part;
//   - a feed: the batches of a step, still on the host.
type Buffer struct {
	runner *Runner
	shape  shapes.Shape

	feed  *Feed // for data of a step
	index int   // which tensor of its batches

	mu     sync.Mutex              // GoMLX may finalize from the garbage collector's goroutine
	shards []compute.Buffer        // by device; nil where there is none
	flat   any                     // on the host; nil if it is not there. It is not written to
	remote *remote                 // where it is, if no device of this worker has it; nil otherwise
	parts  []compute.Buffer        // of a variable that is split, by device; nil where there is none
	rows   []rows                  // which rows the parts are, by device
	pieces []piece                 // all of them, and who has them; nil if it is not split, or there are shards that are newer
	views  map[view]compute.Buffer // other parts, for programs that only read them
	gone   bool
	// readers read it besides programs.
	readers readers
	source  Source              // where it is read from, if it is nowhere else; nil otherwise
	held    func() []state.Held // who has which part of it, because a step made it; nil: every worker has all of it
	// withdraw ends that other workers may read it; nil if they may not.
	withdraw func()
	equal    bool     // on all workers, because a step made it
	verdict  *verdict // of the step that it is a result of; nil: it is none, or the step is right

	// use is held for reading while a program computes with it before its turn: see [ahead].
	use sync.RWMutex
	// serving is held while another worker reads a part, and while parts go away. It is not mu, which is held while this
	// worker reads parts of others, who may do the same.
	serving sync.Mutex
}

var _ compute.Buffer = (*Buffer)(nil)

var errGone = errors.New("epl: a buffer was used after it was finalized or donated")

// Backend implements compute.Buffer.
func (b *Buffer) Backend() compute.Backend { return b.runner.Owner }

// Shape implements compute.Buffer.
func (b *Buffer) Shape() (shapes.Shape, error) { return b.shape, nil }

// DeviceNum implements compute.Buffer: GoMLX sees one device.
func (b *Buffer) DeviceNum() (compute.DeviceNum, error) { return 0, nil }

// shard returns the data of one device, which gets its own copy if only device 0 has one.
func (b *Buffer) shard(device int) (compute.Buffer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.on(device)
}

// on is shard with the lock held.
func (b *Buffer) on(device int) (compute.Buffer, error) {
	if err := b.runner.Closed(); err != nil {
		return nil, err
	}
	if b.gone {
		return nil, errGone
	}
	if err := b.verdict.err(); err != nil {
		return nil, err
	}
	for len(b.shards) <= device {
		b.shards = append(b.shards, nil)
	}
	if b.shards[device] == nil && b.feed != nil {
		if b.feed.head == nil {
			return nil, errors.New("epl: this worker has no batch for this step")
		}
		s, err := b.feed.upload(b.runner, device, *b.feed.head, b.index)
		if err != nil {
			return nil, err
		}
		b.shards[device] = s
	}
	if b.shards[device] == nil {
		flat, err := b.look()
		if err != nil {
			return nil, err
		}
		if b.shards[device], err = b.runner.devices[device].BufferFromFlatData(0, flat, b.shape); err != nil {
			return nil, err
		}
	}
	h, ok := b.shards[device].(*hostBuffer)
	if !ok {
		return b.shards[device], nil
	}
	x, err := h.on(b.runner.devices[device])
	if err != nil {
		return nil, err
	}
	b.shards[device] = x
	b.readers.wait()
	return x, h.Finalize()
}

// host copies the data to the host: from any device that has them, or from another worker. The lock is held.
func (b *Buffer) host() (any, error) {
	for _, s := range b.shards {
		if s != nil {
			return toHost(s, b.shape)
		}
	}
	switch {
	case b.flat != nil:
		return b.flat, nil
	case b.pieces != nil:
		return b.gather()
	case b.remote != nil:
		return b.remote.fetch(b.runner.Job, b.shape)
	case b.source != nil:
		flat := newFlat(b.shape)
		return flat, b.readSource(rows{dim: -1}, flat)
	}
	return nil, errors.New("epl: internal error: a buffer has no data")
}

// look is host for who reads the data at once: without a copy, where a device shares its memory with the host. The lock is held.
func (b *Buffer) look() (any, error) {
	for _, s := range b.shards {
		if s != nil {
			return look(s, b.shape)
		}
	}
	return b.host()
}

// leave leaves the data on the host only: all of them are in flat. The lock is held.
func (b *Buffer) leave(flat any) error {
	b.serving.Lock()
	defer b.serving.Unlock()
	b.readers.wait()
	for _, x := range b.everywhere() {
		if x == nil {
			continue
		}
		if err := x.Finalize(); err != nil {
			return err
		}
	}
	b.shards, b.parts, b.pieces, b.views, b.source, b.flat = nil, nil, nil, nil, nil, flat
	return nil
}

// everywhere is what devices have of the data. The lock is held.
func (b *Buffer) everywhere() []compute.Buffer {
	return slices.Concat(b.shards, b.parts, slices.Collect(maps.Values(b.views)))
}

// isEqual tells whether all workers are known to have the same data.
func (b *Buffer) isEqual() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.equal
}

// isRead tells whether somebody reads it besides programs.
func (b *Buffer) isRead() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.readers.over()
}

// take returns the data of all devices, parts included, to a new owner: the buffer is gone. The owner waits for those who read them before he overwrites or
// frees them.
func (b *Buffer) take() (all []compute.Buffer, others readers, err error) {
	defer func() {
		if b.withdraw != nil && err == nil { // not under the lock: who reads may wait for it
			b.withdraw()
		}
	}()
	b.use.Lock()
	defer b.use.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, nil, errGone
	}
	b.serving.Lock()
	defer b.serving.Unlock()
	all = slices.DeleteFunc(b.everywhere(), func(x compute.Buffer) bool { return x == nil })
	b.shards, b.flat, b.parts, b.pieces, b.views, b.source, b.gone = nil, nil, nil, nil, nil, nil, true
	if b.feed != nil {
		return all, nil, b.feed.finalize(b.index)
	}
	return all, slices.DeleteFunc(slices.Clone(b.readers), isOver), nil
}

// Finalize implements compute.Buffer. Doing it twice is harmless.
func (b *Buffer) Finalize() error {
	if b.runner.Closed() != nil {
		return nil // it went with the devices
	}
	all, others, err := b.take()
	if err == errGone {
		return nil
	}
	for _, s := range all {
		if e := b.runner.finalize(s, others); e != nil && err == nil {
			err = e
		}
	}
	return err
}

// ToFlatData implements compute.Buffer.
func (b *Buffer) ToFlatData(flat any) (err error) {
	if err := b.runner.Closed(); err != nil {
		return err
	}
	defer func() {
		if advise := b.runner.Advise; err != nil && advise != nil {
			err = advise(err)
		}
	}()
	if err := b.verdict.err(); err != nil {
		return err
	}
	if j := b.runner.Job; j != nil && b.isEqual() {
		j.Reading()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.shards {
		if s != nil {
			return s.ToFlatData(flat)
		}
	}
	if b.feed != nil || b.gone {
		s, err := b.on(0)
		if err != nil {
			return err
		}
		return s.ToFlatData(flat)
	}
	whole, err := b.host()
	if err != nil {
		return err
	}
	copyFlat(flat, whole)
	return nil
}

// Peek implements exec.Runner.
func (d *Runner) Peek(from compute.Buffer, flat any) (ok bool, err error) {
	b, ok := from.(*Buffer)
	if !ok || d.Closed() != nil {
		return false, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.shards {
		if s != nil {
			return true, s.ToFlatData(flat)
		}
	}
	return false, nil
}

// Data implements compute.Buffer, by an error: see [Runner.HasSharedBuffers].
func (b *Buffer) Data() (any, error) {
	return nil, errors.New("epl: buffers are not shared with the host: use ToFlatData")
}

// CopyToDevice implements compute.Buffer: a copy on the one device that GoMLX sees.
func (b *Buffer) CopyToDevice(device compute.DeviceNum) (compute.Buffer, error) {
	if err := b.runner.check(device); err != nil {
		return nil, err
	}
	s, err := b.shard(0)
	if err != nil {
		return nil, err
	}
	flat, err := toHost(s, b.shape)
	if err != nil {
		return nil, err
	}
	c, err := b.runner.BufferFromFlatData(device, flat, b.shape)
	if err != nil {
		return nil, err
	}
	c.(*Buffer).equal = b.isEqual()
	return c, nil
}

// toHost copies a buffer of an inner backend out, as a slice of its dtype's Go type.
func toHost(b compute.Buffer, shape shapes.Shape) (any, error) {
	flat := newFlat(shape)
	return flat, b.ToFlatData(flat)
}

// copyFlat copies between slices of the same type.
func copyFlat(to, from any) { reflect.Copy(reflect.ValueOf(to), reflect.ValueOf(from)) }

// slice is some elements of a slice.
func slice(flat any, from, to int) any { return reflect.ValueOf(flat).Slice(from, to).Interface() }

// newFlat makes a slice that holds a tensor.
func newFlat(shape shapes.Shape) any {
	n := shape.Size()
	if per := shape.DType.ValuesPerStorageUnit(); per > 1 {
		n = (n + per - 1) / per
	}
	return reflect.MakeSlice(reflect.SliceOf(shape.DType.GoType()), n, n).Interface()
}
