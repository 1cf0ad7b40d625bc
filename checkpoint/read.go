// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/state"
)

// Checkpoint is one that is open for reading. Its methods may be called at the same time.
type Checkpoint struct {
	Folder   string
	Manifest *Manifest

	variables map[string]*variable
	files     []*pieces
}

// variable is a variable in a checkpoint.
type variable struct {
	shape  shapes.Shape
	pieces []stored
}

// stored is a piece in a file.
type stored struct {
	Piece
	bytes int
	file  *pieces
}

// pieces is a file of them.
type pieces struct {
	Reader
	name string
	data int64 // where data begin
}

// Open opens the checkpoint in a folder. All headers are read and checked, data are not.
func Open(f FS, folder string) (_ *Checkpoint, err error) {
	m, err := readManifest(f, folder)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{Folder: folder, Manifest: m, variables: map[string]*variable{}}
	defer func() {
		if err != nil {
			err = errors.WithMessagef(err, "epl: checkpoint %s", folder)
			c.Close()
		}
	}()
	total := int64(0)
	for _, file := range m.Files {
		if err := c.open(f, file); err != nil {
			return nil, errors.WithMessage(err, file.Name)
		}
		total += file.DataBytes
	}
	if len(c.variables) != m.Variables || total != m.Bytes {
		return nil, errors.Errorf("it has %d variables in %d bytes, and was written with %d in %d", len(c.variables), total, m.Variables, m.Bytes)
	}
	for path, v := range c.variables {
		var regions []state.Region
		for _, p := range v.pieces {
			regions = append(regions, p.Region)
		}
		if err := state.Cover(v.shape.Dimensions, regions); err != nil {
			return nil, errors.WithMessagef(err, "variable %q", path)
		}
	}
	return c, nil
}

// open reads the header of a file.
func (c *Checkpoint) open(f FS, file File) error {
	r, err := f.Open(filepath.Join(c.Folder, file.Name))
	if err != nil {
		return err
	}
	x := &pieces{Reader: r, name: file.Name}
	c.files = append(c.files, x)
	size, err := r.Size()
	if err != nil {
		return err
	}
	raw, _, metadata, err := readHeader(r, size)
	if err != nil {
		return errors.WithMessage(err, "the header is damaged")
	}
	if sum(raw) != file.Header {
		return errors.New("the header is damaged: its checksum is wrong")
	}
	x.data = int64(len(raw))
	var all []Piece
	if err := json.Unmarshal([]byte(metadata[piecesKey]), &all); err != nil {
		return errors.Wrap(err, "the header has no pieces")
	}
	return c.add(x, all, size-x.data)
}

// add takes the pieces of a file, which has so many bytes of data.
func (c *Checkpoint) add(x *pieces, all []Piece, data int64) error {
	for _, p := range all {
		dtype, ok := dtypes.MapOfNames[p.DType]
		if !ok {
			return errors.Errorf("variable %q has the type %q, which this EPL does not know", p.Path, p.DType)
		}
		v := c.variables[p.Path]
		if v == nil {
			v = &variable{shape: shapes.Make(dtype, p.Shape...)}
			c.variables[p.Path] = v
		}
		if v.shape.DType != dtype || !slices.Equal(v.shape.Dimensions, p.Shape) {
			return errors.Errorf("variable %q has the shape %s and the shape %s", p.Path, v.shape, shapes.Make(dtype, p.Shape...))
		}
		if err := p.Region.Check(p.Shape); err != nil {
			return errors.WithMessagef(err, "variable %q", p.Path)
		}
		n := int64(state.Bytes(dtype, p.Region.Size()))
		if p.At < 0 || p.At+n > data || int64(len(p.Sums)) != (n+Block-1)/Block {
			return errors.Errorf("%v of variable %q is not in the file", p.Region, p.Path)
		}
		v.pieces = append(v.pieces, stored{p, int(n), x})
	}
	return nil
}

// Close closes its files.
func (c *Checkpoint) Close() error {
	var err error
	for _, f := range c.files {
		if e := f.Close(); err == nil {
			err = e
		}
	}
	return err
}

// Paths are those of its variables, sorted.
func (c *Checkpoint) Paths() []string { return slices.Sorted(maps.Keys(c.variables)) }

// Shape is that of a variable; ok is false if there is none.
func (c *Checkpoint) Shape(path string) (s shapes.Shape, ok bool) {
	v, ok := c.variables[path]
	if !ok {
		return s, false
	}
	return v.shape, true
}

