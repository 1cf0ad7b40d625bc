// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/pjrttest"
	"github.com/easyparallel/epl/worker"
)

// The tests of this file start workers, which are processes of their own: TestWorkerOfAGroup.
const (
	envGroup = "EPLTEST_GROUP" // "where they meet, which this is, of how many, what it does"
	envFake  = "EPLTEST_FAKE"  // it runs on the fake plugin
)

// group runs a job of several workers on one GPU, or on the fake, and returns what each says.
func group(t *testing.T, workers int, does string, env ...string) (outputs []string) {
	t.Helper()
	url := "file://" + filepath.Join(t.TempDir(), "job")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	outputs = make([]string, workers)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			cmd := osexec.CommandContext(ctx, os.Args[0], "-test.run=^TestWorkerOfAGroup$", "-test.v")
			// NCCL refuses two ranks on a GPU, unless it takes them for ones of different hosts.
			cmd.Env = append(os.Environ(), fmt.Sprintf("NCCL_HOSTID=host-%d", i), "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_SOCKET_IFNAME=lo", "NCCL_NET=Socket",
				"XLA_PYTHON_CLIENT_MEM_FRACTION=0.2", "XLA_PYTHON_CLIENT_PREALLOCATE=false", fmt.Sprintf("%s=%s %d %d %s", envGroup, url, i, workers, does))
			cmd.Env = append(cmd.Env, env...)
			out, err := cmd.CombinedOutput()
			outputs[i] = fmt.Sprintf("%s\n%v", out[max(0, len(out)-4000):], err)
		})
	}
	all.Wait()
	return outputs
}

// plugin is the real one, if there is one.
func plugin(t *testing.T) string {
	t.Helper()
	path, err := pjrt.Find("cuda")
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		t.Skip(first)
	}
	if gpus, _ := filepath.Glob("/dev/nvidia*"); len(gpus) == 0 {
		t.Skip("there is a plugin, but no GPU")
	}
	return path
}

func TestWorkersReduceOnTheFake(t *testing.T)       { mustReduce(t, 3, envFake+"=1") }
func TestWorkersReduceOnARealPlugin(t *testing.T)   { plugin(t); mustReduce(t, 2) }
func TestALostWorkerIsNamedOnTheFake(t *testing.T)  { mustName(t, envFake+"=1") }
func TestALostWorkerIsNamedOnARealGPU(t *testing.T) { plugin(t); mustName(t) }

func mustReduce(t *testing.T, workers int, env ...string) {
	t.Helper()
	for i, out := range group(t, workers, "reduces", env...) {
		if !strings.Contains(out, "--- PASS: TestWorkerOfAGroup") {
			t.Errorf("worker %d: %s", i, out)
		}
	}
}

// The last worker dies. What the GPU of the first does with it never ends, but the wait for it does.
func mustName(t *testing.T, env ...string) {
	t.Helper()
	out := group(t, 2, "dies", env...)[0]
	for _, words := range []string{"the error is", "worker 1 (", "is gone", "closed\n"} {
		if !strings.Contains(out, words) {
			t.Errorf("worker 0 does not say %q: %s", words, out)
		}
	}
}

