// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/easyparallel/epl/internal/jobtest"
)

func listen(t *testing.T, s Security, logf func(string, ...any)) *Listener {
	t.Helper()
	l, err := Listen("tcp", "127.0.0.1:0", s, "1.0", logf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// accepted runs Accept until it ends.
func accepted(l *Listener) <-chan *Conn {
	c := make(chan *Conn)
	go func() {
		defer close(c)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c <- conn
		}
	}()
	return c
}

func TestOnlyWhoKnowsTheTokenIsAccepted(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		addr := "127.0.0.1:0"
		if network == "unix" {
			addr = filepath.Join(t.TempDir(), "s")
		}
		l, err := Listen(network, addr, testSecurity, "1.0", nil)
		if err != nil {
			t.Fatal(err)
		}
		conns := accepted(l)
		if _, err := Dial(t.Context(), network, l.Addr().String(), "x", Security{Token: "guess"}, "1.0"); err == nil || !strings.Contains(err.Error(), "another token") {
			t.Error(err)
		}
		d, err := Dial(t.Context(), network, l.Addr().String(), "peer 3", testSecurity, "1.0")
		if err != nil {
			t.Fatal(err)
		}
		c := <-conns
		if c.Purpose != "peer 3" {
			t.Errorf("purpose %q", c.Purpose)
		}
		if _, raw := c.Conn.(syscall.Conn); !raw {
			t.Error("no access to the file descriptor")
		}
		d.GiveUpAfter(time.Minute)
		d.Close()
		c.Close()
		l.Close()
		if _, open := <-conns; open {
			t.Error("somebody else was accepted")
		}
	}
}

func TestStrangersAreReportedOnceAndCounted(t *testing.T) {
	logged := jobtest.NewJournal()
	l := listen(t, testSecurity, logged.Logf)
	conns := accepted(l)
	send := func(b string) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte(b))
		c.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c) // until the listener has dropped it
		c.Close()
	}
	for range 3 {
		send("GET / HTTP/1.1\r\n\r\n")
		send("")
		send(string(appendFrame(nil, hello, make([]byte, nonceSize))[:20]))
		Dial(t.Context(), "tcp", l.Addr().String(), "x", Security{Token: "guess"}, "1.0")
		Dial(t.Context(), "tcp", l.Addr().String(), "x", testSecurity, "2.0")
	}
	for _, reason := range []string{"does not speak", "went away", "in the middle", "another token", "EPL \"2.0\", this is EPL 1.0"} {
		logged.WaitFor(t, reason)
	}
	d, err := Dial(t.Context(), "tcp", l.Addr().String(), "x", testSecurity, "1.0")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	(<-conns).Close()
	l.Close()
	lines := strings.Split(logged.Text(), "\n")
	if len(lines) != 6 || !strings.Contains(lines[5], "refused 10 more connections") {
		t.Errorf("logged:\n%s", logged.Text())
	}
}

func TestASilentStrangerHoldsNobodyUp(t *testing.T) {
	l := listen(t, testSecurity, nil)
	conns := accepted(l)
	for range 20 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience) // half of what it takes, one after the other
	defer cancel()
	d, err := Dial(ctx, "tcp", l.Addr().String(), "x", testSecurity, "1.0")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	(<-conns).Close()
}

func TestOtherVersionsAreTold(t *testing.T) {
	l := listen(t, testSecurity, nil)
	told := make(chan *VersionError, 1)
	l.OnVersion = func(remote string, err *VersionError) { told <- err }
	accepted(l)
	_, err := Dial(t.Context(), "tcp", l.Addr().String(), "control 2", testSecurity, "0.9")
	if version := new(VersionError); !errors.As(err, &version) || version.Theirs != "1.0" {
		t.Error(err)
	}
	if e := <-told; e.Theirs != "0.9" || e.Purpose != "control 2" {
		t.Errorf("told %+v", e)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	before := runtime.NumGoroutine()
	l, err := Listen("tcp", "127.0.0.1:0", testSecurity, "1.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	conns := accepted(l)
	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	waiting, err := Dial(t.Context(), "tcp", l.Addr().String(), "x", testSecurity, "1.0")
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	l.Close()
	for c := range conns {
		c.Close()
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	t.Errorf("goroutines are left:\n%s", buf[:runtime.Stack(buf, true)])
}

func TestAddressesThatCannotBeAreErrors(t *testing.T) {
	if _, err := Listen("tcp", "192.0.2.1:1", testSecurity, "1.0", nil); err == nil || !strings.Contains(err.Error(), "epl: cannot listen at 192.0.2.1:1") {
		t.Error(err)
	}
	l := listen(t, testSecurity, nil)
	addr := l.Addr().String()
	l.Close()
	_, err := Dial(t.Context(), "tcp", addr, "x", testSecurity, "1.0")
	if dial := new(DialError); !errors.As(err, &dial) || !strings.HasPrefix(err.Error(), "epl: cannot connect to "+addr) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
}
