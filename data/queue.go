// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package data deals the batches of a dataset to the steps of a job.
//
// [New] wraps a GoMLX dataset: it reads ahead in the background, a step at most, and yields one batch per step, which
// stands for all batches of that step. What goes in is any train.Dataset; what comes out is one that works on EPL.
//
// [Deal] says which files of a list a worker reads, and [FromFiles] makes a dataset of them.
package data

import (
	"iter"
	"sync"

	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"
)

// queue reads batches ahead of their use, in a goroutine of its own.
type queue struct {
	mu      sync.Mutex
	changed sync.Cond
	batches []train.Batch
	limit   int // how many to hold
	err     error
	done    bool // nothing more will come
	closed  bool // nobody wants more
	stopped chan struct{}
}

func newQueue(batches iter.Seq2[train.Batch, error]) *queue {
	q := &queue{limit: 1, stopped: make(chan struct{})}
	q.changed.L = &q.mu
	go q.read(batches)
	return q
}

func (q *queue) read(batches iter.Seq2[train.Batch, error]) {
	defer close(q.stopped)
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if p := recover(); p != nil {
			panicked := errors.Errorf("epl: the dataset panicked: %v", p)
			if q.err != nil {
				panicked = errors.Errorf("%v; then the dataset panicked: %v", q.err, p)
			}
			q.err = panicked
		}
		q.done = true
		q.changed.Broadcast()
	}()
	for b, err := range batches {
		if !q.put(b, err) {
			return
		}
	}
}

// put waits for room. It returns false when reading is to end.
func (q *queue) put(b train.Batch, err error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.batches) >= q.limit && !q.closed {
		q.changed.Wait()
	}
	if q.closed {
		_ = b.Finalize()
		return false
	}
	if err != nil {
		q.err = err
		return false
	}
	q.batches = append(q.batches, b)
	q.changed.Broadcast()
	return true
}

// take waits for n batches, and returns fewer only at the end of the data, or before one that does not fit, which is
// the next then (fits may be nil). From then on it reads that many ahead, and one for the start of the step after.
func (q *queue) take(n int, fits func(train.Batch) bool) ([]train.Batch, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.limit <= n {
		q.limit = n + 1
		q.changed.Broadcast()
	}
	for i := 0; i < n; i++ {
		for len(q.batches) == i && !q.done {
			q.changed.Wait()
		}
		switch {
		case len(q.batches) == i && q.err != nil:
			return nil, q.err
		case len(q.batches) == i, fits != nil && !fits(q.batches[i]):
			n = i
		}
	}
	out := append([]train.Batch(nil), q.batches[:n]...)
	q.batches = append(q.batches[:0], q.batches[n:]...)
	q.changed.Broadcast()
	return out, nil
}

// now returns the next batch, if it has been read. From then on n are read ahead.
func (q *queue) now(n int) (b train.Batch, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.limit < n {
		q.limit = n
		q.changed.Broadcast()
	}
	if len(q.batches) == 0 {
		return b, false
	}
	b = q.batches[0]
	q.batches = append(q.batches[:0], q.batches[1:]...)
	q.changed.Broadcast()
	return b, true
}

// close ends the reading and waits for it.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	left := q.batches
	q.batches = nil
	q.changed.Broadcast()
	q.mu.Unlock()
	<-q.stopped
	for _, b := range left {
		_ = b.Finalize()
	}
}
