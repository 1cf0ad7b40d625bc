// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	_ "github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

var (
	seeds     = flag.Int("cpu.seeds", 300, "random programs to run")
	firstSeed = flag.Uint64("cpu.first", 0, "the first of them")
)

// opByOp is GoMLX's pure-Go backend, the oracle.
func opByOp(t testing.TB) compute.Backend {
	t.Helper()
	b, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// unfused makes every op a step of its own.
var unfused = cpu.Without("fuse-elementwise", "fuse-reduce")

// engines are the devices that must agree with each other, bit for bit.
func engines(t testing.TB) map[string]compute.Backend {
	list := map[string]compute.Backend{
		"fused":           cpu.New(opByOp(t), 1),
		"fused 3 threads": cpu.New(opByOp(t), 3),
		"unfused":         cpu.New(opByOp(t), 1, unfused),
		"no views":        cpu.New(opByOp(t), 1, cpu.Without("views")),
		"not in place":    cpu.New(opByOp(t), 1, cpu.Without("in-place", "fuse-elementwise")),
		"no loops":        cpu.New(opByOp(t), 1, cpu.Without("loops", "fuse-dot")),
		"no reductions":   cpu.New(opByOp(t), 1, cpu.Without("fuse-reduce")),
	}
	for _, b := range list {
		t.Cleanup(b.Finalize)
	}
	return list
}

func seq(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

var (
	floatTypes   = []dtypes.DType{dtypes.Float32, dtypes.Float64, dtypes.BFloat16, dtypes.Float16}
	integerTypes = []dtypes.DType{dtypes.Int32, dtypes.Int8, dtypes.Int16, dtypes.Int64, dtypes.Uint8, dtypes.Uint16, dtypes.Uint32, dtypes.Uint64}
	allTypes     = slices.Concat(floatTypes, integerTypes, []dtypes.DType{dtypes.Bool})
)

// odd are numbers for which code is easily wrong.
var odd = []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), 1e-40, -1e-40, 1.4e-45, 5e-324, 3e38, -3e38, 65504, -65504, 6e-8, 1e300, 0.5, -2.5, 1 << 24}

// put writes a number into an element of any type.
func put(to reflect.Value, f float64) {
	switch p := to.Addr().Interface().(type) {
	case *bfloat16.BFloat16:
		*p = bfloat16.FromFloat32(float32(f))
	case *float16.Float16:
		*p = float16.FromFloat32(float32(f))
	case *float32:
		*p = float32(f)
	case *float64:
		*p = f
	case *bool:
		*p = f > 0
	default:
		i := int64(f)
		if to.CanInt() {
			to.SetInt(i << (64 - to.Type().Bits()) >> (64 - to.Type().Bits()))
		} else {
			to.SetUint(uint64(i) << (64 - to.Type().Bits()) >> (64 - to.Type().Bits()))
		}
	}
}

// get reads an element as a number; of integers above 2⁵³ not all bits.
func get(v reflect.Value) float64 {
	switch x := v.Interface().(type) {
	case bfloat16.BFloat16:
		return float64(x.Float32())
	case float16.Float16:
		return float64(x.Float32())
	case bool:
		if x {
			return 1
		}
		return 0
	}
	switch {
	case v.CanFloat():
		return v.Float()
	case v.CanInt():
		return float64(v.Int())
	}
	return float64(v.Uint())
}

func isFloat(d dtypes.DType) bool { return slices.Contains(floatTypes, d) }

func isInteger(d dtypes.DType) bool { return slices.Contains(integerTypes, d) }

// content are small numbers.
func content(r *rand.Rand, s shapes.Shape) any { return filled(r, s, false) }

// filled are small numbers, or wild ones: anything that a type can hold.
func filled(r *rand.Rand, s shapes.Shape, wild bool) any {
	flat := reflect.MakeSlice(reflect.SliceOf(s.DType.GoType()), s.Size(), s.Size())
	for i := range s.Size() {
		f := float64(r.IntN(9)) - 4
		switch {
		case isFloat(s.DType):
			f = float64(float32(r.NormFloat64() / 2))
			if wild && r.IntN(2) == 0 {
				f = odd[r.IntN(len(odd))]
			}
		case wild && s.DType != dtypes.Bool:
			f = float64(int64(r.Uint64() >> r.IntN(64)))
		case s.DType.IsUnsigned():
			f = math.Abs(f)
		}
		put(flat.Index(i), f)
	}
	return flat.Interface()
}

// execute compiles and runs a program.
func execute(t testing.TB, b compute.Backend, p *ir.Program, inputs []any) []any {
	t.Helper()
	x, err := emit.Program(b, p)
	if err != nil {
		t.Fatalf("%+v\n%s", err, p)
	}
	outs, err := run(b, x, p.Main.Params, inputs, p.Main.Outputs)
	if err != nil {
		t.Fatalf("%+v\n%s", err, p)
	}
	return outs
}

