// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package data

import (
	"iter"
	"reflect"

	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/exec/local"
)

// Guard returns a dataset that says what is wrong with ds: its errors and panics name it, the worker and the batch, and what
// cannot be trained on is an error. at is the user's line.
func Guard(ds train.Dataset, worker int, at string) train.Dataset {
	switch ds.(type) {
	case nil:
		return refused{errors.Errorf("epl: env.Dataset(nil) at %s: give it the dataset to train on", at)}
	case *guarded, *dataset, refused:
		return refused{errors.Errorf("epl: env.Dataset at %s is given what env.Dataset returned, and would deal batches twice; wrap %q once", at, ds.Name())}
	}
	if v := reflect.ValueOf(ds); v.Kind() == reflect.Pointer && v.IsNil() {
		return refused{errors.Errorf("epl: env.Dataset at %s is given a nil %T: give it the dataset to train on", at, ds)}
	}
	return &guarded{ds, worker}
}

// refused is no dataset: it yields an error.
type refused struct{ err error }

// Name implements train.Dataset.
func (refused) Name() string { return "refused" }

// Iter implements train.Dataset.
func (r refused) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) { yield(train.Batch{}, r.err) }
}

type guarded struct {
	train.Dataset
	worker int
}

// Iter implements train.Dataset.
func (g *guarded) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		n := 0
		failed := func(err error) error {
			return errors.WithMessagef(err, "epl: the dataset %q of worker %d failed at batch %d, counted from 0", g.Name(), g.worker, n)
		}
		yielding := false
		defer func() {
			if yielding {
				return // what panics is not the dataset
			}
			if p := recover(); p != nil {
				yield(train.Batch{}, failed(errors.Errorf("panic: %v", p)))
			}
		}()
		for batch, err := range g.Dataset.Iter() {
			if err == nil {
				err = g.check(batch)
			}
			if err != nil {
				err = failed(err)
			}
			yielding = true
			if !yield(batch, err) || err != nil {
				return
			}
			yielding = false
			n++
		}
		if n == 0 {
			yielding = true
			yield(train.Batch{}, errors.Errorf("epl: the dataset %q of worker %d has no batch; check where its samples come from, that it begins anew "+
				"for every iteration, and that a batch is not larger than all of its samples if incomplete ones are dropped", g.Name(), g.worker))
		}
	}
}

// check finds what is wrong with a batch whatever the program.
func (g *guarded) check(b train.Batch) error {
	if len(b.Inputs)+len(b.Labels) == 0 {
		return errors.New("it has no inputs and no labels")
	}
	for i, t := range append(b.Inputs[:len(b.Inputs):len(b.Inputs)], b.Labels...) {
		what, index := "input", i
		if i >= len(b.Inputs) {
			what, index = "label", i-len(b.Inputs)
		}
		switch {
		case t == nil:
			return errors.Errorf("%s %d is nil", what, index)
		case local.IsFeed(t):
			return errors.Errorf("%s %d comes from env.Dataset already, which would deal batches twice; wrap the dataset once, outermost", what, index)
		}
	}
	return nil
}
