// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package data

import (
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"
)

// Sample is one sample: its inputs and labels, without a dim for the batch. All samples of a dataset have the same
// number of tensors, of the same shapes.
type Sample struct{ Inputs, Labels []*tensors.Tensor }

// Reader reads the samples of one file. Several files are read at the same time.
//
// What it does at random, such as flipping images, it must take from random, which depends on the seed, the epoch and
// the path: then it is the same in every run, and whichever worker reads the file.
type Reader func(path string, random *rand.Rand) iter.Seq2[Sample, error]

// FileOptions says how [FromFiles] makes batches.
type FileOptions struct {
	// Batch is the number of samples in a batch.
	Batch int
	// DropLast leaves out the last batch if it is smaller than the others. On several devices it is a step of its own.
	DropLast bool
	// Epochs is how often an iteration goes through the data: 0 means once, [Endless] again and again. A batch may hold
	// the end of an epoch and the beginning of the next, so that only the last batch of all can be smaller.
	Epochs int
	// Shuffle is how many samples to shuffle among: the files come in another order in every epoch, and each sample is
	// drawn from as many as this. 0 keeps the order. Where a file holds one sample, 1 shuffles completely.
	Shuffle int
	// Seed decides the order of shuffled samples. Workers of a job must use the same.
	Seed uint64
	// Readers is the number of files whose samples take turns, and also of those that are opened ahead of that. 0 means
	// [DefaultReaders]. With 1, samples come in the order of the files. It is part of the order, and so is no matter of
	// how many cores a machine has.
	Readers int
}

const (
	// Endless is the number of epochs of an iteration without end, as train.Loop.RunSteps wants it.
	Endless = -1
	// DefaultReaders is how many files are read at once, if FileOptions does not say it.
	DefaultReaders = 4

	samplesAhead = 4 // of each file that is being read
	batchesAhead = 1 // besides the one being made
)

// FromFiles makes a dataset of the samples in files. It reads them in parallel, and makes batches ahead of their use.
//
// The order of samples depends on the list of files and the options alone, and each further iteration of the dataset
// has an order of its own. Without slicing all workers read the same list, so that the order of a job does not depend
// on their number either; with slicing, each worker has its own files in its own order.
//
// A file without samples is an error, as is an epoch without samples.
func FromFiles(name string, files Slice, read Reader, o FileOptions) (train.Dataset, error) {
	if o.Readers == 0 {
		o.Readers = DefaultReaders
	}
	if o.Epochs == 0 {
		o.Epochs = 1
	}
	switch {
	case len(files.Files) == 0:
		return nil, errors.Errorf("epl: the dataset %q has no files; check the folder or the pattern that lists them", name)
	case read == nil:
		return nil, errors.Errorf("epl: the dataset %q has no function that reads its files", name)
	case o.Batch < 1:
		return nil, errors.Errorf("epl: the dataset %q has batches of %d samples; use at least 1", name, o.Batch)
	case o.Epochs < Endless:
		return nil, errors.Errorf("epl: the dataset %q has %d epochs; use at least 1, or data.Endless", name, o.Epochs)
	case o.Shuffle < 0 || o.Readers < 0:
		return nil, errors.Errorf("epl: the dataset %q shuffles among %d samples of %d readers; neither can be negative", name, o.Shuffle, o.Readers)
	}
	return &fileDataset{name: name, files: files, read: read, o: o}, nil
}

type fileDataset struct {
	name       string
	files      Slice
	read       Reader
	o          FileOptions
	iterations atomic.Uint64 // begun so far
}

// Name implements train.Dataset.
func (d *fileDataset) Name() string { return d.name }

// Iter implements train.Dataset.
func (d *fileDataset) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		iteration := d.iterations.Add(1) - 1
		s := start(d.batches(d.samples(iteration)), batchesAhead)
		defer s.stop()
		for {
			batch, err, ok := s.next()
			if err != nil {
				err = errors.WithMessagef(err, "epl: the dataset %q", d.name)
			}
			if !ok || !yield(batch, err) || err != nil {
				return
			}
		}
	}
}

