// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"os"
	"unsafe"
)

const (
	// page is what direct writes are multiples of: their place in the file, in memory, and their length.
	page = 4096
	// direct is how long a write must be to be worth it.
	direct = 16 * page
	// staged is how much is copied at a time where memory does not begin on a page. It stays in the cache.
	staged = 256 * page
)

// directFile writes long runs of bytes past the page cache, from where they lie. A write through the cache takes several times as much of a core that computes: the
// kernel finds pages, copies, and its own threads write them out, at their own priority and all at once. Where the file system cannot do it, writes go through the cache.
type directFile struct {
	file   *os.File
	at     int64 // how much was written
	direct bool  // how the next write goes
	cached bool  // the file system cannot do it
	stage  []byte
}

// Write implements Writer.
func (f *directFile) Write(b []byte) (n int, err error) {
	if f.cached || len(b) < direct {
		return f.write(b, false)
	}
	if over := int(f.at % page); over > 0 {
		if n, err = f.write(b[:page-over], false); err != nil {
			return n, err
		}
	}
	for err == nil && !f.cached && len(b)-n >= page {
		var more int
		more, err = f.pages(b[n:])
		n += more
	}
	if err == nil {
		var more int
		more, err = f.write(b[n:], false)
		n += more
	}
	return n, err
}

// Sync implements Writer.
func (f *directFile) Sync() error { return f.file.Sync() }

// Close implements Writer.
func (f *directFile) Close() error { return f.file.Close() }

// pages writes some pages past the cache; none, if the file system cannot.
func (f *directFile) pages(b []byte) (int, error) {
	b = b[:len(b)/page*page]
	if misaligned(b) {
		if f.stage == nil {
			f.stage = make([]byte, staged+page)
			f.stage = f.stage[-uintptr(unsafe.Pointer(unsafe.SliceData(f.stage)))%page:][:staged]
		}
		b = f.stage[:copy(f.stage, b)]
	}
	n, err := f.write(b, true)
	if refused(err) {
		f.cached, err = true, nil
	}
	return n, err
}

// write writes past the cache or through it.
func (f *directFile) write(b []byte, direct bool) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if f.direct != direct {
		if err := setDirect(f.file, direct); err != nil {
			return 0, err
		}
		f.direct = direct
	}
	n, err := f.file.Write(b)
	f.at += int64(n)
	return n, err
}

// misaligned tells whether b does not begin on a page.
func misaligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%page != 0 }
