// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/jobtest"
	"github.com/easyparallel/epl/wire"
)

// connected returns both ends of a connection.
func connected(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func newServer(t *testing.T) *Server {
	s := NewServer(jobtest.Limit)
	t.Cleanup(s.Close)
	return s
}

// reader returns a connection that a server handles.
func reader(t testing.TB, s *Server) net.Conn {
	t.Helper()
	a, b := connected(t)
	s.Handle(b)
	return a
}

// bytesOf offers the same bytes to all.
func bytesOf(data []byte) func() ([]byte, func(), error) {
	return func() ([]byte, func(), error) { return data, func() {}, nil }
}

// noise makes bytes from a seed.
func noise(seed int64, n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

// waiting sends a request and returns when the server has said that it waits.
func waiting(t *testing.T, conn net.Conn, w wanted) {
	t.Helper()
	if err := wire.WriteFrame(conn, request, w.encode()); err != nil {
		t.Fatal(err)
	}
	if kind, _, err := wire.ReadFrame(conn, maxReply); kind != notYet || err != nil {
		t.Fatal(kind, err)
	}
}

func TestDataOfAnySizeArrive(t *testing.T) {
	jobtest.NoLeak(t)
	s := newServer(t)
	conn := reader(t, s)
	for _, n := range []int{0, 1, 1000, chunk - 1, chunk, chunk + 1, 5*chunk + 7} {
		data := noise(int64(n), n)
		s.Offer(fmt.Sprint(n), 1, bytesOf(data))
		got := make([]byte, n)
		if err := Fetch(jobtest.Within(t), conn, fmt.Sprint(n), 1, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%d bytes differ", n)
		}
	}
}

func TestWhatIsNotThereYetIsWaitedFor(t *testing.T) {
	jobtest.NoLeak(t)
	s := newServer(t)
	conn := reader(t, s)
	s.Offer("w", 3, bytesOf([]byte("old")))
	waiting(t, conn, wanted{"w", 5, 3})
	s.Offer("v", 5, bytesOf([]byte("not")))
	s.Offer("w", 4, bytesOf([]byte("nor")))
	s.Offer("w", 5, bytesOf([]byte("new")))
	if kind, _, err := wire.ReadFrame(conn, maxReply); kind != here || err != nil {
		t.Fatal(kind, err)
	}
	got := make([]byte, 3)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "new" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWaitingEndsWithTheContextAndSaysWhatIsThere(t *testing.T) {
	jobtest.NoLeak(t)
	for _, offered := range []bool{false, true} {
		s := newServer(t)
		want := "has not been offered, nor has any other"
		if offered {
			s.Offer("w", 3, bytesOf(nil))
			want = "has not been offered, version 3 is the newest"
		}
		a, b := net.Pipe() // a write returns when it was read
		ctx, cancel := context.WithCancelCause(jobtest.Within(t))
		s.Handle(&afterWrite{b, func() { cancel(errors.New("waited for 1s (communication.timeout)")) }})
		jobtest.WantError(t, Fetch(ctx, a, "w", 5, nil), `version 5 of "w" `+want, "waited for 1s (communication.timeout)")
	}
}

// afterWrite is a connection that tells when something was written.
type afterWrite struct {
	net.Conn
	f func()
}

func (c *afterWrite) Write(b []byte) (int, error) {
	defer c.f()
	return c.Conn.Write(b)
}

func TestWhatIsNotThereAnyMoreIsRefusedWithBothVersions(t *testing.T) {
	jobtest.NoLeak(t)
	s := newServer(t)
	conn := reader(t, s)
	got := make([]byte, 1)
	s.Offer("w", 6, bytesOf([]byte("6")))
	withdraw := s.Offer("w", 7, bytesOf([]byte("7")))
	jobtest.WantError(t, Fetch(jobtest.Within(t), conn, "w", 6, got), `version 6 of "w" is not there any more`, "version 7 has taken its place")
	if err := Fetch(jobtest.Within(t), conn, "w", 7, got); err != nil || got[0] != '7' {
		t.Error(got, err)
	}
	withdraw()
	withdraw()
	err := Fetch(jobtest.Within(t), conn, "w", 7, got)
	jobtest.WantError(t, err, `version 7 of "w" is not there any more: it was withdrawn, and version 7 is the newest`)
	if _, ok := err.(*RefusedError); !ok {
		t.Errorf("%T", err)
	}
	jobtest.WantError(t, Fetch(jobtest.Within(t), conn, "w", 5, got), `version 5 of "w" is not there any more`, "version 7")
	s.Offer("w", 5, bytesOf([]byte("5")))
	jobtest.WantError(t, Fetch(jobtest.Within(t), conn, "w", 5, got), "version 7")
	s.Offer("w", 8, bytesOf([]byte("8")))
	withdraw() // it is not that one's
	if err := Fetch(jobtest.Within(t), conn, "w", 8, got); err != nil || got[0] != '8' {
		t.Error(got, err)
	}
}

func TestSizesThatDifferAndFailedReadsAreErrors(t *testing.T) {
	jobtest.NoLeak(t)
	s := newServer(t)
	conn := reader(t, s)
	var released atomic.Int32
	s.Offer("w", 1, func() ([]byte, func(), error) { return make([]byte, 400), func() { released.Add(1) }, nil })
	s.Offer("v", 1, func() ([]byte, func(), error) { return nil, nil, errors.New("epl: the device is gone") })
	s.Offer("u", 1, func() ([]byte, func(), error) { return nil, nil, errors.New(strings.Repeat("long ", 1<<20)) })
	for range 2 { // the connection stays usable
		jobtest.WantError(t, Fetch(jobtest.Within(t), conn, "w", 1, make([]byte, 800)), `"w" has 400 bytes there, and 800 were asked for`)
		jobtest.WantError(t, Fetch(jobtest.Within(t), conn, "v", 1, nil), "the device is gone")
		jobtest.WantError(t, Fetch(jobtest.Within(t), conn, "u", 1, nil), "long long")
	}
	if err := Fetch(jobtest.Within(t), conn, "w", 1, make([]byte, 400)); err != nil {
		t.Error(err)
	}
	strange := strings.Repeat("\x00", maxName)
	s.Offer(strange, 2, bytesOf(nil))
	jobtest.WantError(t, Fetch(jobtest.Within(t), conn, strange, 1, nil), "version 1 of")
	jobtest.WantError(t, Fetch(jobtest.Within(t), conn, strange+"x", 1, nil), "internal error", "4097 bytes")
	if s.Close(); released.Load() != 3 {
		t.Errorf("released %d times", released.Load())
	}
}

func TestWithdrawWaitsForWhoReads(t *testing.T) {
	jobtest.NoLeak(t)
	s := newServer(t)
	data := noise(1, 64<<20) // more than the system keeps for a connection
	var reading atomic.Int32
	withdraw := s.Offer("w", 1, func() ([]byte, func(), error) {
		reading.Add(1)
		return data, func() { reading.Add(-1) }, nil
	})
	conn := reader(t, s)
	if err := wire.WriteFrame(conn, request, wanted{"w", 1, uint64(len(data))}.encode()); err != nil {
		t.Fatal(err)
	}
	if kind, _, err := wire.ReadFrame(conn, maxReply); kind != here || err != nil {
		t.Fatal(kind, err)
	}
	withdrawn := make(chan int32)
	go func() {
		withdraw()
		withdrawn <- reading.Load()
	}()
	// Nobody else may begin.
	second := reader(t, s)
	for {
		err := Fetch(jobtest.Within(t), second, "w", 1, make([]byte, 1))
		if strings.Contains(err.Error(), "withdrawn") {
			break
		}
		jobtest.WantError(t, err, "1 were asked for") // it is not withdrawn yet
	}
	select {
	case <-withdrawn:
		t.Fatal("it was withdrawn while it was read")
	default:
	}
	got := make([]byte, len(data))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, data) {
		t.Error("other data", err)
	}
	if n := <-withdrawn; n != 0 {
		t.Errorf("it was withdrawn while %d read it", n)
	}
}

func TestManyReadAtTheSameTime(t *testing.T) {
	jobtest.NoLeak(t)
	s := newServer(t)
	const readers, names, versions = 16, 5, 20
	var all sync.WaitGroup
	for r := range readers {
		conn := reader(t, s)
		all.Go(func() {
			random := rand.New(rand.NewSource(int64(r)))
			for version := 0; version < versions; {
				name := random.Intn(names)
				got := make([]byte, 1+name*1000)
				switch err := Fetch(jobtest.Within(t), conn, fmt.Sprint(name), uint64(version), got); err.(type) {
				case nil:
					if !bytes.Equal(got, noise(int64(version), len(got))) {
						t.Errorf("reader %d got other bytes of version %d", r, version)
					}
					version += random.Intn(2)
				case *RefusedError: // it was too slow
					version++
				default:
					t.Errorf("reader %d: %v", r, err)
					return
				}
			}
		})
	}
	withdraw := make([]func(), names)
	for version := range versions {
		for name := range names {
			if w := withdraw[name]; w != nil {
				w()
			}
			data := noise(int64(version), 1+name*1000)
			old := s.Offer(fmt.Sprint(name), uint64(version), bytesOf(data))
			withdraw[name] = func() {
				old()
				clear(data) // nobody may see it
			}
		}
		runtime.Gosched()
	}
	all.Wait()
}

func TestReadersThatGoLeaveNothingBehind(t *testing.T) {
	jobtest.NoLeak(t)
	s := newServer(t)
	data := make([]byte, 64<<20)
	begun, released := make(chan bool, 1), make(chan bool, 1)
	s.Offer("w", 1, func() ([]byte, func(), error) {
		begun <- true
		return data, func() { released <- true }, nil
	})
	for name, die := range map[string]func(conn net.Conn){
		"at once":        func(net.Conn) {},
		"in a request":   func(conn net.Conn) { conn.Write([]byte{0xE9, 'E', 'P'}) },
		"while it waits": func(conn net.Conn) { waiting(t, conn, wanted{"w", 2, 1}) },
		"while it waits twice": func(conn net.Conn) {
			waiting(t, conn, wanted{"w", 2, 1})
			wire.WriteFrame(conn, request, wanted{"w", 2, 1}.encode())
		},
		"in the data": func(conn net.Conn) {
			wire.WriteFrame(conn, request, wanted{"w", 1, uint64(len(data))}.encode())
			<-begun
		},
	} {
		t.Run(name, func(t *testing.T) {
			jobtest.NoLeak(t)
			conn := reader(t, s)
			die(conn)
			conn.Close()
			if name == "in the data" {
				<-released
			}
		})
	}
}

func TestAReaderThatStopsIsGivenUp(t *testing.T) {
	jobtest.NoLeak(t)
	s := NewServer(50 * time.Millisecond)
	defer s.Close()
	data := make([]byte, 64<<20)
	withdraw := s.Offer("w", 1, bytesOf(data))
	conn := reader(t, s)
	if err := wire.WriteFrame(conn, request, wanted{"w", 1, uint64(len(data))}.encode()); err != nil {
		t.Fatal(err)
	}
	if kind, _, err := wire.ReadFrame(conn, maxReply); kind != here || err != nil {
		t.Fatal(kind, err)
	}
	withdraw() // it returns
}

func TestAServerThatGoesIsAnErrorThatSaysHowFarItCame(t *testing.T) {
	jobtest.NoLeak(t)
	for name, want := range map[string]string{
		"never":   `version 2 of "w" was not answered: the connection ended`,
		"waiting": `version 2 of "w" has not been offered, nor has any other: the connection ended`,
		"half":    `version 2 of "w" came in part, 5 of 10 bytes: the connection ended`,
	} {
		a, b := connected(t)
		go func() {
			defer b.Close()
			if _, _, err := wire.ReadFrame(b, maxRequest); err != nil {
				t.Error(err)
			}
			switch name {
			case "waiting":
				wire.WriteFrame(b, notYet, nil)
			case "half":
				wire.WriteFrame(b, here, nil)
				b.Write(make([]byte, 5))
			}
		}()
		jobtest.WantError(t, Fetch(jobtest.Within(t), a, "w", 2, make([]byte, 10)), want)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	jobtest.NoLeak(t)
	s := NewServer(jobtest.Limit)
	data := make([]byte, 64<<20)
	released := 0
	s.Offer("w", 1, func() ([]byte, func(), error) { return data, func() { released++ }, nil })
	idle, late, stuck := reader(t, s), reader(t, s), reader(t, s)
	waiting(t, late, wanted{"w", 2, 1})
	if err := wire.WriteFrame(stuck, request, wanted{"w", 1, uint64(len(data))}.encode()); err != nil {
		t.Fatal(err)
	}
	if kind, _, err := wire.ReadFrame(stuck, maxReply); kind != here || err != nil {
		t.Fatal(kind, err)
	}
	for range 2 {
		if s.Close(); released != 1 {
			t.Errorf("released %d times", released)
		}
	}
	for _, conn := range []net.Conn{idle, late, reader(t, s)} {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a connection is open")
		}
	}
}

func FuzzServer(f *testing.F) {
	frame := func(kind byte, payload []byte) []byte {
		var b bytes.Buffer
		wire.WriteFrame(&b, kind, payload)
		return b.Bytes()
	}
	f.Add([]byte{})
	f.Add(frame(request, wanted{"w", 1, 3}.encode()))
	f.Add(append(frame(request, wanted{"w", 0, 3}.encode()), frame(request, wanted{"w", 1, 1 << 63}.encode())...))
	f.Add(bytes.Repeat(frame(request, wanted{"w", 9, 3}.encode()), 5))
	f.Add(frame(here, make([]byte, 100)))
	f.Fuzz(func(t *testing.T, hostile []byte) {
		s := NewServer(jobtest.Limit)
		s.Offer("w", 1, bytesOf([]byte("abc")))
		a, b := net.Pipe()
		s.Handle(b)
		go func() {
			a.Write(hostile)
			a.Close()
		}()
		io.Copy(io.Discard, a)
		got, conn := make([]byte, 3), reader(t, s)
		if err := Fetch(t.Context(), conn, "w", 1, got); err != nil || string(got) != "abc" {
			t.Errorf("others get %q, %v", got, err)
		}
		s.Close()
	})
}

func FuzzFetch(f *testing.F) {
	var b bytes.Buffer
	wire.WriteFrame(&b, notYet, binary.BigEndian.AppendUint64(nil, 3))
	wire.WriteFrame(&b, here, nil)
	b.WriteString("abc")
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:len(b.Bytes())-1])
	b.Reset()
	wire.WriteFrame(&b, refused, []byte("no"))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, hostile []byte) {
		a, b := net.Pipe()
		go func() {
			wire.ReadFrame(b, maxRequest)
			b.Write(hostile)
			b.Close()
		}()
		defer a.Close()
		if err := Fetch(t.Context(), a, "w", 1, make([]byte, 3)); err != nil && !strings.HasPrefix(err.Error(), "epl: ") {
			t.Error(err)
		}
	})
}
