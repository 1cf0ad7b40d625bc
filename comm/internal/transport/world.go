// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package transport

import (
	"runtime"
	"time"

	"github.com/easyparallel/epl/internal/cores"
)

// World is what transports know of the world that their teams belong to: its workers, as one of them sees them.
type World struct {
	Layout   Layout
	WorkerOf []int         // by rank
	Mesh     Mesh          // nil if there is one worker
	Timeout  time.Duration // of a call
	Checks   bool          // what travels over connections carries a CRC-32C
	Streams  int           // connections for each purpose between two workers
	Procs    int           // GOMAXPROCS
	start    time.Time
}

// NewWorld returns the world of a layout, which was checked.
func NewWorld(l Layout, mesh Mesh, timeout time.Duration, checks bool) *World {
	w := &World{Layout: l, Mesh: mesh, Timeout: timeout, Checks: checks, Streams: 1, Procs: runtime.GOMAXPROCS(0), start: time.Now()}
	for i, place := range l.Workers {
		for range place.Ranks {
			w.WorkerOf = append(w.WorkerOf, i)
		}
	}
	return w
}

// Crowded tells whether the ranks of this host do not have a processor each, as far as this worker knows: there are too
// many, or someone lets a worker that could use more use only one.
func (w *World) Crowded() bool {
	ranks := 0
	for _, p := range w.Layout.Workers {
		if p.Host == w.Layout.Workers[w.Layout.Worker].Host {
			ranks += p.Ranks
		}
	}
	return ranks > cores.Online() || w.Procs == 1 && runtime.NumCPU() > 1
}

// Outnumbered tells whether the ranks of this worker do not have a processor each.
func (w *World) Outnumbered() bool { return w.Layout.Workers[w.Layout.Worker].Ranks > w.Procs }

// MayLinger tells whether who waits takes the processor from nobody: see Linger.
func (w *World) MayLinger() bool { return !w.Crowded() && !w.Outnumbered() }

// LookEvery is how often a call that waits looks whether somebody is overdue, or has ended.
const LookEvery = 200 * time.Millisecond

// Patience returns how long who waits for others has to wait before it inquires who holds it up, and before it gives up.
// Both are a little less than the timeout: an inquiry takes time, and who looks only now and then would be late next time.
func (w *World) Patience() (inquire, giveUp time.Duration) {
	if w.Mesh == nil {
		return w.Timeout, w.Timeout // there is nobody to ask who could take long
	}
	return w.Timeout - InquiryTime(w.Timeout), w.Timeout - min(LookEvery*3/2, w.Timeout/25)
}

// InquiryTime is how long before the timeout an inquiry begins. It may take half of that.
func InquiryTime(timeout time.Duration) time.Duration { return min(timeout/4, 2*time.Second) }

// UntilLook returns how long a call that is woken when its ranks have come may sleep before it has to look whether they are
// overdue: until the inquiry begins, then for short whiles.
func (w *World) UntilLook(began time.Duration) time.Duration {
	inquire, _ := w.Patience()
	if left := began + inquire - w.Now(); left > 0 {
		return left
	}
	return LookEvery
}

// Ended is the error of a call that waits for a worker that has ended: because the job has failed, or because it did
// not need the others any more.
func (w *World) Ended(k *Call, rank, worker int) error {
	select {
	case <-w.Mesh.Done():
		return w.Mesh.Err()
	default:
	}
	h := w.Mesh.Health(worker)
	return &EndedError{Header: k.Header, Rank: rank, Worker: worker, Name: h.Name, After: h.Steps, Step: w.Mesh.Health(w.Layout.Worker).Steps + 1}
}

// IsLocal tells whether a rank is one of this worker's.
func (w *World) IsLocal(rank int) bool { return w.WorkerOf[rank] == w.Layout.Worker }

// Now is the world's time: what recorders write and deadlines count.
func (w *World) Now() time.Duration { return time.Since(w.start) }

// At is a time of the world as others tell it.
func (w *World) At(t time.Duration) time.Time { return w.start.Add(t) }
