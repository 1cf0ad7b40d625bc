// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrt_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/internal/capi"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// floats are the bytes of float32s.
func floats(x ...float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func toFloats(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}

// must returns the value of a call that may not fail.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// closing closes what a test has opened.
func closing(t testing.TB, objects ...interface{ Close() error }) {
	t.Helper()
	for _, o := range objects {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

func pinnedMemory(t testing.TB, d *pjrt.Device) *pjrt.Memory {
	t.Helper()
	return must[*pjrt.Memory](t)(d.Memory("pinned_host"))
}

// read returns the elements of a buffer.
func read(t testing.TB, b *pjrt.Buffer) []float32 {
	t.Helper()
	n := int64(4)
	for _, d := range must[[]int64](t)(b.Dims()) {
		n *= d
	}
	host := make([]byte, n)
	if err := pjrt.Finish(t.Context(), must[*pjrt.Event](t)(b.ToHost(host))); err != nil {
		t.Fatal(err)
	}
	return toFloats(host)
}

// addOne is a program that adds 1 to its argument, whose memory the output takes.
var addOne = pjrttest.Program{
	Outputs: []pjrt.Output{{Type: pjrt.F32, Dims: []int64{3}, MemoryKind: "device"}},
	Donates: []int{0},
	Memory:  pjrt.CompiledMemory{Peak: 24, Arguments: 12, Outputs: 12, Aliased: 12, Temporary: 5, Code: 7, HostArguments: 1, HostOutputs: 2, HostAliased: 3, HostTemporary: 4},
	Run: func(_ int, args [][]byte) ([][]byte, error) {
		x := toFloats(args[0])
		for i := range x {
			x[i]++
		}
		return [][]byte{floats(x...)}, nil
	},
}

func TestAChainOfDonatedSteps(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{})
	fake.Program("add one", addOne)
	client := fake.Client(t, pjrt.ClientOptions{})
	x := must[*pjrt.Executable](t)(client.Compile([]byte("add one"), pjrt.CompileOptions{}))
	defer closing(t, x)
	b := must[*pjrt.Buffer](t)(client.Devices()[0].DefaultMemory.FromHost(floats(1, 2, 3), pjrt.F32, 3))
	for range 100 {
		outs, done, err := x.Execute([][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := x.Execute([][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{}); err == nil || !strings.Contains(err.Error(), "donated") {
			t.Error("a donated argument was taken:", err)
		}
		if donated := must[bool](t)(b.Donated()); !donated {
			t.Error("the argument was not donated")
		}
		closing(t, b)
		if err := pjrt.Finish(t.Context(), done...); err != nil {
			t.Error(err)
		}
		b = outs[0][0]
	}
	if got := read(t, b); !slices.Equal(got, []float32{101, 102, 103}) {
		t.Error(got)
	}
	closing(t, b)
}

func TestKeptArgumentsAreNotDonated(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{})
	fake.Program("add one", addOne)
	client := fake.Client(t, pjrt.ClientOptions{})
	x := must[*pjrt.Executable](t)(client.Compile([]byte("add one"), pjrt.CompileOptions{}))
	b := must[*pjrt.Buffer](t)(client.Devices()[0].DefaultMemory.FromHost(floats(1, 2, 3), pjrt.F32, 3))
	outs, done, err := x.Execute([][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{Keep: []int{0}, NoEvents: true, LaunchID: 3})
	if err != nil || len(done) != 0 {
		t.Fatal(done, err)
	}
	if got, kept := read(t, outs[0][0]), read(t, b); !slices.Equal(got, []float32{2, 3, 4}) || !slices.Equal(kept, []float32{1, 2, 3}) {
		t.Error(got, kept)
	}
	closing(t, outs[0][0], b, x)
}

func TestSeveralDevices(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{Devices: 4})
	fake.Program("number", pjrttest.Program{
		Outputs: []pjrt.Output{{Type: pjrt.F32, MemoryKind: "device"}, {Type: pjrt.F32, Dims: []int64{2, 1}, MemoryKind: "pinned_host"}},
		Run: func(device int, args [][]byte) ([][]byte, error) {
			return [][]byte{floats(float32(device) + toFloats(args[0])[0]), floats(1, 2)}, nil
		},
	})
	client := fake.Client(t, pjrt.ClientOptions{})
	devices := client.AddressableDevices()
	if len(devices) != 4 || devices[3].ID != 3 || devices[3].LocalID != 3 || devices[2].Kind != "Fake GPU" || devices[0].Attributes["core_count"] != int64(132) {
		t.Fatalf("%+v", devices)
	}
	options := pjrt.CompileOptions{Replicas: 2, Partitions: 2, Devices: []int{3, 2, 1, 0}, Shardy: true,
		Flags: map[string]any{"a": true, "b": false, "c": -3, "d": 0.5, "e": "x", "f": int64(1) << 40}}
	x := must[*pjrt.Executable](t)(client.Compile([]byte("number"), options))
	want := pjrttest.CompileOptions{Replicas: 2, Partitions: 2, Devices: []int{3, 2, 1, 0}, SPMD: true, Shardy: true,
		Flags: map[string]any{"a": true, "b": false, "c": int64(-3), "d": 0.5, "e": "x", "f": int64(1) << 40}}
	if got := fake.CompileOptions(); !reflect.DeepEqual(got, want) {
		t.Errorf("the plugin read %+v, not %+v", got, want)
	}
	if got := must[[]pjrt.Output](t)(x.Outputs()); !reflect.DeepEqual(got, []pjrt.Output{{Type: pjrt.F32, Dims: []int64{}, MemoryKind: "device"}, {Type: pjrt.F32, Dims: []int64{2, 1}, MemoryKind: "pinned_host"}}) {
		t.Errorf("%+v", got)
	}
	var args [][]*pjrt.Buffer
	for i, d := range x.Devices() {
		if d.ID != 3-i {
			t.Errorf("device %d is at position %d", d.ID, i)
		}
		args = append(args, []*pjrt.Buffer{must[*pjrt.Buffer](t)(d.DefaultMemory.FromHost(floats(10), pjrt.F32))})
	}
	outs, done, err := x.Execute(args, pjrt.ExecuteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pjrt.Finish(t.Context(), done...); err != nil || len(done) != 4 {
		t.Error(len(done), err)
	}
	for i, list := range outs {
		if got := read(t, list[0]); got[0] != float32(13-i) {
			t.Error(i, got)
		}
		m := must[*pjrt.Memory](t)(list[1].Memory())
		if m.Kind != "pinned_host" || m.Device().ID != 3-i || must[[]int64](t)(list[1].Dims())[0] != 2 || must[int64](t)(list[1].SizeOnDevice()) != 8 {
			t.Errorf("%+v", m)
		}
		closing(t, list[0], list[1], args[i][0])
	}
	closing(t, x)
}

func TestCopiesBetweenMemoriesAndDevices(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{Devices: 2})
	client := fake.Client(t, pjrt.ClientOptions{})
	first, second := client.Devices()[0], client.Devices()[1]
	b, done, err := first.DefaultMemory.FromHostAsync(floats(1, 2, 3, 4, 5, 6), pjrt.F32, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := pjrt.Finish(t.Context(), done); err != nil {
		t.Error(err)
	}
	host := must[*pjrt.Buffer](t)(b.CopyToMemory(pinnedMemory(t, first)))
	far := must[*pjrt.Buffer](t)(host.CopyToDevice(second))
	if got := read(t, far); !slices.Equal(got, []float32{1, 2, 3, 4, 5, 6}) {
		t.Error(got)
	}
	if m := must[*pjrt.Memory](t)(far.Memory()); m != second.DefaultMemory {
		t.Errorf("%+v", m)
	}
	ready := must[*pjrt.Event](t)(far.ReadyEvent())
	if err := ready.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	any := must[*pjrt.Buffer](t)(pinnedMemory(t, second).Uninitialized(pjrt.BF16, 4))
	if got := must[pjrt.Type](t)(any.Type()); got != pjrt.BF16 || got.String() != "BF16" {
		t.Error(got)
	}
	if a := must[uintptr](t)(far.Address()); a == 0 {
		t.Error("no address")
	}
	if stats := must[pjrt.MemoryStats](t)(second.MemoryStats()); stats.InUse != 24 || stats.Limit != 1<<30 || stats.PeakInUse < 24 || stats.Pool != -1 {
		t.Errorf("%+v", stats)
	}
	if _, err := first.Memory("paper"); err == nil || !strings.Contains(err.Error(), `device 0 has no memory of kind "paper"; its memories are ["device" "pinned_host"]`) {
		t.Error(err)
	}
	empty := must[*pjrt.Buffer](t)(first.DefaultMemory.FromHost(nil, pjrt.F32, 0))
	if got := read(t, empty); len(got) != 0 {
		t.Error(got)
	}
	mapping := must[*pjrt.HostMapping](t)(client.MapHost(make([]byte, 64)))
	if client.NumOpen() != 7 {
		t.Error(client.NumOpen())
	}
	closing(t, b, host, far, ready, any, empty, mapping)
	if client.NumOpen() != 0 {
		t.Error(client.NumOpen())
	}
}

func TestASerializedProgramIsTheSameProgram(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{})
	fake.Program("add one", addOne)
	client := fake.Client(t, pjrt.ClientOptions{})
	x := must[*pjrt.Executable](t)(client.Compile([]byte("add one"), pjrt.CompileOptions{}))
	if got := must[pjrt.CompiledMemory](t)(x.Memory()); got != addOne.Memory {
		t.Errorf("%+v", got)
	}
	code, format, err := x.OptimizedProgram()
	if err != nil || string(code) != "optimized: add one" || format != "hlo" {
		t.Errorf("%q %q %v", code, format, err)
	}
	text := must[[]byte](t)(x.Serialize())
	closing(t, x)
	y := must[*pjrt.Executable](t)(client.Deserialize(text))
	if y.Name() != "add one" || y.NumOutputs() != 1 {
		t.Error(y.Name(), y.NumOutputs())
	}
	closing(t, y)
	if _, err := client.Deserialize(text[1:]); err == nil {
		t.Error("a corrupt program was loaded")
	}
}

func TestThePluginDescribesItself(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{Minor: 115})
	p := fake.Load(t)
	want := map[string]any{"kind": "fake", "xla_version": int64(2), "stablehlo_current_version": []int64{1, 14, 0}, "share": float32(0.5), "works": true}
	if got := p.Attributes(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if major, minor := p.Version(); major != 0 || minor != 115 || p.Path() != "pjrttest" {
		t.Error(major, minor, p.Path())
	}
	client := must[*pjrt.Client](t)(p.NewClient(t.Context(), pjrt.ClientOptions{}))
	if client.Platform() != "fake" || client.PlatformVersion() != "fake 1" || client.ProcessIndex() != 0 {
		t.Error(client.Platform(), client.PlatformVersion(), client.ProcessIndex())
	}
	if err := p.Close(); !errors.Is(err, pjrt.ErrStillOpen) || !strings.Contains(err.Error(), "1 open client") {
		t.Error(err)
	}
	closing(t, client, p)
	if _, err := p.NewClient(t.Context(), pjrt.ClientOptions{}); !errors.Is(err, pjrt.ErrClosed) {
		t.Error(err)
	}
}

func TestUnsuitablePluginsAreRefusedByName(t *testing.T) {
	for _, test := range []struct {
		name    string
		options pjrttest.Options
		want    string
	}{
		{"old", pjrttest.Options{Minor: 54}, "the plugin old has PJRT API 0.54; EPL needs 0.72 or newer (it was written for 0.104): install a newer plugin"},
		{"new", pjrttest.Options{Major: 1, Minor: 3}, "the plugin new has PJRT API 1.3, which is newer than EPL knows (0.x): use an older plugin or a newer EPL"},
		{"lame", pjrttest.Options{Missing: []string{"PJRT_LoadedExecutable_Execute"}}, "the plugin lame has PJRT API 0.104 and lacks PJRT_LoadedExecutable_Execute"},
		{"short", pjrttest.Options{Minor: 80, ShorterBy: capi.NumFuncs - int(capi.BufferReadyEvent)}, "0.80 and lacks PJRT_Buffer_ReadyEvent"},
		{"empty", pjrttest.Options{ShorterBy: capi.NumFuncs}, "lacks PJRT_Error_Destroy"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := pjrt.FromAPI(test.name, pjrttest.New(t, test.options).API())
			var refused *pjrt.VersionError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := pjrt.FromAPI("none", 0); err == nil {
		t.Error("a plugin without functions was taken")
	}
	if _, err := pjrt.Load("/no/such/plugin.so"); err == nil || !strings.Contains(err.Error(), "/no/such/plugin.so") {
		t.Error(err)
	}
	if _, err := pjrt.Load("libc.so.6"); runtime.GOOS == "linux" && (err == nil || !strings.Contains(err.Error(), "GetPjrtApi")) {
		t.Error(err)
	}
}

func TestAMissingOptionalFunctionIsAnErrorOfItsMethod(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{Missing: []string{"PJRT_Client_DmaMap"}, NoCrossHost: true})
	client := fake.Client(t, pjrt.ClientOptions{})
	_, err := client.MapHost(make([]byte, 8))
	var missing *pjrt.Error
	if !errors.As(err, &missing) || missing.Code != pjrt.Unimplemented || missing.Func != "PJRT_Client_DmaMap" {
		t.Error(err)
	}
	d := client.Devices()[0]
	if _, err := d.Receive(d, 1, pjrt.F32); err == nil || !strings.Contains(err.Error(), "between processes") {
		t.Error(err)
	}
}

// Every function of C that the package calls may fail. The error names it, and nothing leaks.
func TestErrorsOfEveryFunctionAreReturned(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{Devices: 2})
	fake.Program("add one", addOne)
	plugin := fake.Load(t)
	everything := func() (err error) {
		client, err := plugin.NewClient(t.Context(), pjrt.ClientOptions{})
		if err != nil {
			return err
		}
		var open []interface{ Close() error }
		defer func() {
			for _, o := range append(open, client) {
				err = errors.Join(err, o.Close())
			}
		}()
		first, second := client.Devices()[0], client.Devices()[1]
		steps := []func() error{
			func() error { _, err := first.MemoryStats(); return err },
			func() error {
				m, err := client.MapHost(make([]byte, 8))
				if err == nil {
					open = append(open, m)
				}
				return err
			},
			func() error {
				x, err := client.Compile([]byte("add one"), pjrt.CompileOptions{})
				if err != nil {
					return err
				}
				open = append(open, x)
				if _, err := x.Memory(); err != nil {
					return err
				}
				if _, err := x.Outputs(); err != nil {
					return err
				}
				if _, _, err := x.OptimizedProgram(); err != nil {
					return err
				}
				text, err := x.Serialize()
				if err != nil {
					return err
				}
				y, err := client.Deserialize(text)
				if err != nil {
					return err
				}
				open = append(open, y)
				b, done, err := first.DefaultMemory.FromHostAsync(floats(1, 2, 3), pjrt.F32, 3)
				if err != nil {
					return err
				}
				open = append(open, b, done)
				if err := done.Wait(context.Background()); err != nil {
					return err
				}
				if _, err := done.Ready(); err != nil {
					return err
				}
				called := make(chan error, 1)
				if err := done.OnReady(func(err error) { called <- err }); err != nil {
					return err
				}
				if err := <-called; err != nil {
					return err
				}
				outs, events, err := x.Execute([][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{})
				if err != nil {
					return err
				}
				b = outs[0][0]
				open = append(open, b, events[0])
				host := make([]byte, 12)
				back, err := b.ToHost(host)
				if err != nil {
					return err
				}
				open = append(open, back)
				for _, ask := range []func() error{
					func() error { _, err := b.Type(); return err },
					func() error { _, err := b.Dims(); return err },
					func() error { _, err := b.SizeOnDevice(); return err },
					func() error { _, err := b.Memory(); return err },
					func() error { _, err := b.Donated(); return err },
					func() error { _, err := b.Address(); return err },
				} {
					if err := ask(); err != nil {
						return err
					}
				}
				for _, make := range []func() (*pjrt.Buffer, error){
					func() (*pjrt.Buffer, error) { return b.CopyToDevice(second) },
					func() (*pjrt.Buffer, error) { return b.CopyToMemory(pinnedMemory(t, first)) },
					func() (*pjrt.Buffer, error) { return first.DefaultMemory.Uninitialized(pjrt.F32, 2) },
					func() (*pjrt.Buffer, error) { return second.Receive(first, 7, pjrt.F32, 3) },
				} {
					b, err := make()
					if err != nil {
						return err
					}
					open = append(open, b)
				}
				sent, err := b.Send(second, 7)
				if err != nil {
					return err
				}
				open = append(open, sent)
				ready, err := b.ReadyEvent()
				if err != nil {
					return err
				}
				open = append(open, ready)
				return nil
			},
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := everything(); err != nil {
		t.Fatal(err)
	}
	for _, name := range fake.Called() {
		if strings.HasPrefix(name, "PJRT_Error_") || strings.HasPrefix(name, "PJRT_Plugin_") {
			continue
		}
		fake.Fail(name, pjrt.ResourceExhausted, "out of memory")
		err := everything()
		var failed *pjrt.Error
		if !errors.As(err, &failed) || failed.Code != pjrt.ResourceExhausted || failed.Func != name || failed.Message != "out of memory" {
			t.Errorf("%s failed: %v", name, err)
		}
		if want := "pjrt: " + name + ": RESOURCE_EXHAUSTED: out of memory"; err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not contain %q", err, want)
		}
	}
}
