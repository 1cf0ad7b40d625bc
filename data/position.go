// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package data

import (
	"iter"
	"slices"
	"sync"

	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/exec/local"
)

// Skipper is a dataset that can leave batches out without reading them. Skip lets the next iteration begin after its first n batches.
type Skipper interface {
	train.Dataset
	Skip(n int) error
}

// Track follows training through the iterations of a dataset, so that another run can go on from there. An iteration of which no training step takes
// a batch, as in evaluation, does not count.
type Track struct {
	name    string
	number  int
	skip    func(n int) error // nil: the dataset cannot
	follows func() bool

	mu     sync.Mutex
	from   *checkpoint.Position // of an earlier run, until a training step goes on from there; nil: there is none
	epochs []checkpoint.Epoch   // the last is that of now
	hash   string               // of the last batch that was consumed
	now    *pass                // that the last training step took its batches of; nil: there was none
}

// NewTrack is for a dataset that is the number-th of its name. follows tells, when an iteration begins, whether anybody wants to know.
func NewTrack(ds train.Dataset, name string, number int, follows func() bool) *Track {
	t := &Track{name: name, number: number, follows: follows}
	if s, ok := ds.(Skipper); ok {
		t.skip = s.Skip
	}
	return t
}

// Is tells whether a position is one in this dataset.
func (t *Track) Is(p checkpoint.Position) bool { return p.Dataset == t.name && p.Number == t.number }

// GoOn lets training go on from a position of an earlier run.
func (t *Track) GoOn(from checkpoint.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.from = &from
}

// Position is how far training has come; nil: no training step has taken a batch.
func (t *Track) Position() *checkpoint.Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.epochs) == 0 || t.from != nil {
		return t.from
	}
	return &checkpoint.Position{Dataset: t.name, Number: t.number, Epochs: slices.Clone(t.epochs), Hash: t.hash}
}

// begin adds an epoch. Those before it that are alike become one, so that very many of them stay a short list.
func (t *Track) begin() {
	if n := len(t.epochs); n > 1 {
		a, b := &t.epochs[n-2], t.epochs[n-1]
		if a.Batches == b.Batches && a.Ended == b.Ended {
			a.Times += b.Times
			t.epochs = t.epochs[:n-1]
		}
	}
	t.epochs = append(t.epochs, checkpoint.Epoch{Times: 1})
}

// pass is an iteration that is followed.
type pass struct {
	*Track
	ds   train.Dataset
	from *checkpoint.Position // where it goes on; nil: it begins anew
	anew bool                 // nothing was left there, and it is the epoch after
	busy func() (over func()) // tells the other workers that this one is on the way there
}

// newPass is for an iteration of ds that begins.
func (t *Track) newPass(ds train.Dataset, busy func() (over func())) *pass {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &pass{Track: t, ds: ds, from: t.from, busy: busy}
}

// consumed is called when a training step is complete: n batches that were yielded are consumed. It returns how many are in all epochs.
func (p *pass) consumed(n int, hash string) (all int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != p {
		p.now = p
		if p.from != nil {
			p.epochs, p.Track.from = slices.Clone(p.from.Epochs), nil
			p.epochs[len(p.epochs)-1].Ended = p.anew
		}
		if p.from == nil || p.anew {
			p.begin()
		}
	}
	if p.from != nil && !p.anew {
		n += p.from.Epochs[len(p.from.Epochs)-1].Batches
	}
	p.epochs[len(p.epochs)-1].Batches, p.hash = n, hash
	for _, e := range p.epochs {
		all += int64(e.Times) * int64(e.Batches)
	}
	return all
}

// end is called when there is no batch left.
func (p *pass) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == p {
		p.epochs[len(p.epochs)-1].Ended = true
	}
}

// batches yields those that training has not consumed yet: of the epoch it was in, if there are any, else of the next one.
func (p *pass) batches(yield func(train.Batch, error) bool) {
	if p.from != nil {
		left, err := p.goOn(yield)
		if err != nil {
			yield(train.Batch{}, err)
			return
		}
		if left {
			return
		}
		p.anew = true
	}
	p.ds.Iter()(yield)
}

// goOn goes through the epochs of earlier runs, as their order may depend on those before, and yields what is left of the last one. left is false if nothing is.
func (p *pass) goOn(yield func(train.Batch, error) bool) (left bool, err error) {
	over := p.busy()
	defer over()
	for i, e := range p.from.Epochs {
		var hash string
		var rest func(train.Batch, error) bool
		if i == len(p.from.Epochs)-1 {
			hash = p.from.Hash
			if !e.Ended {
				rest = func(b train.Batch, err error) bool {
					over()
					return yield(b, err)
				}
			}
		}
		for range e.Times {
			if left, err = p.repeat(e, hash, rest); err != nil {
				return false, errors.WithMessagef(err, "epl: the dataset %q cannot go on where the checkpoint was saved", p.name)
			}
		}
	}
	return left, nil
}

// repeat goes through an epoch of an earlier run, up to the last batch that was consumed, which must have this hash ("": it is not known),
// and lets rest have those after it (nil: nobody wants them).
func (p *pass) repeat(e checkpoint.Epoch, hash string, rest func(train.Batch, error) bool) (left bool, err error) {
	n := 0
	if p.skip != nil {
		n = e.Batches - 1 // the last one is looked at
		if err := p.skip(n); err != nil {
			return false, errors.WithMessagef(err, "its Skip(%d)", n)
		}
	}
	next, stop := iter.Pull2(p.ds.Iter())
	defer stop()
	for ; n < e.Batches; n++ {
		b, err, ok := next()
		if err != nil {
			return false, err
		}
		if !ok {
			return false, errors.Errorf("%d of its batches were consumed in an epoch, which has only %d now: %s", e.Batches, n, whyNot)
		}
		if n == e.Batches-1 && hash != "" {
			got, err := local.Hash(b)
			if err != nil {
				return false, err
			}
			if got != hash {
				return false, errors.Errorf("batch %d of the epoch, counted from 0, was the last that was consumed, and is another one now: %s", n, whyNot)
			}
		}
		_ = b.Finalize()
	}
	if rest == nil && !e.Ended {
		return false, nil // nor did the earlier run see its end
	}
	for {
		b, err, ok := next()
		switch {
		case !ok:
			return left, nil
		case rest == nil && err == nil:
			_ = b.Finalize()
			return false, errors.Errorf("an epoch had %d batches, and has more now: %s", n, whyNot)
		case rest == nil:
			return false, err
		}
		left = true
		if !rest(b, err) || err != nil {
			return true, nil
		}
	}
}

// whyNot is what to do about it.
const whyNot = "its batches must be the same in every run, in the same order. Give a shuffle a seed, let a parallel reader keep the order, " +
	"and keep the files and the batch size; or begin the data anew, by Checkpoints(…).DataFromStart()"
