// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/easyparallel/epl/ir"
)

// segment is the whole of a program's main function, which returns its last value.
func segment(t *testing.T, body string) *ir.Segment {
	t.Helper()
	p, err := ir.Parse("program \"test\"\n" + body)
	if err != nil {
		t.Fatal(err)
	}
	s := &ir.Segment{Outputs: p.Main.Outputs}
	for _, op := range p.Main.Ops {
		if op.IsLeaf() {
			s.Inputs = append(s.Inputs, op.Outputs...)
		} else {
			s.Ops = append(s.Ops, op)
		}
	}
	return s
}

// text writes kernels: family, ops, kilobytes read and written.
func kernelsText(all []*Kernel) (lines []string) {
	for _, k := range all {
		lines = append(lines, fmt.Sprintf("%s of %d: %d in, %d out", k.Family, k.Ops, k.Read, k.Written))
	}
	return lines
}

const softmaxOfAProduct = `input %0
input %1
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[10,20]} -> float32[10,20] : forward
  %1 = Parameter() {Name: "arg1", Shape: float32[20,30]} -> float32[20,30] : forward
  %2 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[10,30] : forward
  %3 = ReduceMax(%2) {Axes: [1]} -> float32[10] : forward
  %4 = BroadcastInDim(%3) {OutputShape: float32[10,30], BroadcastAxes: [0]} -> float32[10,30] : forward
  %5 = Sub(%2, %4) -> float32[10,30] : forward
  %6 = Exp(%5) -> float32[10,30] : forward
  %7 = ReduceSum(%6) {Axes: [1]} -> float32[10] : forward
  %8 = BroadcastInDim(%7) {OutputShape: float32[10,30], BroadcastAxes: [0]} -> float32[10,30] : forward
  %9 = Div(%6, %8) -> float32[10,30] : forward
  return %9
}
`

