// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/internal/hostmem"
	"github.com/easyparallel/epl/recovery"
	"github.com/easyparallel/epl/state"
)

// foundCopy is a complete slot in the memory of a launcher.
type foundCopy struct {
	File int // of that memory
	Size int64
	recovery.Step
}

// copyReport is what a worker tells the first one of the copies in the memory of its launcher.
type copyReport struct {
	copyPlace
	Found []foundCopy
}

// look returns what is in the memory of this worker's launcher.
func (k *copier) look() (r copyReport) {
	r.Memory, r.Host = k.memory.ID, k.job.Host(k.job.Worker)
	for i, f := range k.memory.files {
		if of, ok := recovery.Look(f); ok && of.Generation != k.memory.Began { // another store of this one had it
			size, _ := f.Size()
			r.Found = append(r.Found, foundCopy{i, size, of})
		}
	}
	return r
}

// find agrees with the other workers on the last step that is complete in memory, and is after a step. It returns nil if there is none.
func (k *copier) find(after int64) (*checkpoint.Checkpoint, error) {
	mine := k.look()
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	reports, err := k.c.group.peers.Gather("copies", text)
	if err != nil {
		return nil, err
	}
	all := make([]copyReport, len(reports))
	for w, text := range reports {
		if err := json.Unmarshal(text, &all[w]); err != nil {
			return nil, err
		}
		k.places = append(k.places, all[w].copyPlace)
	}
	var steps []recovery.Step // without worker, newest first
	for _, r := range all {
		for _, f := range r.Found {
			if f.Worker = 0; f.Store == k.store && !slices.Contains(steps, f.Step) {
				steps = append(steps, f.Step)
			}
		}
	}
	slices.SortFunc(steps, func(a, b recovery.Step) int {
		return cmp.Or(cmp.Compare(b.Generation, a.Generation), cmp.Compare(b.Step, a.Step), cmp.Compare(b.Layout, a.Layout))
	})
	k.offer(mine, all)
	for i, step := range steps {
		c, tried := k.open(step, all)
		if tried == nil && c.Manifest.Step <= after {
			tried = errors.Errorf("epl: it is not after step %d, of which there is a checkpoint", after)
		}
		if err := k.c.group.together(copyTries-i, tried); err == nil {
			k.choose(mine, step.Generation)
			return c, nil
		}
		if c != nil {
			_ = c.Close()
		}
		if err := k.c.group.peers.Err(); err != nil {
			return nil, err
		}
	}
	k.choose(mine, 0)
	return nil, nil
}

// copyTries is the number of the first attempt to go on from a copy, among those of saves and loads.
const copyTries = -1 << 20

// first tells whether a worker is the first of its launcher.
func first(worker int, all []copyReport) bool {
	return slices.IndexFunc(all, func(r copyReport) bool { return r.Memory == all[worker].Memory }) == worker
}

// seat is how many workers of its launcher are before this one, and how many there are.
func (k *copier) seat() (before, workers int) {
	for w, p := range k.places {
		if p.Memory == k.memory.ID {
			if w < k.job.Worker {
				before++
			}
			workers++
		}
	}
	return before, workers
}

