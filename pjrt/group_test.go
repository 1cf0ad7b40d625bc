// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt_test

import (
	"context"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// allReduce is a program of n replicas.
func allReduce(n int) []byte {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	return fmt.Appendf(nil, `module @all_reduce attributes {mhlo.num_replicas = %d : i32, mhlo.num_partitions = 1 : i32} {
  func.func public @main(%%x: tensor<4xf32>) -> tensor<4xf32> {
    %%0 = "stablehlo.all_reduce"(%%x) ({
      ^bb0(%%a: tensor<f32>, %%b: tensor<f32>):
        %%s = stablehlo.add %%a, %%b : tensor<f32>
        stablehlo.return %%s : tensor<f32>
    }) {replica_groups = dense<[[%s]]> : tensor<1x%dxi64>} : (tensor<4xf32>) -> tensor<4xf32>
    return %%0 : tensor<4xf32>
  }
}`, n, strings.Join(ids, ", "), n)
}

// Stores serves a store to other processes.
type Stores struct{ store *store }

// Wait is a key, and how long to wait for it.
type Wait struct {
	Key     string
	Timeout time.Duration
}

// Pair is a key and its value.
type Pair struct {
	Key   string
	Value []byte
}

func (s *Stores) Get(w Wait, value *[]byte) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.Timeout)
	defer cancel()
	*value, err = s.store.Get(ctx, w.Key)
	return err
}

func (s *Stores) TryGet(key string, value *[]byte) (err error) {
	*value, err = s.store.TryGet(key)
	return err
}

func (s *Stores) Put(p Pair, _ *bool) error { return s.store.Put(p.Key, p.Value) }

// remote is a store of another process.
type remote struct{ to *rpc.Client }

func (r remote) Get(ctx context.Context, key string) ([]byte, error) {
	timeout := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		timeout = time.Until(deadline)
	}
	var value []byte
	call := r.to.Go("Stores.Get", Wait{key, timeout}, &value, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return value, call.Error
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r remote) TryGet(key string) (value []byte, err error) {
	if err := r.to.Call("Stores.TryGet", key, &value); err != nil {
		return nil, &pjrt.Error{Code: pjrt.NotFound, Message: err.Error()}
	}
	return value, nil
}

func (r remote) Put(key string, value []byte) error {
	return r.to.Call("Stores.Put", Pair{key, value}, nil)
}

// group runs TestMemberOfAGroup in several processes that share a store.
func group(t *testing.T, processes int, env ...string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	server := rpc.NewServer()
	if err := server.Register(&Stores{newStore()}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(conn)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for rank := range processes {
		all.Go(func() {
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestMemberOfAGroup$", "-test.v")
			// NCCL refuses two ranks on a GPU, unless it takes them for ones of different hosts.
			cmd.Env = append(os.Environ(), fmt.Sprintf("NCCL_HOSTID=host-%d", rank), "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_SOCKET_IFNAME=lo", "NCCL_NET=Socket",
				fmt.Sprintf("EPL_PJRT_GROUP=%s %d %d", listener.Addr(), rank, processes))
			cmd.Env = append(cmd.Env, env...)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "--- PASS: TestMemberOfAGroup") {
				t.Errorf("process %d: %v\n%s", rank, err, out[max(0, len(out)-4000):])
			}
		})
	}
	all.Wait()
}

func TestAGroupOfProcessesOnTheFake(t *testing.T) { group(t, 3, "EPL_PJRT_FAKE=1") }

// Processes on one GPU reduce and send by NCCL.
func TestAGroupOfProcessesOnARealPlugin(t *testing.T) {
	realPlugin(t)
	group(t, 2)
}

// TestMemberOfAGroup is one process of a group.
func TestMemberOfAGroup(t *testing.T) {
	var address string
	var rank, processes int
	if _, err := fmt.Sscan(os.Getenv("EPL_PJRT_GROUP"), &address, &rank, &processes); err != nil {
		t.Skip("the tests of groups start it")
	}
	to, err := rpc.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	shared := remote{to}
	fake := os.Getenv("EPL_PJRT_FAKE") != ""
	var plugin *pjrt.Plugin
	if fake {
		plugin = pjrttest.New(t, pjrttest.Options{}).Load(t)
	} else {
		plugin = realPlugin(t)
	}
	options := realOptions(t, 0.2)
	options.NumProcesses, options.ProcessIndex, options.Store = processes, rank, shared
	client := newClient(t, plugin, options)
	devices := client.Devices()
	if len(devices) != processes || len(client.AddressableDevices()) != 1 || client.AddressableDevices()[0] != devices[rank] || client.ProcessIndex() != rank {
		t.Fatalf("process %d of %d sees %d devices, of which it has %d", client.ProcessIndex(), processes, len(devices), len(client.AddressableDevices()))
	}
	if !fake {
		communicate(t, client, rank, processes)
	}
	// A process that ends early would take the others' connections along.
	if err := shared.Put(fmt.Sprint("done/", rank), []byte("yes")); err != nil {
		t.Error(err)
	}
	for i := range processes {
		if _, err := shared.Get(t.Context(), fmt.Sprint("done/", i)); err != nil {
			t.Error(err)
		}
	}
}

// communicate reduces over all processes and sends from the first to the last.
func communicate(t *testing.T, client *pjrt.Client, rank, processes int) {
	devices := client.Devices()
	all := make([]int, processes)
	for i := range all {
		all[i] = devices[i].ID
	}
	x := must[*pjrt.Executable](t)(client.Compile(allReduce(processes), pjrt.CompileOptions{Replicas: processes, Devices: all}))
	b := must[*pjrt.Buffer](t)(devices[rank].DefaultMemory.FromHost(floats(1, float32(rank), 0, 0), pjrt.F32, 4))
	sum := run(t, x, b)
	if got, want := read(t, sum[0]), []float32{float32(processes), float32(processes * (processes - 1) / 2), 0, 0}; !slices.Equal(got, want) {
		t.Errorf("the sum is %v, not %v", got, want)
	}
	closing(t, x, sum[0])
	if !client.Plugin().CrossHost() {
		t.Log("the plugin cannot send between processes")
	} else if last := processes - 1; rank == 0 {
		if err := pjrt.Finish(t.Context(), must[*pjrt.Event](t)(b.Send(devices[last], 7))); err != nil {
			t.Error(err)
		}
	} else if rank == last {
		got := must[*pjrt.Buffer](t)(devices[last].Receive(devices[0], 7, pjrt.F32, 4))
		if x := read(t, got); !slices.Equal(x, []float32{1, 0, 0, 0}) {
			t.Error(x)
		}
		closing(t, got)
	}
	closing(t, b)
}
