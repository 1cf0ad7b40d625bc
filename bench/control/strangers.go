// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/easyparallel/epl/wire"
)

// door is where strangers come.
type door struct {
	addr   string
	said   []byte // by one who was let in
	let    *atomic.Int64
	friend func() error // comes in
	close  func()
}

// recorder keeps what is written to a connection.
type recorder struct {
	net.Conn
	mu   sync.Mutex
	said []byte
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	r.said = append(r.said, b...)
	r.mu.Unlock()
	return r.Conn.Write(b)
}

func ourDoor() (*door, error) {
	security := wire.Security{Token: wire.NewToken()}
	l, err := wire.Listen("tcp", "127.0.0.1:0", security, "1", nil)
	if err != nil {
		return nil, err
	}
	d := &door{addr: l.Addr().String(), let: new(atomic.Int64), close: func() { _ = l.Close() }}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.let.Add(1)
			_ = c.Close()
		}
	}()
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		return nil, err
	}
	r := &recorder{Conn: conn}
	c, err := wire.Client(context.Background(), r, "a friend", security, "1")
	if err != nil {
		return nil, err
	}
	d.said = r.said
	d.friend = func() error {
		c, err := wire.Dial(context.Background(), "tcp", d.addr, "a friend", security, "1")
		if err == nil {
			err = c.Close()
		}
		return err
	}
	return d, c.Close()
}

func grpcDoor() (*door, error) {
	d := &door{let: new(atomic.Int64)}
	b, addr, stop, err := grpcServer(1, func() { d.let.Add(1) })
	if err != nil {
		return nil, err
	}
	d.addr, d.close = addr, stop
	var r *recorder
	d.friend = func() error {
		c, err := grpcClient(addr, b.token, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			r = &recorder{Conn: conn}
			return r, err
		}))
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return c.Invoke(ctx, "/control/Agree", &part{}, &outcome{})
	}
	if err := d.friend(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d.said = append(d.said, r.said...)
	return d, nil
}

// say returns what a stranger says: noise, other protocols, and what somebody else was let in with, in part, with a bit changed, or as it was.
func (d *door) say(r *rand.Rand) []byte {
	said := append([]byte(nil), d.said...)
	switch r.IntN(6) {
	case 0:
		noise := make([]byte, r.IntN(200))
		for i := range noise {
			noise[i] = byte(r.Uint32())
		}
		return noise
	case 1:
		return []byte("GET / HTTP/1.1\r\nHost: epl\r\n\r\n")
	case 2:
		return []byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00}
	case 3:
		return said[:r.IntN(len(said))]
	case 4:
		said[r.IntN(len(said))] ^= 1 << r.IntN(8)
	}
	return said
}

// strangers measures how many of them a second can be refused, and what they leave in memory.
func strangers(open func() (*door, error)) func() (string, error) {
	return func() (string, error) {
		d, err := open()
		if err != nil {
			return "", err
		}
		defer d.close()
		come := func(n int) {
			var next atomic.Int64
			_ = onAll(8, func(seed int) error {
				r := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
				for next.Add(1) <= int64(n) {
					c, err := net.Dial("tcp", d.addr)
					if err != nil {
						return err
					}
					_ = c.SetDeadline(time.Now().Add(10 * time.Second))
					_, _ = c.Write(d.say(r))
					_ = c.(*net.TCPConn).CloseWrite()
					_, _ = io.Copy(io.Discard, c)
					_ = c.Close()
				}
				return nil
			})
		}
		come(1000)
		before, let := memory(), d.let.Load()
		const n = 20000
		begin := time.Now()
		come(n)
		took := time.Since(begin)
		return fmt.Sprintf("%.0f a second, %d of %d let in, %+d KB of memory after them", n/took.Seconds(), d.let.Load()-let, n, (memory()-before)/1024), nil
	}
}

// silent measures what strangers cost who stay and say nothing.
func silent(open func() (*door, error)) func() (string, error) {
	return func() (string, error) {
		d, err := open()
		if err != nil {
			return "", err
		}
		defer d.close()
		before, goroutines := memory(), runtime.NumGoroutine()
		for range 1000 {
			c, err := net.Dial("tcp", d.addr)
			if err != nil {
				return "", err
			}
			defer c.Close()
		}
		time.Sleep(200 * time.Millisecond)
		used, more := memory()-before, runtime.NumGoroutine()-goroutines
		begin := time.Now()
		if err := d.friend(); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d KB and %d goroutines while they stay; a friend comes in within %s", used/1024, more, short(time.Since(begin))), nil
	}
}
