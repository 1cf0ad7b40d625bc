// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package tfrecord is the framing of record files as TensorFlow has it, which datasets and TensorBoard's event files share. A record is, little endian: 8 bytes with its length, the [Sum] of
// them, the data, and the [Sum] of these.
package tfrecord

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum is how the format stores a checksum: a masked CRC-32C.
func Sum(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// Append adds a record to the bytes of a file.
func Append(to, record []byte) []byte {
	from := len(to)
	to = binary.LittleEndian.AppendUint64(to, uint64(len(record)))
	to = binary.LittleEndian.AppendUint32(to, Sum(to[from:]))
	to = append(to, record...)
	return binary.LittleEndian.AppendUint32(to, Sum(record))
}
