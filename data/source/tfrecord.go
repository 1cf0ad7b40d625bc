// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/binary"
	"io"
	"math"
	"os"

	"github.com/pkg/errors"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/easyparallel/epl/data"
	"github.com/easyparallel/epl/internal/tfrecord"
)

// TFRecords are the records of TFRecord files, uncompressed. A record is, little endian: 8 bytes with its length, a masked CRC-32C of them, the data, and a masked CRC-32C of these.
type TFRecords struct{ records }

// around are the bytes of a record that are not data.
const beforeData, afterData = 12, 4

// OpenTFRecords goes through the lengths of all records once, to find where they are. Checksums of lengths are verified then, those of data when a record is read. parse makes a sample of one; it may be called at the same time.
//
//	records, err := source.OpenTFRecords(files, func(record source.Record) (data.Sample, error) {
//		example, err := record.Example()
//		…
//		return data.Sample{Inputs: []*tensors.Tensor{tensors.FromValue(example["x"].Floats)}}, nil
//	})
func OpenTFRecords(files []string, parse func(record Record) (data.Sample, error)) (*TFRecords, error) {
	t := &TFRecords{records{parse: parse, inside: tfData}}
	if err := t.open(files, scanTFRecords); err != nil {
		return nil, err
	}
	return t, nil
}

func scanTFRecords(f *os.File, size int64) (starts []int64, err error) {
	var head [beforeData]byte
	at := int64(0)
	for at < size {
		if n, err := f.ReadAt(head[:], at); n < len(head) {
			if errors.Is(err, io.EOF) {
				err = errors.Errorf("the file ends within a record that begins here; it was cut off")
			}
			return nil, errors.WithMessagef(err, "byte %d", at)
		}
		if binary.LittleEndian.Uint32(head[8:]) != tfrecord.Sum(head[:8]) {
			return nil, errors.Errorf("byte %d: the length of a record is damaged, or this is no TFRecord file; compressed ones cannot be read", at)
		}
		length := binary.LittleEndian.Uint64(head[:])
		if left := size - at - beforeData - afterData; left < 0 || length > uint64(left) {
			return nil, errors.Errorf("byte %d: the file ends within a record of %d bytes that begins here; it was cut off", at, length)
		}
		starts = append(starts, at)
		at += beforeData + int64(length) + afterData
	}
	return append(starts, at), nil
}

// tfData verifies a record.
func tfData(file string, at int64, raw []byte) (from, to int, err error) {
	from, to = beforeData, len(raw)-afterData
	if binary.LittleEndian.Uint32(raw[to:]) != tfrecord.Sum(raw[from:to]) {
		return 0, 0, errors.Errorf("epl: %s: byte %d: a record is damaged: its checksum is another one", file, at)
	}
	return from, to, nil
}

// AppendTFRecord adds a record to the bytes of a TFRecord file.
func AppendTFRecord(to, record []byte) []byte { return tfrecord.Append(to, record) }

// Feature is a value of a tf.train.Example: one of the three.
type Feature struct {
	Bytes  [][]byte
	Floats []float32
	Ints   []int64
}

// Example reads the record as a tf.train.Example: features by name.
func (r Record) Example() (map[string]Feature, error) {
	all := map[string]Feature{}
	wrong := func(err error) error {
		return errors.Wrapf(err, "epl: %s: byte %d: this is no tf.train.Example", r.File, r.At)
	}
	err := fields(r.Bytes, func(n protowire.Number, features []byte) error {
		if n != 1 {
			return nil
		}
		return fields(features, func(n protowire.Number, entry []byte) error {
			if n != 1 {
				return nil
			}
			var name string
			var f Feature
			if err := fields(entry, func(n protowire.Number, b []byte) (err error) {
				switch n {
				case 1:
					name = string(b)
				case 2:
					f, err = feature(b)
				}
				return err
			}); err != nil {
				return err
			}
			all[name] = f
			return nil
		})
	})
	if err != nil {
		return nil, wrong(err)
	}
	return all, nil
}

// fields calls f for each field of a message that is bytes: a message, a string or packed numbers. Others are left out.
func fields(b []byte, f func(n protowire.Number, b []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if kind == protowire.BytesType {
			value, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			if err := f(number, value); err != nil {
				return err
			}
			b = b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
	}
	return nil
}

// feature reads a tf.train.Feature: a list of bytes, floats or integers. Lists of numbers are packed, or not.
func feature(b []byte) (f Feature, err error) {
	err = fields(b, func(n protowire.Number, list []byte) error {
		switch n {
		case 1:
			return fields(list, func(n protowire.Number, b []byte) error {
				if n == 1 {
					f.Bytes = append(f.Bytes, b)
				}
				return nil
			})
		case 2:
			return numbers(list, protowire.Fixed32Type, func(b []byte) int {
				v, n := protowire.ConsumeFixed32(b)
				if n >= 0 {
					f.Floats = append(f.Floats, math.Float32frombits(v))
				}
				return n
			})
		case 3:
			return numbers(list, protowire.VarintType, func(b []byte) int {
				v, n := protowire.ConsumeVarint(b)
				if n >= 0 {
					f.Ints = append(f.Ints, int64(v))
				}
				return n
			})
		}
		return nil
	})
	return f, err
}

// numbers goes through field 1 of a message, which is a list of numbers. take takes one, and returns how many bytes it had.
func numbers(b []byte, single protowire.Type, take func(b []byte) int) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch {
		case number == 1 && kind == protowire.BytesType:
			packed, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			for len(packed) > 0 {
				n := take(packed)
				if n < 0 {
					return protowire.ParseError(n)
				}
				packed = packed[n:]
			}
		case number == 1 && kind == single:
			if n = take(b); n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
		default:
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
		}
	}
	return nil
}
