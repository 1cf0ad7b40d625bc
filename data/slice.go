// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package data

import (
	"slices"

	"github.com/pkg/errors"
)

// Slice is what one worker reads of a list of files.
type Slice struct {
	// Files are the files that it reads, in the order of the list.
	Files []string
	// Part says which samples of these files are its own. The zero value is all of them.
	Part Part
	// Dropped are the files that no worker reads: where the user asked for that, somebody should say so.
	Dropped []string
}

// Part is a share of a sequence of samples: those from First on, Own of them, out of every Of. The zero value is all.
type Part struct{ First, Own, Of int }

// Has tells whether sample i belongs to the part.
func (p Part) Has(i int) bool {
	if p.Of == 0 {
		return true
	}
	at := i % p.Of
	return p.First <= at && at < p.First+p.Own
}

// DealOptions says what to do with files that cannot be dealt evenly.
type DealOptions struct {
	DropLast   bool // leave out the last ones (io.drop_last_files)
	Unbalanced bool // some workers read more than others (io.unbalanced_io_slicing); this wins over DropLast
}

// Deal deals files to workers, in proportion to the model replicas that each of them feeds, and returns the slice of
// one worker. It is the same function on every worker, so that they need not talk about it.
//
// A round of dealing gives each worker its replicas, divided by what all of them have in common: with 2 and 2 replicas
// one file each, with 4 and 2 two files and one. File i of a round goes to the workers in order, so that 2 workers with
// the same number of replicas get
//
//	files             worker 0     worker 1
//	f0 f1             f0           f1
//	f0 f1 f2 f3       f0 f2        f1 f3
//	f0                f0           f0         samples are dealt
//	f0 f1 f2          f0 f1 f2     f0 f1 f2   samples are dealt
//	f0 f1 f2          f0           f1         DropLast: nobody reads f2
//	f0 f1 f2          f0 f2        f1         Unbalanced
//
// Where the last round is not full, and where there is less than one round, all workers read all files, and their
// samples are dealt instead of them, by the same rounds: see [Part]. So every sample has one reader. DropLast drops the
// last round, and Unbalanced deals it as far as it goes; neither leaves a worker without a file, so that with less
// than one round they change nothing.
//
// A worker that feeds no replica needs data only for its shape. It gets what the first worker that feeds one gets, and
// so its epochs have the same length.
func Deal(files []string, replicas []int, worker int, o DealOptions) (Slice, error) {
	if worker < 0 || worker >= len(replicas) {
		return Slice{}, errors.Errorf("epl: files are dealt to %d workers, so there is none with index %d", len(replicas), worker)
	}
	common := 0
	for w, n := range replicas {
		if n < 0 {
			return Slice{}, errors.Errorf("epl: worker %d cannot feed %d model replicas", w, n)
		}
		common = greatestCommonDivisor(common, n)
	}
	if common == 0 {
		return Slice{}, errors.New("epl: no worker feeds a model replica, so there is nobody to read files")
	}
	if replicas[worker] == 0 {
		worker = slices.IndexFunc(replicas, func(n int) bool { return n > 0 })
	}
	part := Part{Own: replicas[worker] / common}
	for w, n := range replicas {
		if w < worker {
			part.First += n / common
		}
		part.Of += n / common
	}
	rest := len(files) % part.Of
	switch {
	case part.Of == 1:
		return Slice{Files: files}, nil
	case len(files) < part.Of, rest > 0 && !o.DropLast && !o.Unbalanced:
		return Slice{Files: files, Part: part}, nil
	case o.Unbalanced:
		rest = 0
	}
	s := Slice{Dropped: files[len(files)-rest:]}
	for i, file := range files[:len(files)-rest] {
		if part.Has(i) {
			s.Files = append(s.Files, file)
		}
	}
	return s, nil
}

func greatestCommonDivisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
