// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/state"
)

// File is memory that outlives a worker.
type File interface {
	io.ReaderAt
	io.WriterAt
	Size() (int64, error)
	// Reserve gives it a size, and takes the memory for it.
	Reserve(size int64) error
}

const (
	// dataAt is where data begin.
	dataAt = 4096
	// align is what pieces begin at a multiple of.
	align = 64
	// manifestRoom is what is reserved for the manifest, which may grow from step to step.
	manifestRoom = 64 << 10
)

// magic is how a complete slot begins; the last byte is the version of the format.
var magic = [8]byte{'E', 'P', 'L', 'c', 'o', 'p', 'y', 1}

var table = crc32.MakeTable(crc32.Castagnoli)

// Step is whose copy a slot is, and of when.
type Step struct {
	Generation int64 // of the job
	Step       int64 // of the training loop
	Worker     int64
	Store      int64 // which of the program's stores, in the order in which it gave them to env.Checkpoints
	// Layout is a checksum of who has what: the same on all workers.
	Layout uint64
}

// header is at the beginning of a slot.
type header struct {
	Magic [8]byte
	Step
	Tail          int64 // where the table begins
	Table         int64 // its bytes
	Sums          int64 // checksums after it
	Manifest      int64 // bytes after these
	TailSum, Zero uint32
}

// encode writes the header with its checksum.
func (h header) encode() []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, h) // it has a fixed size
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, table))
}

// headerBytes is how many it has.
var headerBytes = len(header{}.encode())

// decode reads a header; ok is false if it is none.
func decode(b []byte) (h header, ok bool) {
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	_, err := binary.Decode(body, binary.LittleEndian, &h)
	return h, err == nil && h.Magic == magic && sum == crc32.Checksum(body, table)
}

// Slot is where a worker copies its pieces of a step to.
type Slot struct {
	Of    Step // the step itself is that of [Slot.Commit]
	file  File
	at    []int64 // of each piece, from the beginning of the data
	first []int   // of its checksums
	sums  []uint32
	tail  int64
	table []byte
}

// NewSlot lays out a slot for pieces of a worker. Reserve is to be called before it is used.
func NewSlot(f File, of Step, pieces []state.Piece) (*Slot, error) {
	s := &Slot{file: f, Of: of}
	all := []checkpoint.Piece{}
	end := int64(0)
	for _, p := range pieces {
		s.at = append(s.at, end)
		s.first = append(s.first, len(s.sums))
		s.sums = append(s.sums, make([]uint32, (p.Bytes()+checkpoint.Block-1)/checkpoint.Block)...)
		all = append(all, checkpoint.Piece{Path: p.Path, DType: p.DType.String(), Shape: append([]int{}, p.Shape...), Region: p.Region, At: end})
		end += int64(p.Bytes()+align-1) / align * align
	}
	var err error
	s.tail = dataAt + end
	s.table, err = json.Marshal(all)
	return s, err
}

// Reserve takes the memory. What was in the file is gone.
func (s *Slot) Reserve() error {
	if err := s.Begin(); err != nil {
		return err
	}
	return s.file.Reserve(s.Size())
}

// Size is how many bytes of memory it has.
func (s *Slot) Size() int64 { return s.tail + int64(len(s.table)+4*len(s.sums)) + manifestRoom }

// Begin is before the first piece of a step is put: the copy that was there is gone.
func (s *Slot) Begin() error {
	_, err := s.file.WriteAt(make([]byte, headerBytes), 0)
	return err
}

// Put copies a piece, by its index.
func (s *Slot) Put(i int, b []byte) error {
	at, n := dataAt+s.at[i], s.first[i]
	for part := range slices.Chunk(b, checkpoint.Block) {
		s.sums[n] = crc32.Checksum(part, table)
		if _, err := s.file.WriteAt(part, at); err != nil {
			return err
		}
		at, n = at+int64(len(part)), n+1
	}
	return nil
}

// Get reads a piece that was put.
func (s *Slot) Get(i int, to []byte) error {
	_, err := s.file.ReadAt(to, dataAt+s.at[i])
	return err
}

// Commit is after the last piece: from when it returns, the copy of the step is there.
func (s *Slot) Commit(step int64, m *checkpoint.Manifest) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	tail := slices.Clone(s.table)
	for _, sum := range s.sums {
		tail = binary.LittleEndian.AppendUint32(tail, sum)
	}
	tail = append(tail, text...)
	if _, err := s.file.WriteAt(tail, s.tail); err != nil {
		return err
	}
	h := header{Magic: magic, Step: s.Of, Tail: s.tail, Table: int64(len(s.table)), Sums: int64(len(s.sums)), Manifest: int64(len(text)), TailSum: crc32.Checksum(tail, table)}
	h.Step.Step = step
	_, err = s.file.WriteAt(h.encode(), 0)
	return err
}

// Look returns whose copy is in a file; ok is false if there is none that is complete.
func Look(f io.ReaderAt) (of Step, ok bool) {
	h, ok := look(f)
	return h.Step, ok
}

func look(f io.ReaderAt) (h header, ok bool) {
	b := make([]byte, headerBytes)
	if _, err := f.ReadAt(b, 0); err != nil {
		return h, false
	}
	return decode(b)
}

// Open reads what a slot has besides data. The data are checked when they are read.
func Open(name string, f checkpoint.Reader) (*checkpoint.Manifest, checkpoint.Source, error) {
	source := checkpoint.Source{Name: name, Reader: f, Data: dataAt}
	h, ok := look(f)
	if !ok {
		return nil, source, errors.Errorf("epl: %s has no complete copy", name)
	}
	size, err := f.Size()
	if err != nil {
		return nil, source, err
	}
	if h.Tail < dataAt || h.Table < 0 || h.Sums < 0 || h.Manifest < 0 || h.Table > size || h.Sums > size || h.Manifest > size || h.Tail+h.Table+4*h.Sums+h.Manifest > size {
		return nil, source, errors.Errorf("epl: the copy in %s is damaged: it is said to be longer than its file", name)
	}
	tail := make([]byte, h.Table+4*h.Sums+h.Manifest)
	if _, err := f.ReadAt(tail, h.Tail); err != nil {
		return nil, source, errors.Wrapf(err, "epl: the copy in %s", name)
	}
	if crc32.Checksum(tail, table) != h.TailSum {
		return nil, source, errors.Errorf("epl: the copy in %s is damaged: the checksum of its table is wrong", name)
	}
	m := &checkpoint.Manifest{}
	if err := json.Unmarshal(tail[h.Table+4*h.Sums:], m); err != nil {
		return nil, source, errors.Wrapf(err, "epl: the copy in %s", name)
	}
	if err := json.NewDecoder(bytes.NewReader(tail[:h.Table])).Decode(&source.Pieces); err != nil {
		return nil, source, errors.Wrapf(err, "epl: the copy in %s", name)
	}
	return m, source, source.SetSums(tail[h.Table : h.Table+4*h.Sums])
}
