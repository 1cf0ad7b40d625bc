package comm

import (
	"sync"
	"time"

	"github.com/pkg/errors"
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
}

// World is the ranks of a job and what connects them. Its methods may be called from any goroutine.
type World struct {
	timeout time.Duration
	start   time.Time
	ranks   []*rank
	all     *Group
	fabric  fabric

	mu     sync.Mutex
	groups map[string]*Group
	broken error // set once by Abort or Close: no call can succeed any more
	closed bool

	running sync.WaitGroup // goroutines of calls that were started
}

// rank is what the communicators of a rank share.
type rank struct {
	recorder FlightRecorder
	counters counters
}

// newWorld makes a world of n ranks without a fabric.
func newWorld(n int, opts Options) (*World, error) {
	switch {
	case n < 1:
		return nil, errors.Errorf("epl: a world of %d ranks is impossible; use at least 1", n)
	case opts.Timeout < 0:
		return nil, errors.Errorf("epl: a timeout of %s is impossible; use a positive one, or 0 for %s", opts.Timeout, DefaultTimeout)
	case opts.RecorderCalls < 0:
		return nil, errors.Errorf("epl: a flight recorder of %d calls is impossible; use a positive number, or 0 for %d",
			opts.RecorderCalls, DefaultRecorderCalls)
	}
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.RecorderCalls == 0 {
		opts.RecorderCalls = DefaultRecorderCalls
	}
	w := &World{timeout: opts.Timeout, start: time.Now(), groups: map[string]*Group{}}
	everybody := make([]int, n)
	for r := range n {
		everybody[r] = r
		w.ranks = append(w.ranks, &rank{
			recorder: FlightRecorder{rank: r, now: w.now, entries: make([]Entry, opts.RecorderCalls)},
		})
	}
	var err error
	w.all, err = w.Group(everybody)
	return w, err
}

// now is the world's time: what recorders write and deadlines count.
func (w *World) now() time.Duration { return time.Since(w.start) }

// Size returns the number of ranks.
func (w *World) Size() int { return len(w.ranks) }

// All returns the group of all ranks.
func (w *World) All() *Group { return w.all }

// FlightRecorder returns the memory of a rank's last calls. The rank must be in the world.
func (w *World) FlightRecorder(rank int) *FlightRecorder { return &w.ranks[rank].recorder }

// Counters returns what a rank has communicated since the world was made, by the name of the operation; operations
// that it never completed are left out. Bytes are those that the rank gives: the whole buffer of an all-reduce, In of a
// reduce-scatter, all-gather or all-to-all (its own part included), the root's buffer of a broadcast (0 for the
// others), the buffer of a send; only recv counts what it takes. In a group of one nothing is communicated: its calls
// count, with 0 bytes. The rank must be in the world.
func (w *World) Counters(rank int) map[string]Counter { return w.ranks[rank].counters.read() }

// Abort ends all communication: calls that wait for other ranks return at once with an error that wraps err, and so
// does every later call. Calls in which all ranks have met still complete. The first error stays.
//
// To let a context do it: stop := context.AfterFunc(ctx, func() { w.Abort(context.Cause(ctx)) }).
func (w *World) Abort(err error) {
	if err == nil {
		err = errors.New("epl: the communication was aborted without a reason")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(err)
}

// fail breaks all communicators. The lock is held.
func (w *World) fail(err error) {
	if w.broken != nil {
		return
	}
	w.broken = err
	for _, g := range w.groups {
		for _, c := range g.communicators {
			c.transport.fail(err)
		}
	}
}

// Close ends all communication as Abort does, with [ErrClosed], and waits for the goroutines of started calls to end.
// What the flight recorders and counters hold stays readable.
func (w *World) Close() error {
	w.mu.Lock()
	w.fail(ErrClosed)
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
	return nil
}

// goDo runs f in a goroutine that Close waits for, or here if the world is closed.
func (w *World) goDo(f func()) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		f()
		return
	}
	w.running.Add(1)
	w.mu.Unlock()
	go func() {
		defer w.running.Done()
		f()
	}()
}
