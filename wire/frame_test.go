// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
)

func TestFramesComeBackOneByOne(t *testing.T) {
	var b bytes.Buffer
	sizes := []int{0, 1, 5, chunk - 1, chunk, chunk + 1, 5*chunk + 3}
	for i, n := range sizes {
		if err := WriteFrame(&b, byte(i), bytes.Repeat([]byte{byte(i)}, n)); err != nil {
			t.Fatal(err)
		}
	}
	b.WriteString("rest")
	for i, n := range sizes {
		kind, payload, err := ReadFrame(&b, MaxFrame)
		if err != nil || kind != byte(i) || !bytes.Equal(payload, bytes.Repeat([]byte{byte(i)}, n)) {
			t.Fatalf("frame %d: type %d, %d bytes, %v", i, kind, len(payload), err)
		}
	}
	if b.String() != "rest" {
		t.Errorf("after the last frame: %q", b.String())
	}
}

func TestAFrameThatIsTooLargeIsNotSent(t *testing.T) {
	if err := WriteFrame(io.Discard, 1, make([]byte, MaxFrame+1)); err == nil {
		t.Error("no error")
	}
}

func TestWhatIsNoFrameIsRefused(t *testing.T) {
	good := appendFrame(nil, 7, []byte("payload"))
	changed := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for _, c := range []struct {
		name  string
		bytes []byte
		limit int
		want  string // in the error
	}{
		{"nothing", nil, 100, "EOF"},
		{"half a magic number", good[:2], 100, "unexpected EOF"},
		{"half a header", good[:headerSize-1], 100, "unexpected EOF"},
		{"no payload", good[:headerSize], 100, "unexpected EOF"},
		{"half a payload", good[:headerSize+3], 100, "unexpected EOF"},
		{"another magic number", changed(0, 'X'), 100, "does not begin as one"},
		{"no checksum", binary.BigEndian.AppendUint32(bytes.Clone(good[:6]), 0), 100, "too short"},
		{"another protocol", changed(4, 9), 100, "version 9 of EPL's protocol, this is version 2"},
		{"a length above the limit", good, 6, "claims 11 bytes, the limit is 10"},
		{"a length of 4 GB", changed(6, 0xff), MaxFrame, "the limit is"},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 100, "does not begin as one"},
		{"a short word", []byte("hi\n"), 100, "does not begin as one"},
		{"TLS", []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, 100, "does not begin as one"},
	} {
		_, _, err := ReadFrame(bytes.NewReader(c.bytes), c.limit)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestEveryChangedBitIsNoticed(t *testing.T) {
	good := appendFrame(nil, 7, []byte("payload"))
	for at := range 8 * len(good) {
		b := bytes.Clone(good)
		b[at/8] ^= 1 << (at % 8)
		_, payload, err := ReadFrame(bytes.NewReader(b), MaxFrame)
		if damage := new(DamageError); err == nil || payload != nil || at/8 >= headerSize && !errors.As(err, &damage) {
			t.Errorf("bit %d: %q, %v", at, payload, err)
		}
	}
}

// The protocol of version 1: what a worker of another version sends and expects.
func TestWorkersOfOtherProtocolsTellEachOther(t *testing.T) {
	old := func(kind byte, payload []byte) []byte {
		b := append(append([]byte{}, magic[:]...), 1, kind)
		return append(binary.BigEndian.AppendUint32(b, uint32(len(payload))), payload...)
	}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	result := make(chan error, 1)
	go func() {
		_, err := server(t.Context(), ours, testSecurity, "1.0", func() {})
		result <- err
	}()
	if _, err := theirs.Write(old(hello, make([]byte, nonceSize))); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, headerSize)
	if _, err := io.ReadFull(theirs, answer); err != nil || [4]byte(answer) != magic || answer[4] != protocolVersion {
		t.Errorf("the answer begins with %q, %v: the other side cannot tell our version", answer, err)
	}
	rest := make([]byte, binary.BigEndian.Uint32(answer[6:]))
	if _, err := io.ReadFull(theirs, rest); err != nil {
		t.Errorf("the answer is cut: %v", err)
	}
	if err := <-result; err == nil || !strings.Contains(err.Error(), "speaks version 1 of EPL's protocol, this is version 2") {
		t.Errorf("the listener says %v", err)
	}

	ours, theirs = net.Pipe()
	go func() {
		ReadFrame(theirs, maxHello)
		theirs.Write(old(refusal, nil))
	}()
	if _, err := Client(t.Context(), ours, "x", testSecurity, "1.0"); err == nil || !strings.Contains(err.Error(), "speaks version 1 of EPL's protocol") {
		t.Errorf("the dialer says %v", err)
	}
}

func TestALyingLengthAllocatesNothing(t *testing.T) {
	b := appendFrame(nil, 1, []byte("a little"))
	binary.BigEndian.PutUint32(b[6:], MaxFrame)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := ReadFrame(bytes.NewReader(b), MaxFrame)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes were allocated for %d", n, len(b))
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendFrame(nil, 1, []byte("payload")))
	f.Add(appendFrame(nil, 1, nil)[:7])
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		kind, payload, err := ReadFrame(r, maxHello)
		if err != nil {
			if payload != nil {
				t.Errorf("a payload with %v", err)
			}
			return
		}
		if len(payload) > maxHello {
			t.Errorf("%d bytes are above the limit", len(payload))
		}
		read := b[:len(b)-r.Len()]
		if again := appendFrame(nil, kind, payload); !bytes.Equal(again, read) {
			t.Errorf("read %x, which is written %x", read, again)
		}
	})
}
