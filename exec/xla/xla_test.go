// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package xla_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/hlo"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// step is what a training step does with a variable: it is donated and comes back new, the data stay.
const step = `program "step"
main {
  %0 = Parameter() {Name: "w", Shape: float32[3]} -> float32[3] : forward
  %1 = Parameter() {Name: "x", Shape: float32[3]} -> float32[3] : forward
  %2 = Add(%0, %1) {} -> float32[3] : forward
  %3 = Mul(%1, %1) {} -> float32[3] : forward
  return %2, %3
}
`

func parse(t *testing.T, text string) *ir.Program {
	t.Helper()
	p, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func upload(t *testing.T, d compute.Backend, values ...float32) compute.Buffer {
	t.Helper()
	b, err := d.BufferFromFlatData(0, values, shapes.Make(dtypes.Float32, len(values)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustRead(t *testing.T, b compute.Buffer, want ...float32) {
	t.Helper()
	got := make([]float32, len(want))
	if err := b.ToFlatData(got); err != nil {
		t.Fatalf("%v", err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAVariableGoesThroughSteps(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{})
	d := xlatest.Devices(t, f, xla.Options{})[0]
	x, err := emit.Program(d, parse(t, step))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Finalize()
	w, data := upload(t, d, 1, 2, 3), upload(t, d, 1, 10, 100)
	for range 3 {
		outs, err := x.Execute([]compute.Buffer{w, data}, []bool{true, false}, 0)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if err := w.ToFlatData(make([]float32, 3)); err == nil {
			t.Error("a donated tensor can be read")
		}
		mustRead(t, outs[1], 1, 100, 10000)
		if err := outs[1].Finalize(); err != nil {
			t.Fatal(err)
		}
		w = outs[0]
	}
	mustRead(t, w, 4, 32, 303)
	mustRead(t, data, 1, 10, 100)
	for _, b := range []compute.Buffer{w, data} { // the fake reports what is left
		if err := b.Finalize(); err != nil {
			t.Fatal(err)
		}
	}
}

// A GPU copies what another one has, while that goes on: the original may be gone by then. Copies of one GPU go through the host if the plugin refuses them.
func TestGPUsCopyFromEachOther(t *testing.T) {
	for _, share := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d devices per GPU", share), func(t *testing.T) {
			f := pjrttest.New(t, pjrttest.Options{Devices: 2 / share})
			all := xlatest.Devices(t, f, xla.Options{Share: share})
			x := upload(t, all[0], 1, 2, 3)
			if share == 1 {
				f.Hold()
			}
			c, copied, err := all[1].CopyFrom(x)
			if err != nil {
				t.Fatal(err)
			}
			if err := x.Finalize(); err != nil {
				t.Fatal(err)
			}
			f.Release()
			if err := copied(); err != nil {
				t.Fatal(err)
			}
			if c.Backend() != compute.Backend(all[1]) {
				t.Error("the copy is elsewhere")
			}
			mustRead(t, c, 1, 2, 3)
			if err := c.Finalize(); err != nil {
				t.Fatal(err)
			}
			if !all[1].Near(all[0]) || all[1].Near(all[1].Backend) {
				t.Error("GPUs of one client are near each other, and nothing else is")
			}
		})
	}
}

// An error of the GPU comes when something is read, and names the program.
func TestALateErrorNamesTheProgram(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{})
	d := xlatest.Devices(t, f, xla.Options{Compiling: func(_ *ir.Segment, _ []bool, text string) {
		f.Program(text, pjrttest.Program{Outputs: []pjrt.Output{{Type: pjrt.F32, Dims: []int64{3}}, {Type: pjrt.F32, Dims: []int64{3}}},
			Run: func(int, [][]byte) ([][]byte, error) { return nil, errors.New("the GPU fell off the bus") }})
	}})[0]
	x, err := emit.Program(d, parse(t, step))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Finalize()
	w, data := upload(t, d, 1, 2, 3), upload(t, d, 1, 10, 100)
	outs, err := x.Execute([]compute.Buffer{w, data}, nil, 0)
	if err != nil {
		t.Fatalf("%v", err)
	}
	err = outs[0].ToFlatData(make([]float32, 3))
	if err == nil || !strings.Contains(err.Error(), `program "step" failed`) || !strings.Contains(err.Error(), "fell off the bus") {
		t.Errorf("the error is %v", err)
	}
	for _, b := range append(outs, w, data) {
		if err := b.Finalize(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatWasCompiledIsKept(t *testing.T) {
	folder := t.TempDir()
	compile := func(t *testing.T, f *pjrttest.Fake) bool {
		cache, err := xla.NewCache(folder, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		d := xlatest.Devices(t, f, xla.Options{Cache: cache})[0]
		x, err := emit.Program(d, parse(t, step))
		if err != nil {
			t.Fatal(err)
		}
		defer x.Finalize()
		w, data := upload(t, d, 1, 2, 3), upload(t, d, 1, 10, 100)
		outs, err := x.Execute([]compute.Buffer{w, data}, []bool{true, true}, 0)
		if err != nil {
			t.Fatalf("%v", err)
		}
		mustRead(t, outs[0], 2, 12, 103)
		if l := x.(emit.Late).Memory(); l == nil || l.Outside != xlatest.Temporary || !slices.Equal(l.Over, []int{0, 1}) {
			t.Errorf("it needs %+v", l)
		}
		for _, b := range outs {
			if err := b.Finalize(); err != nil {
				t.Fatal(err)
			}
		}
		return slices.Contains(f.Called(), "PJRT_Client_Compile")
	}
	run := func(name string, compiles bool) {
		t.Run(name, func(t *testing.T) {
			f := pjrttest.New(t, pjrttest.Options{})
			if got := compile(t, f); got != compiles {
				t.Errorf("compiled: %v", got)
			}
		})
	}
	run("first", true)
	run("again", false)
	files, err := filepath.Glob(filepath.Join(folder, "*.xla"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the cache has %v, %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(files[0], data, 0o644); err != nil {
		t.Fatal(err)
	}
	run("damaged", true)
	run("mended", false)
}

func TestOptionsInTheName(t *testing.T) {
	for text, want := range map[string]string{"": "cuda", "cuda": "cuda", "cuda,share=4": "cuda", "/a/b.so": "/a/b.so"} {
		plugin, o, err := xla.Parse(text)
		if err != nil || plugin != want || strings.Contains(text, "share") != (o.Share == 4) {
			t.Errorf("%q is %q, share %d, %v", text, plugin, o.Share, err)
		}
	}
	for _, text := range []string{"cuda,share=0", "cuda,shared_buffers", "cuda,share=x"} {
		if _, _, err := xla.Parse(text); err == nil {
			t.Errorf("%q is no error", text)
		}
	}
}

// What is made ready is compiled for the inputs that are then donated. A run that keeps some of them takes the same module.
func TestWhatIsReadyIsNotCompiledAgain(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{})
	var compiled [][]bool
	d := xlatest.Devices(t, f, xla.Options{Compiling: func(_ *ir.Segment, donate []bool, _ string) { compiled = append(compiled, donate) }})[0]
	x, err := emit.Program(d, parse(t, step))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Finalize()
	late := x.(emit.Late)
	if l := late.Memory(); l != nil {
		t.Errorf("before it is compiled it needs %+v", l)
	}
	for range 2 {
		if err := late.Ready([]bool{true, true}); err != nil {
			t.Fatal(err)
		}
	}
	for _, donate := range [][]bool{{true, true}, {true, false}, nil} {
		w, data := upload(t, d, 1, 2, 3), upload(t, d, 1, 10, 100)
		outs, err := x.Execute([]compute.Buffer{w, data}, donate, 0)
		if err != nil {
			t.Fatalf("%v", err)
		}
		mustRead(t, outs[0], 2, 12, 103)
		mustRead(t, outs[1], 1, 100, 10000)
		for i, b := range []compute.Buffer{w, data} {
			if donate == nil || !donate[i] {
				mustRead(t, b, [][]float32{{1, 2, 3}, {1, 10, 100}}[i]...)
				outs = append(outs, b)
			}
		}
		for _, b := range outs {
			if err := b.Finalize(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(compiled) != 1 {
		t.Errorf("it was compiled for %v", compiled)
	}
}

// A plugin may lack what kernels of our own need: it refuses the module that calls one, and gets one without.
func TestAPluginThatRefusesKernelsGetsNone(t *testing.T) {
	f := pjrttest.New(t, pjrttest.Options{Platform: "cuda"})
	var texts, lines []string
	d := xlatest.Devices(t, f, xla.Options{
		Compiling: func(_ *ir.Segment, _ []bool, text string) {
			if texts = append(texts, text); len(texts) == 1 {
				f.Fail("PJRT_Client_Compile", pjrt.Unimplemented, "no such target")
			}
		},
		Log: func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) },
	})[0]
	x, err := emit.Program(d, parse(t, `program "kernel"
func "`+ir.GELUGradient+`" {
  %0 = Parameter() {Name: "in0", Shape: bfloat16[2,128]} -> bfloat16[2,128] : forward
  %1 = Parameter() {Name: "in1", Shape: bfloat16[2,128]} -> bfloat16[2,128] : forward
  %2 = Mul(%0, %1) -> bfloat16[2,128] : forward
  %3 = ConvertDType(%2) {DType: float32} -> float32[2,128] : forward
  %4 = ReduceSum(%3) {Axes: [0]} -> float32[128] : forward
  return %2, %4
}
main {
  %10 = Parameter() {Name: "dy", Shape: bfloat16[2,128]} -> bfloat16[2,128] : forward
  %11 = Parameter() {Name: "x", Shape: bfloat16[2,128]} -> bfloat16[2,128] : forward
  %12 = Call(%10, %11) [func "`+ir.GELUGradient+`"] -> bfloat16[2,128], float32[128] : forward
  return %12, %12.1
}`))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Finalize()
	if err := x.(emit.Late).Ready([]bool{false, false}); err != nil {
		t.Fatal(err)
	}
	if len(texts) != 2 || !strings.Contains(texts[0], hlo.KernelTarget) || strings.Contains(texts[1], hlo.KernelTarget) {
		t.Errorf("modules:\n%s", strings.Join(texts, "\n"))
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "without kernels") || !strings.Contains(lines[0], "no such target") {
		t.Errorf("it says %q", lines)
	}
}
