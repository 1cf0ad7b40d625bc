package data

import (
	"iter"

	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/runtime"
)

// New wraps ds so that each batch it yields stands for all batches of a step on the devices of d. A program that is no
// training step takes them one by one.
func New(ds train.Dataset, d *runtime.Data) train.Dataset { return &dataset{ds, d} }

type dataset struct {
	train.Dataset
	data *runtime.Data
}

// Iter implements train.Dataset.
func (d *dataset) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		it := &iteration{dataset: d, queue: newQueue(d.Dataset.Iter())}
		defer it.close()
		for {
			feed, err := it.next()
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
	// Where workers have data of their own:
	begun  bool
	head   *train.Batch // the next batch, if it was taken from the queue and waits for a step of its shapes
	waited int          // steps
	spec   any          // of the last batch
}

// next returns the feed of the next step; nil at the end of the data. Where workers have data of their own, that is when
// none has any left: those that have run out take part in the steps of the others.
func (it *iteration) next() (*runtime.Feed, error) {
	if it.head == nil {
		head, err := it.queue.take(1, nil)
		if err != nil {
			return nil, err
		}
		if len(head) > 0 {
			it.head, it.spec, it.begun = &head[0], head[0].Spec, true
		}
	}
	var feed *runtime.Feed
	if it.head != nil {
		feed = runtime.NewFeed(*it.head, it.queue.take)
	}
	if job := it.data.Job; job != nil && job.Sliced {
		step, err := runtime.NextStep(job, runtime.Turn{Next: feed, Waited: it.waited, Spec: it.spec})
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

// close ends the reading, and lets go of a batch that had no turn.
func (it *iteration) close() {
	it.queue.close()
	if it.head != nil {
		_ = it.head.Finalize()
	}
}
