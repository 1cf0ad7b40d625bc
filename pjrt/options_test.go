// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

func TestClientOptionsReachThePlugin(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{})
	no := false
	client := fake.Client(t, pjrt.ClientOptions{Allocator: "bfc", MemoryFraction: 0.25, Preallocate: &no, CollectiveMemory: 1 << 20, VisibleDevices: []int64{1, 0},
		Other: map[string]any{"enable_mock_nccl": true, "mock_gpu_topology": "1x2x2", "count": 3, "empty": "", "none": []int64{}}})
	closing(t, client)
	want := map[string]any{"allocator": "bfc", "memory_fraction": float32(0.25), "preallocate": false, "collective_memory_size": int64(1 << 20), "visible_devices": []int64{1, 0},
		"enable_mock_nccl": true, "mock_gpu_topology": "1x2x2", "count": int64(3), "empty": "", "none": []int64(nil)}
	if got := fake.ClientOptions(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

func TestBadClientOptionsAreRefused(t *testing.T) {
	plugin := pjrttest.New(t, pjrttest.Options{}).Load(t)
	for want, o := range map[string]pjrt.ClientOptions{
		`no allocator "slab"; there are default, platform, bfc, cuda_async, vmm`: {Allocator: "slab"},
		"a memory fraction of 1.5":                {MemoryFraction: 1.5},
		"4 processes needs a key-value store":     {NumProcesses: 4},
		"no process 2 of 2":                       {NumProcesses: 2, ProcessIndex: 2, Store: newStore()},
		"option x is a uint8; options are string": {Other: map[string]any{"x": byte(1)}},
	} {
		if _, err := plugin.NewClient(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
}

func TestOptionsFromEnvAreThoseOfJAX(t *testing.T) {
	set := func(values map[string]string) {
		for _, name := range []string{"XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB"} {
			t.Setenv(name, values[name])
		}
	}
	set(nil)
	if o, err := pjrt.OptionsFromEnv(); err != nil || !reflect.DeepEqual(o, pjrt.ClientOptions{}) {
		t.Error(o, err)
	}
	set(map[string]string{"XLA_PYTHON_CLIENT_ALLOCATOR": "Platform", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".5", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB": "3"})
	if o, err := pjrt.OptionsFromEnv(); err != nil || o.Allocator != "platform" || o.MemoryFraction != 0.5 || o.Preallocate == nil || *o.Preallocate || o.CollectiveMemory != 3<<20 {
		t.Error(o, err)
	}
	for name, value := range map[string]string{"XLA_PYTHON_CLIENT_ALLOCATOR": "x", "XLA_CLIENT_MEM_FRACTION": "much", "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB": "1e3"} {
		set(map[string]string{name: value})
		if _, err := pjrt.OptionsFromEnv(); err == nil || !strings.Contains(err.Error(), value) {
			t.Error(name, err)
		}
	}
}

// store is a key-value store in memory.
type store struct {
	mu      sync.Mutex
	values  map[string][]byte
	changed chan struct{}
	broken  error
}

func newStore() *store { return &store{values: map[string][]byte{}, changed: make(chan struct{})} }

func (s *store) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		s.mu.Lock()
		value, ok, changed, err := s.values[key], s.values[key] != nil, s.changed, s.broken
		s.mu.Unlock()
		if ok || err != nil {
			return value, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *store) TryGet(key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value, ok := s.values[key]; ok {
		return value, nil
	}
	return nil, &pjrt.Error{Code: pjrt.NotFound, Message: "there is no " + key}
}

func (s *store) Put(key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = value
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

func TestOneClientOverSeveralProcesses(t *testing.T) {
	plugin := pjrttest.New(t, pjrttest.Options{Devices: 2}).Load(t)
	shared := newStore()
	clients := make([]*pjrt.Client, 3)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			var err error
			if clients[i], err = plugin.NewClient(t.Context(), pjrt.ClientOptions{NumProcesses: len(clients), ProcessIndex: i, Store: shared}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	if got := slices.Sorted(maps.Keys(shared.values)); !slices.Equal(got, []string{"topology/0", "topology/1", "topology/2"}) {
		t.Error(got)
	}
	for i, c := range clients {
		local := c.AddressableDevices()
		if len(c.Devices()) != 6 || len(local) != 2 || c.ProcessIndex() != i || local[1].ID != 2*i+1 || local[1].LocalID != 1 || local[0].Process != i {
			t.Errorf("%+v", local)
		}
		if far := c.Devices()[(2*i+2)%6]; far.Addressable || far.DefaultMemory != nil || far.LocalID != -1 {
			t.Errorf("%+v", far)
		} else if _, err := far.DefaultMemory.FromHost(floats(1), pjrt.F32); err == nil || !strings.Contains(err.Error(), "other processes") {
			t.Error(err)
		}
	}

	// A buffer travels from process 2 to process 0, in both orders.
	from, to := clients[2].AddressableDevices()[0], clients[0].AddressableDevices()[1]
	toOfSender, fromOfReceiver := clients[2].Devices()[to.ID], clients[0].Devices()[from.ID]
	for key := range int64(2) {
		b := must[*pjrt.Buffer](t)(from.DefaultMemory.FromHost(floats(1, 2, float32(key)), pjrt.F32, 3))
		var sent *pjrt.Event
		if key == 0 {
			sent = must[*pjrt.Event](t)(b.Send(toOfSender, key))
		}
		got := must[*pjrt.Buffer](t)(to.Receive(fromOfReceiver, key, pjrt.F32, 3))
		if key == 1 {
			sent = must[*pjrt.Event](t)(b.Send(toOfSender, key))
		}
		if err := pjrt.Finish(t.Context(), sent); err != nil {
			t.Error(err)
		}
		if x := read(t, got); !slices.Equal(x, []float32{1, 2, float32(key)}) {
			t.Error(x)
		}
		closing(t, b, got)
	}
	if !plugin.CrossHost() {
		t.Error("the plugin can copy between processes")
	}
	for _, c := range clients {
		closing(t, c)
	}
}

func TestAStoreThatFails(t *testing.T) {
	plugin := pjrttest.New(t, pjrttest.Options{}).Load(t)
	options := func(s pjrt.KeyValueStore, timeout int) pjrt.ClientOptions {
		return pjrt.ClientOptions{NumProcesses: 2, Store: s, Other: map[string]any{"timeout": timeout}}
	}
	code := func(err error) pjrt.Code {
		var failed *pjrt.Error
		errors.As(err, &failed)
		return failed.Code
	}
	_, err := plugin.NewClient(t.Context(), options(newStore(), 10)) // process 1 never comes
	if code(err) != pjrt.DeadlineExceeded {
		t.Error(err)
	}
	broken := newStore()
	broken.broken = errors.New("rank 1 is gone")
	if _, err := plugin.NewClient(t.Context(), options(broken, 60_000)); code(err) != pjrt.Internal && err != nil || !strings.Contains(err.Error(), "rank 1 is gone") {
		t.Error(err)
	}
	broken = newStore()
	broken.broken = &pjrt.Error{Code: pjrt.Unavailable, Message: "rank 1 is gone"}
	if _, err := plugin.NewClient(t.Context(), options(broken, -1)); code(err) != pjrt.Unavailable {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("the job ended"))
	defer cancel()
	if _, err := plugin.NewClient(ctx, options(newStore(), -1)); err == nil || !strings.Contains(err.Error(), `waiting for the key "topology/1": the job ended`) {
		t.Error(err)
	}
}

// Whatever flags a program is compiled with, the plugin reads those.
func FuzzCompileOptions(f *testing.F) {
	f.Add(1, 1, false, false, "xla_gpu_enable_triton_gemm", "", int64(0), 0.5, true)
	f.Add(3, 2, true, false, "", "x\x00é", int64(-1), -1.5, false)
	f.Add(0, 0, false, true, "a", "b", int64(1)<<62, 0.0, true)
	fake := pjrttest.New(f, pjrttest.Options{Devices: 64})
	fake.Program("add one", addOne)
	client := fake.Client(f, pjrt.ClientOptions{})
	f.Fuzz(func(t *testing.T, replicas, partitions int, shardy, gspmd bool, name, text string, number int64, fraction float64, yes bool) {
		replicas, partitions = (replicas%8+8)%8, (partitions%8+8)%8
		r, p := max(replicas, 1), max(partitions, 1)
		devices := make([]int, r*p)
		for i := range devices {
			devices[i] = (i*7 + 3) % 64
		}
		if fraction != fraction {
			fraction = 0
		}
		flags := map[string]any{name: text, name + "1": number, name + "2": fraction, name + "3": yes}
		x := must[*pjrt.Executable](t)(client.Compile([]byte("add one"), pjrt.CompileOptions{Replicas: replicas, Partitions: partitions, Devices: devices, Shardy: shardy, GSPMD: gspmd, Flags: flags}))
		defer closing(t, x)
		want := pjrttest.CompileOptions{Replicas: r, Partitions: p, Devices: devices, SPMD: shardy || gspmd, Shardy: shardy, Flags: flags}
		if got := fake.CompileOptions(); !reflect.DeepEqual(got, want) {
			t.Errorf("the plugin read %+v, not %+v", got, want)
		}
	})
}

func TestAClientWithoutAGPUSaysSo(t *testing.T) {
	if gpus, _ := filepath.Glob("/dev/nvidia*"); len(gpus) > 0 {
		t.Skip("there is a GPU")
	}
	fake := pjrttest.New(t, pjrttest.Options{})
	plugin := must[*pjrt.Plugin](t)(pjrt.FromAPI("/lib/xla_cuda_plugin.so", fake.API()))
	fake.Fail("PJRT_Client_Create", pjrt.Internal, "no CUDA-capable device is detected")
	_, err := plugin.NewClient(t.Context(), pjrt.ClientOptions{})
	var failed *pjrt.Error
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "no NVIDIA GPU") {
		t.Error(err)
	}
	closing(t, plugin)
}
