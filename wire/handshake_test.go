// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var testSecurity = Security{Token: "0123456789abcdef0123456789abcdef"}

// tap copies what one end of a connection writes.
type tap struct {
	net.Conn
	sent bytes.Buffer
}

func (c *tap) Write(b []byte) (int, error) {
	c.sent.Write(b)
	return c.Conn.Write(b)
}

// shakeHands runs both sides of a handshake.
func shakeHands(d, l net.Conn, purpose string, ds, ls Security, dv, lv string) (dialer, listener *Conn, derr, lerr error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		listener, lerr = server(context.Background(), l, ls, lv, func() {})
	}()
	dialer, derr = Client(context.Background(), d, purpose, ds, dv)
	<-done
	return
}

func TestWhoKnowsTheTokenIsLetIn(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	da, lb := &tap{Conn: a}, &tap{Conn: b}
	d, l, derr, lerr := shakeHands(da, lb, "data w1 [0-3]/0", testSecurity, testSecurity, "1.0", "1.0")
	if derr != nil || lerr != nil {
		t.Fatal(derr, lerr)
	}
	if d.Purpose != "data w1 [0-3]/0" || l.Purpose != d.Purpose {
		t.Errorf("purposes %q, %q", d.Purpose, l.Purpose)
	}
	if d.Conn != net.Conn(da) || l.Conn != net.Conn(lb) {
		t.Error("the connection is not the one that was given")
	}
	for _, sent := range []string{da.sent.String(), lb.sent.String()} {
		if strings.Contains(sent, testSecurity.Token) {
			t.Error("the token travelled")
		}
	}
	go d.Write([]byte("raw"))
	got := make([]byte, 3)
	if _, err := io.ReadFull(l, got); err != nil || string(got) != "raw" {
		t.Errorf("after the handshake: %q, %v", got, err)
	}
}

// The dialer may send right after its part of the handshake; none of that may be swallowed by the listener's.
func TestBytesBehindTheHandshakeAreNotLost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := Dial(context.Background(), "tcp", l.Addr().String(), "x", testSecurity, "1")
		if err == nil {
			c.Write(bytes.Repeat([]byte("abc"), 1000))
			c.Close()
		}
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, err := server(context.Background(), conn, testSecurity, "1", func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != strings.Repeat("abc", 1000) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestAnotherTokenIsRefusedOnBothSides(t *testing.T) {
	a, b := net.Pipe()
	_, _, derr, lerr := shakeHands(a, b, "x", Security{Token: "another"}, testSecurity, "1", "1")
	for _, err := range []error{derr, lerr} {
		if token := new(TokenError); !errors.As(err, &token) {
			t.Errorf("%v", err)
		}
	}
}

func TestAnotherVersionIsRefusedWithBothVersions(t *testing.T) {
	a, b := net.Pipe()
	_, _, derr, lerr := shakeHands(a, b, "control 3", testSecurity, testSecurity, "1.0", "2.0")
	for _, c := range []struct {
		err          error
		ours, theirs string
	}{{derr, "1.0", "2.0"}, {lerr, "2.0", "1.0"}} {
		version := new(VersionError)
		if !errors.As(c.err, &version) || version.Ours != c.ours || version.Theirs != c.theirs || version.Purpose != "control 3" {
			t.Errorf("%v", c.err)
		} else if text := c.err.Error(); !strings.Contains(text, "is EPL "+c.theirs+", this is EPL "+c.ours) {
			t.Error(text)
		}
	}
}

func TestAnotherProtocolIsNamedOnBothSides(t *testing.T) {
	a, b := net.Pipe()
	_, _, derr, lerr := shakeHands(&meddler{Conn: a, n: 1, at: 4}, b, "x", testSecurity, testSecurity, "1", "1")
	if lerr == nil || !strings.Contains(lerr.Error(), "version 3 of EPL's protocol, this is version 2") {
		t.Error(lerr)
	}
	if token := new(TokenError); !errors.As(derr, &token) { // the header is of this version, so it is taken for a refusal
		t.Error(derr)
	}
	c, d := net.Pipe()
	_, _, derr, _ = shakeHands(c, &meddler{Conn: d, n: 1, at: 4}, "x", testSecurity, testSecurity, "1", "1")
	if derr == nil || !strings.Contains(derr.Error(), "version 3 of EPL's protocol, this is version 2") {
		t.Error(derr)
	}
}

// A listener without the token must not get in by sending the dialer's own words back.
func TestAReflectionProvesNothing(t *testing.T) {
	a, b := net.Pipe()
	go func() {
		defer b.Close()
		_, first, _ := ReadFrame(b, maxHello)
		WriteFrame(b, challenge, first[:nonceSize])
		_, second, _ := ReadFrame(b, maxHello)
		WriteFrame(b, welcome, second)
	}()
	_, err := Client(context.Background(), a, "x", testSecurity, "1")
	if token := new(TokenError); !errors.As(err, &token) {
		t.Error(err)
	}
}

func TestAReplayProvesNothing(t *testing.T) {
	a, b := net.Pipe()
	da := &tap{Conn: a}
	if _, _, derr, lerr := shakeHands(da, b, "x", testSecurity, testSecurity, "1", "1"); derr != nil || lerr != nil {
		t.Fatal(derr, lerr)
	}
	c, d := net.Pipe()
	go func() {
		go io.Copy(io.Discard, c)
		c.Write(da.sent.Bytes())
	}()
	_, err := server(context.Background(), d, testSecurity, "1", func() {})
	if token := new(TokenError); !errors.As(err, &token) {
		t.Error(err)
	}
	c.Close()
}

// meddler changes one byte of the n-th write, on purpose: so it gives it a new checksum.
type meddler struct {
	net.Conn
	n, at int
}

func (c *meddler) Write(b []byte) (int, error) {
	if c.n--; c.n == 0 {
		b = bytes.Clone(b)
		b[c.at] ^= 1
		if c.at >= headerSize {
			b = appendFrame(nil, b[5], b[headerSize:len(b)-sumSize])
		}
	}
	return c.Conn.Write(b)
}

func TestWhatIsChangedOnTheWayIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name  string
		write int // of the dialer
		at    int
	}{
		{"the dialer's nonce", 1, headerSize},
		{"the purpose", 1, headerSize + nonceSize},
		{"the proof", 2, headerSize},
		{"the dialer's version", 2, headerSize + 32},
	} {
		a, b := net.Pipe()
		_, _, derr, lerr := shakeHands(&meddler{a, c.write, c.at}, b, "purpose", testSecurity, testSecurity, "1", "1")
		if token := new(TokenError); !errors.As(lerr, &token) || derr == nil {
			t.Errorf("%s: %v, %v", c.name, derr, lerr)
		}
	}
	for _, c := range []struct {
		name  string
		write int // of the listener
		at    int
	}{
		{"the listener's nonce", 1, headerSize},
		{"the listener's proof", 2, headerSize},
		{"the listener's version", 2, headerSize + 32},
	} {
		a, b := net.Pipe()
		_, _, derr, _ := shakeHands(a, &meddler{b, c.write, c.at}, "purpose", testSecurity, testSecurity, "1", "1")
		if token := new(TokenError); !errors.As(derr, &token) {
			t.Errorf("%s: %v", c.name, derr)
		}
	}
}

func TestASilentPeerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		start := time.Now()
		_, err := server(t.Context(), b, testSecurity, "1", func() {})
		if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(start) != patience {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// One who says a byte now and then does not get more time by it.
func TestADribblingPeerIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			for _, c := range appendFrame(nil, hello, make([]byte, nonceSize)) {
				time.Sleep(time.Second)
				if _, err := a.Write([]byte{c}); err != nil {
					return
				}
			}
		}()
		start := time.Now()
		if _, err := server(t.Context(), b, testSecurity, "1", func() {}); err == nil || time.Since(start) > 2*patience {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		a.Close()
		<-over
	})
}

func TestAHandshakeEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := Client(ctx, b, "x", testSecurity, "1"); err == nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestNoTokenIsNoSecurity(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	if _, err := server(t.Context(), b, Security{}, "1", func() {}); err == nil || !strings.Contains(err.Error(), "EPL_TOKEN") {
		t.Error(err)
	}
	if _, err := Listen("tcp", "127.0.0.1:0", Security{}, "1", nil); err == nil || !strings.Contains(err.Error(), "EPL_TOKEN") {
		t.Error(err)
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add(appendFrame(nil, hello, make([]byte, nonceSize+4)), true)
	f.Add(append(appendFrame(nil, hello, make([]byte, nonceSize)), appendFrame(nil, proof, make([]byte, 40))...), true)
	f.Add(append(appendFrame(nil, challenge, make([]byte, nonceSize)), appendFrame(nil, welcome, make([]byte, 40))...), false)
	f.Add(appendFrame(nil, refusal, nil), false)
	f.Fuzz(func(t *testing.T, b []byte, listener bool) {
		conn := &script{Reader: bytes.NewReader(b)}
		var err error
		if listener {
			_, err = server(t.Context(), conn, testSecurity, "1", func() {})
		} else {
			_, err = Client(t.Context(), conn, "x", testSecurity, "1")
		}
		if err == nil {
			t.Error("a stranger got in")
		}
	})
}

// script is a connection to a peer that says what it says.
type script struct{ io.Reader }

func (*script) Write(b []byte) (int, error)      { return len(b), nil }
func (*script) Close() error                     { return nil }
func (*script) LocalAddr() net.Addr              { return nil }
func (*script) RemoteAddr() net.Addr             { return nil }
func (*script) SetDeadline(time.Time) error      { return nil }
func (*script) SetReadDeadline(time.Time) error  { return nil }
func (*script) SetWriteDeadline(time.Time) error { return nil }
