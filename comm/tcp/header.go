// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// Header precedes the bytes that one member gives another in a collective.
type Header struct {
	Digest uint64 // see transport.Round
	pair   uint64 // of what only these two must agree in: the parts of all-to-all
	Bytes  uint64 // that follow
}

// headerMagic begins every header. Another version of the protocol has another number.
const (
	headerMagic = uint64(0x65706c2d636f6c31) // "epl-col1"
	HeaderSize  = 32
)

// Append writes the header.
func (h Header) Append(to []byte) []byte {
	for _, x := range [...]uint64{headerMagic, h.Digest, h.pair, h.Bytes} {
		to = binary.LittleEndian.AppendUint64(to, x)
	}
	return to
}

// parseHeader reads what append has written.
func parseHeader(b []byte) (h Header, err error) {
	if len(b) < HeaderSize || binary.LittleEndian.Uint64(b) != headerMagic {
		return h, errors.Errorf("it carries %q where a collective of EPL should begin", b[:min(len(b), HeaderSize)])
	}
	return Header{
		Digest: binary.LittleEndian.Uint64(b[8:]),
		pair:   binary.LittleEndian.Uint64(b[16:]),
		Bytes:  binary.LittleEndian.Uint64(b[24:]),
	}, nil
}

// pairDigest condenses the numbers of elements that this member and another give each other in an all-to-all: from all
// positions of the one to all of the other, and back. Both know all of them, as what they give and what they expect.
func pairDigest(t *transport.Team, r *transport.Round, member int) uint64 {
	if r.First().Op != transport.AllToAll {
		return 0
	}
	h := fnv.New64a()
	var b [8]byte
	add := func(n int) {
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		h.Write(b[:])
	}
	given := func() {
		for _, c := range r.Calls {
			for _, to := range t.Members[member].Positions {
				add(c.InCounts[to])
			}
		}
	}
	expected := func() {
		for _, from := range t.Members[member].Positions {
			for _, c := range r.Calls {
				add(c.OutCounts[from])
			}
		}
	}
	if t.Me < member {
		given()
		expected()
	} else {
		expected()
		given()
	}
	return h.Sum64()
}
