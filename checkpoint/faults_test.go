// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// memory is a file system in memory that knows what is on disk already: after a crash only that is there. Any of its calls can be made to fail.
type memory struct {
	mu    sync.Mutex
	files map[string]*inode // as programs see it
	disk  map[string]*inode // names that are durable
	dirs  map[string]bool
	calls int

	// fault is asked at every call that changes something, and readFault at all others: an error fails it.
	fault, readFault func(call int, op, name string) error
	reads            int
	// torn: a write that fails has written half of its bytes. lying: Sync and SyncDir do nothing.
	torn, lying bool
}

type inode struct {
	data    []byte
	durable []byte
}

func newMemory() *memory {
	return &memory{files: map[string]*inode{}, disk: map[string]*inode{}, dirs: map[string]bool{}}
}

func (m *memory) call(op, name string) error {
	m.calls++
	if m.fault == nil {
		return nil
	}
	return m.fault(m.calls-1, op, name)
}

// crashes are what a disk may have after a crash now: what is durable is there. Of the rest there may be nothing; or all names, with the
// bytes that were synced, with half of the others, or with zeros in their place.
func (m *memory) crashes() map[string]*memory {
	durable := func(f *inode) []byte { return f.durable }
	rest := func(f *inode) int { return len(f.data) - len(f.durable) }
	return map[string]*memory{
		"after a crash":    left(m.disk, durable),
		"names only":       left(m.files, durable),
		"torn":             left(m.files, func(f *inode) []byte { return f.data[:len(f.durable)+rest(f)/2] }),
		"zeros at the end": left(m.files, func(f *inode) []byte { return append(slices.Clone(f.durable), make([]byte, rest(f))...) }),
	}
}

// left is a file system with what is left of some files.
func left(files map[string]*inode, bytes func(*inode) []byte) *memory {
	after := newMemory()
	for name, f := range files {
		b := slices.Clone(bytes(f))
		after.files[name] = &inode{b, b}
		after.disk[name] = after.files[name]
		after.dirs[filepath.Dir(name)], after.dirs[filepath.Dir(filepath.Dir(name))] = true, true
	}
	return after
}

func (m *memory) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("mkdir", name); err != nil {
		return err
	}
	m.dirs[name], m.dirs[filepath.Dir(name)] = true, true
	return nil
}

func (m *memory) Create(name string) (Writer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("create", name); err != nil {
		return nil, err
	}
	if !m.dirs[filepath.Dir(name)] {
		return nil, fs.ErrNotExist
	}
	f := &inode{}
	m.files[name] = f
	return &memoryWriter{m, f, name}, nil
}

func (m *memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("rename", to); err != nil {
		return err
	}
	f := m.files[from]
	if f == nil {
		return fs.ErrNotExist
	}
	delete(m.files, from)
	m.files[to] = f
	return nil
}

func (m *memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("remove", name); err != nil {
		return err
	}
	delete(m.files, name)
	delete(m.dirs, name)
	return nil
}

func (m *memory) List(name string) (names []string, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.read("list", name); err != nil {
		return nil, err
	}
	add := func(path string) {
		if rest, ok := strings.CutPrefix(path, name+"/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			if !slices.Contains(names, first) {
				names = append(names, first)
			}
		}
	}
	for path := range m.files {
		add(path)
	}
	for path := range m.dirs {
		add(path)
	}
	slices.Sort(names)
	return names, nil
}

func (m *memory) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.call("syncdir", name); err != nil || m.lying {
		return err
	}
	for path := range m.disk {
		if filepath.Dir(path) == name && m.files[path] == nil {
			delete(m.disk, path)
		}
	}
	for path, f := range m.files {
		if filepath.Dir(path) == name {
			m.disk[path] = f
		}
	}
	return nil
}

func (m *memory) Open(name string) (Reader, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.read("open", name); err != nil {
		return nil, err
	}
	f := m.files[name]
	if f == nil {
		return nil, fs.ErrNotExist
	}
	return memoryReader{m, bytes.NewReader(f.data), name}, nil
}

// read is a call that changes nothing.
func (m *memory) read(op, name string) error {
	m.reads++
	if m.readFault == nil {
		return nil
	}
	return m.readFault(m.reads-1, op, name)
}

type memoryReader struct {
	m    *memory
	data *bytes.Reader
	name string
}

func (r memoryReader) Close() error { return nil }

func (r memoryReader) Size() (int64, error) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	return r.data.Size(), r.m.read("size", r.name)
}

func (r memoryReader) ReadAt(b []byte, at int64) (int, error) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if err := r.m.read("read", r.name); err != nil { // half of it came
		n, _ := r.data.ReadAt(b[:len(b)/2], at)
		return n, err
	}
	return r.data.ReadAt(b, at)
}

type memoryWriter struct {
	m    *memory
	f    *inode
	name string
}

func (w *memoryWriter) Write(b []byte) (int, error) {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if err := w.m.call("write", w.name); err != nil {
		if w.m.torn {
			w.f.data = append(w.f.data, b[:len(b)/2]...)
			return len(b) / 2, err
		}
		return 0, err
	}
	w.f.data = append(w.f.data, b...)
	return len(b), nil
}

func (w *memoryWriter) Sync() error {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if err := w.m.call("sync", w.name); err != nil || w.m.lying {
		return err
	}
	w.f.durable = slices.Clone(w.f.data)
	return nil
}

func (w *memoryWriter) Close() error {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	return w.m.call("close", w.name)
}

// The errors that disks have.
var (
	noSpace = &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	broken  = &fs.PathError{Op: "write", Path: "x", Err: syscall.EIO}
)
