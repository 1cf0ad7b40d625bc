// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// envFleet tells a process where to get its orders.
const envFleet = "EPL_BENCH_FLEET"

// fleet is processes that communicate with each other, ours or a peer's. Each has a connection to the benchmark, on which it
// first says its rank, and then gets orders: an operation, the bytes of the whole buffer, and how often. Before each time
// all wait for each other; each answers with the seconds of each time. Without orders they sleep.
type fleet struct {
	conns []*bufio.ReadWriter // by rank
	stop  func()
}

// fleets are those that run, by name; all have the same number of processes.
var fleets = struct {
	workers int
	running map[string]*fleet
}{running: map[string]*fleet{}}

// stopFleets ends all processes that were started.
func stopFleets() {
	for _, f := range fleets.running {
		f.stop()
	}
	clear(fleets.running)
}

// theFleet returns the fleet of a name, which start starts given an address for orders.
func theFleet(name string, workers int, start func(address string) ([]*exec.Cmd, error)) (*fleet, error) {
	return fleetAt("127.0.0.1", name, workers, start)
}

// fleetAt is theFleet whose orders come from an address.
func fleetAt(host, name string, workers int, start func(address string) ([]*exec.Cmd, error)) (*fleet, error) {
	if fleets.workers != workers {
		stopFleets()
		fleets.workers = workers
	}
	if f, ok := fleets.running[name]; ok {
		return f, nil
	}
	f, err := newFleet(host, workers, start)
	if err != nil {
		if _, ok := err.(missing); ok {
			return nil, err
		}
		return nil, fmt.Errorf("%s does not start: %w", name, err)
	}
	fleets.running[name] = f
	return f, nil
}

// bind lets a process run on a core of its own, as Open MPI does, if there are enough.
func bind(cmd *exec.Cmd, core, workers int) {
	if taskset, err := exec.LookPath("taskset"); err == nil && workers <= runtime.NumCPU() {
		cmd.Path, cmd.Args = taskset, append([]string{taskset, "-c", strconv.Itoa(core), cmd.Path}, cmd.Args[1:]...)
	}
}

func newFleet(host string, workers int, start func(address string) ([]*exec.Cmd, error)) (*fleet, error) {
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	commands, err := start(l.Addr().String())
	if err != nil {
		return nil, err
	}
	f := &fleet{conns: make([]*bufio.ReadWriter, workers)}
	var closers []net.Conn
	var started []*exec.Cmd
	f.stop = func() {
		for _, c := range closers {
			_ = c.Close() // no more orders
		}
		for _, cmd := range started {
			_ = cmd.Wait()
		}
	}
	for i, cmd := range commands {
		if len(commands) == workers {
			bind(cmd, i, workers)
		}
		cmd.Env = append(cmd.Environ(), envFleet+"="+l.Addr().String())
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		started = append(started, cmd)
	}
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
	for range workers {
		conn, err := l.Accept()
		if err != nil {
			f.stop()
			return nil, err
		}
		closers = append(closers, conn)
		rw := bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
		line, err := rw.ReadString('\n')
		if err != nil {
			f.stop()
			return nil, err
		}
		rank, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || rank < 0 || rank >= workers || f.conns[rank] != nil {
			f.stop()
			return nil, fmt.Errorf("a process says that it is rank %q of %d", line, workers)
		}
		f.conns[rank] = rw
	}
	return f, nil
}

// measure lets all processes do an operation some times, and returns how long it takes: the median of the slowest rank's.
func (f *fleet) measure(op string, bytes, repeats int) (time.Duration, error) {
	for _, c := range f.conns {
		fmt.Fprintf(c, "%s %d %d\n", op, bytes, repeats)
		if err := c.Flush(); err != nil {
			return 0, err
		}
	}
	slowest := make([]float64, repeats)
	var problem error
	for rank, c := range f.conns {
		line, err := c.ReadString('\n')
		if err != nil {
			return 0, fmt.Errorf("rank %d is gone: %w", rank, err)
		}
		if why, ok := strings.CutPrefix(line, "cannot "); ok {
			problem = missing(strings.TrimSpace(why))
			continue
		}
		times := strings.Fields(line)
		if len(times) != repeats {
			return 0, fmt.Errorf("rank %d answers %q to %d times %s", rank, line, repeats, op)
		}
		for i, t := range times {
			s, err := strconv.ParseFloat(t, 64)
			if err != nil {
				return 0, err
			}
			slowest[i] = max(slowest[i], s)
		}
	}
	if problem != nil {
		return 0, problem
	}
	return time.Duration(median(slowest) * float64(time.Second)), nil
}

// obey gets orders until there are no more, in a process of a fleet.
func obey(rank int, do func(op string, bytes, repeats int) ([]time.Duration, error)) error {
	conn, err := net.Dial("tcp", os.Getenv(envFleet))
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintln(conn, rank)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var op string
		var bytes, repeats int
		if _, err := fmt.Sscan(lines.Text(), &op, &bytes, &repeats); err != nil {
			return err
		}
		times, err := do(op, bytes, repeats)
		if err != nil {
			return err
		}
		answer := slices.Collect(func(yield func(string) bool) {
			for _, t := range times {
				if !yield(fmt.Sprintf("%.9f", t.Seconds())) {
					return
				}
			}
		})
		fmt.Fprintln(conn, strings.Join(answer, " "))
	}
	return nil
}
