// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/state"
)

// memory is a file whose writer is killed when so many bytes were written.
type memory struct {
	b    []byte
	left int // bytes; -1: any number
}

var errKilled = errors.New("killed")

func (m *memory) ReadAt(b []byte, at int64) (int, error) {
	if at > int64(len(m.b)) {
		return 0, io.EOF
	}
	n := copy(b, m.b[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (m *memory) WriteAt(b []byte, at int64) (int, error) {
	n := len(b)
	if m.left >= 0 {
		n = min(n, m.left)
		m.left -= n
	}
	if grow := int(at) + n - len(m.b); grow > 0 {
		m.b = append(m.b, make([]byte, grow)...)
	}
	copy(m.b[at:], b[:n])
	if n < len(b) {
		return n, errKilled
	}
	return n, nil
}

func (m *memory) Reserve(size int64) error {
	m.b = slices.Grow(m.b, max(int(size)-len(m.b), 0))[:size]
	return nil
}
func (m *memory) Size() (int64, error) { return int64(len(m.b)), nil }
func (m *memory) Close() error         { return nil }

// piece is a part of a variable of bytes.
func piece(path string, size, from, to int) state.Piece {
	return state.Piece{Path: path, DType: dtypes.Uint8, Shape: []int{size}, Region: state.Region{Start: []int{0}, Limit: []int{size}, From: from, To: to}}
}

// contents are what variables have, by path and step.
var contents = map[string][]byte{}

// content is what a variable has at a step.
func content(path string, size int, step int64) []byte {
	key := fmt.Sprint(path, step)
	if contents[key] == nil {
		contents[key] = make([]byte, size)
		rand.New(rand.NewSource(int64(len(path)) + 1000*step)).Read(contents[key])
	}
	return contents[key]
}

// fill copies the pieces of a step.
func fill(s *Slot, pieces []state.Piece, step int64, variables int) error {
	if err := s.Begin(); err != nil {
		return err
	}
	for i, p := range pieces {
		if err := s.Put(i, content(p.Path, p.Shape[0], step)[p.Region.From:p.Region.To]); err != nil {
			return err
		}
	}
	return s.Commit(step, &checkpoint.Manifest{Step: step, Variables: variables})
}

// sizes are those of the variables.
var sizes = map[string]int{"/a": checkpoint.Block + 17, "/bb": 100, "/ccc": 0}

// check reads all variables of the copies of a step, and returns why that is not possible. Wrong values fail the test.
func check(t *testing.T, step int64, files ...*memory) error {
	t.Helper()
	var sources []checkpoint.Source
	var m *checkpoint.Manifest
	for _, f := range files {
		of, ok := Look(f)
		if !ok || of.Step != step {
			return errors.Errorf("there is step %d, %v", of.Step, ok)
		}
		got, s, err := Open("memory", f)
		if err != nil {
			return err
		}
		m, sources = got, append(sources, s)
	}
	c, err := checkpoint.Assemble("copies", m, sources)
	if err != nil {
		return err
	}
	if m.Step != step {
		t.Errorf("the manifest is of step %d, not %d", m.Step, step)
	}
	for path, n := range sizes {
		got := make([]byte, n)
		if err := c.Read(path, state.Whole([]int{n}), got); err != nil {
			return err
		}
		if !bytes.Equal(got, content(path, n, step)) {
			t.Errorf("%s is not what was copied at step %d", path, step)
		}
	}
	return nil
}

func TestPiecesOfSeveralWorkersAreOneCopy(t *testing.T) {
	n := sizes["/a"]
	one := []state.Piece{piece("/a", n, 0, n/2), piece("/bb", 100, 0, 100)}
	two := []state.Piece{piece("/a", n, n/2, n), piece("/ccc", 0, 0, 0)}
	again := []state.Piece{piece("/a", n, n/3, n)} // on another machine
	var files []*memory
	for w, pieces := range [][]state.Piece{one, two, again} {
		f := &memory{left: -1}
		s, err := NewSlot(f, Step{Generation: 1, Worker: int64(w)}, pieces)
		if err == nil {
			err = s.Reserve()
		}
		if err == nil {
			err = fill(s, pieces, 7, 3)
		}
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	for _, all := range [][]*memory{files[:2], files, {files[2], files[1], files[0]}} {
		if err := check(t, 7, all...); err != nil {
			t.Error(err)
		}
	}
	if err := check(t, 7, files[0]); err == nil || !strings.Contains(err.Error(), "has 2 variables, and was written with 3") {
		t.Errorf("without the second worker: %v", err)
	}
	files[1].b[dataAt+5] ^= 1
	if err := check(t, 7, files[:2]...); err == nil || !strings.Contains(err.Error(), "checksum is wrong") {
		t.Errorf("of damaged memory: %v", err)
	}
}

// A worker is killed after every number of bytes that it writes: what is left is the copy of the step before, that of the new one, or none.
func TestAWorkerThatIsKilledLeavesNoWrongCopy(t *testing.T) {
	n := sizes["/a"]
	pieces := []state.Piece{piece("/a", n, 0, n), piece("/bb", 100, 0, 100), piece("/ccc", 0, 0, 0)}
	f := &memory{left: -1}
	s, err := NewSlot(f, Step{Generation: 3}, pieces)
	if err == nil {
		err = s.Reserve()
	}
	if err == nil {
		err = fill(s, pieces, 1, 3)
	}
	if err == nil {
		err = check(t, 1, f)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(f.b)
	complete := 0
	for bytes := 0; ; {
		copy(f.b, before)
		f.left = bytes
		err := fill(s, pieces, 3, 3)
		if f.left > 0 || err == nil {
			if err := check(t, 3, f); err != nil {
				t.Fatalf("the whole copy is not there: %v", err)
			}
			break
		}
		of, ok := Look(f)
		switch {
		case ok && of.Step == 1 && bytes > 0:
			t.Fatalf("after %d bytes the copy before is said to be there", bytes)
		case ok:
			if err := check(t, of.Step, f); err != nil {
				t.Fatalf("after %d bytes: a copy is there, but %v", bytes, err)
			}
			complete++
		}
		if bytes < 2*headerBytes || bytes > n { // all moments at the beginning, and from the last pieces on
			bytes++
		} else {
			bytes += 70_001
		}
	}
	if complete > 1 {
		t.Errorf("%d copies were complete before their last byte was written", complete)
	}
}

func TestWhateverByteChangesIsNoticed(t *testing.T) {
	pieces := []state.Piece{piece("/a", 5, 0, 5)}
	f := &memory{left: -1}
	s, err := NewSlot(f, Step{}, pieces)
	if err == nil {
		err = s.Reserve()
	}
	if err == nil {
		err = s.Put(0, []byte("12345"))
	}
	if err == nil {
		err = s.Commit(1, &checkpoint.Manifest{Variables: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	whole := slices.Clone(f.b)
	for at := range len(whole) - manifestRoom + 500 { // what follows is room
		copy(f.b, whole)
		f.b[at] ^= 0x10
		m, source, err := Open("memory", f)
		if err != nil {
			continue
		}
		c, err := checkpoint.Assemble("copies", m, []checkpoint.Source{source})
		if err != nil {
			continue
		}
		got := make([]byte, 5)
		if err := c.Read("/a", state.Whole([]int{5}), got); err == nil && string(got) != "12345" {
			t.Fatalf("byte %d was changed, and %q was read", at, got)
		}
	}
}
