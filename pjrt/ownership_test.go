// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt_test

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

func TestAClientNamesWhatIsStillOpen(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{})
	fake.Program("add one", addOne)
	client := fake.Client(t, pjrt.ClientOptions{})
	x := must[*pjrt.Executable](t)(client.Compile([]byte("add one"), pjrt.CompileOptions{}))
	b := must[*pjrt.Buffer](t)(client.Devices()[0].DefaultMemory.FromHost(floats(1, 2, 3), pjrt.F32, 3))
	outs, done, err := x.Execute([][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := "pjrt: the client cannot be closed: 2 buffers, 1 event, 1 executable (event of execution of add one, buffer F32[3], buffer F32[3], executable add one): objects are still open"
	if err := client.Close(); !errors.Is(err, pjrt.ErrStillOpen) || err.Error() != want {
		t.Error(err)
	}
	closing(t, outs[0][0], done[0], b, x)

	var many []*pjrt.Buffer
	for range 20 {
		many = append(many, must[*pjrt.Buffer](t)(client.Devices()[0].DefaultMemory.FromHost(floats(1), pjrt.F32)))
	}
	if err := client.Close(); err == nil || !strings.Contains(err.Error(), "20 buffers (buffer F32[], ") || strings.Count(err.Error(), "F32") != 8 || !strings.Contains(err.Error(), ", …)") {
		t.Error(err)
	}
	for _, b := range many {
		closing(t, b)
	}
}

func TestClosedObjectsReturnErrors(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{})
	fake.Program("add one", addOne)
	client := fake.Client(t, pjrt.ClientOptions{})
	memory := client.Devices()[0].DefaultMemory
	x := must[*pjrt.Executable](t)(client.Compile([]byte("add one"), pjrt.CompileOptions{}))
	b := must[*pjrt.Buffer](t)(memory.FromHost(floats(1, 2, 3), pjrt.F32, 3))
	e := must[*pjrt.Event](t)(b.ReadyEvent())
	closing(t, b, b, e, e) // the second does nothing
	check := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, pjrt.ErrClosed) || !strings.Contains(err.Error(), what) {
			t.Error(err)
		}
	}
	_, err := b.Dims()
	check("this buffer cannot be used: it is closed", err)
	_, err = b.ToHost(make([]byte, 12))
	check("buffer", err)
	_, err = b.CopyToMemory(memory)
	check("buffer", err)
	_, _, err = x.Execute([][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{})
	check("argument 0 of the program add one: pjrt: this buffer", err)
	check("event", e.Wait(t.Context()))
	check("event", e.OnReady(func(error) {}))
	_, err = e.Ready()
	check("event", err)
	closing(t, x)
	_, err = x.Serialize()
	check("executable", err)
	_, _, err = x.Execute(nil, pjrt.ExecuteOptions{})
	check("executable", err)
	closing(t, client)
	_, err = client.Compile([]byte("add one"), pjrt.CompileOptions{})
	check("client", err)
	_, err = memory.FromHost(floats(1), pjrt.F32)
	check("client", err)
	_, err = client.Devices()[0].MemoryStats()
	check("client", err)
	var nothing pjrt.Buffer
	_, err = nothing.Dims()
	check("object", err)
	closing(t, &nothing, client)
}

