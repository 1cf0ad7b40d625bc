// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/state"
)

// Tensor is a tensor of a plain safetensors file.
type Tensor struct {
	Name  string
	Shape shapes.Shape
	Read  func() ([]byte, error)
}

// WriteTensors writes a plain safetensors file, under another name first: it is there, complete, or it is not. One tensor at a time is in memory.
func WriteTensors(f FS, file string, all []Tensor, metadata map[string]string) error {
	var entries []namedEntry
	at := int64(0)
	for _, t := range all {
		e := entry{DType: typeNames[t.Shape.DType], Shape: state.Whole(t.Shape.Dimensions).Dims()}
		if e.DType == "" {
			return errors.Errorf("epl: %q is of type %s, which the safetensors format does not have", t.Name, t.Shape.DType)
		}
		e.Offsets[0] = at
		at += int64(state.Bytes(t.Shape.DType, t.Shape.Size()))
		e.Offsets[1] = at
		entries = append(entries, namedEntry{t.Name, e})
	}
	header, err := newHeader(entries, metadata)
	if err != nil {
		return err
	}
	temporary := file + ".unfinished"
	err = create(f, temporary, func(w Writer) error {
		if err := write(w, header); err != nil {
			return err
		}
		for _, t := range all {
			b, err := t.Read()
			if err != nil {
				return err
			}
			if err := write(w, b); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = f.Rename(temporary, file)
	} else {
		_ = f.Remove(temporary)
	}
	if err == nil {
		err = f.SyncDir(filepath.Dir(file))
	}
	return errors.WithMessagef(err, "epl: %s cannot be written", file)
}

// ReadTensors opens a plain safetensors file. Tensors can be read until done is called.
func ReadTensors(f FS, file string) (all []Tensor, done func(), err error) {
	r, err := f.Open(file)
	if err != nil {
		return nil, nil, errors.Wrap(err, "epl: safetensors")
	}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	size, err := r.Size()
	if err != nil {
		return nil, nil, errors.Wrapf(err, "epl: %s", file)
	}
	raw, tensors, _, err := readHeader(r, size)
	if err != nil {
		return nil, nil, errors.WithMessagef(err, "epl: %s is no safetensors file: its header cannot be read", file)
	}
	for name, e := range tensors {
		dtype, ok := typeOf(e.DType)
		if !ok {
			return nil, nil, errors.Errorf("epl: %s: %q is of type %q, which EPL does not know", file, name, e.DType)
		}
		if slices.ContainsFunc(e.Shape, func(n int) bool { return n < 0 }) {
			return nil, nil, errors.Errorf("epl: %s: %q has the dimensions %v", file, name, e.Shape)
		}
		t := Tensor{Name: name, Shape: shapes.Make(dtype, e.Shape...)}
		n := e.Offsets[1] - e.Offsets[0]
		if n != int64(state.Bytes(dtype, t.Shape.Size())) {
			return nil, nil, errors.Errorf("epl: %s: %q of shape %s has %d bytes", file, name, t.Shape, n)
		}
		t.Read = func() ([]byte, error) {
			b := make([]byte, n)
			if got, err := r.ReadAt(b, int64(len(raw))+e.Offsets[0]); got < len(b) {
				return nil, errors.Wrapf(err, "epl: %s: %q", file, name)
			}
			return b, nil
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) })
	return all, func() { r.Close() }, nil
}

// typeOf is the type of a name of the format; ok is false if there is none.
func typeOf(name string) (dtypes.DType, bool) {
	for t, n := range typeNames {
		if n == name {
			return t, true
		}
	}
	return 0, false
}