// TestWorkerOfAGroup is one worker of a job. Its GPU and those of the others reduce a value.
func TestWorkerOfAGroup(t *testing.T) {
	var url, does string
	var me, workers int
	if _, err := fmt.Sscan(os.Getenv(envGroup), &url, &me, &workers, &does); err != nil {
		t.Skip("other tests start it")
	}
	var p *pjrt.Plugin
	var fake *pjrttest.Fake
	var err error
	if os.Getenv(envFake) != "" {
		fake = pjrttest.New(t, pjrttest.Options{})
		p = fake.Load(t)
	} else if p, err = pjrt.Load(plugin(t)); err != nil {
		t.Fatal(err)
	}
	peers, leave := joinGroup(t, url, me, workers)
	_, o, err := Parse("")
	if err != nil {
		t.Fatal(err)
	}
	o.Opening = exec.Opening{Workers: slices.Repeat([]int{1}, workers), Worker: me, Peers: peers}
	devices, err := Devices(p, o)
	if err != nil {
		t.Fatal(err)
	}
	d := devices[0]
	text := allReduce(workers)
	if fake != nil {
		fake.Program(text, fakeReduce(peers, me, workers))
	}
	reduce := func(turn int) (float32, error) {
		var ids []int
		for _, gpu := range d.Ranks() {
			ids = append(ids, gpu.ID)
		}
		m, err := d.client.Client.Compile([]byte(text), pjrt.CompileOptions{Replicas: workers, Devices: ids})
		if err != nil {
			return 0, err
		}
		defer d.client.free(m)
		shape := shapes.Make(dtypes.Float32, 1)
		in, err := d.BufferFromFlatData(0, []float32{float32(turn + me)}, shape)
		if err != nil {
			return 0, err
		}
		defer in.Finalize()
		var outs [][]*pjrt.Buffer
		if err := d.client.call("start all_reduce", func() (err error) {
			outs, _, err = m.Execute([][]*pjrt.Buffer{{in.(*buffer).data}}, pjrt.ExecuteOptions{NoEvents: true})
			return err
		}); err != nil {
			return 0, err
		}
		out := &buffer{device: d, data: outs[0][0], shape: shape, of: "all_reduce", by: d}
		defer out.Finalize()
		got := make([]float32, 1)
		err = out.ToFlatData(got)
		return got[0], err
	}
	for turn := range 3 {
		if got, err := reduce(turn); err != nil {
			t.Fatal(err)
		} else if want := float32(workers*turn + workers*(workers-1)/2); got != want {
			t.Errorf("the sum is %v, not %v", got, want)
		}
	}
	if does == "dies" && me == workers-1 {
		os.Exit(1)
	}
	if does == "dies" {
		if fake != nil {
			fake.Leave()
		}
		_, err := reduce(3)
		fmt.Printf("the error is %v\n", err)
	} else if err := leave(); err != nil {
		t.Error(err)
	}
	d.Finalize()
	fmt.Println("closed")
	if does == "dies" {
		os.Exit(0) // as a program does then
	}
}

// joinGroup makes this process a worker of a job.
func joinGroup(t *testing.T, url string, me, workers int) (exec.Peers, func() error) {
	t.Helper()
	cfg, err := config.New(map[string]any{"communication.timeout": "1m"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(cluster.Spec{Devices: slices.Repeat([]int{1}, workers), WorkerIndex: me})
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{worker.EnvURL: url}
	j, err := worker.Join(worker.Options{Cluster: c, Config: cfg, Lookup: func(name string) (string, bool) { value, found := env[name]; return value, found }})
	if err != nil {
		t.Fatal(err)
	}
	return j.Peers(), j.Leave
}

// allReduce is a program of n replicas.
func allReduce(n int) string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	return fmt.Sprintf(`module @all_reduce attributes {mhlo.num_replicas = %d : i32, mhlo.num_partitions = 1 : i32} {
  func.func public @main(%%x: tensor<1xf32>) -> tensor<1xf32> {
    %%0 = "stablehlo.all_reduce"(%%x) ({
      ^bb0(%%a: tensor<f32>, %%b: tensor<f32>):
        %%s = stablehlo.add %%a, %%b : tensor<f32>
        stablehlo.return %%s : tensor<f32>
    }) {replica_groups = dense<[[%s]]> : tensor<1x%dxi64>} : (tensor<1xf32>) -> tensor<1xf32>
    return %%0 : tensor<1xf32>
  }
}`, n, strings.Join(ids, ", "), n)
}

// fakeReduce is the same on the fake: workers exchange their values by what the client exchanges addresses by.
func fakeReduce(peers exec.Peers, me, workers int) pjrttest.Program {
	turn := 0
	return pjrttest.Program{Outputs: []pjrt.Output{{Type: pjrt.F32, Dims: []int64{1}, MemoryKind: "device"}}, Run: func(_ int, args [][]byte) ([][]byte, error) {
		turn++
		if err := peers.Put(fmt.Sprint("sum ", turn, " ", me), args[0]); err != nil {
			return nil, err
		}
		sum := float32(0)
		for i := range workers {
			value, err := peers.Get(context.Background(), fmt.Sprint("sum ", turn, " ", i))
			if err != nil {
				select {} // as a GPU does
			}
			sum += math.Float32frombits(binary.LittleEndian.Uint32(value))
		}
		return [][]byte{binary.LittleEndian.AppendUint32(nil, math.Float32bits(sum))}, nil
	}}
}