func TestWrongArgumentsAreRefusedBeforeC(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{})
	fake.Program("add one", addOne)
	plugin := fake.Load(t)
	client := must[*pjrt.Client](t)(plugin.NewClient(t.Context(), pjrt.ClientOptions{}))
	other := must[*pjrt.Client](t)(plugin.NewClient(t.Context(), pjrt.ClientOptions{}))
	memory := client.Devices()[0].DefaultMemory
	x := must[*pjrt.Executable](t)(client.Compile([]byte("add one"), pjrt.CompileOptions{}))
	b := must[*pjrt.Buffer](t)(memory.FromHost(floats(1, 2, 3), pjrt.F32, 3))
	foreign := must[*pjrt.Buffer](t)(other.Devices()[0].DefaultMemory.FromHost(floats(1, 2, 3), pjrt.F32, 3))
	refused := func(want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
	_, err := memory.FromHost(floats(1, 2), pjrt.F32, 3)
	refused("F32[3] takes 12 bytes on the host, not 8", err)
	_, err = memory.FromHost(nil, pjrt.F32, 1<<40, 1<<40)
	refused("no arrays of dims", err)
	_, err = memory.FromHost(nil, pjrt.F32, -1)
	refused("no arrays of dims", err)
	_, err = memory.FromHost(nil, pjrt.Type(23))
	refused("no arrays of TOKEN", err)
	_, err = b.ToHost(make([]byte, 11))
	refused("takes 12 bytes on the host, not 11", err)
	_, err = client.Compile(nil, pjrt.CompileOptions{})
	refused("empty", err)
	_, err = client.Deserialize(nil)
	refused("empty", err)
	_, err = client.MapHost(nil)
	refused("no memory", err)
	_, err = client.Compile([]byte("nonsense"), pjrt.CompileOptions{})
	refused(`PJRT_Client_Compile: INVALID_ARGUMENT: cannot parse the program "nonsense"`, err)
	_, err = client.Compile([]byte("add one"), pjrt.CompileOptions{Replicas: 2, Devices: []int{0}})
	refused("2 replicas and 1 partitions runs on 2 devices, not 1", err)
	_, err = client.Compile([]byte("add one"), pjrt.CompileOptions{Flags: map[string]any{"x": 1i}})
	refused("XLA flag x is a complex128", err)
	_, _, err = x.Execute(nil, pjrt.ExecuteOptions{})
	refused("runs on 1 devices of this process, but has arguments for 0", err)
	_, _, err = x.Execute([][]*pjrt.Buffer{{nil}}, pjrt.ExecuteOptions{})
	refused("argument 0 of the program add one", err)
	_, _, err = x.Execute([][]*pjrt.Buffer{{foreign}}, pjrt.ExecuteOptions{})
	refused("different clients", err)
	_, err = foreign.CopyToMemory(memory)
	refused("different clients", err)
	_, err = foreign.CopyToDevice(memory.Device())
	refused("different clients", err)
	_, err = foreign.Send(memory.Device(), 1)
	refused("different clients", err)
	_, err = memory.Device().Receive(other.Devices()[0], 1, pjrt.F32)
	refused("different clients", err)
	closing(t, x, b, foreign, client, other)
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{})
	fake.Program("add one", addOne)
	client := fake.Client(t, pjrt.ClientOptions{})
	x := must[*pjrt.Executable](t)(client.Compile([]byte("add one"), pjrt.CompileOptions{}))
	b := must[*pjrt.Buffer](t)(client.Devices()[0].DefaultMemory.FromHost(floats(1, 2, 3), pjrt.F32, 3))
	fake.Hold()
	outs, done, err := x.Execute([][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ready := must[bool](t)(done[0].Ready()); ready {
		t.Error("it is ready before it ran")
	}
	gone := errors.New("rank 3 is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for range 3 {
		if err := done[0].Wait(ctx); !errors.Is(err, gone) {
			t.Error(err)
		}
	}
	called := make(chan error, 1)
	if err := done[0].OnReady(func(err error) { called <- err }); err != nil {
		t.Error(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- done[0].Wait(t.Context()) }()
	closing(t, b, x) // while it runs
	fake.Release()
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if err := <-called; err != nil {
		t.Error(err)
	}
	if err := pjrt.Finish(t.Context(), done...); err != nil {
		t.Error(err)
	}
	if got := read(t, outs[0][0]); got[2] != 4 {
		t.Error(got)
	}
	closing(t, outs[0][0])
}

func TestErrorsOfDevicesComeWithEvents(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{})
	fake.Program("fail", pjrttest.Program{Outputs: addOne.Outputs, Run: func(int, [][]byte) ([][]byte, error) { return nil, errors.New("it melted") }})
	client := fake.Client(t, pjrt.ClientOptions{})
	x := must[*pjrt.Executable](t)(client.Compile([]byte("fail"), pjrt.CompileOptions{}))
	outs, done, err := x.Execute([][]*pjrt.Buffer{{}}, pjrt.ExecuteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		var failed *pjrt.Error
		if !errors.As(err, &failed) || failed.Code != pjrt.Internal || failed.Message != "it melted" {
			t.Error(err)
		}
	}
	called := make(chan error, 1)
	if err := done[0].OnReady(func(err error) { called <- err }); err != nil {
		t.Error(err)
	}
	check(<-called)
	check(done[0].Wait(t.Context()))
	check(pjrt.Finish(context.Background(), done...))
	back := must[*pjrt.Event](t)(outs[0][0].ToHost(make([]byte, 12)))
	check(pjrt.Finish(t.Context(), back))
	closing(t, outs[0][0], x)
}

// What C reads and writes after a call has returned stays where it is, although Go has forgotten it and needs memory.
func TestMemoryOfCopiesUnderWayIsNotCollected(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{})
	client := fake.Client(t, pjrt.ClientOptions{})
	memory := client.Devices()[0].DefaultMemory
	fake.Hold()
	const n = 64
	var buffers []*pjrt.Buffer
	var events []*pjrt.Event
	for i := range n {
		data := slices.Repeat(floats(float32(i)), 1000)
		b, done, err := memory.FromHostAsync(data, pjrt.F32, 1000)
		if err != nil {
			t.Fatal(err)
		}
		buffers, events = append(buffers, b), append(events, done)
	}
	for range 3 {
		runtime.GC()
		for range 200 {
			_ = slices.Repeat(floats(-1), 1000) // takes what was freed
		}
	}
	closing(t, events[0]) // C still reads its memory
	if err := client.Close(); err == nil || !strings.Contains(err.Error(), "event of copy from the host") {
		t.Error(err)
	}
	fake.Release()
	if err := pjrt.Finish(t.Context(), events[1:]...); err != nil {
		t.Error(err)
	}
	fake.Hold()
	results := make([][]byte, n)
	events = events[:0]
	for i, b := range buffers {
		results[i] = make([]byte, 4000)
		events = append(events, must[*pjrt.Event](t)(b.ToHost(results[i])))
	}
	dropped := must[*pjrt.Event](t)(buffers[0].ToHost(make([]byte, 4000))) // nobody has its memory
	closing(t, dropped)
	runtime.GC()
	fake.Release()
	if err := pjrt.Finish(t.Context(), events...); err != nil {
		t.Error(err)
	}
	for i, b := range buffers {
		if got := toFloats(results[i]); got[0] != float32(i) || got[999] != float32(i) {
			t.Errorf("buffer %d is %g … %g", i, got[0], got[999])
		}
		closing(t, b)
	}
	for client.NumOpen() > 0 { // the events that were closed early
		time.Sleep(time.Millisecond)
	}
}

