// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var malformed = flag.Int("wire.malformed", 2000, "so many connections of strangers who say something that is wrong")

// recorder keeps what is written to a connection.
type recorder struct {
	net.Conn
	said []byte
}

func (r *recorder) Write(b []byte) (int, error) {
	r.said = append(r.said, b...)
	return r.Conn.Write(b)
}

// Whatever strangers say, none is accepted, and they leave nothing in memory: noise, other protocols, lengths that lie, the beginning of a handshake, and
// one that somebody else was accepted with, whole or with a bit changed.
func TestMalformedConnectionsAreNotAccepted(t *testing.T) {
	l := listen(t, testSecurity, nil)
	conns := accepted(l)
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	friend := &recorder{Conn: raw}
	c, err := Client(t.Context(), friend, "a friend", testSecurity, "1.0")
	if err != nil {
		t.Fatal(err)
	}
	(<-conns).Close()
	c.Close()
	var accepted atomic.Int64
	go func() {
		for c := range conns {
			accepted.Add(1)
			c.Close()
		}
	}()
	say := func(r *rand.Rand) []byte {
		noise := make([]byte, r.IntN(200))
		for i := range noise {
			noise[i] = byte(r.Uint32())
		}
		handshake := append([]byte(nil), friend.said...)
		switch r.IntN(7) {
		case 0:
			return noise
		case 1:
			return []byte("GET / HTTP/1.1\r\nHost: epl\r\n\r\n")
		case 2:
			return append([]byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01}, noise...) // TLS
		case 3:
			b := appendFrame(nil, hello, noise)
			b[len(b)-len(noise)-1-r.IntN(8)] ^= byte(1 + r.IntN(255)) // its head
			return b
		case 4:
			return handshake[:r.IntN(len(handshake))]
		case 5:
			handshake[r.IntN(len(handshake))] ^= 1 << r.IntN(8)
		}
		return handshake
	}
	strangers := func(n int) {
		var all sync.WaitGroup
		var next atomic.Int64
		for seed := range uint64(8) {
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(n)))
				for next.Add(1) <= int64(n) {
					c, err := net.Dial("tcp", l.Addr().String())
					if err != nil {
						t.Error(err)
						return
					}
					_ = c.SetDeadline(time.Now().Add(10 * time.Second))
					_, _ = c.Write(say(r))
					_ = c.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, c) // until it is refused
					_ = c.Close()
				}
			})
		}
		all.Wait()
	}
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	strangers(*malformed / 10)
	before := memory()
	strangers(*malformed - *malformed/10)
	after, n := memory(), accepted.Load()
	t.Logf("%d of %d were accepted; %d KB of memory after a tenth of them, %d KB after all", n, *malformed, before>>10, after>>10)
	if after > before+2<<20 {
		t.Errorf("%d bytes of memory, and %d after %d connections", before, after, *malformed)
	}
	if n != 0 {
		t.Errorf("%d of %d were accepted", n, *malformed)
	}
	d, err := Dial(t.Context(), "tcp", l.Addr().String(), "the last", testSecurity, "1.0")
	if err != nil {
		t.Fatalf("who knows the token is not accepted any more: %v", err)
	}
	d.Close()
}
