// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hostmem

import (
	"os"

	"github.com/pkg/errors"
)

// Pool is the files that a launcher holds: here it is empty.
type Pool struct{ Name Name }

var errNone = errors.New("epl: memory that outlives a worker (recovery.copies) needs Linux")

// New returns nil: workers are told of no pool.
func New(id string, n int) (*Pool, error) { return nil, nil }

// Close does nothing.
func (p *Pool) Close() {}

// File is one of a pool.
type File struct{ *os.File }

// Open says that there is none.
func Open(n Name) ([]*File, error) { return nil, errNone }

// Size says that there is none.
func (f *File) Size() (int64, error) { return 0, errNone }

// Reserve says that there is none.
func (f *File) Reserve(size int64) error { return errNone }

// Total says that it is not known.
func Total() int64 { return 0 }

// Available says that it is not known.
func Available() (bytes int64, ok bool) { return 0, false }
