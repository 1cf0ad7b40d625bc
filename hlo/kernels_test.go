// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/hlo"
	"github.com/easyparallel/epl/ir"
)

// normGradient is a program that calls the function of the same name.
func normGradient(t *testing.T, rows, width int, added bool) *ir.Program {
	t.Helper()
	last, sum, args := "", "%17", "%30, %31, %32, %33, %34"
	if added {
		last, sum, args = "  %40 = Parameter() {Name: \"in5\", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward\n", "%42", args+", %45"
	}
	body := `program "norm"
func "epl.norm_gradient" {
  %0 = Parameter() {Name: "in0", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %1 = Parameter() {Name: "in1", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %2 = Parameter() {Name: "in2", Shape: float32[R,1]} -> float32[R,1] : forward
  %3 = Parameter() {Name: "in3", Shape: float32[R,1]} -> float32[R,1] : forward
  %4 = Parameter() {Name: "in4", Shape: float32[1,W]} -> float32[1,W] : forward
` + last + `  %5 = ConvertDType(%0) {DType: float32} -> float32[R,W] : forward
  %6 = ConvertDType(%1) {DType: float32} -> float32[R,W] : forward
  %7 = Sub(%6, %2) -> float32[R,W] : forward
  %8 = Mul(%7, %3) -> float32[R,W] : forward
  %9 = Mul(%5, %3) -> float32[R,W] : forward
  %10 = Mul(%9, %4) -> float32[R,W] : forward
  %11 = Constant() {Value: float32[](PART)} -> float32[] : forward
  %12 = ReduceSum(%10) {Axes: [1]} -> float32[R] : forward
  %13 = Mul(%12, %11) -> float32[R] : forward
  %14 = Reshape(%13) {Dimensions: [R, 1]} -> float32[R,1] : forward
  %15 = Sub(%10, %14) -> float32[R,W] : forward
  %16 = Mul(%10, %8) -> float32[R,W] : forward
  %18 = ReduceSum(%16) {Axes: [1]} -> float32[R] : forward
  %19 = Mul(%18, %11) -> float32[R] : forward
  %20 = Reshape(%19) {Dimensions: [R, 1]} -> float32[R,1] : forward
  %21 = Mul(%8, %20) -> float32[R,W] : forward
  %17 = Sub(%15, %21) -> float32[R,W] : forward
`
	if added {
		body += `  %41 = ConvertDType(%40) {DType: float32} -> float32[R,W] : forward
  %42 = Add(%17, %41) -> float32[R,W] : forward
`
	}
	body += `  %22 = ConvertDType(` + sum + `) {DType: bfloat16} -> bfloat16[R,W] : forward
  %50 = ConvertDType(%22) {DType: float32} -> float32[R,W] : forward
  %51 = ReduceSum(%50) {Axes: [0]} -> float32[W] : forward
  %23 = Mul(%5, %8) -> float32[R,W] : forward
  %24 = ReduceSum(%23) {Axes: [0]} -> float32[W] : forward
  %25 = ReduceSum(%5) {Axes: [0]} -> float32[W] : forward
  return %22, %24, %25, %51
}
main {
  %30 = Parameter() {Name: "dy", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %31 = Parameter() {Name: "x", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %32 = Parameter() {Name: "mu", Shape: float32[R,1]} -> float32[R,1] : forward
  %33 = Parameter() {Name: "inverse", Shape: float32[R,1]} -> float32[R,1] : forward
  %34 = Parameter() {Name: "gain", Shape: float32[1,W]} -> float32[1,W] : forward
  %45 = Parameter() {Name: "added", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %35 = Call(` + args + `) [func "epl.norm_gradient"] -> bfloat16[R,W], float32[W], float32[W], float32[W] : forward
  return %35, %35.1, %35.2, %35.3
}
`
	p, err := ir.Parse(strings.NewReplacer("PART", fmt.Sprint(1/float32(width)), "[R", fmt.Sprint("[", rows), ",W]", fmt.Sprint(",", width, "]"),
		"[W]", fmt.Sprint("[", width, "]")).Replace(body))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A gradient of a norm is a kernel on GPUs, if rows have a length that it takes; otherwise, and elsewhere, what it is written as.
func TestGradientsOfNormsAreKernels(t *testing.T) {
	for _, c := range []struct {
		width     int
		gpu, want bool
	}{{256, true, true}, {256, false, false}, {250, true, false}, {64, true, false}} {
		text, err := hlo.Module(emit.Whole(normGradient(t, 32, c.width, true)), hlo.Options{CUDNN: c.gpu})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(text, "__gpu$xla.gpu.triton"); got != c.want || strings.Contains(text, "func.call") == c.want {
			t.Errorf("rows of %d, GPU %t: a kernel: %t", c.width, c.gpu, got)
		}
	}
}

// The kernel computes what the function is written as.
func TestKernelsOnADevice(t *testing.T) {
	client := device(t)
	if client.Platform() != "cuda" {
		t.Skip("no CUDA: ", client.Platform())
	}
	programs := map[string]*ir.Program{
		"norm, rows of 128": normGradient(t, 16, 128, false), "norm, rows of 256": normGradient(t, 300, 256, true),
		"norm, rows of 1024": normGradient(t, 3000, 1024, true), "norm, rows of 4096": normGradient(t, 64, 4096, false),
		"GELU, rows of 4096": geluGradient(t, 3000, 4096), "GELU, rows of 384": geluGradient(t, 10, 384),
		"norm itself": normProgram(t, 3000, 1024), "norm itself, rows of 256": normProgram(t, 7, 256),
	}
	for name, p := range programs {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var in []any
			for _, v := range p.Main.Params {
				in = append(in, numbers(r, v, ""))
			}
			want, err := execute(client, p, in, hlo.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := execute(client, p, in, hlo.Options{CUDNN: true})
			if err != nil {
				t.Fatal(err)
			}
			bounds := []float64{2e-2, 2e-2, 2e-2, 2e-1}
			if len(want) == 2 {
				bounds[1] = 1e-1
			}
			for i := range want { // what is rounded to bfloat16 may be rounded the other way, and its sum, which comes last, follows
				if d := differences(got[i], want[i], bounds[i]); d != "" {
					t.Errorf("result %d: %s", i, d)
				}
			}
		})
	}
}

