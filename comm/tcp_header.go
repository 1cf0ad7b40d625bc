package comm

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/pkg/errors"
)

// tcpHeader precedes the bytes that one member gives another in a collective.
type tcpHeader struct {
	digest uint64 // see round
	pair   uint64 // of what only these two must agree in: the parts of all-to-all
	bytes  uint64 // that follow
}

// headerMagic begins every header. Another version of the protocol has another number.
const (
	headerMagic = uint64(0x65706c2d636f6c31) // "epl-col1"
	headerSize  = 32
)

func (h tcpHeader) append(to []byte) []byte {
	for _, x := range [...]uint64{headerMagic, h.digest, h.pair, h.bytes} {
		to = binary.LittleEndian.AppendUint64(to, x)
	}
	return to
}

// parseHeader reads what append has written.
func parseHeader(b []byte) (h tcpHeader, err error) {
	if len(b) < headerSize || binary.LittleEndian.Uint64(b) != headerMagic {
		return h, errors.Errorf("it carries %q where a collective of EPL should begin", b[:min(len(b), headerSize)])
	}
	return tcpHeader{
		digest: binary.LittleEndian.Uint64(b[8:]),
		pair:   binary.LittleEndian.Uint64(b[16:]),
		bytes:  binary.LittleEndian.Uint64(b[24:]),
	}, nil
}

// pairDigest condenses the numbers of elements that this member and another give each other in an all-to-all: from all
// positions of the one to all of the other, and back. Both know all of them, as what they give and what they expect.
func pairDigest(t *team, r *round, member int) uint64 {
	if r.first().Op != AllToAll {
		return 0
	}
	h := fnv.New64a()
	var b [8]byte
	add := func(n int) {
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		h.Write(b[:])
	}
	given := func() {
		for _, c := range r.calls {
			for _, to := range t.members[member].positions {
				add(c.inCounts[to])
			}
		}
	}
	expected := func() {
		for _, from := range t.members[member].positions {
			for _, c := range r.calls {
				add(c.outCounts[from])
			}
		}
	}
	if t.me < member {
		given()
		expected()
	} else {
		expected()
		given()
	}
	return h.Sum64()
}
