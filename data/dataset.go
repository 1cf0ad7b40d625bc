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
		q := newQueue(d.Dataset.Iter())
		defer q.close()
		var feed *runtime.Feed
		for {
			var err error
			if feed, err = d.next(q, feed); err != nil {
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

// next returns the feed of the next step; nil at the end of the data. Where workers have data of their own, that is when
// none has any left: those that have run out take part in the steps of the others.
func (d *dataset) next(q *queue, last *runtime.Feed) (*runtime.Feed, error) {
	head, err := q.take(1)
	if err != nil {
		return nil, err
	}
	more := len(head) > 0
	if job := d.data.Job; job != nil && job.Sliced {
		if more, err = job.More(more); err != nil {
			return nil, err
		}
	}
	switch {
	case !more:
		return nil, nil
	case len(head) > 0:
		return runtime.NewFeed(head[0], q.take), nil
	case last == nil:
		return nil, errors.Errorf("epl: worker %d has no batch at all, and others have: give it data of its own, or set io.slicing to false", d.data.Job.Worker)
	}
	return last.Empty(), nil
}
