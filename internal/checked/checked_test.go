// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package checked

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
)

// written is a connection that only remembers what was written, or gives what it holds.
type written struct {
	net.Conn
	bytes.Buffer
}

func (w *written) Read(b []byte) (int, error)  { return w.Buffer.Read(b) }
func (w *written) Write(b []byte) (int, error) { return w.Buffer.Write(b) }

func random(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func TestAConnectionCarriesWhatIsWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var w written
	c := NewConn(&w)
	var sent []byte
	for _, n := range []int{0, 1, together, together + 1, MaxRecord, MaxRecord + 1, 3*MaxRecord + 5, 7} {
		b := random(rng, n)
		sent = append(sent, b...)
		if done, err := c.Write(b); done != n || err != nil {
			t.Fatalf("wrote %d of %d: %v", done, n, err)
		}
	}
	for _, size := range []int{1 << 20, 1000, MaxRecord, 100_001} { // of what is read at once
		r := NewConn(&written{Buffer: *bytes.NewBuffer(bytes.Clone(w.Bytes()))})
		var got bytes.Buffer
		if _, err := io.CopyBuffer(struct{ io.Writer }{&got}, struct{ io.Reader }{r}, make([]byte, size)); err != nil {
			t.Errorf("read in pieces of %d: %v", size, err)
		}
		if !bytes.Equal(got.Bytes(), sent) {
			t.Errorf("read in pieces of %d: other bytes came", size)
		}
	}
}

func TestEveryChangedBitIsNoticed(t *testing.T) {
	var w written
	c := NewConn(&w)
	sent := []byte("some bytes, in three records: the numbers of records are counted")
	for _, b := range [][]byte{sent[:20], sent[20:21], sent[21:]} {
		c.Write(b)
	}
	whole := w.Bytes()
	for at := range 8 * len(whole) {
		b := bytes.Clone(whole)
		b[at/8] ^= 1 << (at % 8)
		wantDamage(t, b, sent)
	}
}

func TestARecordThatIsMissingOrComesTwiceIsNoticed(t *testing.T) {
	var w written
	c := NewConn(&w)
	sent := []byte("aabbcc")
	for i := range 3 {
		c.Write(sent[2*i : 2*i+2])
	}
	record := func(i int) []byte { return w.Bytes()[i*(HeadSize+2) : (i+1)*(HeadSize+2)] }
	for _, order := range [][]int{{0, 2}, {0, 0, 1}, {0, 2, 1}, {1}} {
		var b []byte
		for _, i := range order {
			b = append(b, record(i)...)
		}
		wantDamage(t, b, sent)
	}
}

func TestAConnectionThatEndsInARecordIsCut(t *testing.T) {
	var w written
	NewConn(&w).Write([]byte("payload"))
	for n := range w.Len() {
		_, err := io.ReadAll(NewConn(&written{Buffer: *bytes.NewBuffer(bytes.Clone(w.Bytes()[:n]))}))
		if n == 0 && err != nil || n > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

// wantDamage reads a stream, of which only a beginning may come out.
func wantDamage(t *testing.T, stream, sent []byte) {
	t.Helper()
	c := NewConn(&written{Buffer: *bytes.NewBuffer(stream)})
	got, err := io.ReadAll(c)
	if damage := (*DamageError)(nil); !errors.As(err, &damage) {
		t.Errorf("%q: %v", stream, err)
	}
	if !bytes.HasPrefix(sent, got) {
		t.Errorf("%q came of %q", got, sent)
	}
	if _, again := c.Read(make([]byte, 10)); again != err {
		t.Errorf("then %v", again)
	}
}
