package data

import (
	"iter"

	"github.com/gomlx/gomlx/ml/train"

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
		for {
			head, err := q.take(1)
			if err != nil {
				yield(train.Batch{}, err)
				return
			}
			if len(head) == 0 {
				return
			}
			batch, err := runtime.NewFeed(head[0], q.take).Batch(d.data)
			if !yield(batch, err) || err != nil {
				return
			}
		}
	}
}
