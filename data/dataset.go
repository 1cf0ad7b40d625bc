// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package data

import (
	"iter"
	"slices"
	"sync"

	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec/local"
)

// New wraps ds, which [Guard] returned, so that each batch it yields stands for all batches of a step on the devices of d. A program that is no
// training step takes them one by one, and may begin with those that have been read. deals tells, when an iteration begins, whether a step
// may take several batches; else it is read ahead only where t follows training.
func New(ds train.Dataset, d *local.Runner, deals func() bool, t *Track) train.Dataset {
	return &dataset{ds, d, deals, t}
}

type dataset struct {
	train.Dataset
	data  *local.Runner
	deals func() bool
	track *Track
}

// Iter implements train.Dataset.
func (d *dataset) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		followed := !d.sliced() && d.track.follows()
		if !d.deals() && !followed {
			over := d.data.Waiting()
			d.Dataset.Iter()(func(b train.Batch, err error) bool {
				over()
				goesOn := yield(b, err)
				over = d.data.Waiting()
				return goesOn
			})
			return
		}
		it := &iteration{dataset: d}
		if followed {
			it.pass = d.track.newPass(d.Dataset, d.skipping)
			it.queue = newQueue(it.pass.batches)
		} else {
			it.queue = newQueue(d.Dataset.Iter())
		}
		defer it.close()
		for {
			over := d.data.Waiting()
			feed, err := it.next()
			over()
			if err != nil {
				if job := d.data.Job; job != nil {
					job.World.Abort(err) // no worker waits for one that has no data
				}
				yield(train.Batch{}, err)
				return
			}
			if feed == nil {
				return
			}
			batch, err := feed.Batch(d.data)
			if !yield(batch, err) || err != nil {
				return
			}
		}
	}
}

// iteration is one way through the data.
type iteration struct {
	*dataset
	queue *queue
	pass  *pass // nil: nobody follows training
	mu    sync.Mutex
	ahead []*local.Feed // of the next batches, of which something may have been computed
	last  *local.Feed   // that was returned
	given int           // batches of the feeds that were returned before it
	// Where workers have data of their own:
	begun  bool
	head   *train.Batch // the next batch, if it was taken from the queue and waits for a step of its shapes
	waited int          // steps
	spec   any          // of the last batch
}

// next returns the feed of the next step; nil at the end of the data. Where workers have data of their own, that is when
// none has any left: those that have run out take part in the steps of the others.
func (it *iteration) next() (feed *local.Feed, err error) {
	it.mu.Lock()
	defer it.mu.Unlock()
	defer func() {
		if it.last = feed; it.pass == nil || err != nil {
			return
		}
		if feed == nil {
			it.pass.end()
			return
		}
		before := it.given
		feed.OnTrained(func(n int, hash string) {
			if all := it.pass.consumed(before+n, hash); it.data.Job != nil {
				it.data.Job.Consumed(all)
			}
		})
	}()
	if it.last != nil {
		it.given += it.last.Batches()
		it.ahead = append(it.ahead, it.last.Others()...)
	}
	if len(it.ahead) > 0 {
		feed, it.ahead = it.ahead[0], it.ahead[1:]
		return feed, nil
	}
	if it.head == nil {
		head, err := it.queue.take(1, nil)
		if err != nil {
			return nil, err
		}
		if len(head) > 0 {
			it.head, it.spec, it.begun = &head[0], head[0].Spec, true
		}
	}
	if it.head != nil {
		feed = local.NewFeed(*it.head, it.more, it.look)
	}
	if it.sliced() {
		job := it.data.Job
		step, err := local.NextStep(job, local.Turn{Next: feed, Waited: it.waited, Spec: it.spec})
		if err != nil {
			return nil, err
		}
		if step != nil && !it.begun {
			return nil, errors.Errorf("epl: worker %d has no batch at all, and others have: give it data of its own, or set io.slicing to false", job.Worker)
		}
		if step != feed {
			it.waited++
			return step, nil
		}
	}
	it.head, it.waited = nil, 0
	return feed, nil
}

// skipping tells the other workers that this one reads batches that are not for the next step.
func (d *dataset) skipping() (over func()) {
	if d.data.Job == nil {
		return func() {}
	}
	return d.data.Job.Busy("reading the data up to where the checkpoint was saved")
}

// sliced tells whether workers have data of their own.
func (d *dataset) sliced() bool { return d.data.Job != nil && d.data.Job.Sliced }

// look returns the feeds of up to n batches that come next, of those that have been read.
func (it *iteration) look(n int) []*local.Feed {
	if it.sliced() {
		return nil // which is the next is agreed on
	}
	if !it.mu.TryLock() {
		return nil // somebody waits for the next
	}
	defer it.mu.Unlock()
	for len(it.ahead) < n {
		batch, ok := it.queue.now(n)
		if !ok {
			break
		}
		it.ahead = append(it.ahead, local.NewFeed(batch, it.more, it.look))
	}
	return slices.Clone(it.ahead[:min(n, len(it.ahead))])
}

// more takes the batches that a step takes after its first.
func (it *iteration) more(n int, fits func(train.Batch) bool) (all []train.Batch, err error) {
	it.mu.Lock()
	defer it.mu.Unlock()
	for len(all) < n && len(it.ahead) > 0 {
		batch := it.ahead[0].Head()
		if !fits(batch) {
			return all, nil
		}
		all, it.ahead = append(all, batch), it.ahead[1:]
	}
	defer it.data.Waiting()()
	rest, err := it.queue.take(n-len(all), fits)
	return append(all, rest...), err
}

// close ends the reading, and lets go of batches that had no turn.
func (it *iteration) close() {
	it.queue.close()
	it.mu.Lock()
	defer it.mu.Unlock()
	for _, f := range it.ahead {
		f.Discard()
	}
	if it.head != nil {
		_ = it.head.Finalize()
	}
}
