// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package data

import (
	"fmt"
	"iter"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
)

// Index is samples that can be read in any order. Package data/source has those of usual files. Its methods may be called at the same time.
type Index interface {
	// Len is how many samples there are.
	Len() int
	// Sample reads sample i. What it does at random it must take from random, which depends on the seed, the epoch and i.
	Sample(i int, random *rand.Rand) (Sample, error)
}

// IndexOptions says how [FromIndex] makes batches.
type IndexOptions struct {
	// Batch is the number of samples in a batch.
	Batch int
	// DropLast leaves out the last batch if it is smaller than the others. On several devices it is a step of its own.
	DropLast bool
	// Epochs is how often an iteration goes through the data: 0 means once, [Endless] again and again. A batch may hold
	// the end of an epoch and the beginning of the next.
	Epochs int
	// Shuffle gives each epoch an order of its own. Each sample can be anywhere in it, however many there are.
	Shuffle bool
	// Seed decides the order. Workers of a job must use the same.
	Seed uint64
	// Readers is how many samples are read at the same time; 0 means [DefaultReaders]. The order does not depend on it.
	Readers int
	// Part is the worker's own share of the samples, as [github.com/easyparallel/epl.Env.Files] says it. The zero value is all of them. All workers have the
	// same index; parts of it that are in the same file are no matter.
	Part Part
}

// FromIndex makes a dataset of samples that can be read in any order. It makes batches ahead of their use.
//
// The order depends on the number of samples and the options alone, and each further iteration of the dataset has an order of its own. It is computed, and takes no
// memory. The dataset has a method Skip, so that training which goes on from a checkpoint reads nothing of what it has seen.
//
//	tokens, err := source.OpenTokens(files, 1024)
//	…
//	ds, err := data.FromIndex("text", tokens, data.IndexOptions{Batch: 8, Epochs: data.Endless, Shuffle: true, Seed: 1})
//	…
//	_, err = loop.RunSteps(env.Dataset(ds), 500)
func FromIndex(name string, x Index, o IndexOptions) (Skipper, error) {
	if o.Readers == 0 {
		o.Readers = DefaultReaders
	}
	if o.Epochs == 0 {
		o.Epochs = 1
	}
	if o.Part.Of == 0 {
		o.Part = Part{Own: 1, Of: 1}
	}
	switch p := o.Part; {
	case x == nil:
		return nil, errors.Errorf("epl: the dataset %q has no index", name)
	case o.Batch < 1:
		return nil, errors.Errorf("epl: the dataset %q has batches of %d samples; use at least 1", name, o.Batch)
	case o.Epochs < Endless:
		return nil, errors.Errorf("epl: the dataset %q has %d epochs; use at least 1, or data.Endless", name, o.Epochs)
	case o.Readers < 0:
		return nil, errors.Errorf("epl: the dataset %q has %d readers; use at least 1", name, o.Readers)
	case p.First < 0 || p.Own < 1 || p.Own > p.Of-p.First:
		return nil, errors.Errorf("epl: the dataset %q: there is no part of %d samples from %d on of every %d", name, p.Own, p.First, p.Of)
	}
	d := &indexed{name: name, x: x, o: o}
	if d.own = o.Part.count(x.Len()); d.own == 0 {
		return nil, errors.Errorf("epl: the dataset %q has %d samples, and none for this worker, which reads %d out of every %d; use more samples, or fewer workers",
			name, x.Len(), o.Part.Own, o.Part.Of)
	}
	if total := d.own * max(o.Epochs, 1); o.DropLast && o.Epochs != Endless && total < o.Batch {
		return nil, errors.Errorf("epl: the dataset %q has %d samples, which is no batch of %d, and DropLast leaves it out", name, total, o.Batch)
	}
	return d, nil
}

// count is how many of n samples belong to the part.
func (p Part) count(n int) int { return n/p.Of*p.Own + min(max(n%p.Of-p.First, 0), p.Own) }

// at is the n-th sample of the part.
func (p Part) at(n int) int { return n/p.Own*p.Of + p.First + n%p.Own }

type indexed struct {
	name string
	x    Index
	o    IndexOptions
	own  int // samples of an epoch

	iterations atomic.Uint64 // begun so far
	mu         sync.Mutex
	skip       int // batches that the next iteration leaves out
}

// Name implements train.Dataset.
func (d *indexed) Name() string { return d.name }

// Skip implements Skipper.
func (d *indexed) Skip(n int) error {
	if n < 0 {
		return errors.Errorf("epl: the dataset %q cannot leave out %d batches", d.name, n)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.skip = n
	return nil
}

// Iter implements train.Dataset.
func (d *indexed) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		iteration := d.iterations.Add(1) - 1
		d.mu.Lock()
		first := d.skip
		d.skip = 0
		d.mu.Unlock()
		s := start(d.batches(iteration, first), batchesAhead)
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

// batches yields those of an iteration, from one on.
func (d *indexed) batches(iteration uint64, first int) iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for n := first; ; n++ {
			from, size := n*d.o.Batch, d.o.Batch
			if d.o.Epochs != Endless {
				if size = min(size, d.own*d.o.Epochs-from); size <= 0 || size < d.o.Batch && d.o.DropLast {
					return
				}
			}
			batch, err := d.batch(iteration, from, size)
			if !yield(batch, err) || err != nil {
				return
			}
		}
	}
}

// batch reads some samples at the same time.
func (d *indexed) batch(iteration uint64, from, size int) (train.Batch, error) {
	samples := make([]sampleOf, size)
	var group errgroup.Group
	group.SetLimit(d.o.Readers)
	for k := range samples {
		group.Go(func() (err error) {
			i, epoch := d.at(iteration, from+k)
			samples[k].path = fmt.Sprintf("sample %d", i)
			defer func() {
				if p := recover(); p != nil {
					err = errors.Errorf("reading %s panicked: %v", samples[k].path, p)
				}
			}()
			random := rand.New(rand.NewPCG(d.o.Seed^mixed(uint64(i)), iteration<<32+epoch))
			samples[k].Sample, err = d.x.Sample(i, random)
			return errors.WithMessage(err, samples[k].path)
		})
	}
	if err := group.Wait(); err != nil {
		return train.Batch{}, err
	}
	return stack(samples)
}

// at is the n-th sample of an iteration, and the epoch it is in.
func (d *indexed) at(iteration uint64, n int) (i int, epoch uint64) {
	epoch = uint64(n / d.own)
	i = d.o.Part.at(n % d.own)
	if d.o.Shuffle {
		i = int(permuted(uint64(i), uint64(d.x.Len()), mixed(mixed(d.o.Seed)+iteration<<32+epoch)))
	}
	return i, epoch
}

// mixed makes a number of a number that shares no pattern with those of its neighbours (the finalizer of SplitMix64).
func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// permuted is the place of i in an order of n numbers that the key decides. It is a Feistel network, which is one-to-one on numbers of an even number of bits; what falls
// outside goes through it again, at most a few times on average, as it is less than four times n.
func permuted(i, n, key uint64) uint64 {
	half := max((bits.Len64(n-1)+1)/2, 1)
	mask := uint64(1)<<half - 1
	for {
		left, right := i>>half, i&mask
		for round := range uint64(6) {
			left, right = right, left^(mixed(right^key+round*0xd1342543de82ef95)&mask)
		}
		if i = left<<half | right; i < n {
			return i
		}
	}
}
