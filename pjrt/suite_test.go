// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/pjrttest"
	"github.com/easyparallel/epl/pjrt/profile"
)

// The programs of the suite, as StableHLO for a real plugin and as functions for the fake.
const (
	addProgram = `module @add {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %one = stablehlo.constant dense<1.0> : tensor<4xf32>
    %0 = stablehlo.add %x, %one : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}`
	// A step of momentum: both variables are donated.
	stepProgram = `module @step {
  func.func public @main(%p: tensor<64x32xf32> {tf.aliasing_output = 0 : i32}, %m: tensor<64x32xf32> {tf.aliasing_output = 1 : i32}, %g: tensor<64x32xf32>) -> (tensor<64x32xf32>, tensor<64x32xf32>) {
    %c = stablehlo.constant dense<0.5> : tensor<64x32xf32>
    %0 = stablehlo.multiply %c, %m : tensor<64x32xf32>
    %1 = stablehlo.add %0, %g : tensor<64x32xf32>
    %2 = stablehlo.subtract %p, %1 : tensor<64x32xf32>
    return %2, %1 : tensor<64x32xf32>, tensor<64x32xf32>
  }
}`
	transposeProgram = `module @transpose {
  func.func public @main(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
    %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    return %0 : tensor<3x2xf32>
  }
}`
	hostProgram = `module @host {
  func.func public @main(%x: tensor<64x64xf32> {mhlo.memory_kind = "pinned_host"}) -> tensor<64x64xf32> {
    %0 = stablehlo.custom_call @annotate_device_placement(%x) {has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %1 = stablehlo.add %0, %0 : tensor<64x64xf32>
    return %1 : tensor<64x64xf32>
  }
}`
)

const stepBytes = 64 * 32 * 4

// suitePrograms teaches the fake the programs.
func suitePrograms(fake *pjrttest.Fake) {
	elementwise := func(f func(x []float32, i int) float32, dims ...int64) pjrttest.Program {
		return pjrttest.Program{Outputs: []pjrt.Output{{Type: pjrt.F32, Dims: dims, MemoryKind: "device"}}, Run: func(_ int, args [][]byte) ([][]byte, error) {
			x := toFloats(args[0])
			y := make([]float32, len(x))
			for i := range y {
				y[i] = f(x, i)
			}
			return [][]byte{floats(y...)}, nil
		}}
	}
	fake.Program(addProgram, elementwise(func(x []float32, i int) float32 { return x[i] + 1 }, 4))
	fake.Program(transposeProgram, elementwise(func(x []float32, i int) float32 { return x[i%2*3+i/2] }, 3, 2))
	fake.Program(hostProgram, elementwise(func(x []float32, i int) float32 { return 2 * x[i] }, 64, 64))
	variable := pjrt.Output{Type: pjrt.F32, Dims: []int64{64, 32}, MemoryKind: "device"}
	fake.Program(stepProgram, pjrttest.Program{Outputs: []pjrt.Output{variable, variable}, Donates: []int{0, 1},
		Memory: pjrt.CompiledMemory{Peak: 3 * stepBytes, Arguments: 3 * stepBytes, Outputs: 2 * stepBytes, Aliased: 2 * stepBytes},
		Run: func(_ int, args [][]byte) ([][]byte, error) {
			p, m, g := toFloats(args[0]), toFloats(args[1]), toFloats(args[2])
			for i := range p {
				m[i] = 0.5*m[i] + g[i]
				p[i] -= m[i]
			}
			return [][]byte{floats(p...), floats(m...)}, nil
		}})
}

func TestSuiteOnTheFake(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{})
	suitePrograms(fake)
	suite(t, fake.Load(t), pjrt.ClientOptions{})
}

