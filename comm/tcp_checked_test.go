// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// flip copies bytes, and changes one bit of one of them.
func flip(r io.Reader, w io.Writer, at int64, bit int) {
	if n, _ := io.CopyN(w, r, at); n < at {
		return
	}
	var b [1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return
	}
	b[0] ^= 1 << bit
	if _, err := w.Write(b[:]); err == nil {
		_, _ = io.Copy(w, r)
	}
}

// damaging makes jobs in which one bit of what one worker sends another is changed, at some byte of one connection.
func damaging(places []Place, purpose string, from, to int, at int64, opts Options, wrap func(net.Conn) net.Conn) (*World, error) {
	j := newTestJob(len(places))
	j.wrap = wrap
	j.between = func(name string, a, b int, r io.Reader, w io.Writer) {
		if a == from && b == to && strings.HasSuffix(name, purpose) {
			flip(r, w, at, int(at)%8)
			return
		}
		_, _ = io.Copy(w, r)
	}
	return newJob(j, places, opts)
}

// What the ranks of a world do, and how long the stream from one worker to another is at least.
var damageCases = []struct {
	name    string
	places  []Place
	purpose string
	bytes   int64
	call    func(c *Communicator, buf []float32) error
	size    int // elements
	says    string
	streams int
}{
	{"small all-reduce", spread(3), "collectives", 12 + 32 + 400, allReduce, 100, "all-reduce #1", 0},
	{"large all-reduce", spread(3), "collectives", 1_000_000, allReduce, 600_000, "all-reduce #1", 0},
	{"all-reduce of workers with two ranks", []Place{{Ranks: 2, Host: "a"}, {Ranks: 2, Host: "b"}}, "collectives", 1_000_000, allReduce, 600_000, "all-reduce #1", 0},
	{"all-reduce of leaders", []Place{{Ranks: 1, Host: "a"}, {Ranks: 1, Host: "b"}, {Ranks: 1, Host: "a"}, {Ranks: 1, Host: "b"}}, "leaders collectives", 1_000_000, allReduce, 600_000, "all-reduce #1", 0},
	{"reduce-scatter", spread(3), "collectives", 500_000, func(c *Communicator, buf []float32) error {
		return c.Do(Call{Op: ReduceScatter, In: buf, Out: buf[len(buf)/3*c.Position() : len(buf)/3*(c.Position()+1)]})
	}, 600_000, "reduce-scatter #1", 0},
	{"all-gather", spread(3), "collectives", 500_000, func(c *Communicator, buf []float32) error {
		return c.Do(Call{Op: AllGather, In: buf[len(buf)/3*c.Position() : len(buf)/3*(c.Position()+1)], Out: buf})
	}, 600_000, "all-gather #1", 0},
	{"all-to-all", spread(3), "collectives", 500_000, func(c *Communicator, buf []float32) error {
		return c.Do(Call{Op: AllToAll, In: slices.Clone(buf), Out: buf})
	}, 600_000, "all-to-all #1", 0},
	{"broadcast", spread(3), "collectives", 700_000, func(c *Communicator, buf []float32) error {
		return c.Do(Call{Op: Broadcast, Buf: buf, Root: 1})
	}, 600_000, "broadcast from rank 1 #1", 0},
	{"barrier", spread(3), "collectives", 12 + 32, func(c *Communicator, _ []float32) error { return c.Barrier() }, 0, "barrier #1", 0},
	{"short message", spread(3), "exchanges", 12 + 72 + 400, sendToFirst, 100, "rank 0", 0},
	{"long message", spread(3), "exchanges", 1_000_000, sendToFirst, 600_000, "rank 0", 0},
	{"all-reduce over streams", spread(3), "collectives 1", 300_000, allReduce, 600_000, "all-reduce #1", 3},
	{"long message over streams", spread(3), "exchanges 2", 300_000, sendToFirst, 600_000, "rank 0", 3},
}

func spread(n int) (places []Place) {
	for i := range n {
		places = append(places, Place{Ranks: 1, Host: fmt.Sprint("host", i)})
	}
	return places
}

func allReduce(c *Communicator, buf []float32) error { return c.AllReduce(buf, Sum) }

func sendToFirst(c *Communicator, buf []float32) error {
	switch c.Position() {
	case 0:
		return c.Recv(buf, 1, 0)
	case 1:
		return c.Send(buf, 0, 0)
	}
	return nil
}

func TestDataThatWereChangedOnTheirWayNameBothRanksAndTheCall(t *testing.T) {
	for _, c := range damageCases {
		right := results(t, c.call, c.places, c.size)
		for at := int64(0); at < c.bytes; at += 1 + at*9 { // in heads, headers and data of many records
			for kind, wrap := range map[string]func(net.Conn) net.Conn{"descriptor": nil, "opaque": func(c net.Conn) net.Conn { return opaque{c} }} {
				t.Run(fmt.Sprintf("%s/byte %d/%s", c.name, at, kind), func(t *testing.T) {
					if testing.Short() && kind == "opaque" {
						t.Skip("a variant; not with -short")
					}
					t.Parallel()
					w, err := damaging(c.places, c.purpose, 1, 0, at, Options{Timeout: time.Minute, Streams: c.streams}, wrap)
					if err != nil {
						t.Fatal(err)
					}
					defer closeAll(t, w)
					cs := ends(t, w.All(), 0)
					bufs := make([][]float32, len(cs))
					errs := onAll(cs, func(e *Communicator) error {
						bufs[e.Position()] = data(e.Position(), c.size)
						return c.call(e, bufs[e.Position()])
					})
					var corruption *CorruptionError
					if !errors.As(errs[0], &corruption) {
						t.Fatalf("rank 0 does not notice: %v", errs[0])
					}
					wantError(t, errs[0], "rank", "(worker 1) sent to rank", "(worker 0)", c.says, "arrived damaged", "CRC-32C")
					if corruption.Workers != [2]int{1, 0} || !slices.Contains(corruption.To, 0) {
						t.Errorf("%v to %v", corruption.From, corruption.To)
					}
					for i, err := range errs { // who has got all has got what is right
						if err == nil && !slices.Equal(bufs[i], right[i]) {
							t.Errorf("rank %d goes on with wrong data", i)
						}
					}
				})
			}
		}
	}
}

// data is what a rank gives.
func data(rank, n int) []float32 {
	rng := rand.New(rand.NewPCG(uint64(rank), 7))
	b := make([]float32, n)
	for i := range b {
		b[i] = rng.Float32()
	}
	return b
}

// results is what the ranks have after a call, if nothing goes wrong.
func results(t *testing.T, call func(*Communicator, []float32) error, places []Place, size int) [][]float32 {
	t.Helper()
	w, err := newJob(newTestJob(len(places)), places, Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, w)
	cs := ends(t, w.All(), 0)
	bufs := make([][]float32, len(cs))
	mustAll(t, cs, func(c *Communicator) error {
		bufs[c.Position()] = data(c.Position(), size)
		return call(c, bufs[c.Position()])
	})
	return bufs
}
