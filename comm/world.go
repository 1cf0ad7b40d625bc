// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/inproc"
	"github.com/easyparallel/epl/comm/internal/transport"
	"github.com/easyparallel/epl/comm/mpi"
)

// Defaults of [Options].
const (
	DefaultTimeout       = 5 * time.Minute
	DefaultRecorderCalls = 64
)

// Options of a world. The zero value is good.
type Options struct {
	// Timeout is how long a call waits for the other ranks, from when the first of them came. It is what
	// communication.timeout sets. 0: DefaultTimeout.
	Timeout time.Duration

	// RecorderCalls is how many calls the flight recorder of each rank remembers. 0: DefaultRecorderCalls.
	RecorderCalls int

	// MPI lets ranks of different workers communicate by MPI, in programs that are built with the tag "mpi" and started by
	// its mpirun, worker by worker in the order of MPI's ranks.
	MPI bool

	// Unchecked lets data travel over connections without a CRC-32C. It is for connections that check by themselves, as
	// those with TLS do, and what communication.checksum sets to false. Data that were changed on their way end the job
	// otherwise, with a [CorruptionError].
	Unchecked bool

	// Streams is how many connections two workers use at once where they use connections, which is what communication.streams
	// sets. More than one are faster where the network limits each. 0: one.
	Streams int
}

// World is the ranks of a job and what connects them. Its methods may be called from any goroutine.
type World struct {
	base  *transport.World // what transports know of it
	ranks []*rank
	all   *Group
	local []int // this worker's ranks
	mpi   bool

	looking sync.Mutex // at who is overdue: of what calls know of that

	mu       sync.Mutex
	groups   map[string]*Group
	meetings map[meetingKey]*inproc.Meeting
	broken   error // set once by Abort or Close: no call can succeed any more
	closed   bool

	life    context.Context // ends when the world is broken
	end     context.CancelFunc
	running sync.WaitGroup // goroutines of calls that were started
	stop    chan struct{}  // ends the goroutine that watches the mesh
}

// rank is what the communicators of a rank share.
type rank struct {
	recorder FlightRecorder
	counters counters
}

// NewInProcess returns a world of n ranks that are goroutines of this process. They lend each other their slices, so
// that nothing is copied on the way. The world has no goroutines of its own, except for calls that were started.
func NewInProcess(n int, opts Options) (*World, error) {
	if n < 1 {
		return nil, errors.Errorf("epl: a world of %d ranks is impossible; use at least 1", n)
	}
	return New(Layout{Workers: []Place{{Ranks: n}}}, nil, opts)
}

// New returns the world of a job with several workers, as this one sees it: it has the ends of the worker's own ranks.
// All workers make one with the same options, and the same layout but for their index. The mesh connects them; a layout
// of one worker needs none. When the mesh is done, so is the world, and the other way round if a call fails.
func New(layout Layout, mesh Mesh, opts Options) (*World, error) {
	if err := layout.Check(); err != nil {
		return nil, err
	}
	switch {
	case len(layout.Workers) > 1 && mesh == nil:
		return nil, errors.Errorf("epl: %d workers need a mesh that connects them", len(layout.Workers))
	case opts.MPI && !mpi.Available:
		return nil, mpi.Join(nil) // it says how to get it
	case opts.Timeout < 0:
		return nil, errors.Errorf("epl: a timeout of %s is impossible; use a positive one, or 0 for %s", opts.Timeout, DefaultTimeout)
	case opts.RecorderCalls < 0:
		return nil, errors.Errorf("epl: a flight recorder of %d calls is impossible; use a positive number, or 0 for %d",
			opts.RecorderCalls, DefaultRecorderCalls)
	case opts.Streams < 0:
		return nil, errors.Errorf("epl: %d streams are impossible; use a positive number, or 0 for 1", opts.Streams)
	}
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.RecorderCalls == 0 {
		opts.RecorderCalls = DefaultRecorderCalls
	}
	if len(layout.Workers) == 1 {
		mesh = nil
	}
	w := &World{base: transport.NewWorld(layout, mesh, opts.Timeout, !opts.Unchecked), mpi: opts.MPI && mesh != nil,
		groups: map[string]*Group{}, meetings: map[meetingKey]*inproc.Meeting{}}
	w.base.Streams = max(1, opts.Streams)
	w.life, w.end = context.WithCancel(context.Background())
	var everybody []int
	for r := range w.base.WorkerOf {
		everybody = append(everybody, r)
		w.ranks = append(w.ranks, &rank{recorder: FlightRecorder{rank: r, now: w.base.Now}})
		if w.base.IsLocal(r) {
			w.local = append(w.local, r)
			w.ranks[r].recorder.entries = make([]Entry, opts.RecorderCalls)
		}
	}
	if mesh != nil {
		if w.mpi {
			if err := mpi.Join(w.base); err != nil {
				return nil, err
			}
		}
		mesh.Answer(w.answer)
		w.stop = make(chan struct{})
		w.running.Go(func() {
			select {
			case <-mesh.Done():
				w.Abort(mesh.Err())
			case <-w.stop:
			}
		})
	}
	var err error
	w.all, err = w.Group(everybody)
	return w, err
}

