// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"encoding/binary"
	"io"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// Frame is what travels between sends and receives, data aside.
type Frame struct {
	Kind   frameKind
	Number uint64         // of the message, counted by its sender
	Call   transport.Told // of who sends (frameMessage, frameOffer) or of who receives (frameRefuse)
}

// frameKind is what a frame says.
type frameKind uint8

const (
	FrameMessage  frameKind = iota + 1 // here is a message, its data follow
	FrameOffer                         // there is a message, ask for it
	frameAsk                           // send the data
	FrameData                          // here they are
	FrameReceived                      // thanks
	frameRefuse                        // the receive does not fit
	frameEnd
)

const (
	frameMagic   = uint32(0x65706c31) // "epl1"
	FrameSize    = 72
	programBytes = 1 << 20 // of a program's name
)

// Append writes a frame: numbers of fixed size, then the names of program and group.
func (f Frame) Append(to []byte) []byte {
	c := &f.Call
	program, group := c.Program[:min(len(c.Program), programBytes)], c.Group[:min(len(c.Group), programBytes)]
	to = binary.LittleEndian.AppendUint32(to, frameMagic)
	to = binary.LittleEndian.AppendUint32(to, uint32(f.Kind)|uint32(c.Op)<<8|uint32(uint16(c.DType))<<16)
	for _, x := range [...]uint64{f.Number, uint64(c.Pos), uint64(c.Root), uint64(c.Tag), c.Seq, uint64(c.Bytes), uint64(len(program)), uint64(len(group))} {
		to = binary.LittleEndian.AppendUint64(to, x)
	}
	to = append(to, program...)
	return append(to, group...)
}

// readFrame reads what append has written. It allocates no more than names of programs and groups may have.
func readFrame(r io.Reader) (f Frame, err error) {
	var b [FrameSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return f, err
	}
	if binary.LittleEndian.Uint32(b[:]) != frameMagic {
		return f, errors.Errorf("it carries %q where a frame of EPL should begin", b[:])
	}
	word := binary.LittleEndian.Uint32(b[4:])
	u64 := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8+8*i:]) }
	f.Kind, f.Number = frameKind(word), u64(0)
	f.Call = transport.Told{Header: transport.Header{Op: transport.Op(word >> 8), DType: dtypes.DType(word >> 16), Tag: int(u64(3)), Seq: u64(4), Bytes: int64(u64(5))},
		Pos: int(u64(1)), Root: int(u64(2))}
	if f.Kind == 0 || f.Kind >= frameEnd || u64(6) > programBytes || u64(7) > programBytes {
		return f, errors.Errorf("it carries %q, which is no frame", b[:])
	}
	names := make([]byte, u64(6)+u64(7))
	if _, err := io.ReadFull(r, names); err != nil {
		return f, err
	}
	f.Call.Program, f.Call.Group = string(names[:u64(6)]), string(names[u64(6):])
	return f, nil
}

// check looks at the call of a frame: it must be one of the member's ranks with one of this worker's. It fills in what the
// frame does not carry.
func (f *Frame) check(t *transport.Team, member int) error {
	c := &f.Call
	want := transport.Send
	if f.Kind == frameRefuse {
		want = transport.Recv
	}
	if c.Op != want || !slices.Contains(t.Members[member].Positions, c.Pos) || !slices.Contains(t.Mine(), c.Root) || c.Bytes < 0 {
		return errors.Errorf("it speaks of a %s from position %d to position %d of %d bytes, which cannot be", c.Op, c.Pos, c.Root, c.Bytes)
	}
	c.Peer = t.Ranks[c.Root]
	return nil
}
