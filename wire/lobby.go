// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/pkg/errors"
)

// maxHandshakes is how many connections may be unauthenticated at the same time.
const maxHandshakes = 256

// errEvicted is why a connection had to go before its time.
var errEvicted = errors.New("its place was needed for another")

// lobby holds the connections that have not proved who they are. There is always room for one more: when it is full, the
// host that has most of the places loses one, that of its oldest connection which has not said a word, else of its oldest. So
// strangers who connect and stay silent are in the way of each other, not of workers: those of another host keep their share,
// and one of the same host says who it is within a moment, while the silent ones before it are dropped.
type lobby struct {
	mu     sync.Mutex
	guests []*guest // in the order in which they came
}

// guest is one of them.
type guest struct {
	conn    net.Conn
	host    netip.Prefix // what counts as one host
	spoke   bool
	evicted bool
}

// enter gives a connection a place.
func (l *lobby) enter(conn net.Conn) *guest {
	g := &guest{conn: conn, host: shareOf(conn.RemoteAddr())}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.guests) >= maxHandshakes {
		i := l.superfluous()
		l.guests[i].evicted = true
		l.guests[i].conn.Close() // whoever shakes its hand notices
		l.guests = slices.Delete(l.guests, i, i+1)
	}
	l.guests = append(l.guests, g)
	return g
}

// superfluous returns who has to go. The lock is held.
func (l *lobby) superfluous() int {
	places := map[netip.Prefix]int{}
	most := 0
	for _, g := range l.guests {
		places[g.host]++
		most = max(most, places[g.host])
	}
	oldest := -1
	for i, g := range l.guests {
		switch {
		case places[g.host] < most:
		case !g.spoke:
			return i
		case oldest < 0:
			oldest = i
		}
	}
	return oldest
}

// heard notes that a connection has said something.
func (l *lobby) heard(g *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.spoke = true
}

// leave gives the place back. It tells whether it was taken away before.
func (l *lobby) leave(g *guest) (evicted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.guests, g); i >= 0 {
		l.guests = slices.Delete(l.guests, i, i+1)
	}
	return g.evicted
}

// shareOf returns what counts as one host: an IPv4 address, or the 64 bits of an IPv6 network, in which a machine may have
// any number of addresses.
func shareOf(addr net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil { // a socket of this machine
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap()
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.WithZone("").Prefix(bits)
	return p
}
