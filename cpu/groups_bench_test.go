// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

var programs = flag.String("cpu.programs", "testdata/groups/*.txt", "the programs that BenchmarkPrograms runs")

// stepper runs a program again and again, as a training does: variables are donated, and replaced by their updates.
type stepper struct {
	x      compute.Executable
	ins    []compute.Buffer
	donate []bool
	update map[int]int // the output that replaces an input
	bytes  int         // of inputs and outputs
}

func newStepper(t testing.TB, b compute.Backend, p *ir.Program) *stepper {
	t.Helper()
	s := &stepper{donate: make([]bool, len(p.Main.Params)), update: map[int]int{}}
	var err error
	if s.x, err = emit.Program(b, p); err != nil {
		t.Fatalf("%+v", err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, v := range p.Main.Params {
		flat := repeated(r, v.Shape)
		switch f := flat.(type) {
		case []float32: // second moments and standard deviations are above 0
			if strings.HasSuffix(v.Op.Attrs.(*ir.Parameter).Name, "v") || v.Shape.Rank() > 0 && v.Shape.Dimensions[v.Shape.Rank()-1] == 1 {
				for i := range f {
					f[i] = max(f[i]*f[i], 1e-3)
				}
			}
		case []int32:
			for i := range f {
				f[i] = max(f[i], 0)
			}
		}
		buf, err := b.BufferFromFlatData(0, flat, v.Shape)
		if err != nil {
			t.Fatal(err)
		}
		s.ins = append(s.ins, buf)
		s.bytes += int(v.Shape.ByteSize())
	}
	for i, o := range p.Outputs {
		s.bytes += int(p.Main.Outputs[i].Shape.ByteSize())
		if o.Updates == nil {
			continue
		}
		for k, v := range p.Main.Params {
			if v == o.Updates.Param {
				s.donate[k], s.update[k] = true, i
			}
		}
	}
	return s
}

// repeated is random content; that of large tensors repeats itself, because it takes long to make.
func repeated(r *rand.Rand, s shapes.Shape) any {
	const most = 1 << 12
	if s.DType != dtypes.Float32 || s.Size() <= most {
		return content(r, s)
	}
	some := content(r, shapes.Make(s.DType, most)).([]float32)
	flat := make([]float32, s.Size())
	for at := 0; at < len(flat); at += most {
		copy(flat[at:], some)
	}
	return flat
}

func (s *stepper) step(t testing.TB) {
	outs, err := s.x.Execute(s.ins, s.donate, 0)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	for k, i := range s.update {
		s.ins[k], outs[i] = outs[i], nil
	}
	for _, o := range outs {
		if o == nil {
			continue
		}
		if err := o.Finalize(); err != nil {
			t.Fatal(err)
		}
	}
}

// parsed reads a program.
func parsed(b *testing.B, file string) *ir.Program {
	b.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	p, err := ir.Parse(string(text))
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// BenchmarkPrograms runs programs of groups on one thread and on two, and with 0 threads op by op on GoMLX's backend; MB/s are those of their inputs and outputs, to be
// compared with BenchmarkCopy.
func BenchmarkPrograms(b *testing.B) {
	files, err := filepath.Glob(*programs)
	if err != nil || len(files) == 0 {
		b.Fatalf("no programs match %q (%v)", *programs, err)
	}
	for _, file := range files {
		p := parsed(b, file)
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		for _, threads := range []int{0, 1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", name, threads), func(b *testing.B) {
				device := opByOp(b)
				if threads > 0 {
					device = cpu.New(device, threads)
				}
				defer device.Finalize()
				s := newStepper(b, device, p)
				s.step(b)
				b.SetBytes(int64(s.bytes))
				b.ReportAllocs()
				for b.Loop() {
					s.step(b)
				}
			})
		}
	}
}

// BenchmarkCopy copies memory, on the threads of a device: what the groups of BenchmarkPrograms cannot exceed.
func BenchmarkCopy(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			device := cpu.New(opByOp(b), threads)
			defer device.Finalize()
			w := &writer{p: ir.NewProgram("copy")}
			s := w.float32s(1 << 25)
			w.p.Main.Outputs = []*ir.Value{w.add(&ir.Neg{}, s.Shape, s)}
			w.p.Outputs = make([]ir.Output, 1)
			step := newStepper(b, device, w.p)
			b.SetBytes(int64(step.bytes))
			for b.Loop() {
				step.step(b)
			}
		})
	}
}

// BenchmarkCompile finds the groups of programs.
func BenchmarkCompile(b *testing.B) {
	files, _ := filepath.Glob(*programs)
	for _, file := range files {
		p := parsed(b, file)
		b.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(b *testing.B) {
			device := cpu.New(opByOp(b), 1)
			defer device.Finalize()
			for b.Loop() {
				x, err := emit.Program(device, p)
				if err != nil {
					b.Fatal(err)
				}
				x.Finalize()
			}
		})
	}
}

// float32s adds a parameter.
func (w *writer) float32s(dims ...int) *ir.Value {
	s := shapes.Make(dtypes.Float32, dims...)
	return w.add(&ir.Parameter{Name: fmt.Sprint("arg", len(w.p.Main.Params)), Shape: s}, s)
}
