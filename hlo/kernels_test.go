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
  %23 = Mul(%5, %8) -> float32[R,W] : forward
  %24 = ReduceSum(%23) {Axes: [0]} -> float32[W] : forward
  %25 = ReduceSum(%5) {Axes: [0]} -> float32[W] : forward
  return %22, %24, %25
}
main {
  %30 = Parameter() {Name: "dy", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %31 = Parameter() {Name: "x", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %32 = Parameter() {Name: "mu", Shape: float32[R,1]} -> float32[R,1] : forward
  %33 = Parameter() {Name: "inverse", Shape: float32[R,1]} -> float32[R,1] : forward
  %34 = Parameter() {Name: "gain", Shape: float32[1,W]} -> float32[1,W] : forward
  %45 = Parameter() {Name: "added", Shape: bfloat16[R,W]} -> bfloat16[R,W] : forward
  %35 = Call(` + args + `) [func "epl.norm_gradient"] -> bfloat16[R,W], float32[W], float32[W] : forward
  return %35, %35.1, %35.2
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
	for _, c := range []struct {
		rows, width int
		added       bool
	}{{16, 128, false}, {300, 256, true}, {3000, 1024, true}, {64, 4096, false}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			p := normGradient(t, c.rows, c.width, c.added)
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
			for i := range want {
				if d := differences(got[i], want[i], []float64{2e-2, 1e-3, 1e-3}[i]); d != "" {
					t.Errorf("result %d: %s", i, d)
				}
			}
		})
	}
}
