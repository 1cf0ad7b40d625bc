// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/state"
)

// readers are those who read a buffer's data besides programs: each closes its channel when it has. The data may be given to a program meanwhile, which
// reads them, too. Before it overwrites or frees them it waits, or, if devices have memory to spare, it leaves them alone and writes elsewhere.
type readers []chan struct{}

// wait waits until nobody reads any more.
func (r readers) wait() {
	for _, done := range r {
		<-done
	}
}

// over tells whether nobody reads any more.
func (r readers) over() bool {
	return !slices.ContainsFunc(r, func(done chan struct{}) bool { return !isOver(done) })
}

// Reading is how a variable is read while programs run.
type Reading struct {
	// Read copies a region that this worker holds.
	Read Source
	// View is the memory of a region, which does not change until Done; nil: it has to be copied soon, because steps wait for Done.
	View func(want state.Region) []byte
	// Done is to be called when all is read. Calling it twice is harmless.
	Done func()
}

// Reader lets a region of a variable that this worker holds be read, also while programs read it and after it was donated, until Done is called.
func (d *Runner) Reader(from compute.Buffer, want state.Region) (*Reading, error) {
	b, ok := from.(*Buffer)
	if !ok || b.runner != d {
		return nil, errors.Errorf("epl: internal error: a %T is no buffer of this worker", from)
	}
	if err := d.Closed(); err != nil {
		return nil, err
	}
	if err := b.verdict.err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, errGone
	}
	at, err := b.where(want)
	if err != nil {
		return nil, err
	}
	if c := at.pinned(); c != nil {
		at.on = c
		return &Reading{Read: at.read(b.shape), Done: sync.OnceFunc(func() { _ = c.Finalize() })}, nil
	}
	over := make(chan struct{})
	b.readers = append(slices.DeleteFunc(slices.Clone(b.readers), isOver), over)
	r := &Reading{Read: b.source, Done: sync.OnceFunc(func() { close(over) })}
	if at != nil {
		r.Read = at.read(b.shape)
	}
	if at != nil && d.spares() {
		r.View = at.view(b.shape)
	}
	return r, nil
}

// location is where a region of a variable is.
type location struct {
	on    compute.Buffer // nil: flat has it
	shape shapes.Shape   // of on
	flat  any
	has   state.Region // what all of it is of the variable
}

// where finds a region; nil: it has to be read from the source. The lock is held.
func (b *Buffer) where(want state.Region) (*location, error) {
	whole := state.Whole(b.shape.Dimensions)
	if i := slices.IndexFunc(b.shards, func(x compute.Buffer) bool { return x != nil }); i >= 0 {
		return &location{on: b.shards[i], shape: b.shape, has: whole}, nil
	}
	switch {
	case b.flat != nil:
		return &location{flat: b.flat, has: whole}, nil
	case b.source != nil:
		return nil, nil
	}
	for i, part := range b.parts {
		if part == nil {
			continue
		}
		if has := b.rows[i].region(b.shape); within(want, has) {
			return &location{on: part, shape: b.rows[i].shape(b.shape), has: has}, nil
		}
	}
	return nil, errors.Errorf("epl: this worker does not have %v of a variable that it should have; was the variable set on some workers only?", want)
}

// within tells whether a region is a range of the elements of another.
func within(x, of state.Region) bool {
	return slices.Equal(of.Start, x.Start) && slices.Equal(of.Limit, x.Limit) && of.From <= x.From && x.To <= of.To
}

// pinned begins to copy what a device has to memory of the host that the device copies to while it computes. A step need not wait for that, the device does; nil: there is
// no such memory, or not enough.
func (l *location) pinned() compute.Buffer {
	if l == nil || l.on == nil {
		return nil
	}
	if _, ok := l.on.(*hostBuffer); ok {
		return nil
	}
	host := hostMemory(l.on.Backend())
	if host == nil {
		return nil
	}
	c, err := host.ToHost(l.on)
	if err != nil {
		return nil // a step waits for a copy without it
	}
	return c
}

// look is the memory that the region is in.
func (l *location) look() (any, error) {
	if l.on == nil {
		return l.flat, nil
	}
	return look(l.on, l.shape)
}

// read copies regions of a variable.
func (l *location) read(variable shapes.Shape) Source {
	return func(want state.Region, to []byte) error {
		flat, err := l.look()
		if err != nil {
			return err
		}
		return state.Cut(variable.DType, variable.Dimensions, to, want, dtypes.UnsafeByteSliceFromAny(flat), l.has)
	}
}

// view is the memory of regions of a variable.
func (l *location) view(variable shapes.Shape) func(want state.Region) []byte {
	return func(want state.Region) []byte {
		flat, err := l.look()
		if err != nil || variable.DType.IsPacked() || !within(want, l.has) {
			return nil
		}
		size := int(variable.DType.Size())
		return dtypes.UnsafeByteSliceFromAny(flat)[(want.From-l.has.From)*size : (want.To-l.has.From)*size]
	}
}

// Unread tells whether a variable that was loaded has not been read from where it was.
func (d *Runner) Unread(of compute.Buffer) bool {
	b, ok := of.(*Buffer)
	if !ok {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at, err := b.where(state.Whole(b.shape.Dimensions))
	return !b.gone && at == nil && err == nil
}

// spares tells whether steps leave variables alone that somebody reads: devices share the memory of the host, and have enough of it.
func (d *Runner) spares() bool {
	return d.Spare && !slices.ContainsFunc(d.devices, func(b compute.Backend) bool { return !b.HasSharedBuffers() })
}

// finalize frees what is on a device, when nobody reads it any more.
func (d *Runner) finalize(x compute.Buffer, others readers) error {
	if !d.leaves(others) {
		others.wait()
		return x.Finalize()
	}
	d.ahead.Go(func() {
		others.wait()
		_ = x.Finalize()
	})
	return nil
}

// isOver tells whether somebody has read what he wanted.
func isOver(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// leaves tells whether data that others may still read are left alone: nobody waits for them.
func (d *Runner) leaves(others readers) bool { return !others.over() && d.spares() }

// settle decides which of the donated inputs may be overwritten: others who read one are waited for, or it is left alone, and is not donated.
func (d *Runner) settle(donate []bool, others []readers) {
	for i, is := range donate {
		if donate[i] = is && !d.leaves(others[i]); donate[i] {
			others[i].wait()
		}
	}
}

// execute runs an executable on inputs that others may still read, as late as it can. What it has left alone is not donated after all.
func (d *Runner) execute(x compute.Executable, ins []compute.Buffer, donate []bool, others []readers) ([]compute.Buffer, error) {
	isRead := false
	for i, is := range donate {
		isRead = isRead || is && !others[i].over()
	}
	if late, ok := x.(emit.Yielding); isRead && ok {
		return late.ExecuteYielding(ins, slices.Clone(donate), 0, func(i int) bool {
			d.settle(donate[i:i+1], others[i:i+1])
			return donate[i]
		})
	}
	d.settle(donate, others)
	return x.Execute(ins, donate, 0)
}
