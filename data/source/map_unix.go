// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build unix

package source

import (
	"os"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// mapFile maps a file into memory: what is read is in the page cache, which all workers of a machine share.
func mapFile(f *os.File, size int) (b []byte, unmap func() error, err error) {
	b, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, errors.Wrap(err, "it cannot be mapped into memory")
	}
	return b, func() error { return unix.Munmap(b) }, nil
}
