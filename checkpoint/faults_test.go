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

	// fault is asked at every call that changes something: an error fails it.
	fault func(call int, op, name string) error
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

// crash leaves what is durable; with lose half of what was written without Sync is lost, else all of it.
func (m *memory) crash() *memory {
	after := newMemory()
	for name, f := range m.disk {
		after.files[name] = &inode{slices.Clone(f.durable), slices.Clone(f.durable)}
		after.disk[name] = after.files[name]
		after.dirs[filepath.Dir(name)], after.dirs[filepath.Dir(filepath.Dir(name))] = true, true
	}
	return after
}

// reordered is a crash in which all names had become durable, but of the bytes only those that were synced: a disk may do so.
func (m *memory) reordered() *memory {
	for name, f := range m.files {
		m.disk[name] = f
	}
	return m.crash()
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
	f := m.files[name]
	if f == nil {
		return nil, fs.ErrNotExist
	}
	return memoryReader{bytes.NewReader(f.data), int64(len(f.data))}, nil
}

type memoryReader struct {
	*bytes.Reader
	n int64
}

func (r memoryReader) Size() (int64, error) { return r.n, nil }
func (r memoryReader) Close() error         { return nil }

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