// Goroutines execute, copy, wait and close at once, while the garbage collector runs all the time.
func TestConcurrentUseUnderGarbageCollection(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	fake := pjrttest.New(t, pjrttest.Options{})
	fake.Program("add one", addOne)
	client := fake.Client(t, pjrt.ClientOptions{})
	x := must[*pjrt.Executable](t)(client.Compile([]byte("add one"), pjrt.CompileOptions{}))
	stop := make(chan struct{})
	var collector, workers sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	for w := range 4 {
		workers.Go(func() {
			b, err := client.Devices()[0].DefaultMemory.FromHost(floats(float32(w), 0, 0), pjrt.F32, 3)
			if err != nil {
				t.Error(err)
				return
			}
			for range 100 {
				outs, done, err := x.Execute([][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				closing(t, b)
				if err := pjrt.Finish(t.Context(), done...); err != nil {
					t.Error(err)
				}
				b = outs[0][0]
			}
			if got := read(t, b); got[0] != float32(w+100) {
				t.Error(w, got)
			}
			closing(t, b)
		})
	}
	workers.Wait()
	close(stop)
	collector.Wait()
	closing(t, x)
}

// Close in one goroutine and use in others never free an object twice or under a call.
func TestCloseWhileOthersUseTheObject(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{})
	client := fake.Client(t, pjrt.ClientOptions{})
	for range 100 {
		b := must[*pjrt.Buffer](t)(client.Devices()[0].DefaultMemory.FromHost(floats(1), pjrt.F32))
		var users sync.WaitGroup
		for range 4 {
			users.Go(func() {
				for {
					if _, err := b.Dims(); err != nil {
						if !errors.Is(err, pjrt.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		closing(t, b)
		users.Wait()
	}
	if client.NumOpen() != 0 {
		t.Error(client.NumOpen())
	}
}

func TestClientsOpenedOneAfterAnotherAndAtOnce(t *testing.T) {
	plugin := pjrttest.New(t, pjrttest.Options{}).Load(t)
	for range 3 {
		closing(t, must[*pjrt.Client](t)(plugin.NewClient(t.Context(), pjrt.ClientOptions{})))
	}
	var all []*pjrt.Client
	for range 3 {
		all = append(all, must[*pjrt.Client](t)(plugin.NewClient(t.Context(), pjrt.ClientOptions{})))
	}
	for _, c := range all {
		closing(t, c)
	}
}

func TestCloseAllClosesWhatIsOpen(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{})
	c, err := f.Load(t).NewClient(t.Context(), pjrt.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Devices()[0].DefaultMemory.FromHost(make([]byte, 8), pjrt.F32, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CloseAll(); err != nil {
		t.Errorf("%v", err)
	}
	if _, err := b.ToHost(make([]byte, 8)); !errors.Is(err, pjrt.ErrClosed) {
		t.Errorf("a buffer of a closed client: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}
