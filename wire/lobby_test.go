// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
)

// visitor is one end of a pipe that claims to come from somewhere.
type visitor struct {
	net.Conn
	from net.Addr
}

func (v visitor) RemoteAddr() net.Addr { return v.from }

// from makes a connection from a host.
func from(host string) net.Conn {
	_, b := net.Pipe()
	return visitor{b, &net.TCPAddr{IP: net.ParseIP(host), Port: 1}}
}

func TestWhoHasMostOfThePlacesLosesTheOldestSilentOne(t *testing.T) {
	var l lobby
	var workers, strangers []*guest
	for i := range 10 {
		workers = append(workers, l.enter(from(fmt.Sprintf("10.0.0.%d", 1+i))))
	}
	for range maxHandshakes - 10 {
		strangers = append(strangers, l.enter(from("10.9.9.9")))
	}
	l.heard(strangers[0])
	for range 100 {
		strangers = append(strangers, l.enter(from("10.9.9.9")))
	}
	evicted := func(g *guest) bool { return g.evicted }
	if slices.ContainsFunc(workers, evicted) {
		t.Error("a worker had to go, and hosts had more places")
	}
	if strangers[0].evicted || strangers[101].evicted || !strangers[1].evicted || !strangers[100].evicted {
		t.Error("not the oldest silent ones had to go")
	}
	late := l.enter(from("10.0.0.99"))
	for _, g := range strangers {
		l.heard(g)
	}
	l.enter(from("10.9.9.9"))
	if !strangers[0].evicted || late.evicted {
		t.Error("where all have spoken the oldest of that host has to go")
	}
	if len(l.guests) != maxHandshakes {
		t.Errorf("%d places are taken, there are %d", len(l.guests), maxHandshakes)
	}
	if l.leave(late) || !l.leave(strangers[1]) || len(l.guests) != maxHandshakes-1 {
		t.Error("who leaves of itself is not evicted, and gives its place back")
	}
}

func TestAddressesOfOneIPv6NetworkShare(t *testing.T) {
	share := func(addr string) any {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return shareOf(a)
	}
	if share("[2001:db8::1]:1") != share("[2001:db8::ffff:2]:2") || share("[2001:db8::1]:1") == share("[2001:db8:0:1::1]:1") {
		t.Error("a network of IPv6 is 64 bits")
	}
	if share("10.0.0.1:1") != share("[::ffff:10.0.0.1]:2") || share("10.0.0.1:1") == share("10.0.0.2:1") {
		t.Error("a host of IPv4 is an address")
	}
	if shareOf(&net.UnixAddr{Name: "@", Net: "unix"}) == share("10.0.0.1:1") {
		t.Error("a socket of this machine is another host")
	}
}

// flood connects to an address and says nothing: some at once, and then one every now and then until stop. A part of them
// goes away at once, or says something that is none of our business.
func flood(t *testing.T, addr string, atOnce int, every time.Duration) (stop func()) {
	t.Helper()
	var mu sync.Mutex
	var conns []net.Conn
	visit := func(i int) {
		c, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			return
		}
		switch i % 10 {
		case 7:
			c.(*net.TCPConn).SetLinger(0)
			c.Close() // with a reset
		case 8:
			c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		case 9:
			c.Write(appendFrame(nil, hello, make([]byte, nonceSize))[:20]) // a frame that is cut
		}
		mu.Lock()
		conns = append(conns, c)
		mu.Unlock()
	}
	for i := range atOnce {
		visit(i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil && i < 2000; i++ {
			visit(i)
			time.Sleep(every)
		}
	}()
	return func() {
		cancel()
		<-done
		for _, c := range conns {
			c.Close()
		}
	}
}

func TestAFloodOfSilentConnectionsKeepsNobodyOut(t *testing.T) {
	logged := jobtest.NewJournal()
	l := listen(t, testSecurity, logged.Logf)
	conns := accepted(l)
	stop := flood(t, l.Addr().String(), 2*maxHandshakes+88, 5*time.Millisecond)
	defer stop()
	// Each of them would have to wait until the silent ones are dropped, twice as long as it may.
	for i := range 10 {
		d, err := Dial(t.Context(), "tcp", l.Addr().String(), fmt.Sprint("worker ", i), testSecurity, "1.0")
		if err != nil {
			t.Fatalf("worker %d is kept out: %v", i, err)
		}
		c := <-conns
		if c.Purpose != d.Purpose {
			t.Errorf("%q was accepted for %q", c.Purpose, d.Purpose)
		}
		c.Close()
		d.Close()
	}
	logged.WaitFor(t, "there were too many like it")
	if n := strings.Count(logged.Text(), "too many like it"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}