// geluGradient is a program that calls the function of the same name.
func geluGradient(t *testing.T, rows, width int) *ir.Program {
	t.Helper()
	p, err := ir.Parse(strings.NewReplacer("[R", fmt.Sprint("[", rows), ",W]", fmt.Sprint(",", width, "]"), "[W]", fmt.Sprint("[", width, "]")).Replace(`program "gelu"
func "epl.gelu_gradient" {
  %0 = Parameter() {Name: "in0", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %1 = Parameter() {Name: "in1", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %2 = Parameter() {Name: "in2", Shape: float32[W]} -> float32[W] : forward
  %3 = ConvertDType(%0) {DType: float32} -> float32[R,W] : forward
  %4 = ConvertDType(%1) {DType: float32} -> float32[R,W] : forward
  %5 = BroadcastInDim(%2) {OutputShape: float32[R,W], BroadcastAxes: [1]} -> float32[R,W] : forward
  %6 = Add(%4, %5) -> float32[R,W] : forward
  %60 = Constant() {Value: float32[](1.595016)} -> float32[] : forward
  %61 = Constant() {Value: float32[](0.0740113)} -> float32[] : forward
  %62 = Constant() {Value: float32[](0.00070304)} -> float32[] : forward
  %63 = Constant() {Value: float32[](36)} -> float32[] : forward
  %64 = Constant() {Value: float32[](0.2220339)} -> float32[] : forward
  %65 = Constant() {Value: float32[](0.0035152)} -> float32[] : forward
  %66 = Constant() {Value: float32[](1)} -> float32[] : forward
  %67 = Mul(%6, %6) -> float32[R,W] : forward
  %68 = Min(%67, %63) -> float32[R,W] : forward
  %69 = Mul(%68, %62) -> float32[R,W] : forward
  %70 = Sub(%61, %69) -> float32[R,W] : forward
  %71 = Mul(%68, %70) -> float32[R,W] : forward
  %72 = Add(%71, %60) -> float32[R,W] : forward
  %73 = Mul(%6, %72) -> float32[R,W] : forward
  %74 = Logistic(%73) -> float32[R,W] : forward
  %75 = Mul(%68, %65) -> float32[R,W] : forward
  %76 = Sub(%64, %75) -> float32[R,W] : forward
  %77 = Mul(%68, %76) -> float32[R,W] : forward
  %78 = Add(%77, %60) -> float32[R,W] : forward
  %79 = Sub(%66, %74) -> float32[R,W] : forward
  %80 = Mul(%74, %79) -> float32[R,W] : forward
  %81 = Mul(%80, %78) -> float32[R,W] : forward
  %82 = Mul(%6, %81) -> float32[R,W] : forward
  %20 = Add(%74, %82) -> float32[R,W] : forward
  %21 = Mul(%3, %20) -> float32[R,W] : forward
  %22 = ConvertDType(%21) {DType: bfloat16} -> bfloat16[R,W] : forward
  %23 = ConvertDType(%22) {DType: float32} -> float32[R,W] : forward
  %24 = ReduceSum(%23) {Axes: [0]} -> float32[W] : forward
  return %22, %24
}
main {
  %30 = Parameter() {Name: "dy", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %31 = Parameter() {Name: "x", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %32 = Parameter() {Name: "bias", Shape: float32[W]} -> float32[W] : forward
  %35 = Call(%30, %31, %32) [func "epl.gelu_gradient"] -> bfloat16[R,W], float32[W] : forward
  return %35, %35.1
}
`))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// normProgram is a program that calls the function of a layer norm.
func normProgram(t *testing.T, rows, width int) *ir.Program {
	t.Helper()
	p, err := ir.Parse(strings.NewReplacer("PART", fmt.Sprint(1/float32(width)), "[R", fmt.Sprint("[", rows), ",W]", fmt.Sprint(",", width, "]")).Replace(`program "norm"
func "epl.norm:1e-05" {
  %0 = Parameter() {Name: "in0", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %1 = Parameter() {Name: "in1", Shape: float32[1,W]} -> float32[1,W] : forward
  %2 = Parameter() {Name: "in2", Shape: float32[1,W]} -> float32[1,W] : forward
  %3 = ConvertDType(%0) {DType: float32} -> float32[R,W] : forward
  %4 = Constant() {Value: float32[](PART)} -> float32[] : forward
  %5 = ReduceSum(%3) {Axes: [1]} -> float32[R] : forward
  %6 = Mul(%5, %4) -> float32[R] : forward
  %7 = Reshape(%6) {Dimensions: [R, 1]} -> float32[R,1] : forward
  %8 = Sub(%3, %7) -> float32[R,W] : forward
  %9 = Mul(%8, %8) -> float32[R,W] : forward
  %10 = ReduceSum(%9) {Axes: [1]} -> float32[R] : forward
  %11 = Mul(%10, %4) -> float32[R] : forward
  %12 = Reshape(%11) {Dimensions: [R, 1]} -> float32[R,1] : forward
  %13 = Constant() {Value: float32[](1e-05)} -> float32[] : forward
  %14 = Add(%12, %13) -> float32[R,1] : forward
  %15 = Sqrt(%14) -> float32[R,1] : forward
  %16 = Div(%8, %15) -> float32[R,W] : forward
  %17 = Mul(%16, %1) -> float32[R,W] : forward
  %18 = Add(%17, %2) -> float32[R,W] : forward
  %19 = ConvertDType(%18) {DType: bfloat16} -> bfloat16[R,W] : forward
  return %19, %6, %15
}
main {
  %30 = Parameter() {Name: "x", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %31 = Parameter() {Name: "gain", Shape: float32[1,W]} -> float32[1,W] : forward
  %32 = Parameter() {Name: "offset", Shape: float32[1,W]} -> float32[1,W] : forward
  %35 = Call(%30, %31, %32) [func "epl.norm:1e-05"] -> bfloat16[R,W], float32[R], float32[R,1] : forward
  return %35, %35.1, %35.2
}
`))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Every function that a pass makes has a kernel on GPUs.
func TestEveryKernelIsWritten(t *testing.T) {
	for name, p := range map[string]*ir.Program{"norm": normProgram(t, 8, 256), "norm_gradient": normGradient(t, 8, 256, false), "gelu_gradient": geluGradient(t, 8, 384)} {
		text, err := hlo.Module(emit.Whole(p), hlo.Options{CUDNN: true})
		if err != nil || !strings.Contains(text, fmt.Sprintf("name = %q", name)) || !strings.Contains(text, "tt.func public @"+name+"(") {
			t.Errorf("%s: there is no kernel: %v", name, err)
		}
	}
}
