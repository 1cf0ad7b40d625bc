// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/state"
)

// Block is how many bytes have one checksum.
const Block = 1 << 20

// Piece is a piece of a variable, as the header of its file has it.
type Piece struct {
	Path   string       `json:"path"`
	DType  string       `json:"dtype"` // of the variable, by GoMLX's name
	Shape  []int        `json:"shape"` // of the variable
	Region state.Region `json:"region"`
	Sums   []string     `json:"crc32c"` // of each block
	// At is where its bytes begin, from the end of the header.
	At int64 `json:"at"`
}

// Chunk is a piece and its bytes.
type Chunk struct {
	state.Piece
	Bytes []byte
	// Written is called when the bytes are not needed any more; nil: nobody wants to know.
	Written func()
}

// FileName is that of the pieces of a worker.
func FileName(worker int) string { return fmt.Sprintf("worker-%05d.safetensors", worker) }

// Write writes the pieces that a worker owns into the folder of a checkpoint. When it returns, they are on disk.
func Write(f FS, folder string, worker int, chunks []Chunk) (File, error) {
	file := File{Name: FileName(worker), Worker: worker}
	var pieces []Piece
	var entries []namedEntry
	chunks = slices.SortedStableFunc(slices.Values(chunks), func(a, b Chunk) int { return cmp.Compare(partPages(a), partPages(b)) })
	for _, c := range chunks {
		if c.Shape == nil {
			c.Shape = []int{}
		}
		p := Piece{Path: c.Path, DType: c.DType.String(), Shape: c.Shape, Region: c.Region, At: file.DataBytes}
		for b := range slices.Chunk(c.Bytes, Block) {
			p.Sums = append(p.Sums, sum(b))
		}
		e := entry{DType: typeNames[c.DType], Shape: c.Region.Dims()}
		if e.DType == "" { // the format does not have it
			e.DType, e.Shape = "U8", []int{len(c.Bytes)}
		}
		file.DataBytes += int64(len(c.Bytes))
		e.Offsets = [2]int64{p.At, file.DataBytes}
		pieces, entries = append(pieces, p), append(entries, namedEntry{c.Path + c.Region.String(), e})
	}
	text, err := json.Marshal(pieces)
	if err != nil {
		return file, err
	}
	header, err := newHeader(entries, map[string]string{piecesKey: string(text)})
	if err != nil {
		return file, err
	}
	file.Bytes, file.Header = int64(len(header))+file.DataBytes, sum(header)
	if err := f.MkdirAll(folder); err != nil {
		return file, errors.Wrapf(err, "epl: the folder %s cannot be made", folder)
	}
	name := filepath.Join(folder, file.Name)
	err = create(f, name, func(w Writer) error {
		if err := write(w, header); err != nil {
			return err
		}
		for _, c := range chunks {
			if err := write(w, c.Bytes); err != nil {
				return err
			}
			if c.Written != nil {
				c.Written()
			}
		}
		return nil
	})
	if err == nil {
		err = f.SyncDir(folder)
	}
	return file, errors.Wrapf(err, "epl: %s cannot be written", name)
}

// partPages is 1 for what shifts what follows it from the beginning of a page.
func partPages(c Chunk) int { return min(len(c.Bytes)%page, 1) }

// write writes all of b, a bit at a time: an error then comes early.
func write(w Writer, b []byte) error {
	for part := range slices.Chunk(b, 8*Block) {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// create writes a file that is on disk when it returns, but for its name.
func create(f FS, name string, fill func(Writer) error) error {
	w, err := f.Create(name)
	if err != nil {
		return err
	}
	if err = fill(w); err == nil {
		err = w.Sync()
	}
	if e := w.Close(); err == nil {
		err = e
	}
	return err
}

// Commit makes a checkpoint of the files in a folder: from when it returns it is there. m.Files has what [Write] returned for each.
func Commit(f FS, folder string, m *Manifest) error {
	m.Version = Version
	text, err := m.encode()
	if err != nil {
		return err
	}
	temporary := filepath.Join(folder, unfinished)
	err = create(f, temporary, func(w Writer) error { return write(w, text) })
	if err == nil {
		err = f.SyncDir(filepath.Dir(folder)) // its own name
	}
	if err == nil {
		err = f.Rename(temporary, filepath.Join(folder, ManifestName))
	}
	if err == nil {
		err = f.SyncDir(folder)
	}
	return errors.Wrapf(err, "epl: the manifest of %s cannot be written", folder)
}

// Remove removes a checkpoint, or what was written of one. First of all it is not there any more.
func Remove(f FS, dir, name string) error {
	folder := filepath.Join(dir, name)
	inside, err := f.List(folder)
	if err != nil {
		return err
	}
	if i := slices.Index(inside, ManifestName); i >= 0 {
		if err := f.Remove(filepath.Join(folder, ManifestName)); err != nil {
			return err
		}
		if err := f.SyncDir(folder); err != nil {
			return err
		}
		inside = slices.Delete(inside, i, i+1)
	}
	for _, file := range inside {
		if err := f.Remove(filepath.Join(folder, file)); err != nil {
			return err
		}
	}
	return f.Remove(folder)
}

// Best are checkpoints that stay besides the newest: the N with the lowest value of a metric, or the highest. Of equal ones the older stay. Those without a
// value are not among them.
type Best struct {
	Metric  string
	N       int
	Highest bool
}

// String is how it was asked for.
func (b Best) String() string {
	if b.Highest {
		return fmt.Sprintf("KeepHighest(%d, %q)", b.N, b.Metric)
	}
	return fmt.Sprintf("KeepLowest(%d, %q)", b.N, b.Metric)
}

// of chooses among checkpoints, which are sorted by age.
func (b Best) of(all []Listed) []Listed {
	value := func(c Listed) float64 {
		if b.Highest {
			return -c.Manifest.Metrics[b.Metric]
		}
		return c.Manifest.Metrics[b.Metric]
	}
	all = slices.DeleteFunc(slices.Clone(all), func(c Listed) bool {
		_, ok := c.Manifest.Metrics[b.Metric]
		return !ok
	})
	slices.SortStableFunc(all, func(x, y Listed) int { return cmp.Compare(value(x), value(y)) })
	return all[:min(b.N, len(all))]
}

// Prune removes checkpoints but for the newest keep and the best, and what was written of older ones that were never finished. It returns what it removed, and
// goes on if something cannot be. Damaged checkpoints stay, for a person to look at.
func Prune(f FS, dir string, keep int, best ...Best) (removed []string, err error) {
	all, _, _, err := List(f, dir)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	newest := number(all[len(all)-1].Name)
	var old []string
	stay := all[max(len(all)-max(keep, 1), 0):]
	for _, b := range best {
		stay = append(stay, b.of(all)...)
	}
	for _, c := range all {
		if !slices.ContainsFunc(stay, func(s Listed) bool { return s.Name == c.Name }) {
			old = append(old, c.Name)
		}
	}
	names, err := folders(f, dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		inside, e := f.List(filepath.Join(dir, name))
		if e == nil && number(name) < newest && !slices.Contains(inside, ManifestName) {
			old = append(old, name)
		}
	}
	for _, name := range old {
		if e := Remove(f, dir, name); e != nil {
			err = errors.Wrapf(e, "epl: the old checkpoint %s cannot be removed", filepath.Join(dir, name))
			continue
		}
		removed = append(removed, name)
	}
	return removed, err
}
