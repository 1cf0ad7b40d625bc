package local

import (
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
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

// Reader lets regions of a variable that this worker holds be read, also while programs read it and after it was donated, until Done is called.
func (d *Runner) Reader(from compute.Buffer) (*Reading, error) {
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
	over := make(chan struct{})
	b.readers = append(slices.DeleteFunc(slices.Clone(b.readers), isOver), over)
	at := b.reader()
	r := &Reading{Done: sync.OnceFunc(func() { close(over) })}
	if b.source != nil && at == nil {
		r.Read = b.source
		return r, nil
	}
	shape := b.shape
	r.Read = func(want state.Region, to []byte) error {
		flat, has, err := at(want)
		if err != nil {
			return err
		}
		return state.Cut(shape.DType, shape.Dimensions, to, want, dtypes.UnsafeByteSliceFromAny(flat), has)
	}
	if d.spares() {
		r.View = func(want state.Region) []byte {
			flat, has, err := at(want)
			if err != nil || shape.DType.IsPacked() || !slices.Equal(has.Start, want.Start) || !slices.Equal(has.Limit, want.Limit) || want.From < has.From || want.To > has.To {
				return nil
			}
			size := int(shape.DType.Size())
			return dtypes.UnsafeByteSliceFromAny(flat)[(want.From-has.From)*size : (want.To-has.From)*size]
		}
	}
	return r, nil
}

// Unread tells whether a variable that was loaded has not been read from where it was.
func (d *Runner) Unread(of compute.Buffer) bool {
	b, ok := of.(*Buffer)
	if !ok {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.gone && b.source != nil && b.reader() == nil
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

// reader tells where a region is now, and of which region that is a part; nil: it has to be read from the source. The lock is held, but not when
// it is asked.
func (b *Buffer) reader() func(want state.Region) (flat any, has state.Region, err error) {
	shape, flat, whole := b.shape, b.flat, state.Whole(b.shape.Dimensions)
	if i := slices.IndexFunc(b.shards, func(x compute.Buffer) bool { return x != nil }); i >= 0 {
		shard := b.shards[i]
		return func(state.Region) (any, state.Region, error) {
			flat, err := look(shard, shape)
			return flat, whole, err
		}
	}
	switch {
	case flat != nil:
		return func(state.Region) (any, state.Region, error) { return flat, whole, nil }
	case b.source != nil:
		return nil
	}
	parts, rows := slices.Clone(b.parts), slices.Clone(b.rows)
	return func(want state.Region) (any, state.Region, error) {
		for i, part := range parts {
			if part == nil {
				continue
			}
			has := rows[i].region(shape)
			if slices.Equal(has.Start, want.Start) && slices.Equal(has.Limit, want.Limit) && has.From <= want.From && want.To <= has.To {
				flat, err := look(part, rows[i].shape(shape))
				return flat, has, err
			}
		}
		return nil, whole, errors.Errorf("epl: this worker does not have %v of a variable that it should have; was the variable set on some workers only?", want)
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
