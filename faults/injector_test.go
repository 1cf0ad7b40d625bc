// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// log is what was said, from any goroutine.
type log struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

// inject is the injector of a worker; each has one device. What it does to its process is in the log.
func inject(t *testing.T, worker, generation int, text string) (*Injector, *log) {
	t.Helper()
	all, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	said := &log{}
	i := New(In(all, generation), Job{Worker: worker, WorkerOf: func(r int) int { return r }, Log: said})
	if i != nil {
		i.die = func(s syscall.Signal) { said.WriteString("signal " + s.String() + "\n") }
	}
	return i, said
}

func TestAKillHappensAtItsStepOnItsWorkerInItsGeneration(t *testing.T) {
	for _, c := range []struct{ worker, generation, want int }{{1, 1, 3}, {0, 1, 0}, {1, 2, 0}} {
		i, said := inject(t, c.worker, c.generation, "kill:rank=1,step=3")
		fired := 0
		for step := 1; step <= 5; step++ {
			i.Step()
			if fired == 0 && said.Len() > 0 {
				fired = step
			}
		}
		if fired != c.want {
			t.Errorf("%+v: it happened at step %d", c, fired)
		}
		if want := "epl: fault on rank 1 (worker 1), step 3: the worker is killed [kill:rank=1,step=3]\nsignal killed\n"; fired > 0 && said.String() != want {
			t.Errorf("it says %q", said)
		}
	}
}

func TestWhatDidNotHappenIsToldAtTheEnd(t *testing.T) {
	i, said := inject(t, 0, 1, "kill:rank=0,step=9; disk-full:rank=0")
	i.Step()
	i.Save()
	if err := i.Write(func() {}); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	i.Close()
	if want := "epl: fault on rank 0 (worker 0), step 1, save 1: the disk is full [disk-full:rank=0,save=1]\n" +
		"epl: fault on rank 0 (worker 0) did not happen: the run had 1 step and 1 save [kill:rank=0,step=9]\n"; said.String() != want {
		t.Errorf("it says\n%s", said)
	}
}

func TestNothingHappensWithoutFaults(t *testing.T) {
	var i *Injector = New(nil, Job{})
	i.Step()
	i.Save()
	i.Close()
	c, _ := net.Pipe()
	defer c.Close()
	if i != nil || i.Slows() || i.Links() || i.Write(nil) != nil || i.Conn(c, 1) != c {
		t.Error("something does")
	}
}

// pipe is a connection from worker 0 to worker 1, at the first of whose ends faults happen, and what was read at the other.
func pipe(t *testing.T, i *Injector) (net.Conn, chan string) {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close() })
	got := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(far)
		got <- string(all)
	}()
	return i.Conn(near, 1), got
}

func TestABitOfWhatIsSentChangesOnce(t *testing.T) {
	i, said := inject(t, 0, 1, "corrupt:rank=0,to=1,step=2")
	c, got := pipe(t, i)
	text := []byte("weights ")
	for range 4 {
		i.Step()
		if _, err := c.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	if s := <-got; s != "weights weiglts weights weights " || string(text) != "weights " {
		t.Errorf("%q arrived; %q was sent", s, text)
	}
	if n := strings.Count(said.String(), "a bit of what it sends is changed"); n != 1 {
		t.Errorf("it says\n%s", said)
	}
}

func TestAConnectionIsCut(t *testing.T) {
	i, said := inject(t, 0, 1, "cut:rank=0,to=1,step=2")
	c, got := pipe(t, i)
	i.Step()
	if _, err := c.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	i.Step()
	if _, err := c.Write([]byte("b")); err == nil {
		t.Error("it is not cut")
	}
	if s := <-got; s != "a" {
		t.Errorf("%q arrived", s)
	}
	if !strings.Contains(said.String(), "step 2: the connection is cut") {
		t.Errorf("it says\n%s", said)
	}
}

func TestWhatIsSentIsDelayed(t *testing.T) {
	i, _ := inject(t, 0, 1, "delay:rank=0,to=1,time=20ms")
	c, got := pipe(t, i)
	i.Step()
	start := time.Now()
	if _, err := c.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	if time.Since(start) < 20*time.Millisecond {
		t.Error("it is not")
	}
	c.Close()
	if s := <-got; s != "a" {
		t.Errorf("%q arrived", s)
	}
}

func TestConnectionsToOthersAreAsTheyAre(t *testing.T) {
	i, _ := inject(t, 0, 1, "cut:rank=0,to=1; delay:rank=1,to=2,time=1s")
	c, _ := net.Pipe()
	defer c.Close()
	if i.Conn(c, 2) != c || !i.Links() {
		t.Error("they are not")
	}
}

func TestADeviceIsSlowFromItsStepOn(t *testing.T) {
	i, said := inject(t, 0, 1, "slow:rank=0,factor=3,step=2; slow:rank=1,factor=9")
	i.Step()
	first := i.Factor(0)
	i.Step()
	if second := i.Factor(0); first != 0 || second != 3 || !i.Slows() {
		t.Errorf("%v, then %v", first, second)
	}
	i.Factor(0)
	if n := strings.Count(said.String(), "\n"); n != 1 {
		t.Errorf("it says\n%s", said)
	}
}

func TestAWorkerIsKilledWhileItSaves(t *testing.T) {
	i, said := inject(t, 0, 1, "kill:rank=0,save=2")
	for range 2 {
		i.Step()
		i.Save()
		for range 2 {
			if err := i.Write(func() { said.WriteString("half is written\n") }); err != nil {
				t.Error(err)
			}
		}
	}
	if want := "half is written\nepl: fault on rank 0 (worker 0), step 2, save 2: the worker is killed while it saves [kill:rank=0,save=2]\nsignal killed\n"; !strings.HasPrefix(said.String(), want) {
		t.Errorf("it says\n%s", said)
	}
}

func TestABitOfAVariableChangesOnceAfterItsStep(t *testing.T) {
	i, said := inject(t, 1, 1, "flip:rank=1,step=2,variable=/w; flip:rank=0,step=1")
	for step := 1; step <= 3; step++ {
		i.Step()
		for range 2 {
			variable, changed, flips := i.Flip(1)
			if flips != (step == 2 && said.Len() == 0) {
				t.Errorf("step %d: %v", step, flips)
			}
			if flips {
				changed(variable)
			}
		}
	}
	if want := "epl: fault on rank 1 (worker 1), step 2: a bit of /w changes [flip:rank=1,step=2,variable=/w]\n"; said.String() != want || !i.Flips() {
		t.Errorf("it says\n%s", said)
	}
	if none, _ := inject(t, 2, 1, "flip:rank=1,step=2"); none.Flips() {
		t.Error("it flips what is another worker's")
	}
}
