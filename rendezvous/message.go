// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package rendezvous

import (
	"encoding/binary"
	"encoding/json"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/wire"
)

// Types of messages. Types that only the other side may send are ignored.
const (
	// From a member.
	msgJoin     byte = 1 + iota // Join
	msgBeat                     // Beat
	msgAgree                    // Subject, Hash
	msgText                     // Subject, body: the text of an msgAgree
	msgWithdraw                 // Subject: this worker waits no longer for the others
	msgQuery                    // Worker: whom to ask, ID, body: the question
	msgAnswer                   // Worker: who asked, ID, body: the answer
	msgFail                     // body: why the worker stops, Workers: who is to blame; none: itself
	msgEnd                      // Beat: this worker makes no more calls to others
	msgLeave

	// From the server.
	msgRefused  // body: why this worker cannot join
	msgStart    // Start: all are here
	msgStates   // States
	msgAgreed   // Subject, body: the error, empty if they agree
	msgWantText // Subject
	msgMissing  // Subject, Workers: an answer to msgWithdraw
	msgQuestion // Worker: who asks, ID, body: the question
	msgReply    // ID, body: the answer, or if Bad why there is none
	msgFailed   // body: the error of the job
	msgBye      // an answer to msgLeave
)

// message is what members and the server send to each other: a small JSON object, and text of any size.
type message struct {
	kind    byte
	Worker  int       `json:",omitempty"`
	Workers []int     `json:",omitempty"`
	ID      uint64    `json:",omitempty"`
	Subject string    `json:",omitempty"`
	Hash    string    `json:",omitempty"`
	Bad     bool      `json:",omitempty"`
	Join    *joining  `json:",omitempty"`
	Beat    *beating  `json:",omitempty"`
	Start   *starting `json:",omitempty"`
	States  []known   `json:",omitempty"`
	body    string
}

// joining is how a worker introduces itself.
type joining struct {
	Worker  Worker // with Index -1 if it wants one
	Workers int
	Facts   []Fact
	Timeout int64 // for all to come, in milliseconds
	Beat    int64 // in milliseconds
}

// beating is a sign of life.
type beating struct {
	Busy          string `json:",omitempty"`
	Changes       int64  // how often Busy was set
	Step, Samples int64
	Batches       int64 `json:",omitempty"` // of the data, that complete steps have consumed, in all runs
	Checkpoints
}

// starting tells a worker who the others are.
type starting struct {
	Index   int
	ID      string // of the job
	Workers []Worker
	Beat    int64 // of the server, in milliseconds
}

// known is what the server knows about a worker. Times are durations until now, in milliseconds, because clocks differ.
type known struct {
	beating
	Since, Seen         int64
	Silent, Ended, Left bool `json:",omitempty"`
}

// encode returns the payload of a frame.
func (m *message) encode() []byte {
	header, err := json.Marshal(m)
	if err != nil {
		panic(errors.WithMessage(err, "epl: internal error")) // there is nothing in it that could fail
	}
	b := make([]byte, 0, 4+len(header)+len(m.body))
	b = binary.BigEndian.AppendUint32(b, uint32(len(header)))
	b = append(b, header...)
	return append(b, m.body...)
}

// receive reads the next message.
func receive(c *wire.Conn) (*message, error) {
	kind, payload, err := wire.ReadFrame(c, wire.MaxFrame)
	if err != nil {
		return nil, err
	}
	return decode(kind, payload)
}

func decode(kind byte, payload []byte) (*message, error) {
	if len(payload) < 4 {
		return nil, &wire.ProtocolError{Reason: "a message is too short"}
	}
	size := binary.BigEndian.Uint32(payload)
	payload = payload[4:]
	if uint64(size) > uint64(len(payload)) {
		return nil, &wire.ProtocolError{Reason: "a message is too short"}
	}
	m := &message{}
	if err := json.Unmarshal(payload[:size], m); err != nil {
		return nil, &wire.ProtocolError{Reason: "a message is malformed"}
	}
	m.kind, m.body = kind, string(payload[size:])
	return m, nil
}
