// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build !unix

package source

import (
	"io"
	"os"
)

// mapFile reads a file, where it cannot be mapped.
func mapFile(f *os.File, size int) (b []byte, unmap func() error, err error) {
	b = make([]byte, size)
	_, err = io.ReadFull(io.NewSectionReader(f, 0, int64(size)), b)
	return b, func() error { return nil }, err
}
