// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomlx/compute/dtypes"
	"golang.org/x/sys/unix"

	"github.com/easyparallel/epl/bench/meeting"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/rendezvous"
)

// What a worker of ours is told, besides where the others are.
const (
	envWorker  = "EPL_BENCH_WORKER" // its index
	envWorkers = "EPL_BENCH_WORKERS"
	envPath    = "EPL_BENCH_PATH" // which way to communicate
)

func sharedMemory(workers int) (*fleet, error) { return ourFleet(workers, "shared-memory") }
func sharedArena(workers int) (*fleet, error)  { return ourFleet(workers, "shared-arena") }

// overTCP is without checksums: the peers have none.
func overTCP(workers int) (*fleet, error)    { return ourFleet(workers, "tcp") }
func checkedTCP(workers int) (*fleet, error) { return ourFleet(workers, "tcp-checked") }

// ourFleet is processes of this program.
func ourFleet(workers int, path string, environment ...string) (*fleet, error) {
	here := func(int) []string { return nil }
	return fleetOn("127.0.0.1", here, workers, path, environment...)
}

// fleetOn is processes of this program that meet at an address. Each is started by a command, which may be empty.
func fleetOn(host string, by func(worker int) []string, workers int, path string, environment ...string) (*fleet, error) {
	var met *meeting.Meeting
	f, err := fleetAt(host, path+" "+strings.Join(environment, " "), workers, func(string) ([]*exec.Cmd, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		if met, err = meeting.At(host, workers); err != nil {
			return nil, err
		}
		var commands []*exec.Cmd
		for i := range workers {
			command := append(by(i), self)
			cmd := exec.Command(command[0], command[1:]...)
			cmd.Env = slices.Concat(os.Environ(), []string{envPath + "=" + path, envWorkers + "=" + strconv.Itoa(workers),
				envWorker + "=" + strconv.Itoa(i), cluster.EnvWorkerIndex + "=" + strconv.Itoa(i)}, met.Address(), environment)
			if workers > runtime.NumCPU() { // as epl-launch does it
				cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
			}
			commands = append(commands, cmd)
		}
		return commands, nil
	})
	if met != nil && err == nil { // it was started now
		stop := f.stop
		f.stop = func() {
			stop()
			met.Close()
		}
	}
	return f, err
}

// beWorker does what a process of our fleet has to do.
func beWorker() error {
	index, err := strconv.Atoi(os.Getenv(envWorker))
	if err != nil {
		return err
	}
	workers, err := strconv.Atoi(os.Getenv(envWorkers))
	if err != nil {
		return err
	}
	path := os.Getenv(envPath)
	if path == trainPath || path == alonePath {
		return trainWorker(index, path)
	}
	switch path {
	case zeroPath:
		return zeroWorker(index)
	case splitPath:
		return splitWorker(index)
	case pipelinePath:
		return pipelineWorker(index)
	}
	job, _, err := rendezvous.FromEnvironment(os.LookupEnv)
	if err != nil {
		return err
	}
	job.Workers, job.Index = workers, index
	member, err := rendezvous.Join(context.Background(), job)
	if err != nil {
		return err
	}
	layout := comm.Layout{Worker: index}
	for i := range workers {
		host := "one"
		switch {
		case strings.HasPrefix(path, "tcp") || path == flatPath || strings.HasPrefix(path, limitedPath):
			host = strconv.Itoa(i)
		case path == hostsPath:
			host = strconv.Itoa(hostOf(i))
		}
		layout.Workers = append(layout.Workers, comm.Place{Ranks: 1, Host: host})
	}
	options := comm.Options{Unchecked: path == "tcp"}
	var connected comm.Mesh = mesh{member}
	if strings.HasPrefix(path, limitedPath) {
		connected, options.Unchecked = limitedMesh{mesh{member}}, true
	}
	if path == streamsPath {
		options.Streams = 4
	}
	world, err := comm.New(layout, connected, options)
	if err != nil {
		return err
	}
	end, err := world.All().Communicator(index, 0)
	if err != nil {
		return err
	}
	w := &commWorker{Communicator: end, world: world, arena: path == "shared-arena"}
	if err := obey(index, w.do); err != nil {
		return err
	}
	_ = world.Close()
	return member.Leave()
}

