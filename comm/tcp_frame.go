package comm

import (
	"encoding/binary"
	"io"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/pkg/errors"
)

// frame is what travels between sends and receives, data aside.
type frame struct {
	kind   frameKind
	number uint64 // of the message, counted by its sender
	call   told   // of who sends (frameMessage, frameOffer) or of who receives (frameRefuse)
}

// frameKind is what a frame says.
type frameKind uint8

const (
	frameMessage  frameKind = iota + 1 // here is a message, its data follow
	frameOffer                         // there is a message, ask for it
	frameAsk                           // send the data
	frameData                          // here they are
	frameReceived                      // thanks
	frameRefuse                        // the receive does not fit
	frameEnd
)

const (
	frameMagic   = uint32(0x65706c31) // "epl1"
	frameSize    = 72
	programBytes = 1 << 20 // of a program's name
)

// append writes a frame: numbers of fixed size, then the names of program and group.
func (f frame) append(to []byte) []byte {
	c := &f.call
	program, group := c.Program[:min(len(c.Program), programBytes)], c.Group[:min(len(c.Group), programBytes)]
	to = binary.LittleEndian.AppendUint32(to, frameMagic)
	to = binary.LittleEndian.AppendUint32(to, uint32(f.kind)|uint32(c.Op)<<8|uint32(uint16(c.DType))<<16)
	for _, x := range [...]uint64{f.number, uint64(c.Pos), uint64(c.Root), uint64(c.Tag), c.Seq, uint64(c.Bytes), uint64(len(program)), uint64(len(group))} {
		to = binary.LittleEndian.AppendUint64(to, x)
	}
	to = append(to, program...)
	return append(to, group...)
}

// readFrame reads what append has written. It allocates no more than names of programs and groups may have.
func readFrame(r io.Reader) (f frame, err error) {
	var b [frameSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return f, err
	}
	if binary.LittleEndian.Uint32(b[:]) != frameMagic {
		return f, errors.Errorf("it carries %q where a frame of EPL should begin", b[:])
	}
	word := binary.LittleEndian.Uint32(b[4:])
	u64 := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8+8*i:]) }
	f.kind, f.number = frameKind(word), u64(0)
	f.call = told{Header: Header{Op: Op(word >> 8), DType: dtypes.DType(word >> 16), Tag: int(u64(3)), Seq: u64(4), Bytes: int64(u64(5))},
		Pos: int(u64(1)), Root: int(u64(2))}
	if f.kind == 0 || f.kind >= frameEnd || u64(6) > programBytes || u64(7) > programBytes {
		return f, errors.Errorf("it carries %q, which is no frame", b[:])
	}
	names := make([]byte, u64(6)+u64(7))
	if _, err := io.ReadFull(r, names); err != nil {
		return f, err
	}
	f.call.Program, f.call.Group = string(names[:u64(6)]), string(names[u64(6):])
	return f, nil
}

// check looks at the call of a frame: it must be one of the member's ranks with one of this worker's. It fills in what the
// frame does not carry.
func (f *frame) check(t *team, member int) error {
	c := &f.call
	want := Send
	if f.kind == frameRefuse {
		want = Recv
	}
	if c.Op != want || !slices.Contains(t.members[member].positions, c.Pos) || !slices.Contains(t.local(), c.Root) || c.Bytes < 0 {
		return errors.Errorf("it speaks of a %s from position %d to position %d of %d bytes, which cannot be", c.Op, c.Pos, c.Root, c.Bytes)
	}
	c.Peer = t.ranks[c.Root]
	return nil
}
