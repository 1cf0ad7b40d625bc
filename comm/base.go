package comm

import (
	"runtime"
	"time"

	"github.com/easyparallel/epl/internal/cores"
)

// world is what transports know of the world that their teams belong to: its workers, as one of them sees them.
type world struct {
	layout   Layout
	workerOf []int         // by rank
	mesh     Mesh          // nil if there is one worker
	timeout  time.Duration // of a call
	checks   bool          // what travels over connections carries a CRC-32C
	procs    int           // GOMAXPROCS
	start    time.Time
}

// newWorld returns the world of a layout, which was checked.
func newWorld(l Layout, mesh Mesh, timeout time.Duration, checks bool) *world {
	w := &world{layout: l, mesh: mesh, timeout: timeout, checks: checks, procs: runtime.GOMAXPROCS(0), start: time.Now()}
	for i, place := range l.Workers {
		for range place.Ranks {
			w.workerOf = append(w.workerOf, i)
		}
	}
	return w
}

// crowded tells whether the ranks of this host do not have a processor each, as far as this worker knows: there are too
// many, or someone lets a worker that could use more use only one.
func (w *world) crowded() bool {
	ranks := 0
	for _, p := range w.layout.Workers {
		if p.Host == w.layout.Workers[w.layout.Worker].Host {
			ranks += p.Ranks
		}
	}
	return ranks > cores.Online() || w.procs == 1 && runtime.NumCPU() > 1
}

// lookEvery is how often a call that waits looks whether somebody is overdue, or has ended.
const lookEvery = 200 * time.Millisecond

// patience returns how long who waits for others has to wait before it inquires who holds it up, and before it gives up.
// Both are a little less than the timeout: an inquiry takes time, and who looks only now and then would be late next time.
func (w *world) patience() (inquire, giveUp time.Duration) {
	if w.mesh == nil {
		return w.timeout, w.timeout // there is nobody to ask who could take long
	}
	return w.timeout - inquiryTime(w.timeout), w.timeout - min(lookEvery*3/2, w.timeout/25)
}

// inquiryTime is how long before the timeout an inquiry begins. It may take half of that.
func inquiryTime(timeout time.Duration) time.Duration { return min(timeout/4, 2*time.Second) }

// untilLook returns how long a call that is woken when its ranks have come may sleep before it has to look whether they are
// overdue: until the inquiry begins, then for short whiles.
func (w *world) untilLook(began time.Duration) time.Duration {
	inquire, _ := w.patience()
	if left := began + inquire - w.now(); left > 0 {
		return left
	}
	return lookEvery
}

// endedError is the error of a call that waits for a worker that has ended: because the job has failed, or because it did
// not need the others any more.
func (w *world) endedError(k *call, rank, worker int) error {
	select {
	case <-w.mesh.Done():
		return w.mesh.Err()
	default:
	}
	h := w.mesh.Health(worker)
	return &EndedError{Header: k.Header, Rank: rank, Worker: worker, Name: h.Name, After: h.Steps, Step: w.mesh.Health(w.layout.Worker).Steps + 1}
}

// isLocal tells whether a rank is one of this worker's.
func (w *world) isLocal(rank int) bool { return w.workerOf[rank] == w.layout.Worker }

// now is the world's time: what recorders write and deadlines count.
func (w *world) now() time.Duration { return time.Since(w.start) }
