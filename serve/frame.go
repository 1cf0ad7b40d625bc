// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/binary"

	"github.com/easyparallel/epl/wire"
)

// Types of frames. A reader sends one request after the other, and for each the server sends notYet once if it has to wait,
// and then refused, or here. After here come the bytes.
const (
	request byte = 1 + iota // version, size, name
	notYet                  // the newest version, or nothing if there has been none
	refused                 // why, as text
	here                    // nothing
)

const (
	// maxName is how long a name may be, in bytes.
	maxName = 4 << 10
	// maxRequest and maxReply are the largest payloads.
	maxRequest = 16 + maxName
	maxReply   = 16 << 10
)

// wanted is a request.
type wanted struct {
	name    string
	version uint64
	size    uint64
}

func (w wanted) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, w.version)
	b = binary.BigEndian.AppendUint64(b, w.size)
	return append(b, w.name...)
}

func decode(kind byte, payload []byte) (wanted, error) {
	if kind != request || len(payload) < 16 {
		return wanted{}, &wire.ProtocolError{Reason: "a request is malformed"}
	}
	return wanted{
		name:    string(payload[16:]),
		version: binary.BigEndian.Uint64(payload),
		size:    binary.BigEndian.Uint64(payload[8:]),
	}, nil
}