// open puts the copies of a step together. What is in the memory of this worker's launcher comes first, and this worker checks its share of that.
func (k *copier) open(step recovery.Step, all []copyReport) (_ *checkpoint.Checkpoint, err error) {
	var m *checkpoint.Manifest
	var sources []checkpoint.Source
	add := func(name string, r checkpoint.Reader) {
		got, source, e := recovery.Open(name, r)
		if e != nil {
			err = e
			return
		}
		m, sources = got, append(sources, source)
	}
	me := k.job.Worker
	here := all[me].Memory
	for _, local := range []bool{true, false} {
		for w, r := range all {
			for _, f := range r.Found {
				of := f.Step
				if of.Worker = 0; of != step || !first(w, all) || local != (r.Memory == here) {
					continue
				}
				if local {
					add(fmt.Sprint(localCopy, f.File), memoryFile{k.memory.files[f.File]})
				} else {
					add(fmt.Sprintf("memory %d of worker %d", f.File, w), &farFile{k: k, worker: w, file: f.File, size: f.Size, at: -1})
				}
			}
		}
	}
	if err != nil {
		return nil, err
	}
	c, err := checkpoint.Assemble(fmt.Sprintf("copies in memory of step %d", step.Step), m, sources)
	if err != nil {
		return nil, err
	}
	share, n := k.seat()
	if err = c.VerifyOf(func(name string) bool { return strings.HasPrefix(name, localCopy) }, share, n); err == nil {
		err = setStep(c)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// localCopy is how the names of copies in the memory of this worker's launcher begin.
const localCopy = "memory "

// setStep gives a copy its global step: it has the variable, and was made by the count of a loop.
func setStep(c *checkpoint.Checkpoint) error {
	path := "/" + optimizer.GlobalStepVariableName
	shape, found := c.Shape(path)
	if !found {
		return nil
	}
	if shape.DType != dtypes.Int64 || shape.Size() != 1 {
		return errors.Errorf("epl: the global step is a %s, not an int64", shape)
	}
	var b [8]byte
	err := c.Read(path, state.Whole(shape.Dimensions), b[:])
	c.Manifest.Step = int64(binary.NativeEndian.Uint64(b[:]))
	return err
}

// choose chooses the files of this worker: those of the generation that it goes on from stay until a step is complete.
func (k *copier) choose(mine copyReport, from int64) {
	before, workers := k.seat()
	var free, used []*hostmem.File
	for i, f := range k.memory.files {
		if slices.ContainsFunc(mine.Found, func(x foundCopy) bool { return x.File == i && x.Generation == from }) {
			used = append(used, f)
		} else {
			free = append(free, f)
		}
	}
	k.files = free[2*before : 2*before+2]
	if before == 0 {
		k.old = append(used, free[2*workers:]...)
	}
}

// offer lets workers of other launchers read the copies in the memory of this one, if this worker is the first of it.
func (k *copier) offer(mine copyReport, all []copyReport) {
	if !first(k.job.Worker, all) || !slices.ContainsFunc(k.places, func(p copyPlace) bool { return p.Memory != mine.Memory }) {
		return
	}
	for _, f := range mine.Found {
		file := k.memory.files[f.File]
		for at := int64(0); at < f.Size; at += checkpoint.Block {
			k.offered = append(k.offered, k.job.Offer(blockName(f.File, at), 1, func() ([]byte, func(), error) {
				b := make([]byte, min(f.Size-at, checkpoint.Block))
				_, err := file.ReadAt(b, at)
				return b, func() {}, err
			}))
		}
	}
}

// blockName is that of a block of a file, from where it begins.
func blockName(file int, at int64) string { return fmt.Sprintf("memory %d from %d", file, at) }

// memoryFile is a file of this worker's launcher, which others read, too.
type memoryFile struct{ *hostmem.File }

// Close implements io.Closer: the file stays open.
func (memoryFile) Close() error { return nil }

// farFile is a file of another launcher, which is read by one of its workers.
type farFile struct {
	k      *copier
	worker int
	file   int
	size   int64
	at     int64 // of the block that was read last; -1: none was
	block  []byte
}

// Size implements checkpoint.Reader.
func (f *farFile) Size() (int64, error) { return f.size, nil }

// Close implements io.Closer.
func (f *farFile) Close() error { return nil }

// ReadAt implements io.ReaderAt.
func (f *farFile) ReadAt(to []byte, at int64) (n int, err error) {
	f.k.far.Lock()
	defer f.k.far.Unlock()
	for n < len(to) {
		if at >= f.size {
			return n, errors.Errorf("epl: internal error: byte %d of %d is read", at, f.size)
		}
		begin := at / checkpoint.Block * checkpoint.Block
		if f.at != begin {
			f.at, f.block = -1, make([]byte, min(f.size-begin, checkpoint.Block))
			if err := f.k.job.Fetch(f.worker, blockName(f.file, begin), 1, f.block); err != nil {
				return n, err
			}
			f.at = begin
		}
		m := copy(to[n:], f.block[at-begin:])
		n, at = n+m, at+int64(m)
	}
	return n, nil
}
