// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

func TestABundleCarriesWhatIsWrittenInOrderOverAllItsConnections(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 5))
		carried := make([]*counting, 2+rng.IntN(3))
		links := make([]link, len(carried))
		for i := range links {
			carried[i] = &counting{link: choppy{rng, &bytes.Buffer{}}}
			links[i] = carried[i]
		}
		out, in := stream{link: bundled(links), checks: seed%2 == 0}, stream{link: bundled(links), checks: seed%2 == 0}
		sent := make([]byte, len(links)*stripeBytes+rng.IntN(500_000))
		for i := range sent {
			sent[i] = byte(rng.Uint32())
		}
		got := make([]byte, len(sent))
		for left, place := sent, got; len(place) > 0; {
			n, _, err := out.write(left[:min(len(left), 300_000)])
			if err != nil {
				t.Fatal(err)
			}
			left = left[n:]
			if n, _, err = in.read(place[:min(len(place), 300_000)]); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			place = place[n:]
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: other bytes came", seed)
		}
		for i, c := range carried {
			if c.written < stripeBytes {
				t.Errorf("seed %d: connection %d of %d carried only %d bytes of %d", seed, i, len(links), c.written, len(sent))
			}
		}
	}
}

// counting is a link that counts what is written.
type counting struct {
	link
	written int
}

func (c *counting) write(a, b []byte) (int, error) {
	n, err := c.link.write(a, b)
	c.written += n
	return n, err
}

// failing is a link that has broken.
type failing struct{ link }

var errBroken = errors.New("broken")

func (failing) read(a, b []byte) (int, error)  { return 0, errBroken }
func (failing) write(a, b []byte) (int, error) { return 0, errBroken }

func TestABundleFailsWhenTheTurnOfABrokenConnectionComes(t *testing.T) {
	whole := choppy{rand.New(rand.NewPCG(1, 1)), &bytes.Buffer{}}
	b := bundled([]link{whole, failing{whole}})
	data, total := make([]byte, 2*stripeBytes), 0
	for {
		n, err := b.write(nil, data[total:])
		total += n
		if err != nil {
			if err != errBroken || n != 0 {
				t.Fatalf("%d bytes, %v", n, err)
			}
			break
		}
		if total > stripeBytes {
			t.Fatalf("%d bytes were written over a broken connection", total-stripeBytes)
		}
	}
	if total != stripeBytes {
		t.Errorf("%d bytes were written before it, of %d", total, stripeBytes)
	}
}

func TestABundleForWhoMayBlockCarriesWhatIsWrittenUntilOneConnectionEnds(t *testing.T) {
	var near, far []net.Conn
	for range 3 {
		a, b := net.Pipe()
		near, far = append(near, a), append(far, b)
	}
	out, in := bundledConn(near), bundledConn(far)
	defer out.Close()
	defer in.Close()
	sent := make([]byte, 5*stripeBytes+77)
	for i := range sent {
		sent[i] = byte(i * 31 >> 3)
	}
	var writing sync.WaitGroup
	writing.Go(func() {
		for left := sent; len(left) > 0; {
			n, err := out.Write(left[:min(len(left), 100_001)])
			if err != nil {
				t.Error(err)
				return
			}
			left = left[n:]
		}
		near[2].Close() // whose turn it is
	})
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("other bytes came, or an error: %v", err)
	}
	writing.Wait()
	if n, err := in.Read(got); n != 0 || err != io.EOF {
		t.Errorf("after the end: %d bytes, %v", n, err)
	}
}
