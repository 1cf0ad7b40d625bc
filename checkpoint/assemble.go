// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"encoding/binary"
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/state"
)

// Source is a file of pieces that is not in a folder of a checkpoint: memory, of this machine or another.
type Source struct {
	Name   string
	Pieces []Piece
	Reader Reader
	Data   int64 // where data begin
}

// Assemble makes a checkpoint of sources that have the pieces of one step. Several may have the same elements: of these, the first source is read. name is that of the
// whole, for messages. The checkpoint closes the sources, also if it cannot be made.
func Assemble(name string, m *Manifest, sources []Source) (_ *Checkpoint, err error) {
	c := &Checkpoint{Folder: name, Manifest: m, variables: map[string]*variable{}}
	defer func() {
		if err != nil {
			err = errors.WithMessagef(err, "epl: %s", name)
			c.Close()
		}
	}()
	for _, s := range sources {
		c.files = append(c.files, &pieces{s.Reader, s.Name, s.Data})
	}
	for i, s := range sources {
		size, err := s.Reader.Size()
		if err == nil {
			err = c.add(c.files[i], s.Pieces, size-s.Data)
		}
		if err != nil {
			return nil, errors.WithMessage(err, s.Name)
		}
	}
	if len(c.variables) != m.Variables {
		return nil, errors.Errorf("it has %d variables, and was written with %d", len(c.variables), m.Variables)
	}
	for path, v := range c.variables {
		var regions []state.Region
		for _, p := range v.pieces {
			regions = append(regions, p.Region)
		}
		chosen, err := state.Choose(v.shape.Dimensions, regions)
		if err != nil {
			return nil, errors.WithMessagef(err, "variable %q", path)
		}
		var taken []stored
		for _, i := range chosen {
			taken = append(taken, v.pieces[i])
		}
		v.pieces = taken
	}
	return c, nil
}

// SetSums gives the pieces their checksums, of which each is four bytes.
func (s *Source) SetSums(sums []byte) error {
	for i := range s.Pieces {
		p := &s.Pieces[i]
		dtype, ok := dtypes.MapOfNames[p.DType]
		if !ok {
			return errors.Errorf("epl: %s: variable %q has the type %q, which this EPL does not know", s.Name, p.Path, p.DType)
		}
		if err := p.Region.Check(p.Shape); err != nil {
			return errors.WithMessagef(err, "%s, variable %q", s.Name, p.Path)
		}
		for n := state.Bytes(dtype, p.Region.Size()); n > 0; n -= Block {
			if len(sums) < 4 {
				return errors.Errorf("epl: %s has too few checksums", s.Name)
			}
			p.Sums = append(p.Sums, fmt.Sprintf("%08x", binary.LittleEndian.Uint32(sums)))
			sums = sums[4:]
		}
	}
	return nil
}
