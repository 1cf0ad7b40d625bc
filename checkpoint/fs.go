// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"io"
	"io/fs"
	"os"
	"sync/atomic"
)

// FS is what is needed of a file system. Names are paths.
type FS interface {
	MkdirAll(name string) error
	// Create makes an empty file, instead of one of that name.
	Create(name string) (Writer, error)
	Open(name string) (Reader, error)
	// Rename puts a file in the place of another.
	Rename(from, to string) error
	// Remove removes a file or an empty folder.
	Remove(name string) error
	// List returns the names in a folder, sorted; none if there is no such folder.
	List(name string) ([]string, error)
	// SyncDir makes what was created, renamed and removed in a folder durable.
	SyncDir(name string) error
}

// Writer is a file to be written from its beginning to its end.
type Writer interface {
	io.WriteCloser
	// Sync makes what was written durable.
	Sync() error
}

// Reader is a file to be read, anywhere and at the same time.
type Reader interface {
	io.ReaderAt
	io.Closer
	Size() (int64, error)
}

// OS is the file system of the machine.
var OS FS = osFS{}

type osFS struct{}

func (osFS) MkdirAll(name string) error   { return os.MkdirAll(name, 0o777) }
func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(name string) error     { return os.Remove(name) }

func (osFS) Create(name string) (Writer, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return &directFile{file: f}, nil
}

func (osFS) Open(name string) (r Reader, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) List(name string) (names []string, err error) {
	all, err := os.ReadDir(name)
	if os.IsNotExist(err) {
		return nil, nil
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names, err
}

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

// Counted is a file system that counts the bytes that are read.
type Counted struct {
	FS
	Read atomic.Int64
}

// Open implements FS.
func (c *Counted) Open(name string) (Reader, error) {
	r, err := c.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return countedReader{r, &c.Read}, nil
}

type countedReader struct {
	Reader
	n *atomic.Int64
}

func (r countedReader) ReadAt(b []byte, at int64) (int, error) {
	n, err := r.Reader.ReadAt(b, at)
	r.n.Add(int64(n))
	return n, err
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	var s fs.FileInfo
	s, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return s.Size(), nil
}
