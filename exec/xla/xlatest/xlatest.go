// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package xlatest makes GPUs out of package pjrttest for tests: modules compute what GoMLX's pure-Go backend computes for the segments they
// were made of. So everything but XLA itself is tested on a machine without a GPU.
package xlatest

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// Devices are those of a fake plugin. Options.Compiling may give a module another program. What is not freed at the end of the test fails it.
func Devices(t testing.TB, f *pjrttest.Fake, o xla.Options) []*xla.Device {
	t.Helper()
	all, err := open(t, f, o)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Compiling makes modules known to a fake plugin, as what the pure-Go backend computes, unless see gives them another program. It is an option of clients.
func Compiling(t testing.TB, f *pjrttest.Fake, see func(s *ir.Segment, donate []bool, text string)) func(s *ir.Segment, donate []bool, text string) {
	return compiling(t, f, see, opening{})
}

func compiling(t testing.TB, f *pjrttest.Fake, see func(s *ir.Segment, donate []bool, text string), o opening) func(s *ir.Segment, donate []bool, text string) {
	var mu sync.Mutex
	times := map[string]int{} // that a module was compiled
	return func(s *ir.Segment, donate []bool, text string) {
		mu.Lock()
		times[text]++
		name := fmt.Sprintf("%x/%d", sha256.Sum256([]byte(text)), times[text])
		mu.Unlock()
		f.Program(text, program(t, s, donate, name, o))
		if see != nil {
			see(s, donate, text)
		}
	}
}

func open(t testing.TB, f *pjrttest.Fake, o xla.Options) ([]*xla.Device, error) {
	o.Compiling = compiling(t, f, o.Compiling, opening{o.Opening, f.Devices()})
	all, err := xla.Devices(f.Load(t), o)
	t.Cleanup(func() {
		for _, d := range all {
			d.Finalize()
		}
	})
	return all, err
}

// Kind is the same for epl.Init: a test registers it.
func Kind(t testing.TB, f *pjrttest.Fake, o xla.Options) exec.Kind { return kind{t, f, o} }

type kind struct {
	t testing.TB
	f *pjrttest.Fake
	o xla.Options
}

// Joint implements exec.Kind.
func (k kind) Joint() error { return nil }

// Open implements exec.Kind.
func (k kind) Open(opening exec.Opening) (devices []compute.Backend, err error) {
	k.o.Opening = opening
	all, err := open(k.t, k.f, k.o)
	for _, d := range all {
		devices = append(devices, d)
	}
	return devices, err
}

// Temporary is what every module says that it needs beside its arguments and results, in bytes.
const Temporary = 1 << 10

// Program computes a segment on the pure-Go backend.
func Program(t testing.TB, s *ir.Segment, donate []bool) pjrttest.Program {
	return program(t, s, donate, "", opening{})
}

func program(t testing.TB, s *ir.Segment, donate []bool, name string, o opening) pjrttest.Program {
	inner, err := gobackend.New("ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	p := pjrttest.Program{Donates: xla.Over(s, donate), Outputs: outputs(s)}
	for _, v := range s.Inputs {
		p.Memory.Arguments += v.Bytes()
	}
	for i, v := range s.Outputs {
		p.Memory.Outputs += v.Bytes()
		if p.Donates[i] >= 0 {
			p.Memory.Aliased += v.Bytes()
		}
	}
	p.Memory.Temporary = Temporary
	p.Memory.Peak = p.Memory.Arguments + p.Memory.Outputs - p.Memory.Aliased + p.Memory.Temporary
	if s.Mesh != nil && s.Mesh.Devices() > 1 {
		p.Run = newGroup(inner, s, name, o).run
		return p
	}
	var mu sync.Mutex
	x, err := emit.Segment(inner, s)
	p.Run = func(_ int, args [][]byte) (results [][]byte, _ error) {
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		return execute(inner, x, s, args)
	}
	return p
}

// outputs describes what a segment gives.
func outputs(s *ir.Segment) (all []pjrt.Output) {
	for _, v := range s.Outputs {
		o := pjrt.Output{Type: pjrt.Type(v.Shape.DType), MemoryKind: "device"}
		for _, n := range v.Shape.Dimensions {
			o.Dims = append(o.Dims, int64(n))
		}
		all = append(all, o)
	}
	return all
}

// Zeros computes nothing of a segment: its outputs are zeros. It is for modules that the pure-Go backend cannot compute.
func Zeros(s *ir.Segment) pjrttest.Program {
	return pjrttest.Program{Outputs: outputs(s), Run: func(int, [][]byte) (out [][]byte, _ error) {
		for _, v := range s.Outputs {
			out = append(out, make([]byte, v.Shape.ByteSize()))
		}
		return out, nil
	}}
}

// execute runs a compiled segment on bytes.
func execute(inner compute.Backend, x compute.Executable, s *ir.Segment, args [][]byte) (results [][]byte, _ error) {
	var ins []compute.Buffer
	for i, v := range s.Inputs {
		flat := flatOf(v.Shape)
		copy(bytesOf(flat, v.Shape), args[i])
		b, err := inner.BufferFromFlatData(0, flat, v.Shape)
		if err != nil {
			return nil, err
		}
		ins = append(ins, b)
	}
	outs, err := x.Execute(ins, nil, 0)
	if err != nil {
		return nil, err
	}
	for i, v := range s.Outputs {
		flat := flatOf(v.Shape)
		if err := outs[i].ToFlatData(flat); err != nil {
			return nil, err
		}
		results = append(results, bytesOf(flat, v.Shape))
	}
	return results, nil
}

func flatOf(s shapes.Shape) any { return dtypes.MakeAnySlice(s.DType, s.Size()) }

func bytesOf(flat any, s shapes.Shape) []byte {
	if s.Size() == 0 {
		return nil
	}
	return dtypes.UnsafeByteSliceFromAny(flat)
}
