// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/easyparallel/epl/internal/checked"
)

// choppy is a link that moves as much as it likes.
type choppy struct {
	rng *rand.Rand
	b   *bytes.Buffer
}

func (c choppy) some(a, b []byte) ([]byte, []byte) {
	n := c.rng.IntN(len(a) + len(b) + 1)
	if c.rng.IntN(3) == 0 {
		n = len(a) + len(b)
	}
	return a[:min(n, len(a))], b[:max(0, min(n-len(a), len(b)))]
}

func (c choppy) read(a, b []byte) (int, error) {
	a, b = c.some(a, b)
	n, _ := c.b.Read(a)
	more, _ := c.b.Read(b)
	return n + more, nil
}

func (c choppy) write(a, b []byte) (int, error) {
	a, b = c.some(a, b)
	c.b.Write(a)
	c.b.Write(b)
	return len(a) + len(b), nil
}

func (choppy) close()         {}
func (c choppy) source() link { return c }
func (c choppy) sink() link   { return c }

func TestAStreamCarriesWhatIsWrittenHoweverItIsMoved(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		link := choppy{rng, &bytes.Buffer{}}
		out, in := stream{link: link, checks: true}, stream{link: link, checks: true}
		sent := make([]byte, rng.IntN(1_500_000))
		for i := range sent {
			sent[i] = byte(rng.Uint32())
		}
		var got []byte
		size := func() int { return 1 + rng.IntN([]int{10, 1000, 300_000}[rng.IntN(3)]) }
		piece, place := sent[:0], []byte(nil)
		for left := sent; len(got) < len(sent); {
			if len(piece) == 0 {
				piece = left[:min(len(left), size())]
				left = left[len(piece):]
			}
			n, _, err := out.write(piece)
			if err != nil {
				t.Fatal(err)
			}
			piece = piece[n:]
			if len(place) == 0 {
				place = make([]byte, min(size(), len(sent)-len(got)))
			}
			if n, _, err = in.read(place); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			got, place = append(got, place[:n]...), place[n:]
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: other bytes came", seed)
		}
		if link.b.Len() > 0 || len(in.ahead) > 0 {
			t.Errorf("seed %d: more came than was written", seed)
		}
	}
}

func TestAStreamHandsNothingOutThatWasChanged(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 4))
		link := choppy{rng, &bytes.Buffer{}}
		out, in := stream{link: link, checks: true}, stream{link: link, checks: true}
		sent := make([]byte, 1+rng.IntN(2000))
		for i := range sent {
			sent[i] = byte(rng.Uint32())
		}
		for left := sent; len(left) > 0; {
			piece := left[:1+rng.IntN(len(left))]
			for left = left[len(piece):]; len(piece) > 0; {
				n, _, _ := out.write(piece)
				piece = piece[n:]
			}
		}
		all := link.b.Bytes()
		all[rng.IntN(len(all))] ^= byte(1 + rng.IntN(255))
		var got []byte
		for place := make([]byte, len(sent)); ; {
			n, _, err := in.read(place)
			got, place = append(got, place[:n]...), place[n:]
			if err != nil {
				if damage := new(checked.DamageError); !errors.As(err, &damage) {
					t.Errorf("seed %d: %v", seed, err)
				}
				break
			}
			if len(got) == len(sent) {
				t.Fatalf("seed %d: nobody has noticed", seed)
			}
		}
		if !bytes.Equal(got, sent[:len(got)]) {
			t.Errorf("seed %d: other bytes came before it was noticed", seed)
		}
	}
}
