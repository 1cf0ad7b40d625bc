// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/pjrt"
)

// Cache keeps compiled modules in a folder, so that a program that was compiled before starts at once. Several processes may use it at the
// same time. An entry that is damaged, or made by another version, is compiled again.
type Cache struct {
	folder string
	limit  int64
}

// NewCache uses a folder, and makes it. Entries that were not used for longest go when there are more than limit bytes.
//
//	cache, err := xla.NewCache(filepath.Join(home, ".cache", "epl"), 4<<30)
func NewCache(folder string, limit int64) (*Cache, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, errors.Wrap(err, "epl: compiled programs cannot be kept")
	}
	return &Cache{folder, limit}, nil
}

// entry is a compiled module, and what the compiler knew of its memory, which it forgets when a module is loaded.
type entry struct {
	memory pjrt.CompiledMemory
	code   []byte
}

// format is that of entries. It is part of their names, so that those of other versions are not found.
const format = "2"

// encode writes an entry: the checksum of the rest, the memory as a line of JSON, the code.
func (e entry) encode() ([]byte, error) {
	line, err := json.Marshal(e.memory)
	if err != nil {
		return nil, err
	}
	rest := slices.Concat(line, []byte("\n"), e.code)
	sum := sha256.Sum256(rest)
	return append(sum[:], rest...), nil
}

// decode reads an entry; nil: it is damaged.
func decode(all []byte) *entry {
	if len(all) < sha256.Size {
		return nil
	}
	rest := all[sha256.Size:]
	if sum := sha256.Sum256(rest); !bytes.Equal(sum[:], all[:sha256.Size]) {
		return nil
	}
	line, code, _ := bytes.Cut(rest, []byte("\n"))
	e := &entry{code: code}
	if json.Unmarshal(line, &e.memory) != nil {
		return nil
	}
	return e
}

// hash names an entry by what it depends on.
func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range append(parts, format) {
		sum := sha256.Sum256([]byte(p))
		_, _ = h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (c *Cache) file(key string) string { return filepath.Join(c.folder, key+".xla") }

// get returns an entry; nil: there is none.
func (c *Cache) get(key string) *entry {
	if c == nil {
		return nil
	}
	all, err := os.ReadFile(c.file(key))
	if err != nil {
		return nil
	}
	e := decode(all)
	if e == nil {
		c.drop(key)
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(c.file(key), now, now) // it was used
	return e
}

func (c *Cache) drop(key string) { _ = os.Remove(c.file(key)) }

// put writes an entry: others see all of it or nothing.
func (c *Cache) put(key string, e entry) error {
	data, err := e.encode()
	if err != nil {
		return err
	}
	if int64(len(data)) > c.limit {
		return errors.Errorf("it has %d bytes, and the cache holds %d", len(data), c.limit)
	}
	f, err := os.CreateTemp(c.folder, "new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), c.file(key))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return c.trim()
}

// trim removes what was not used for longest, and what a process left unfinished.
func (c *Cache) trim() error {
	entries, err := os.ReadDir(c.folder)
	if err != nil {
		return err
	}
	var files []fs.FileInfo
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil: // another process removed it
		case filepath.Ext(e.Name()) == ".xla":
			files = append(files, info)
			total += info.Size()
		case time.Since(info.ModTime()) > time.Hour:
			_ = os.Remove(filepath.Join(c.folder, e.Name()))
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files {
		if total <= c.limit {
			break
		}
		_ = os.Remove(filepath.Join(c.folder, f.Name()))
		total -= f.Size()
	}
	return nil
}