// run executes what was compiled, and ends it.
func run(b compute.Backend, x compute.Executable, params []*ir.Value, inputs []any, outputs []*ir.Value) (all []any, err error) {
	defer x.Finalize()
	defer func() {
		if r := recover(); r != nil {
			err = errors.Errorf("%v", r)
		}
	}()
	var ins []compute.Buffer
	for i, v := range params {
		buf, err := b.BufferFromFlatData(0, inputs[i], v.Shape)
		if err != nil {
			return nil, err
		}
		ins = append(ins, buf)
	}
	outs, err := x.Execute(ins, nil, 0)
	if err != nil {
		return nil, err
	}
	for i, o := range outs {
		s := outputs[i].Shape
		flat := reflect.MakeSlice(reflect.SliceOf(s.DType.GoType()), s.Size(), s.Size()).Interface()
		if err := o.ToFlatData(flat); err != nil {
			return nil, err
		}
		all = append(all, flat)
	}
	return all, nil
}

// checkProgram runs a program on all engines, which must give the same bits, and compares every op of it with the oracle. It
// returns false for a program that the oracle cannot run either.
func checkProgram(t testing.TB, w *writer, list map[string]compute.Backend, oracle compute.Backend) bool {
	t.Helper()
	// All values, op by op.
	whole := *w.p
	main := *w.p.Main
	main.Outputs = nil
	at := map[*ir.Value]int{}
	for _, op := range main.Ops {
		for _, v := range op.Outputs {
			at[v] = len(main.Outputs)
			main.Outputs = append(main.Outputs, v)
		}
	}
	whole.Main = &main
	x, err := emit.Program(list["unfused"], &whole)
	var all []any
	if err == nil {
		all, err = run(list["unfused"], x, main.Params, w.inputs, main.Outputs)
	}
	if err != nil {
		if x, wrong := emit.Program(oracle, &whole); wrong == nil {
			if _, wrong = run(oracle, x, main.Params, w.inputs, main.Outputs); wrong == nil {
				t.Fatalf("the oracle can run this: %+v\n%s", err, w.p)
			}
		}
		return false
	}
	for name, b := range list {
		for i, got := range execute(t, b, w.p, w.inputs) {
			if err := bits(all[at[w.p.Main.Outputs[i]]], got); err != nil {
				t.Fatalf("output %d of %q differs from that of the op alone: %v\n%s", i, name, err, w.p)
			}
		}
	}
	for _, op := range main.Ops {
		if _, ok := op.Attrs.(*ir.Parameter); ok {
			continue
		}
		var ins []*ir.Value
		var values []any
		for _, v := range op.Inputs {
			if v != nil && !slices.Contains(ins, v) {
				ins, values = append(ins, v), append(values, all[at[v]])
			}
		}
		x, err := emit.Segment(oracle, &ir.Segment{Name: op.String(), Inputs: ins, Ops: []*ir.Op{op}, Outputs: op.Outputs})
		if err != nil {
			t.Fatalf("%+v\n%s", err, w.p)
		}
		outs, err := run(oracle, x, ins, values, op.Outputs)
		if err != nil {
			t.Fatalf("%+v\n%s", err, w.p)
		}
		for i, want := range outs {
			if err := agree(op, values, want, all[at[op.Outputs[i]]]); err != nil {
				t.Fatalf("output %d of %s differs from that of the oracle: %v\ninputs: %v\n%s", i, op, err, values, w.p)
			}
		}
	}
	return true
}

func TestRandomProgramsGiveTheResultsOfTheBackendFusedAndUnfused(t *testing.T) {
	oracle, list := opByOp(t), engines(t)
	defer oracle.Finalize()
	n := uint64(*seeds)
	if testing.Short() {
		n = 60
	}
	ran := uint64(0)
	for seed := *firstSeed; seed < *firstSeed+n; seed++ {
		w := program(rand.New(rand.NewPCG(seed, 7)), fmt.Sprint("random ", seed))
		if checkProgram(t, w, list, oracle) {
			ran++
		}
	}
	if ran < n*3/4 {
		t.Errorf("only %d of %d programs ran", ran, n)
	}
}

// source draws what a program is from bytes, so that a fuzzer can change it piece by piece; then it draws at random.
type source struct {
	bytes []byte
	then  *rand.PCG
}

func (s *source) Uint64() uint64 {
	if len(s.bytes) == 0 {
		return s.then.Uint64()
	}
	x := uint64(s.bytes[0]) * 0x0101010101010101
	s.bytes = s.bytes[1:]
	return x
}

func FuzzPrograms(f *testing.F) {
	for _, seed := range []string{"", "a", "sums of rows", "\x00\xff\x80\x7f", "views of views of views", "conversions there and back again"} {
		f.Add([]byte(seed))
	}
	oracle, list := opByOp(f), engines(f)
	f.Cleanup(oracle.Finalize)
	f.Fuzz(func(t *testing.T, data []byte) {
		checkProgram(t, program(rand.New(&source{data, rand.NewPCG(1, 2)}), "fuzz"), list, oracle)
	})
}
