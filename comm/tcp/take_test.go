// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"bufio"
	"bytes"
	"io"
	"testing"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// watched reads from a connection, and counts the bytes that do not go to a place.
type watched struct {
	from      io.Reader
	place     []byte
	elsewhere int
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.from.Read(b)
	at := uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&w.place[0])) // huge if it is before
	if at >= uintptr(len(w.place)) {
		w.elsewhere += n
	}
	return n, err
}

// TestWhatIsReceivedComesToWhereItIsWanted: only what is read with its frame is copied.
func TestWhatIsReceivedComesToWhereItIsWanted(t *testing.T) {
	team := &transport.Team{Ranks: []int{0, 1}, Me: 1, MemberOf: []int{0, 1}, Members: []transport.Member{{Worker: 0, Positions: []int{0}}, {Worker: 1, Positions: []int{1}}}}
	for _, kind := range []frameKind{FrameMessage, FrameData} {
		size := EagerBytes
		if kind == FrameData {
			size = 4 * EagerBytes
		}
		sent, got := make([]byte, size), make([]byte, size)
		for i := range sent {
			sent[i] = byte(i * 7)
		}
		header := transport.Header{Op: transport.Send, DType: dtypes.Uint8, Bytes: int64(size), Peer: 1, Seq: 1}
		frame := Frame{Kind: kind, Number: 5, Call: transport.Told{Header: header, Pos: 0, Root: 1}}
		header.Op, header.Peer = transport.Recv, 0
		buffer, _ := transport.BufferOf(got)
		receive := &transit{call: &transport.Call{Header: header, Pos: 1, PeerPos: 0, In: buffer, Out: buffer}, done: make(chan error, 1)}
		l := &line{posted: map[transport.Stream]*transit{{From: 0, To: 1}: receive}, asked: map[uint64]*transit{5: receive}, arrived: map[transport.Stream]*message{}}
		l.work.L = &l.mu

		w := &watched{from: bytes.NewReader(append(frame.Append(nil), sent...)), place: got}
		r := bufio.NewReaderSize(w, readAhead)
		f, err := readFrame(r)
		if err == nil {
			err = l.take(team, f, r)
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(receive.done) != 1 || !bytes.Equal(got, sent) {
			t.Errorf("kind %d: the message was not received", kind)
		}
		if w.elsewhere > 2*readAhead {
			t.Errorf("kind %d: %d bytes of %d were read to another place first, more than twice %d", kind, w.elsewhere, size, readAhead)
		}
	}
}
