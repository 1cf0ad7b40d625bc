// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hostmem

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// Pool is the files that a launcher holds.
type Pool struct {
	Name  Name
	files []*os.File
}

// New makes a pool of so many empty files.
func New(id string, n int) (*Pool, error) {
	p := &Pool{Name: Name{ID: id}}
	for i := range n {
		fd, err := unix.MemfdCreate(fmt.Sprint("epl-copy-", i), unix.MFD_CLOEXEC)
		if err != nil {
			p.Close()
			return nil, errors.Errorf("epl: the system gives no memory for copies of training state: %v", err)
		}
		p.files = append(p.files, os.NewFile(uintptr(fd), "copy"))
		p.Name.Files = append(p.Name.Files, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
	}
	return p, nil
}

// Close lets go of all memory that no worker has open.
func (p *Pool) Close() {
	if p != nil {
		for _, f := range p.files {
			_ = f.Close()
		}
	}
}

// File is one of a pool.
type File struct{ *os.File }

// Open opens the files of a pool.
func Open(n Name) (all []*File, err error) {
	for _, name := range n.Files {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			for _, f := range all {
				_ = f.Close()
			}
			return nil, errors.Errorf("epl: the memory of the launcher cannot be opened: %v; is this process in another container than epl-launch?", err)
		}
		all = append(all, &File{f})
	}
	return all, nil
}

// Size is how many bytes it has.
func (f *File) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Reserve gives it a size, and takes the memory for it: what is not there is known before something is written.
func (f *File) Reserve(size int64) error {
	if err := f.Truncate(size); err != nil || size == 0 {
		return err
	}
	return unix.Fallocate(int(f.Fd()), 0, 0, size)
}

// Total is the memory of the machine, or of the container; 0 if that is not known.
func Total() int64 {
	bytes, _ := field("/proc/meminfo", "MemTotal:")
	bytes *= 1 << 10 // it is in kB
	if limit, limited := field("/sys/fs/cgroup/memory.max", ""); limited && (bytes == 0 || limit < bytes) {
		return limit
	}
	return bytes
}

// Available is how many bytes the machine, or the container, can still give; ok is false if that is not known.
func Available() (bytes int64, ok bool) {
	bytes, ok = field("/proc/meminfo", "MemAvailable:")
	bytes *= 1 << 10 // it is in kB
	const group = "/sys/fs/cgroup/memory."
	limit, limited := field(group+"max", "")
	used, known := field(group+"current", "")
	if limited && known {
		files, _ := field(group+"stat", "file")
		shared, _ := field(group+"stat", "shmem")
		if left := max(limit-used+files-shared, 0); !ok || left < bytes { // files are only cached
			return left, true
		}
	}
	return bytes, ok
}

// field is the number after a word at the beginning of a line of a file.
func field(file, word string) (n int64, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if word == "" {
			words = append([]string{""}, words...)
		}
		if len(words) > 1 && words[0] == word {
			n, err := strconv.ParseInt(words[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
