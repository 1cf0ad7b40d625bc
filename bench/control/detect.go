// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/easyparallel/epl/rendezvous"
	"github.com/easyparallel/epl/wire"
)

// envWorker makes this command a worker, with that index.
const envWorker = "EPL_BENCH_CONTROL"

// harm is what happens to a worker.
type harm struct {
	word string // of what the other workers say when they notice
	do   func(*exec.Cmd, *proxy)
}

var (
	killed  = harm{"is gone", func(c *exec.Cmd, _ *proxy) { _ = c.Process.Kill() }}
	cut     = harm{"is gone", func(_ *exec.Cmd, p *proxy) { p.cut() }}
	stopped = harm{"has not been heard of", func(c *exec.Cmd, _ *proxy) { _ = c.Process.Signal(syscall.SIGSTOP) }}
)

// beWorker joins, and says what it notices.
func beWorker() {
	o, _, err := rendezvous.FromEnvironment(os.LookupEnv)
	if err != nil {
		fmt.Println(err)
		return
	}
	o.Workers = 3
	o.Index, _ = strconv.Atoi(os.Getenv(envWorker))
	o.Logf = func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	m, err := rendezvous.Join(context.Background(), o)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("joined")
	<-m.Done()
	fmt.Println(m.Err())
}

// proxy is on the way from a worker to the server.
type proxy struct {
	net.Listener
	conns []net.Conn
}

func newProxy(to string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{Listener: l}
	go func() {
		a, err := l.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", to)
		if err != nil {
			_ = a.Close()
			return
		}
		p.conns = []net.Conn{a, b}
		go func() {
			_, _ = io.Copy(a, b)
			p.cut()
		}()
		_, _ = io.Copy(b, a)
		p.cut()
	}()
	return p, nil
}

func (p *proxy) cut() {
	for _, c := range p.conns {
		_ = c.Close()
	}
}

// detect measures how soon the other two workers notice what happens to the second of three.
func detect(h harm) func() (string, error) {
	return func() (string, error) {
		var took []time.Duration
		for range 10 {
			d, err := once(h)
			if err != nil {
				return "", err
			}
			took = append(took, d)
		}
		return spread(took), nil
	}
}

func once(h harm) (time.Duration, error) {
	token := wire.NewToken()
	server, err := rendezvous.NewServer("127.0.0.1:0", rendezvous.ServerOptions{Workers: 3, Security: wire.Security{Token: token}})
	if err != nil {
		return 0, err
	}
	defer server.Close()
	p, err := newProxy(server.Addr().String())
	if err != nil {
		return 0, err
	}
	defer p.Close()
	commands := make([]*exec.Cmd, 3)
	lines := make([]*bufio.Scanner, 3)
	for i := range commands {
		addr := server.Addr().String()
		if i == 1 {
			addr = p.Addr().String()
		}
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", envWorker, i), rendezvous.EnvURL+"=tcp://"+addr, rendezvous.EnvToken+"="+token)
		out, err := c.StdoutPipe()
		if err != nil {
			return 0, err
		}
		if err := c.Start(); err != nil {
			return 0, err
		}
		commands[i], lines[i] = c, bufio.NewScanner(out)
		defer func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		}()
	}
	await := func(i int, word string) error {
		for lines[i].Scan() {
			if strings.Contains(lines[i].Text(), word) {
				return nil
			}
		}
		return fmt.Errorf("worker %d ended, and did not say %q", i, word)
	}
	for i := range commands {
		if err := await(i, "joined"); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	h.do(commands[1], p)
	for _, i := range []int{0, 2} {
		if err := await(i, h.word); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}
