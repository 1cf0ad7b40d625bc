// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/pkg/errors"
)

const (
	// MaxFrame is the largest payload of a frame, in bytes.
	MaxFrame = 16 << 20
	// maxHello is the largest payload that a peer may send before it has proved who it is.
	maxHello = 4 << 10
	// protocolVersion is the version of the frames and of the handshake. It changes when they do.
	protocolVersion = 2
	// headerSize is magic, protocol, type and length, of the payload and its checksum together: so any version can read the
	// frames of another, and say so.
	headerSize = 4 + 1 + 1 + 4
	// sumSize is a CRC-32C of type, length and payload, behind the payload.
	sumSize = 4
	// chunk is how much of a payload is allocated before any of it has arrived.
	chunk = 64 << 10
)

// magic begins every frame. No text and no TLS record begins like it.
var magic = [4]byte{0xE9, 'E', 'P', 'L'}

// ProtocolError says that what arrived is not a frame of this protocol.
type ProtocolError struct{ Reason string }

// Error implements error.
func (e *ProtocolError) Error() string {
	return "epl: the other side does not speak EPL's protocol: " + e.Reason
}

// DamageError says that a message is not what was sent.
type DamageError struct{}

// Error implements error.
func (*DamageError) Error() string {
	return "epl: a message arrived damaged, its CRC-32C is wrong: a network card, a switch or memory on its way changes bytes"
}

// WriteFrame writes a message of a type that the caller gives a meaning, in one write.
func WriteFrame(w io.Writer, kind byte, payload []byte) error {
	if len(payload) > MaxFrame {
		return errors.Errorf("epl: internal error: a message of %d bytes was to be sent, the limit is %d", len(payload), MaxFrame)
	}
	_, err := w.Write(appendFrame(make([]byte, 0, headerSize+len(payload)+sumSize), kind, payload))
	return err
}

func appendFrame(b []byte, kind byte, payload []byte) []byte {
	begin := len(b)
	b = append(b, magic[:]...)
	b = append(b, protocolVersion, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)+sumSize))
	b = append(b, payload...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[begin+len(magic)+1:], castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ReadFrame reads one message, of at most limit bytes, and nothing after it. It returns a [DamageError] if the message was
// changed on its way, io.EOF if the connection ended
// before the message began, io.ErrUnexpectedEOF if it ended within. It allocates about as much as really arrived,
// whatever length is announced.
func ReadFrame(r io.Reader, limit int) (kind byte, payload []byte, err error) {
	var header [headerSize]byte
	if n, err := io.ReadFull(r, header[:]); err != nil {
		// Say "something else" of a stranger who sends a little and goes, not that the message was cut.
		if k := min(n, len(magic)); k > 0 && string(header[:k]) != string(magic[:k]) {
			return 0, nil, &ProtocolError{"a message does not begin as one"}
		}
		return 0, nil, err
	}
	if [4]byte(header[:4]) != magic {
		return 0, nil, &ProtocolError{"a message does not begin as one"}
	}
	size := binary.BigEndian.Uint32(header[6:])
	if int64(size) > int64(limit)+sumSize {
		return 0, nil, &ProtocolError{errors.Errorf("a message claims %d bytes, the limit is %d", size, limit+sumSize).Error()}
	}
	if payload, err = readChunks(r, int(size)); err != nil {
		return 0, nil, err
	}
	if header[4] != protocolVersion { // it was read all the same, so that a refusal can be sent back
		return 0, nil, &protocolVersionError{other: int(header[4])}
	}
	if size < sumSize {
		return 0, nil, &ProtocolError{"a message is too short"}
	}
	payload, sum := payload[:size-sumSize], binary.BigEndian.Uint32(payload[size-sumSize:])
	if crc32.Update(crc32.Checksum(header[len(magic)+1:], castagnoli), castagnoli, payload) != sum {
		return 0, nil, &DamageError{}
	}
	return header[5], payload, nil
}

// readChunks reads exactly size bytes, growing as they arrive.
func readChunks(r io.Reader, size int) ([]byte, error) {
	payload := make([]byte, 0, min(size, chunk))
	for len(payload) < size {
		if len(payload) == cap(payload) {
			payload = append(make([]byte, 0, min(size, 2*cap(payload))), payload...)
		}
		n, err := io.ReadFull(r, payload[len(payload):cap(payload)])
		payload = payload[:len(payload)+n]
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return payload, nil
}
