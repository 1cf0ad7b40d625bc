// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/hlo"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// On a machine with a plugin, every case and programs that EPL records are compiled and run, and compared with the pure-Go backend. The
// binary needs nothing beside it:
//
//	go test -c ./hlo && ./hlo.test -test.run OnADevice
//
// EPL_TEST_PLUGIN names another plugin than cuda.

// device is a client of the plugin; without one the test is skipped.
func device(t *testing.T) *pjrt.Client {
	t.Helper()
	path, err := pjrt.Find(cmp.Or(os.Getenv("EPL_TEST_PLUGIN"), "cuda"))
	if err != nil {
		t.Skip("no plugin: ", strings.Split(err.Error(), "\n")[0])
	}
	plugin, err := pjrt.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := plugin.NewClient(t.Context(), pjrt.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), plugin.Close()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// execute compiles a program and runs it once. Half precision is rounded as the program says: by default XLA keeps results in float32 where
// it goes on with them.
func execute(client *pjrt.Client, p *ir.Program, in []any, o hlo.Options) (out []any, err error) {
	text, err := hlo.Module(emit.Whole(p), o)
	if err != nil {
		return nil, err
	}
	x, err := client.Compile([]byte(text), pjrt.CompileOptions{Flags: map[string]any{"xla_allow_excess_precision": false}})
	if err != nil {
		return nil, fmt.Errorf("compile: %.1000s", err.Error()) // it may quote the program
	}
	defer x.Close()
	var args []*pjrt.Buffer
	defer func() {
		for _, b := range args {
			err = errors.Join(err, b.Close())
		}
	}()
	for i, v := range p.Main.Params {
		b, err := client.Devices()[0].DefaultMemory.FromHost(dtypes.UnsafeByteSliceFromAny(in[i]), pjrt.Type(v.Shape.DType), dims(v)...)
		if err != nil {
			return nil, err
		}
		args = append(args, b)
	}
	results, done, err := x.Execute([][]*pjrt.Buffer{args}, pjrt.ExecuteOptions{})
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	for i, b := range results[0] {
		flat := emptyOf(p.Main.Outputs[i])
		copied, toHost := b.ToHost(dtypes.UnsafeByteSliceFromAny(flat))
		if toHost == nil {
			done = append(done, copied)
		}
		err = errors.Join(err, toHost)
		out = append(out, flat)
	}
	err = errors.Join(err, pjrt.Finish(context.Background(), done...))
	for _, b := range results[0] {
		err = errors.Join(err, b.Close())
	}
	return out, err
}

func dims(v *ir.Value) []int64 {
	r := make([]int64, v.Shape.Rank())
	for i, d := range v.Shape.Dimensions {
		r[i] = int64(d)
	}
	return r
}

// compare runs an example and reports every output that is not as it should be. One that does not compile is tried line by line.
func compare(t *testing.T, client *pjrt.Client, e example, o hlo.Options) {
	p := e.program(t, e.body)
	in := inputs(e, p)
	got, err := execute(client, p, in, o)
	if err != nil {
		t.Errorf("%s: %v", e.name, err)
		if lines := strings.Split(strings.TrimSpace(e.body), "\n"); e.apart && len(lines) > 1 {
			for _, line := range lines {
				alone := e
				alone.name, alone.body, alone.want = line, line, nil
				if e.want == nil { // else there is no reference for a line
					compare(t, client, alone, o)
				} else if _, err := execute(client, alone.program(t, line), in, o); err != nil {
					t.Errorf("%s: %v", line, err)
				}
			}
		}
		return
	}
	if strings.HasPrefix(e.name, "random") {
		isRandom(t, e, in, got)
		return
	}
	reference := p
	if e.ref != "" {
		reference = e.program(t, e.ref)
	}
	want, err := e.expected(reference, in)
	if err != nil {
		t.Errorf("%s: the reference: %v", e.name, err)
		return
	}
	for i := range want {
		if d := differences(got[i], want[i], e.tolerance); d != "" {
			t.Errorf("%s: output %d, %s: %s", e.name, i, p.Main.Outputs[i].Op.Text(), d)
		}
	}
}

// isRandom checks what a generator of random bits gives: another state, and about as many ones as zeros.
func isRandom(t *testing.T, e example, in, out []any) {
	for i := 0; i < len(out); i += 2 {
		if slices.Equal(out[i].([]uint64), in[0].([]uint64)) {
			t.Errorf("%s: output %d: the state stays as it was", e.name, i)
		}
		raw := dtypes.UnsafeByteSliceFromAny(out[i+1])
		ones := 0
		for _, b := range raw {
			ones += bits.OnesCount8(b)
		}
		if share := float64(ones) / float64(8*len(raw)); share < 0.35 || share > 0.65 {
			t.Errorf("%s: output %d: %.0f %% of the bits are set", e.name, i, 100*share)
		}
	}
}

func TestCasesOnADevice(t *testing.T) {
	client := device(t)
	for _, family := range slices.Sorted(maps.Keys(families)) {
		t.Run(family, func(t *testing.T) {
			for _, e := range families[family] {
				t.Run(e.name, func(t *testing.T) {
					t.Parallel()
					compare(t, client, e, hlo.Options{})
				})
			}
		})
	}
}

func TestCUDNNOnADevice(t *testing.T) {
	client := device(t)
	if client.Platform() != "cuda" {
		t.Skip("no CUDA: ", client.Platform())
	}
	for _, e := range cudnnCases() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			compare(t, client, e, hlo.Options{CUDNN: true})
		})
	}
}