// mesh is a member whose workers are never busy.
type mesh struct{ *rendezvous.Member }

func (mesh) Busy(int) (string, time.Time) { return "", time.Time{} }

func (m mesh) Health(worker int) comm.Health {
	return comm.Health{Name: m.Workers()[worker].String(), Seen: m.State(worker).Seen, Hub: m.Heard()}
}

func (mesh) Waiting() (string, []int) { return "", nil }

// commWorker does collectives.
type commWorker struct {
	*comm.Communicator
	world *comm.World
	arena bool // buffers are in memory that the workers share
	a, b  []float32
	free  []func()
}

// buffers makes a and b have so many elements. They are written: pages that nobody wrote are all the same one, which is
// always in the cache.
func (w *commWorker) buffers(n int) error {
	if len(w.a) == n {
		return nil
	}
	for _, free := range w.free {
		free()
	}
	w.free = nil
	for _, p := range []*[]float32{&w.a, &w.b} {
		if err := w.allocate(p, n); err != nil {
			return err
		}
		for i := range *p {
			(*p)[i] = 1
		}
	}
	return nil
}

// allocate makes a buffer, in the arena if that is the path.
func (w *commWorker) allocate(p *[]float32, n int) error {
	if !w.arena {
		*p = make([]float32, n)
		return nil
	}
	flat, free, err := w.world.Alloc(dtypes.Float32, n)
	if err != nil {
		return err
	}
	*p = flat.([]float32)
	w.free = append(w.free, free)
	return nil
}

func (w *commWorker) do(op string, bytes, repeats int) ([]time.Duration, error) {
	if err := w.buffers(bytes / 4); err != nil {
		return nil, err
	}
	n := len(w.a) / w.Size()
	var a, b, partOfA, partOfB any = w.a, w.b, w.a[:n], w.b[:n] // as programs have them: a conversion for each call would allocate
	once := map[string]func() error{
		"all-reduce":     func() error { return w.AllReduce(a, comm.Sum) },
		"reduce-scatter": func() error { return w.ReduceScatter(a, partOfB, nil, comm.Sum) },
		"all-gather":     func() error { return w.AllGather(partOfA, b, nil) },
		"all-to-all":     func() error { return w.AllToAll(a, b, nil, nil) },
		"broadcast":      func() error { return w.Broadcast(a, 0) },
		"send-recv":      func() error { return w.pingPong(a, b) },
		"uneven-step":    w.unevenStep,
	}[op]
	if once == nil {
		return nil, fmt.Errorf("unknown operation %q", op)
	}
	keepBusy()
	var times []time.Duration
	for range repeats {
		if err := w.Barrier(); err != nil {
			return nil, err
		}
		start := time.Now()
		if err := once(); err != nil {
			return nil, err
		}
		d := time.Since(start)
		if op == "send-recv" {
			d /= 2 // there and back
		}
		times = append(times, d)
	}
	return times, nil
}

// keepBusy keeps the processor busy for 10 ms, which all peers do before what counts. A process of Go that has just slept is disturbed every 70
// microseconds for some milliseconds: its runtime looks for threads that block.
func keepBusy() {
	for start := time.Now(); time.Since(start) < 10*time.Millisecond; {
	}
}

// unevenStep computes for 1 ms on every second rank and for 2 ms on the others, in time of the processor, and then reduces. Who
// waits should leave the processor to who computes: 2 workers on 2 cores need 2 ms, 4 need 3.
func (w *commWorker) unevenStep() error {
	runtime.LockOSThread() // whose time is counted
	var start, now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &start)
	for now = start; now.Nano()-start.Nano() < int64(1+w.Position()%2)*int64(time.Millisecond); {
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
	}
	runtime.UnlockOSThread()
	return w.AllReduce(w.a, comm.Sum)
}

// pingPong sends a buffer from the first rank to the second, and back.
func (w *commWorker) pingPong(a, b any) error {
	switch w.Position() {
	case 0:
		if err := w.Send(a, 1, 0); err != nil {
			return err
		}
		return w.Recv(b, 1, 0)
	case 1:
		if err := w.Recv(b, 0, 0); err != nil {
			return err
		}
		return w.Send(a, 0, 0)
	}
	return nil
}