// sampleOf is a sample that knows its file.
type sampleOf struct {
	Sample
	path string
}

// samples yields those of all epochs of an iteration.
func (d *fileDataset) samples(iteration uint64) iter.Seq2[sampleOf, error] {
	return func(yield func(sampleOf, error) bool) {
		for epoch := 0; epoch != d.o.Epochs; epoch++ {
			order := slices.Clone(d.files.Files)
			seq := d.epoch(order, iteration, epoch)
			if d.o.Shuffle > 0 {
				random := rand.New(rand.NewPCG(d.o.Seed, iteration<<32+uint64(epoch)))
				random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
				seq = shuffled(seq, d.o.Shuffle, random)
			}
			empty := true
			for s, err := range seq {
				empty = false
				if !yield(s, err) || err != nil {
					return
				}
			}
			if empty {
				yield(sampleOf{}, errors.Errorf("its %d files hold no sample for this worker, which reads %d out of every %d; "+
					"use more samples, or fewer workers", len(order), d.files.Part.Own, d.files.Part.Of))
				return
			}
		}
	}
}

// epoch yields the worker's own samples of the files, which take turns.
func (d *fileDataset) epoch(paths []string, iteration uint64, epoch int) iter.Seq2[sampleOf, error] {
	return func(yield func(sampleOf, error) bool) {
		var open []*stream[sampleOf] // those after the first Readers are only ahead
		fill := func() {
			for len(open) < 2*d.o.Readers && len(paths) > 0 {
				open = append(open, start(d.file(paths[0], iteration, epoch), samplesAhead))
				paths = paths[1:]
			}
		}
		defer func() {
			for _, s := range open {
				s.stop()
			}
		}()
		index := 0
		for turn := 0; ; {
			fill()
			taking := min(len(open), d.o.Readers)
			if taking == 0 {
				return
			}
			turn %= taking
			s, err, ok := open[turn].next()
			if !ok {
				// The next file takes its turn at once, so that files of one sample stay in order.
				if len(open) > taking {
					open[turn] = open[taking]
					open = slices.Delete(open, taking, taking+1)
				} else {
					open = slices.Delete(open, turn, turn+1)
				}
				continue
			}
			if err != nil {
				yield(sampleOf{}, err)
				return
			}
			if d.files.Part.Has(index) && !yield(s, nil) {
				return
			}
			index++
			turn++
		}
	}
}

// file yields the samples of one file. Its errors, and there must be a sample, name it.
func (d *fileDataset) file(path string, iteration uint64, epoch int) iter.Seq2[sampleOf, error] {
	return func(yield func(sampleOf, error) bool) {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(path))
		random := rand.New(rand.NewPCG(d.o.Seed^hash.Sum64(), iteration<<32+uint64(epoch)))
		yielding := false
		defer func() {
			if yielding {
				return // what panics is not the reader
			}
			if p := recover(); p != nil {
				yield(sampleOf{}, errors.Errorf("reading %s panicked: %v", path, p))
			}
		}()
		empty := true
		for s, err := range d.read(path, random) {
			empty = false
			if err != nil {
				err = errors.WithMessagef(err, "reading %s", path)
			}
			yielding = true
			if !yield(sampleOf{s, path}, err) || err != nil {
				return
			}
			yielding = false
		}
		if empty {
			yielding = true
			yield(sampleOf{}, errors.Errorf("reading %s: there is no sample in it; take it off the list of files", path))
		}
	}
}

// shuffled draws each sample from the next n.
func shuffled(seq iter.Seq2[sampleOf, error], n int, random *rand.Rand) iter.Seq2[sampleOf, error] {
	return func(yield func(sampleOf, error) bool) {
		var pool []sampleOf
		for s, err := range seq {
			if err != nil {
				yield(s, err)
				return
			}
			if len(pool) < n {
				pool = append(pool, s)
				continue
			}
			i := random.IntN(n)
			s, pool[i] = pool[i], s
			if !yield(s, nil) {
				return
			}
		}
		random.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
		for _, s := range pool {
			if !yield(s, nil) {
				return
			}
		}
	}
}
