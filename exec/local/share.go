// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/state"
	"github.com/easyparallel/epl/worker"
)

// remote is where another worker has a variable.
type remote struct {
	worker  int
	name    string
	version uint64
}

// fetch reads it, one-sided: the other worker goes on meanwhile, up to its next step.
func (x *remote) fetch(j *worker.Job, shape shapes.Shape) (any, error) {
	flat := newFlat(shape)
	return flat, j.Fetch(x.worker, x.name, x.version, dtypes.UnsafeByteSliceFromAny(flat))
}

// away tells whether other workers have the data of which a device wants some rows, or all if want is nil.
func (b *Buffer) away(device int, want *rows) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	isThere := func(x compute.Buffer) bool { return x != nil }
	switch {
	case b.feed != nil || b.flat != nil || slices.ContainsFunc(b.shards, isThere):
		return false
	case want != nil && device < len(b.parts) && b.parts[device] != nil && b.rows[device] == *want:
		return false
	}
	return b.remote != nil || slices.ContainsFunc(b.pieces, func(p piece) bool { return p.remote != nil })
}

// bring copies the data to the host, from other workers.
func (b *Buffer) bring() (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flat, err = b.host()
	return err
}

// share lets workers that have no device where a variable lives, or a part of it, read it from those that have: all know of
// each other who that is.
func (s *step) share(b *Buffer, output int, home schedule.Variable) {
	b.held = sync.OnceValue(func() []state.Held { return s.stepper.held(home) })
	name := fmt.Sprintf("output %d of training program %d", output, s.opts.Number) // paths of metrics differ between workers
	if !home.Param.IsPlaced() {
		owner, all := s.owners(home.Places, nil)
		if s.job == nil || all {
			return
		}
		s.job.Sharing()
		if me := s.job.Worker; me == owner[0] {
			b.withdraw = s.job.Offer(name, s.count, b.read)
		} else if !slices.Contains(owner, me) {
			b.remote = &remote{owner[0], name, s.count}
		}
		return
	}
	var withdraw []func()
	place := home.Places[0]
	replicas := 1 // that have different parts
	if home.Param.On(ir.Replicas).Kind == ir.Flat {
		replicas = s.schedule.Local.Replicas
	}
	for position := range s.schedule.Groups[place] {
		for replica := range replicas {
			at := seat{replica, place, position}
			p := piece{local: slices.IndexFunc(s.runs, func(r *run) bool {
				return r.place == place && r.position == position && (r.replica == replica || replicas == 1)
			})}
			p.rows, _ = rowsOf(home.Param, at.at())
			if slices.ContainsFunc(b.pieces, func(q piece) bool { return q.rows == p.rows }) {
				continue // several devices of a model replica have the same
			}
			owner, all := s.owners([]int{place}, &position)
			if replicas > 1 {
				owner, all = []int{s.workerOf(s.rank(at))}, s.job == nil || len(s.job.Devices) == 1
			}
			if s.job != nil && !all {
				s.job.Sharing()
				part := fmt.Sprintf("part %d of rows %d of %s", p.part, p.start, name)
				if p.local < 0 {
					p.remote = &remote{owner[0], part, s.count}
				} else if owner[0] == s.job.Worker {
					withdraw = append(withdraw, s.job.Offer(part, s.count, b.lendPart(p)))
				}
			}
			b.pieces = append(b.pieces, p)
		}
	}
	b.withdraw = func() {
		for _, w := range withdraw {
			w()
		}
	}
}

// owners are the workers that have a device of the places, or that at a position of them, in the order of model replicas; all tells
// whether that is every worker.
func (s *step) owners(places []int, position *int) (workers []int, all bool) {
	for replica := range s.schedule.Ranks {
		for _, place := range places {
			for i, rank := range s.ranks(replica, place) {
				if w := s.workerOf(rank); (position == nil || i == *position) && !slices.Contains(workers, w) {
					workers = append(workers, w)
				}
			}
		}
	}
	return workers, s.job != nil && len(workers) == len(s.job.Devices)
}

// read lends the data to another worker.
func (b *Buffer) read() (data []byte, release func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, nil, errGone
	}
	flat, err := b.host()
	if err != nil {
		return nil, nil, errors.WithMessage(err, "epl: a variable cannot be read")
	}
	return dtypes.UnsafeByteSliceFromAny(flat), func() {}, nil
}

// lendPart lends a part to another worker.
func (b *Buffer) lendPart(p piece) func() (data []byte, release func(), err error) {
	return func() ([]byte, func(), error) {
		b.serving.Lock()
		defer b.serving.Unlock()
		if b.gone || p.local >= len(b.parts) || b.parts[p.local] == nil {
			return nil, nil, errGone
		}
		flat, err := toHost(b.parts[p.local], p.shape(b.shape))
		if err != nil {
			return nil, nil, errors.WithMessage(err, "epl: a part of a variable cannot be read")
		}
		return dtypes.UnsafeByteSliceFromAny(flat), func() {}, nil
	}
}