// Patience returns how long who waits for others has to wait before it inquires who holds it up, and before it gives up.
// Both are a little less than the timeout: an inquiry takes time, and who looks only now and then would be late next time.
func (w *World) Patience() (inquire, giveUp time.Duration) { return w.base.Patience() }

// LocalRanks returns the ranks of this worker.
func (w *World) LocalRanks() []int { return slices.Clone(w.local) }

// Size returns the number of ranks.
func (w *World) Size() int { return len(w.ranks) }

// All returns the group of all ranks.
func (w *World) All() *Group { return w.all }

// FlightRecorder returns the memory of a rank's last calls, which is empty for ranks of other workers. The rank must be in
// the world.
func (w *World) FlightRecorder(rank int) *FlightRecorder { return &w.ranks[rank].recorder }

// Counters returns what a rank has communicated since the world was made, by the name of the operation; operations
// that it never completed are left out. Bytes are those that the rank gives: the whole buffer of an all-reduce, In of a
// reduce-scatter, all-gather or all-to-all (its own part included), the root's buffer of a broadcast (0 for the
// others), the buffer of a send; only recv counts what it takes. In a group of one nothing is communicated: its calls
// count, with 0 bytes. The rank must be one of this worker's.
func (w *World) Counters(rank int) map[string]Counter { return w.ranks[rank].counters.read() }

// Abort ends all communication, on all workers: calls that wait for other ranks return at once with an error that wraps
// err, and so does every later call. Calls in which all ranks have met still complete. The first error stays.
//
// To let a context do it: stop := context.AfterFunc(ctx, func() { w.Abort(context.Cause(ctx)) }).
func (w *World) Abort(err error) {
	if err == nil {
		err = errors.New("epl: the communication was aborted without a reason")
	}
	w.mu.Lock()
	first := w.broken == nil
	w.fail(err)
	w.mu.Unlock()
	if first && w.base.Mesh != nil {
		w.base.Mesh.Fail(err)
	}
}

// fail breaks all communicators. The lock is held.
func (w *World) fail(err error) {
	if w.broken != nil {
		return
	}
	w.broken = err
	w.end()
	for _, m := range w.meetings {
		m.Fail(err)
	}
}

// Close ends all communication of this worker, with [ErrClosed], and waits for the goroutines of started calls to end.
// What the flight recorders and counters hold stays readable. Other workers are not told: they close by themselves.
func (w *World) Close() error {
	w.mu.Lock()
	w.fail(ErrClosed)
	again := w.closed
	w.closed = true
	w.mu.Unlock()
	if w.stop != nil && !again {
		close(w.stop)
	}
	w.running.Wait()
	if !again {
		for _, m := range w.meetings { // nobody makes more
			if m.Engine != nil {
				m.Engine.Close()
			}
		}
		if w.mpi {
			mpi.Leave(w.base)
		}
	}
	return nil
}

// goDo runs f in a goroutine that Close waits for, or here if the world is closed.
func (w *World) goDo(f func()) { w.goAfter(func() {}, f) }

// goAfter does the same after something that the caller does, which is left out when the world is closed: nothing that it needs goes away meanwhile.
func (w *World) goAfter(first, f func()) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		f()
		return
	}
	w.running.Add(1)
	w.mu.Unlock()
	first()
	go func() {
		defer w.running.Done()
		f()
	}()
}