// profiled is a program of two products, a hyperbolic tangent with an addition, and a sum of rows. Operations have numbers.
const profiled = `module @m_probe attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<4096x4096xf32>, %w: tensor<4096x4096xf32>) -> (tensor<4096x4096xf32>, tensor<4096xf32>) {
    %a = "stablehlo.dot_general"(%x, %w) {dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>} : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32> loc("0")
    %b = "stablehlo.tanh"(%a) : (tensor<4096x4096xf32>) -> tensor<4096x4096xf32> loc("1")
    %c = "stablehlo.add"(%b, %x) : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32> loc("2")
    %z = "stablehlo.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32> loc("3")
    %d = "stablehlo.reduce"(%c, %z) ({
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        %r = "stablehlo.add"(%p, %q) : (tensor<f32>, tensor<f32>) -> tensor<f32> loc("4")
        "stablehlo.return"(%r) : (tensor<f32>) -> ()
    }) {dimensions = array<i64: 1>} : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32> loc("4")
    %e = "stablehlo.dot_general"(%c, %w) {dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>} : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32> loc("5")
    return %e, %d : tensor<4096x4096xf32>, tensor<4096xf32>
  }
}
`

// It runs where there is a plugin and a GPU. EPL_PJRT_PLUGIN names another plugin than "cuda", or its path.
func TestSuiteOnARealPlugin(t *testing.T) {
	plugin := realPlugin(t)
	major, minor := plugin.Version()
	t.Logf("%s, API %d.%d, %v", plugin.Path(), major, minor, plugin.Attributes())
	options := realOptions(t, 0.2) // several clients live at once
	suite(t, plugin, options)
	t.Run("out of memory", func(t *testing.T) {
		client := newClient(t, plugin, options)
		b, err := client.AddressableDevices()[0].DefaultMemory.Uninitialized(pjrt.U8, 1<<42)
		if err == nil {
			ready, err2 := b.ReadyEvent()
			if err = err2; err == nil {
				err = pjrt.Finish(t.Context(), ready)
			}
			closing(t, b)
		}
		var failed *pjrt.Error
		if !errors.As(err, &failed) || failed.Code != pjrt.ResourceExhausted {
			t.Error("4 TiB:", err)
		}
		add := must[*pjrt.Executable](t)(client.Compile([]byte(addProgram), pjrt.CompileOptions{}))
		checkAdd(t, add) // the client is still usable
		closing(t, add)
	})
	t.Run("profiler", func(t *testing.T) {
		client := newClient(t, plugin, options)
		x := must[*pjrt.Executable](t)(client.Compile([]byte(profiled), pjrt.CompileOptions{Flags: map[string]any{"xla_gpu_enable_command_buffer": ""}}))
		defer closing(t, x)
		program, format, err := x.OptimizedProgram()
		if err != nil {
			t.Fatal(err)
		}
		instructions := must[map[string]*profile.Instruction](t)(profile.Module(program, format))
		matrix := must[*pjrt.Buffer](t)(client.AddressableDevices()[0].DefaultMemory.FromHost(make([]byte, 4096*4096*4), pjrt.F32, 4096, 4096))
		defer closing(t, matrix)
		collector := must[*pjrt.Profiler](t)(plugin.Profile([]byte{3 << 3, 1, 5 << 3, 1, 6 << 3, 2})) // of version 1, of GPUs
		begun := time.Now()
		outs, done, err := x.Execute([][]*pjrt.Buffer{{matrix, matrix}}, pjrt.ExecuteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := pjrt.Finish(t.Context(), done...); err != nil {
			t.Fatal(err)
		}
		ended := time.Now()
		for _, b := range outs[0] {
			closing(t, b)
		}
		kernels := must[[]profile.Kernel](t)(profile.Kernels(must[[]byte](t)(collector.Stop())))
		places := map[string]bool{}
		for _, k := range kernels {
			i := instructions[k.Op]
			if i == nil || k.Module != x.Name() || k.Start.Before(begun) || k.Start.Add(k.Took).After(ended) {
				t.Errorf("%+v is no kernel of the program, or not between %s and %s", k, begun, ended)
				continue
			}
			for _, part := range append(i.Parts, i) {
				places[part.Location] = true
			}
		}
		for _, at := range []string{"0", "1", "2", "4", "5"} {
			if !places[at] {
				t.Errorf("no kernel is for operation %s", at)
			}
		}
	})
	t.Run("mock NCCL", func(t *testing.T) {
		mock := options
		mock.Other = map[string]any{"enable_mock_nccl": true, "num_nodes": 4}
		client := newClient(t, plugin, mock)
		x := must[*pjrt.Executable](t)(client.Compile(allReduce(4), pjrt.CompileOptions{Replicas: 4, Devices: []int{0, 1, 2, 3}, Flags: map[string]any{"xla_gpu_shard_autotuning": false}}))
		if len(client.Devices()) != 4 || len(x.Devices()) != 1 {
			t.Errorf("%d devices, of which the program runs on %d here", len(client.Devices()), len(x.Devices()))
		}
		closing(t, x)
	})
}

func realPlugin(t testing.TB) *pjrt.Plugin {
	t.Helper()
	name := os.Getenv("EPL_PJRT_PLUGIN")
	if name == "" {
		name = "cuda"
	}
	path, err := pjrt.Find(name)
	if err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		t.Skip(first)
	}
	if gpus, _ := filepath.Glob("/dev/nvidia*"); name == "cuda" && len(gpus) == 0 {
		t.Skip("there is a plugin, but no GPU")
	}
	plugin := must[*pjrt.Plugin](t)(pjrt.Load(path))
	t.Cleanup(func() { closing(t, plugin) })
	return plugin
}