func TestASoftmaxIsOneKernel(t *testing.T) {
	s := segment(t, softmaxOfAProduct)
	got := kernelsText(Kernels(s, true))
	want := []string{"dot of 1: 3200 in, 1200 out", "elementwise of 5: 1200 in, 1200 out"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	if got := len(Kernels(s, false)); got != 8 {
		t.Errorf("op by op it is %d kernels, not 8", got)
	}
	if k := Kernels(s, true)[1]; k.Math != exp*300 || k.Sums != 600 || k.Work != 300+division*300 {
		t.Errorf("it computes %d, %d in functions and %d in sums", k.Work, k.Math, k.Sums)
	}
}

func TestWhatIsReadLaterIsWrittenOnce(t *testing.T) {
	got := kernelsText(Kernels(segment(t, `input %0
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[10,10]} -> float32[10,10] : forward
  %1 = Tanh(%0) -> float32[10,10] : forward
  %2 = DotGeneral(%1, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[10,10] : forward
  %3 = Transpose(%1) {Permutation: [1, 0]} -> float32[10,10] : forward
  %4 = Mul(%2, %3) -> float32[10,10] : forward
  %5 = ReduceSum(%4) {Axes: [0]} -> float32[10] : forward
  %6 = Neg(%5) -> float32[10] : forward
  return %6
}
`), true))
	want := []string{
		"elementwise of 1: 400 in, 400 out", // Tanh, for both of its readers
		"dot of 1: 400 in, 400 out",
		"elementwise of 2: 800 in, 40 out", // Mul, and a sum over columns, which nobody has before the end
		"elementwise of 1: 40 in, 40 out",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestWhatIsGivenIsComputedWhereItIsUsed(t *testing.T) {
	got := kernelsText(Kernels(segment(t, `input %0
input %1
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[10,10]} -> float32[10,10] : forward
  %1 = Parameter() {Name: "arg1", Shape: float32[10,10]} -> float32[10,10] : forward
  %2 = Mul(%1, %1) -> float32[10,10] : forward
  %3 = DotGeneral(%0, %0) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[10,10] : forward
  %4 = Add(%2, %3) -> float32[10,10] : forward
  return %4
}
`), true))
	want := []string{"dot of 1: 400 in, 400 out", "elementwise of 2: 800 in, 400 out"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestASumWithAPaddingTakesWhatIsInside(t *testing.T) {
	got := kernelsText(Kernels(segment(t, `input %0
input %1
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[2,10]} -> float32[2,10] : forward
  %1 = Parameter() {Name: "arg1", Shape: float32[100,10]} -> float32[100,10] : forward
  %2 = Constant() {Value: float32[](0)} -> float32[] : forward
  %3 = Pad(%0, %2) {AxesConfig: [{Start: 3, End: 95}, {}]} -> float32[100,10] : forward
  %4 = Add(%1, %3) -> float32[100,10] : forward
  %5 = Neg(%3) -> float32[100,10] : forward
  %6 = DotGeneral(%4, %5) {LHSContractingAxes: [0], RHSContractingAxes: [0]} -> float32[10,10] : forward
  return %6
}
`), true))
	want := []string{
		"elementwise of 2: 160 in, 80 out",
		"move of 1: 80 in, 4000 out", // others read it as a whole
		"elementwise of 1: 4000 in, 4000 out",
		"dot of 1: 8000 in, 400 out",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestASegmentTakesItsKernelsAndItsStart(t *testing.T) {
	p := Flat(1e3, 1e9, time.Second)
	p.Fuses, p.Segment = true, time.Minute
	// 12,000 flops of the product, 5,100 of the group.
	if got, want := p.Ops(segment(t, softmaxOfAProduct)), time.Minute+14*time.Second+5100*time.Millisecond; got != want {
		t.Errorf("%v, not %v", got, want)
	}
	p.Rates[Memory] = Constant(100) // 4,400 bytes and 2,400
	if got, want := p.Ops(segment(t, softmaxOfAProduct)), time.Minute+2*time.Second+68*time.Second; got != want {
		t.Errorf("bound by memory %v, not %v", got, want)
	}
}

func TestPlainArithmeticIsALoop(t *testing.T) {
	p := Flat(1e3, 1e9, 0)
	p.Fuses, p.Rates[Loop] = true, Constant(100e3)
	for op, want := range map[string]time.Duration{
		"%2 = Mul(%0, %1) -> float32[10,10] : forward": 2 * time.Millisecond,
		"%2 = Max(%0, %1) -> float32[10,10] : forward": 200 * time.Millisecond,
		"%4 = Transpose(%1) {Permutation: [1, 0]} -> float32[10,10] : forward\n  %2 = Mul(%0, %4) -> float32[10,10] : forward": 200 * time.Millisecond,
	} {
		got := p.Ops(segment(t, `input %0
input %1
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[10,10]} -> float32[10,10] : forward
  %1 = Parameter() {Name: "arg1", Shape: float32[10,10]} -> float32[10,10] : forward
  `+op+`
  %3 = Add(%2, %0) -> float32[10,10] : forward
  return %3
}
`))
		if got != want {
			t.Errorf("%s: %v, not %v", op, got, want)
		}
	}
}

func TestAProductFillsTiles(t *testing.T) {
	p := Flat(1e3, 1e9, 0)
	p.Fuses, p.Tile = true, [2]int64{4, 32}
	// 10 rows take 12, 30 columns take 32: 12,000 flops take as long as 15,360.
	if got, want := p.Kernel(Kernels(segment(t, softmaxOfAProduct), true)[0]).Round(time.Millisecond), 15360*time.Millisecond; got != want {
		t.Errorf("%v, not %v", got, want)
	}
}

func TestShortRowsTakeTimeToBegin(t *testing.T) {
	s := segment(t, softmaxOfAProduct)
	// Two reductions of 10 rows.
	if got := Kernels(s, true)[1].Rows; got != 20 {
		t.Errorf("%d rows, not 20", got)
	}
	p := Flat(1e12, 1e12, 0)
	p.Fuses, p.Rates[Rows] = true, Constant(10)
	if got := p.Ops(s).Round(time.Millisecond); got != 2*time.Second {
		t.Errorf("20 rows at 10 per second take %v", got)
	}
}

func TestDevicesWithMoreCores(t *testing.T) {
	p := Flat(1e9, 1e9, 0)
	p.Cores = 8
	if q, faster := p.On(4); q != p || faster != 4 {
		t.Errorf("nothing measured: %g times", faster)
	}
	p.Teams = map[int]*Profile{2: Flat(2e9, 1e9, 0), 8: Flat(5e9, 1e9, 0)}
	for threads, want := range map[int]struct {
		q      *Profile
		faster float64
	}{1: {p, 1}, 2: {p.Teams[2], 1}, 4: {p.Teams[2], 2}, 8: {p.Teams[8], 1}} {
		if q, faster := p.On(threads); q != want.q || faster != want.faster {
			t.Errorf("%d cores: %g times as fast as %v", threads, faster, q.Rates)
		}
	}
}

// What follows a product waits for its user: the engine computes it there, and does not write it.
func TestWhatFollowsAProductIsComputedWhereItIsUsed(t *testing.T) {
	got := kernelsText(Kernels(segment(t, `input %0
input %1
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[10,10]} -> float32[10,10] : forward
  %1 = Parameter() {Name: "arg1", Shape: float32[10,10]} -> float32[10,10] : forward
  %2 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[10,10] : forward
  %3 = Add(%2, %1) -> float32[10,10] : forward
  %4 = DotGeneral(%0, %0) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[10,10] : forward
  %5 = DotGeneral(%4, %0) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[10,10] : forward
  %6 = Mul(%5, %3) -> float32[10,10] : forward
  return %6
}
`), true))
	want := []string{"dot of 1: 800 in, 400 out", "dot of 1: 400 in, 400 out", "dot of 1: 800 in, 400 out", "elementwise of 2: 1200 in, 400 out"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

// The engine writes a product in the order of its user. Another value that is transposed is read out of order.
func TestATransposedProductIsInOrder(t *testing.T) {
	for input, broken := range map[string]bool{"%2": false, "%0": true} {
		all := Kernels(segment(t, `input %0
input %1
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[10,10]} -> float32[10,10] : forward
  %1 = Parameter() {Name: "arg1", Shape: float32[10,10]} -> float32[10,10] : forward
  %2 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[10,10] : forward
  %3 = Transpose(`+input+`) {Permutation: [1, 0]} -> float32[10,10] : forward
  %4 = Add(%3, %2) -> float32[10,10] : forward
  return %4
}
`), true)
		if last := all[len(all)-1]; last.Broken != broken {
			t.Errorf("transposed %s: broken %v", input, last.Broken)
		}
	}
}

func TestZerosOfADilatedInputCountNothing(t *testing.T) {
	flops := func(dilations string) int64 {
		s := segment(t, `input %0
input %1
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[2,8,8,4]} -> float32[2,8,8,4] : forward
  %1 = Parameter() {Name: "arg1", Shape: float32[1,1,4,4]} -> float32[1,1,4,4] : forward
  %2 = ConvGeneral(%0, %1) {Axes: {InputBatch: 0, InputChannels: 3, InputSpatial: [1, 2], KernelInputChannels: 2, KernelOutputChannels: 3, KernelSpatial: [0, 1], OutputBatch: 0, OutputChannels: 3, OutputSpatial: [1, 2]}, Strides: [1, 1], Paddings: [[0, 0], [0, 0]]`+dilations+`, ChannelGroupCount: 1, BatchGroupCount: 1} -> float32[2,16,16,4] : forward
  return %2
}
`)
		return Of(s.Ops[0]).Flops
	}
	if plain, dilated := flops(""), flops(", InputDilations: [2, 2]"); dilated != plain/4 {
		t.Errorf("%d flops, and %d if three quarters are zeros", plain, dilated)
	}
}

// On a CPU a product packs its operands, and a group that is no plain loop computes after it has read.
func TestACPUComputesAfterItHasRead(t *testing.T) {
	p := Flat(1e9, 1e9, 0)
	p.Rates[Pack] = Constant(1e9)
	product := &Kernel{Family: Dot, Flops: 1000, Size: 1000, Operands: 500, Read: 300}
	group := &Kernel{Family: Elementwise, Work: 1000, Broken: true, Read: 300}
	loop := &Kernel{Family: Elementwise, Work: 1000, Read: 300}
	for _, c := range []struct {
		cores int
		k     *Kernel
		want  time.Duration
	}{{0, product, 1500}, {2, product, 1800}, {0, group, 1000}, {2, group, 1300}, {2, loop, 1000}} {
		p.Cores = c.cores
		if got := p.Kernel(c.k); (got - c.want).Abs() > 1 {
			t.Errorf("%d cores, %+v: %v, not %v", c.cores, c.k, got, c.want)
		}
	}
}