// Pieces are those of a variable, and the files that have them.
func (c *Checkpoint) Pieces(path string) (regions []state.Region, files []string) {
	for _, p := range c.variables[path].pieces {
		regions, files = append(regions, p.Region), append(files, p.file.name)
	}
	return regions, files
}

// Read copies a region of a variable. It reads the blocks that it needs, and checks them.
func (c *Checkpoint) Read(path string, want state.Region, to []byte) error {
	v := c.variables[path]
	if v == nil {
		return errors.Errorf("epl: checkpoint %s has no variable %q", c.Folder, path)
	}
	err := want.Check(v.shape.Dimensions)
	if n := state.Bytes(v.shape.DType, want.Size()); err == nil && n != len(to) {
		err = errors.Errorf("epl: internal error: %v has %d bytes, and there is room for %d", want, n, len(to))
	}
	for _, p := range v.pieces {
		if err == nil {
			err = p.read(v.shape, want, to)
		}
	}
	return errors.WithMessagef(err, "epl: checkpoint %s, variable %q", c.Folder, path)
}

// read copies what a piece has of a region.
func (p stored) read(s shapes.Shape, want state.Region, to []byte) error {
	if s.DType.IsPacked() {
		if !want.Equal(p.Region) {
			return errors.Errorf("values of type %s share bytes: such a variable is read as it was written, not in other parts", s.DType)
		}
		return p.blocks(0, len(to), func(at int, b []byte) { copy(to[at:], b) })
	}
	// Runs come in the order of the piece. Those that are less than a block apart are read together.
	size := int(s.DType.Size())
	var runs []state.Run
	flush := func() error {
		if len(runs) == 0 {
			return nil
		}
		last := runs[len(runs)-1]
		first, end := runs[0].At*size, (last.At+last.Len)*size
		next := 0
		err := p.blocks(first, end, func(at int, b []byte) {
			for i := next; i < len(runs); i++ {
				r := runs[i]
				from, to2 := max(r.At*size, at), min((r.At+r.Len)*size, at+len(b))
				if from < to2 {
					copy(to[r.In*size+from-r.At*size:], b[from-at:to2-at])
				}
				if (r.At+r.Len)*size > at+len(b) {
					break
				}
				next = i + 1
			}
		})
		runs = runs[:0]
		return err
	}
	var err error
	state.Overlap(s.Dimensions, p.Region, want, func(r state.Run) {
		if n := len(runs); n > 0 && err == nil && (r.At-runs[n-1].At-runs[n-1].Len)*size > Block {
			err = flush()
		}
		runs = append(runs, r)
	})
	if err != nil {
		return err
	}
	return flush()
}

// blocks reads the blocks that hold some bytes of a piece, checks them, and gives them in order with where they begin.
func (p stored) blocks(from, to int, visit func(at int, b []byte)) error {
	for i := from / Block; i*Block < to; i++ {
		length := min(p.bytes-i*Block, Block)
		buf := buffers.Get().(*[Block]byte)
		b := buf[:length]
		n, err := p.file.ReadAt(b, p.file.data+p.At+int64(i*Block))
		if n == length {
			err = nil
		} else if err == nil || err == io.EOF {
			err = errors.New("the file is too short")
		}
		if err == nil && sum(b) != p.Sums[i] {
			err = errors.New("the data are damaged: their checksum is wrong")
		}
		if err == nil {
			visit(i*Block, b)
		}
		buffers.Put(buf)
		if err != nil {
			return errors.WithMessagef(err, "%s, %v", p.file.name, p.Region)
		}
	}
	return nil
}

var buffers = sync.Pool{New: func() any { return new([Block]byte) }}

// Verify reads the data of one of n shares of the pieces, and checks them: all of them, if n is 1.
func (c *Checkpoint) Verify(share, n int) error {
	return c.VerifyOf(func(string) bool { return true }, share, n)
}

// VerifyOf is Verify for the pieces of some files, by name.
func (c *Checkpoint) VerifyOf(file func(name string) bool, share, n int) error {
	var all []stored
	for _, path := range c.Paths() {
		for _, p := range c.variables[path].pieces {
			if file(p.file.name) {
				all = append(all, p)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b stored) int { return cmp.Compare(b.bytes, a.bytes) })
	load := make([]int, n)
	for _, p := range all {
		who := slices.Index(load, slices.Min(load))
		load[who] += p.bytes + 1
		if who != share {
			continue
		}
		if err := p.blocks(0, p.bytes, func(int, []byte) {}); err != nil {
			return errors.WithMessagef(err, "epl: checkpoint %s, variable %q", c.Folder, p.Path)
		}
	}
	return nil
}
