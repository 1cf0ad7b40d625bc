// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"
)

// maxHeader is the largest header that is read: the format's own limit is 100 MB.
const maxHeader = 1 << 30

// typeNames are the types of the safetensors format.
var typeNames = map[dtypes.DType]string{
	dtypes.Bool: "BOOL", dtypes.Int8: "I8", dtypes.Int16: "I16", dtypes.Int32: "I32", dtypes.Int64: "I64",
	dtypes.Uint8: "U8", dtypes.Uint16: "U16", dtypes.Uint32: "U32", dtypes.Uint64: "U64",
	dtypes.Float16: "F16", dtypes.BFloat16: "BF16", dtypes.Float32: "F32", dtypes.Float64: "F64", dtypes.Complex64: "C64",
	dtypes.F8E5M2: "F8_E5M2", dtypes.F8E4M3FN: "F8_E4M3", dtypes.F8E8M0FNU: "F8_E8M0",
}

// entry is a tensor in the header of a safetensors file.
type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"` // from the end of the header
}

// metadataKey is the name in the header that is no tensor's.
const metadataKey = "__metadata__"

// newHeader lays tensors out, one after the other. It returns the header with its length in front.
func newHeader(tensors []namedEntry, metadata map[string]string) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, 8))
	b.WriteString("{")
	put := func(name string, value any) error {
		if b.Len() > 9 {
			b.WriteString(",")
		}
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		text, err := json.Marshal(value)
		b.Write(key)
		b.WriteString(":")
		b.Write(text)
		return err
	}
	if len(metadata) > 0 {
		if err := put(metadataKey, metadata); err != nil {
			return nil, err
		}
	}
	for _, t := range tensors {
		if err := put(t.name, t.entry); err != nil {
			return nil, err
		}
	}
	b.WriteString("}")
	b.WriteString(strings.Repeat(" ", -b.Len()&(page-1))) // data begin on a page: see directFile
	header := b.Bytes()
	binary.LittleEndian.PutUint64(header, uint64(len(header)-8))
	return header, nil
}

type namedEntry struct {
	name string
	entry
}

// readHeader reads the header of a safetensors file: all bytes of it, with the length in front, its tensors and its metadata.
func readHeader(f io.ReaderAt, size int64) (raw []byte, tensors map[string]entry, metadata map[string]string, err error) {
	var length [8]byte
	if _, err := f.ReadAt(length[:], 0); err != nil {
		return nil, nil, nil, errors.Wrap(err, "its length cannot be read")
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader || int64(n) > size-8 {
		return nil, nil, nil, errors.Errorf("it says that it has %d bytes, and the file has %d", n, size)
	}
	raw = make([]byte, 8+n)
	if _, err := f.ReadAt(raw, 0); err != nil {
		return nil, nil, nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw[8:], &all); err != nil {
		return nil, nil, nil, errors.Wrap(err, "it is not JSON")
	}
	tensors = map[string]entry{}
	for name, text := range all {
		if name == metadataKey {
			err = json.Unmarshal(text, &metadata)
		} else {
			var e entry
			err = json.Unmarshal(text, &e)
			if data := size - int64(len(raw)); err == nil && (e.Offsets[0] < 0 || e.Offsets[0] > e.Offsets[1] || e.Offsets[1] > data) {
				err = errors.Errorf("its data are from byte %d to %d of %d", e.Offsets[0], e.Offsets[1], data)
			}
			tensors[name] = e
		}
		if err != nil {
			return nil, nil, nil, errors.WithMessagef(err, "%q", name)
		}
	}
	return raw, tensors, metadata, nil
}