// Every collective compiles and runs, with one replica; and an input gives its memory to an output.
func TestCollectivesAndAliasesOnADevice(t *testing.T) {
	client := device(t)
	merged := example{name: "merged", params: "float32[4,8]"}.program(t, "Add(%0, %0) -> float32[4,8]")
	x := merged.Main.Outputs[0]
	merge := merged.NewOp(&ir.Merge{How: ir.Mean}, []*ir.Value{x}, x.Shape)
	merged.Main.Append(merge)
	s := emit.Whole(merged)
	s.Outputs = merge.Outputs
	for name, write := range map[string]func(*hlo.Writer, hlo.Value) hlo.Value{
		"all-reduce":     func(w *hlo.Writer, x hlo.Value) hlo.Value { return w.AllReduce(x, compute.ReduceOpSum, nil) },
		"all-gather":     func(w *hlo.Writer, x hlo.Value) hlo.Value { return w.AllGather(x, 1, [][]int{{0}}) },
		"reduce-scatter": func(w *hlo.Writer, x hlo.Value) hlo.Value { return w.ReduceScatter(x, compute.ReduceOpMax, 0, nil) },
		"all-to-all":     func(w *hlo.Writer, x hlo.Value) hlo.Value { return w.AllToAll(x, 0, 1, [][]int{{0}}) },
		"permute":        func(w *hlo.Writer, x hlo.Value) hlo.Value { return w.CollectivePermute(x, [][2]int{{0, 0}}) },
		"replica":        func(w *hlo.Writer, x hlo.Value) hlo.Value { w.ReplicaID(); return x },
	} {
		t.Run(name, func(t *testing.T) {
			text, err := hlo.Module(s, hlo.Options{Alias: map[int]int{0: 0}, Extra: func(w *hlo.Writer, _ *ir.Op, in []hlo.Value) []hlo.Value { return []hlo.Value{write(w, in[0])} }})
			if err != nil {
				t.Fatal(err)
			}
			program, err := client.Compile([]byte(text), pjrt.CompileOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer program.Close()
			in := slices.Repeat([]float32{1.5}, 32)
			arg, err := client.Devices()[0].DefaultMemory.FromHost(dtypes.UnsafeByteSliceFromAny(in), pjrt.F32, 4, 8)
			if err != nil {
				t.Fatal(err)
			}
			defer arg.Close()
			results, done, err := program.Execute([][]*pjrt.Buffer{{arg}}, pjrt.ExecuteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer results[0][0].Close()
			out := make([]float32, 32)
			copied, err := results[0][0].ToHost(dtypes.UnsafeByteSliceFromAny(out))
			if err == nil {
				done = append(done, copied)
			}
			if err := errors.Join(err, pjrt.Finish(t.Context(), done...)); err != nil {
				t.Fatal(err)
			}
			if d := differences(out, slices.Repeat([]float32{3}, 32), 0); d != "" {
				t.Error(d)
			}
			if donated, err := arg.Donated(); err != nil || !donated {
				t.Errorf("the input is not donated: %v", err)
			}
		})
	}
}

// recorded are programs that EPL recorded: random ones, and steps of training.
func recorded(t *testing.T, random int) (programs []*ir.Program) {
	t.Helper()
	for seed := range uint64(random) {
		p, err := equiv.NewRandom(seed).Record()
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, p)
	}
	for _, m := range equiv.Models() {
		backend, recorder := equiv.NewRecorder(nil)
		sgd := epl.Optimizer(optimizer.StochasticGradientDescent().WithDecay(false))
		if _, err := equiv.Train(backend, m, sgd, 1); err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		for _, p := range recorder.Programs {
			if p.IsTraining() {
				p.Name = m.Name
				programs = append(programs, p)
				break
			}
		}
		backend.Finalize()
	}
	return programs
}

func isRandomProgram(p *ir.Program) bool {
	return slices.ContainsFunc(p.Main.Ops, func(op *ir.Op) bool { return op.Type() == ir.OpRNGBitGenerator })
}

// tolerances of the outputs of a recorded program: those of the least precise type before them, because backends add up in different orders,
// and half precision inside sums is not rounded by all.
func tolerances(p *ir.Program) (r []float64) {
	of := map[*ir.Value]float64{}
	var see func(ops []*ir.Op) (most float64)
	see = func(ops []*ir.Op) (most float64) {
		for _, op := range ops {
			tolerance := 1e-4
			for _, v := range op.Inputs {
				tolerance = max(tolerance, of[v])
			}
			for _, f := range op.Funcs {
				tolerance = max(tolerance, see(f.Ops))
			}
			for _, v := range op.Outputs {
				of[v] = tolerance
				switch d := v.Shape.DType; {
				case d.IsHalfPrecision():
					of[v] = 5e-2
				case d == dtypes.Float32:
					of[v] = max(tolerance, 1e-3)
				}
				most = max(most, of[v])
			}
		}
		return most
	}
	see(p.Main.Ops)
	for _, v := range p.Main.Outputs {
		r = append(r, of[v])
	}
	return r
}

// drawn are inputs of a recorded program.
func drawn(p *ir.Program) (in []any) {
	r := rand.New(rand.NewPCG(3, 3))
	for _, v := range p.Main.Params {
		kind := ""
		if v.Shape.DType.IsInt() {
			kind = "index2" // of classes, tokens
		}
		in = append(in, numbers(r, v, kind))
	}
	return in
}

func TestRecordedProgramsGiveModules(t *testing.T) {
	for _, p := range recorded(t, 60) {
		s := emit.Whole(p)
		text := module(t, s, hlo.Options{})
		if again := module(t, s, hlo.Options{}); again != text {
			t.Errorf("%s: the same program gives another text", p.Name)
		}
	}
}

// Programs with random numbers differ between backends by nature.
func TestRecordedProgramsOnADevice(t *testing.T) {
	client := device(t)
	for _, p := range recorded(t, 100) {
		if isRandomProgram(p) {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			in := drawn(p)
			want, err := example{}.expected(p, in)
			if err != nil {
				t.Skip("the reference: ", err)
			}
			got, err := execute(client, p, in, hlo.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for i, tolerance := range tolerances(p) {
				if d := differences(got[i], want[i], tolerance); d != "" {
					t.Errorf("output %d, %s: %s", i, p.Main.Outputs[i].Op.Text(), d)
				}
			}
		})
	}
}

// A fake plugin answers with references: what is between the two is right. One answer is wrong, and noticed.
func TestCasesOnAFake(t *testing.T) {
	fake := pjrttest.New(t, pjrttest.Options{})
	client := fake.Client(t, pjrt.ClientOptions{})
	for _, e := range families["gather"] {
		p := e.program(t, e.body)
		text, err := hlo.Module(emit.Whole(p), hlo.Options{})
		if err != nil {
			t.Fatal(err)
		}
		reference := p
		if e.ref != "" {
			reference = e.program(t, e.ref)
		}
		program := pjrttest.Program{Run: func(_ int, args [][]byte) ([][]byte, error) {
			in := inputs(e, p)
			for i := range in {
				if got := dtypes.UnsafeByteSliceFromAny(in[i]); !slices.Equal(got, args[i]) {
					return nil, fmt.Errorf("argument %d is %v, not %v", i, got, args[i])
				}
			}
			out, err := e.expected(reference, in)
			var raw [][]byte
			for _, x := range out {
				raw = append(raw, dtypes.UnsafeByteSliceFromAny(x))
			}
			return raw, err
		}}
		for _, v := range p.Main.Outputs {
			program.Outputs = append(program.Outputs, pjrt.Output{Type: pjrt.Type(v.Shape.DType), Dims: dims(v), MemoryKind: "device"})
		}
		fake.Program(text, program)
		compare(t, client, e, hlo.Options{})
	}
	if d := differences([]float32{1, 2, 3}, []float32{1, 2, 4}, 0); d != "1 of 3 differ: [2] 3 not 4;" {
		t.Error(d)
	}
	if d := differences([]int32{1, 2}, []int32{1, 3}, 10); d == "" {
		t.Error("integers may differ")
	}
}