func realOptions(t testing.TB, fraction float32) pjrt.ClientOptions {
	t.Helper()
	options := must[pjrt.ClientOptions](t)(pjrt.OptionsFromEnv())
	if no := false; options.Preallocate == nil {
		options.Preallocate = &no
	}
	if options.MemoryFraction == 0 {
		options.MemoryFraction = fraction
	}
	return options
}

// newClient makes a client that the test closes: what is still open then fails it.
func newClient(t testing.TB, plugin *pjrt.Plugin, options pjrt.ClientOptions) *pjrt.Client {
	t.Helper()
	client := must[*pjrt.Client](t)(plugin.NewClient(t.Context(), options))
	t.Cleanup(func() { closing(t, client) })
	return client
}

// run executes a program of one device, waits for it and returns its outputs.
func run(t testing.TB, x *pjrt.Executable, args ...*pjrt.Buffer) []*pjrt.Buffer {
	t.Helper()
	outs, done, err := x.Execute([][]*pjrt.Buffer{args}, pjrt.ExecuteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pjrt.Finish(context.Background(), done...); err != nil {
		t.Fatal(err)
	}
	return outs[0]
}

// checkAdd runs addProgram.
func checkAdd(t testing.TB, add *pjrt.Executable) {
	t.Helper()
	x := must[*pjrt.Buffer](t)(add.Devices()[0].DefaultMemory.FromHost(floats(1, 2, 3, 4), pjrt.F32, 4))
	y := run(t, add, x)
	if got := read(t, y[0]); !slices.Equal(got, []float32{2, 3, 4, 5}) {
		t.Error(got)
	}
	closing(t, x, y[0])
}

// suite is what every plugin must do.
func suite(t *testing.T, plugin *pjrt.Plugin, options pjrt.ClientOptions) {
	t.Run("a program", func(t *testing.T) {
		client := newClient(t, plugin, options)
		d := client.AddressableDevices()[0]
		t.Logf("%s (%s), %d devices, the first %s with %d memories", client.Platform(), client.PlatformVersion(), len(client.Devices()), d.Kind, len(d.Memories))
		add := must[*pjrt.Executable](t)(client.Compile([]byte(addProgram), pjrt.CompileOptions{Devices: []int{d.ID}}))
		if outputs := must[[]pjrt.Output](t)(add.Outputs()); len(outputs) != 1 || outputs[0].Type != pjrt.F32 || !slices.Equal(outputs[0].Dims, []int64{4}) || outputs[0].MemoryKind != d.DefaultMemory.Kind {
			t.Errorf("%+v", outputs)
		}
		checkAdd(t, add)
		if code, format, err := add.OptimizedProgram(); err != nil || len(code) == 0 {
			t.Error(format, err)
		}
		closing(t, add)
	})
	t.Run("arrays are row by row on the host", func(t *testing.T) {
		client := newClient(t, plugin, options)
		transpose := must[*pjrt.Executable](t)(client.Compile([]byte(transposeProgram), pjrt.CompileOptions{}))
		x := must[*pjrt.Buffer](t)(client.AddressableDevices()[0].DefaultMemory.FromHost(floats(1, 2, 3, 4, 5, 6), pjrt.F32, 2, 3))
		if got := read(t, x); !slices.Equal(got, []float32{1, 2, 3, 4, 5, 6}) {
			t.Error(got)
		}
		y := run(t, transpose, x)
		if got := read(t, y[0]); !slices.Equal(got, []float32{1, 4, 2, 5, 3, 6}) {
			t.Error(got)
		}
		closing(t, transpose, x, y[0])
	})
	t.Run("1000 donated steps", func(t *testing.T) { donatedSteps(t, newClient(t, plugin, options)) })
	t.Run("clients one after another", func(t *testing.T) {
		for range 3 {
			client := must[*pjrt.Client](t)(plugin.NewClient(t.Context(), options))
			add := must[*pjrt.Executable](t)(client.Compile([]byte(addProgram), pjrt.CompileOptions{}))
			checkAdd(t, add)
			closing(t, add, client)
		}
	})
	t.Run("clients at once", func(t *testing.T) {
		for range 3 {
			client := newClient(t, plugin, options)
			add := must[*pjrt.Executable](t)(client.Compile([]byte(addProgram), pjrt.CompileOptions{}))
			defer closing(t, add)
			checkAdd(t, add)
		}
	})
	t.Run("1000 executions under garbage collection", func(t *testing.T) { underCollection(t, newClient(t, plugin, options)) })
	t.Run("a serialized program", func(t *testing.T) {
		client := newClient(t, plugin, options)
		add := must[*pjrt.Executable](t)(client.Compile([]byte(addProgram), pjrt.CompileOptions{}))
		text := must[[]byte](t)(add.Serialize())
		closing(t, add)
		for range 2 {
			again := must[*pjrt.Executable](t)(client.Deserialize(text))
			checkAdd(t, again)
			closing(t, again)
		}
	})
	t.Run("memory of the host", func(t *testing.T) { hostMemory(t, newClient(t, plugin, options)) })
	t.Run("errors", func(t *testing.T) {
		client := newClient(t, plugin, options)
		_, err := client.Compile([]byte("nonsense"), pjrt.CompileOptions{})
		var failed *pjrt.Error
		if !errors.As(err, &failed) || failed.Func != "PJRT_Client_Compile" || failed.Message == "" {
			t.Error(err)
		}
		add := must[*pjrt.Executable](t)(client.Compile([]byte(addProgram), pjrt.CompileOptions{}))
		if err := client.Close(); !errors.Is(err, pjrt.ErrStillOpen) {
			t.Error(err)
		}
		closing(t, add)
	})
	t.Run("events", func(t *testing.T) {
		client := newClient(t, plugin, options)
		add := must[*pjrt.Executable](t)(client.Compile([]byte(addProgram), pjrt.CompileOptions{}))
		x := must[*pjrt.Buffer](t)(client.AddressableDevices()[0].DefaultMemory.FromHost(floats(1, 2, 3, 4), pjrt.F32, 4))
		for range 20 {
			outs, done, err := add.Execute([][]*pjrt.Buffer{{x}}, pjrt.ExecuteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			called := make(chan error, 1)
			if err := done[0].OnReady(func(err error) { called <- err }); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-called:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("OnReady was not called")
			}
			if ready := must[bool](t)(done[0].Ready()); !ready {
				t.Error("it is not ready")
			}
			closing(t, outs[0][0], done[0])
		}
		closing(t, add, x)
	})
	t.Run("a corrupt serialized program", func(t *testing.T) { // last: it is the likeliest to end the process
		client := newClient(t, plugin, options)
		add := must[*pjrt.Executable](t)(client.Compile([]byte(addProgram), pjrt.CompileOptions{}))
		text := must[[]byte](t)(add.Serialize())
		for name, corrupt := range map[string][]byte{"nonsense": []byte("nonsense"), "half of it": text[:len(text)/2]} {
			if x, err := client.Deserialize(corrupt); err == nil {
				t.Error(name, "was loaded")
				closing(t, x)
			}
		}
		checkAdd(t, add)
		closing(t, add)
	})
}

// donatedSteps trains: the variables keep their memory, and no memory is lost.
func donatedSteps(t *testing.T, client *pjrt.Client) {
	device := client.AddressableDevices()[0]
	step := must[*pjrt.Executable](t)(client.Compile([]byte(stepProgram), pjrt.CompileOptions{}))
	if m := must[pjrt.CompiledMemory](t)(step.Memory()); m.Arguments != 3*stepBytes || m.Aliased != 2*stepBytes || m.Peak <= 0 {
		t.Errorf("%+v", m)
	}
	array := func(x float32) *pjrt.Buffer {
		return must[*pjrt.Buffer](t)(device.DefaultMemory.FromHost(slices.Repeat(floats(x), 64*32), pjrt.F32, 64, 32))
	}
	p, m, g := array(0), array(0), array(1.0/1024)
	inUse := func() int64 { return must[pjrt.MemoryStats](t)(device.MemoryStats()).InUse }
	before := must[uintptr](t)(p.Address())
	var start int64
	for i := range 1000 {
		outs, done, err := step.Execute([][]*pjrt.Buffer{{p, m, g}}, pjrt.ExecuteOptions{NoEvents: i%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if !must[bool](t)(p.Donated()) || !must[bool](t)(m.Donated()) || must[bool](t)(g.Donated()) {
				t.Error("the variables were not donated, or the gradient was")
			}
			if _, _, err := step.Execute([][]*pjrt.Buffer{{p, m, g}}, pjrt.ExecuteOptions{}); err == nil {
				t.Error("a donated argument was taken")
			}
		}
		closing(t, p, m)
		p, m = outs[0][0], outs[0][1]
		if err := pjrt.Finish(context.Background(), done...); err != nil {
			t.Fatal(err)
		}
		if i == 9 {
			start = inUse()
		}
	}
	// The momentum tends to 2 g: p = -Σ (2 - 2^-k) g, over k from 0 to 999.
	if got := read(t, p)[64*32-1]; got < -1.9512 || got > -1.9511 {
		t.Error("after 1000 steps:", got)
	}
	if after := must[uintptr](t)(p.Address()); after != before {
		t.Errorf("the variable moved from %#x to %#x", before, after)
	}
	if end := inUse(); end > start {
		t.Errorf("the device's memory grew from %d to %d bytes", start, end)
	}

	// A kept argument survives.
	outs, done, err := step.Execute([][]*pjrt.Buffer{{p, m, g}}, pjrt.ExecuteOptions{Keep: []int{0, 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := pjrt.Finish(context.Background(), done...); err != nil {
		t.Error(err)
	}
	if must[bool](t)(p.Donated()) || read(t, p)[0] == read(t, outs[0][0])[0] {
		t.Error("the variable was not kept")
	}
	closing(t, outs[0][0], outs[0][1], p, m, g, step)
}

// underCollection executes in several goroutines while the garbage collector runs all the time.
func underCollection(t *testing.T, client *pjrt.Client) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	memory := client.AddressableDevices()[0].DefaultMemory
	add := must[*pjrt.Executable](t)(client.Compile([]byte(addProgram), pjrt.CompileOptions{}))
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
	for w := range 8 {
		workers.Go(func() {
			for i := range 125 {
				x, copied, err := memory.FromHostAsync(floats(float32(w), float32(i), 0, 0), pjrt.F32, 4)
				if err != nil {
					t.Error(err)
					return
				}
				outs, done, err := add.Execute([][]*pjrt.Buffer{{x}}, pjrt.ExecuteOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				closing(t, x)
				host := make([]byte, 16)
				back, err := outs[0][0].ToHost(host)
				if err != nil {
					t.Error(err)
					return
				}
				if err := pjrt.Finish(t.Context(), copied, done[0], back); err != nil {
					t.Error(err)
				}
				if got := toFloats(host); got[0] != float32(w+1) || got[1] != float32(i+1) || got[3] != 1 {
					t.Error(w, i, got)
				}
				closing(t, outs[0][0])
			}
		})
	}
	workers.Wait()
	close(stop)
	collector.Wait()
	closing(t, add)
}

// hostMemory copies to pinned memory and back, and computes from there.
func hostMemory(t *testing.T, client *pjrt.Client) {
	device := client.AddressableDevices()[0]
	pinned, err := device.Memory("pinned_host")
	if err != nil {
		t.Skip(err)
	}
	data := make([]float32, 64*64)
	for i := range data {
		data[i] = float32(i)
	}
	x := must[*pjrt.Buffer](t)(device.DefaultMemory.FromHost(floats(data...), pjrt.F32, 64, 64))
	onHost := must[*pjrt.Buffer](t)(x.CopyToMemory(pinned))
	direct := must[*pjrt.Buffer](t)(pinned.FromHost(floats(data...), pjrt.F32, 64, 64))
	back := must[*pjrt.Buffer](t)(onHost.CopyToMemory(device.DefaultMemory))
	double := must[*pjrt.Executable](t)(client.Compile([]byte(hostProgram), pjrt.CompileOptions{}))
	y := run(t, double, onHost)
	for name, b := range map[string]*pjrt.Buffer{"copied": onHost, "direct": direct, "and back": back} {
		if got := read(t, b); !slices.Equal(got, data) {
			t.Error(name, got[:4])
		}
	}
	if m := must[*pjrt.Memory](t)(onHost.Memory()); m.Kind != "pinned_host" || m.Device() != device {
		t.Errorf("%+v", m)
	}
	if got := read(t, y[0]); got[64*64-1] != 2*(64*64-1) {
		t.Error(got[64*64-1])
	}
	mapped := make([]byte, 1<<20)
	mapping := must[*pjrt.HostMapping](t)(client.MapHost(mapped))
	z, copied, err := device.DefaultMemory.FromHostAsync(mapped, pjrt.U8, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := pjrt.Finish(t.Context(), copied); err != nil {
		t.Error(err)
	}
	closing(t, z, mapping, y[0], double, back, direct, onHost, x)
}

// BenchmarkExecute measures a tiny program on a real plugin: enqueued only, and waited for.
func BenchmarkExecute(b *testing.B) {
	plugin := realPlugin(b)
	client := newClient(b, plugin, realOptions(b, 0.2))
	add := must[*pjrt.Executable](b)(client.Compile([]byte(addProgram), pjrt.CompileOptions{}))
	defer closing(b, add)
	x := must[*pjrt.Buffer](b)(client.AddressableDevices()[0].DefaultMemory.FromHost(floats(1, 2, 3, 4), pjrt.F32, 4))
	defer closing(b, x)
	b.Run("enqueued", func(b *testing.B) {
		for b.Loop() {
			outs, _, err := add.Execute([][]*pjrt.Buffer{{x}}, pjrt.ExecuteOptions{NoEvents: true})
			if err != nil {
				b.Fatal(err)
			}
			closing(b, outs[0][0])
		}
	})
	b.Run("awaited", func(b *testing.B) {
		for b.Loop() {
			closing(b, run(b, add, x)[0])
		}
	})
}
