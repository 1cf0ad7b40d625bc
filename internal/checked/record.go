// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checked

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	// MaxRecord is the most data that a record has.
	MaxRecord = 256 << 10
	// HeadSize is the size of what precedes them.
	HeadSize = 12
)

// DamageError says that what came is not what was sent.
type DamageError struct{ Detail string }

// Error implements error. It stands inside another sentence, which says what was damaged.
func (e *DamageError) Error() string { return "it arrived damaged: " + e.Detail }

// Sealer makes the heads of a stream's records.
type Sealer struct{ count uint32 }

// Seal returns the head of the next record.
func (s *Sealer) Seal(data []byte) (head [HeadSize]byte) {
	binary.LittleEndian.PutUint32(head[:], uint32(len(data)))
	binary.LittleEndian.PutUint32(head[4:], update(0, data))
	binary.LittleEndian.PutUint32(head[8:], headSum(&head, s.count))
	s.count++
	return head
}

// headSum is the CRC of a head, and of the number that both ends count.
func headSum(head *[HeadSize]byte, number uint32) uint32 {
	var b [12]byte
	copy(b[:8], head[:8])
	binary.LittleEndian.PutUint32(b[8:], number)
	return crc32.Checksum(b[:], castagnoli)
}

// Opener reads the heads of a stream's records.
type Opener struct{ count uint32 }

// Record is one whose head was right. Its data are to be added, in order, and then checked.
type Record struct {
	Size      int
	number    uint32
	want, sum uint32
}

// Open reads the next head.
func (o *Opener) Open(head *[HeadSize]byte) (r Record, err error) {
	r = Record{Size: int(binary.LittleEndian.Uint32(head[:])), number: o.count, want: binary.LittleEndian.Uint32(head[4:])}
	if got, want := binary.LittleEndian.Uint32(head[8:]), headSum(head, o.count); got != want {
		return r, &DamageError{fmt.Sprintf("the head of record %d has CRC-32C %08x, and says %08x", o.count, want, got)}
	}
	if r.Size > MaxRecord {
		return r, &DamageError{fmt.Sprintf("record %d claims %d bytes, the limit is %d", o.count, r.Size, MaxRecord)}
	}
	o.count++
	return r, nil
}

// Add takes the next data.
func (r *Record) Add(data []byte) { r.sum = update(r.sum, data) }

// Check tells whether the data were right, when all have come.
func (r *Record) Check() error {
	if r.sum != r.want {
		return &DamageError{fmt.Sprintf("the %d bytes of record %d have CRC-32C %08x, and were sent with %08x", r.Size, r.number, r.sum, r.want)}
	}
	return nil
}
