// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/easyparallel/epl/ir"
)

// parse reads the ops of a program's main function.
func parse(t *testing.T, body string) []*ir.Op {
	t.Helper()
	p, err := ir.Parse("program \"test\"\n" + body)
	if err != nil {
		t.Fatal(err)
	}
	return p.Main.Ops
}

func lastOf(ops []*ir.Op) *ir.Op { return ops[len(ops)-1] }

const parameters = `input %0
input %1
input %2
input %3
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[10,10]} -> float32[10,10] : forward
  %1 = Parameter() {Name: "arg1", Shape: float32[10,16]} -> float32[10,16] : forward
  %2 = Parameter() {Name: "arg2", Shape: float32[2,8,8,3]} -> float32[2,8,8,3] : forward
  %3 = Parameter() {Name: "arg3", Shape: float32[2,4,6,8]} -> float32[2,4,6,8] : forward
`

func TestFlopsOfOps(t *testing.T) {
	for _, c := range []struct {
		op   string
		want int64
	}{
		{"DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[10,16]", 2 * 10 * 10 * 16},
		{"DotGeneral(%3, %3) {LHSContractingAxes: [3], LHSBatchAxes: [0, 1], RHSContractingAxes: [3], RHSBatchAxes: [0, 1]} -> float32[2,4,6,6]", 2 * 2 * 4 * 6 * 8 * 6},
		{"Add(%0, %0) -> float32[10,10]", 100},
		{"Div(%0, %0) -> float32[10,10]", 400},
		{"Exp(%0) -> float32[10,10]", 1000},
		{"ReduceSum(%0) {Axes: [1]} -> float32[10]", 100},
		{"Transpose(%1) {Permutation: [1, 0]} -> float32[16,10]", 0},
		{"Reshape(%0) {Dimensions: [100]} -> float32[100]", 0},
		{"FusedDense(%0, %1, _) -> float32[10,16]", 10 * 16 * (2*10 + 1)},
		{"FusedScaledDotProductAttention(%3, %3, %3) -> float32[2,4,6,8]", 2 * 4 * 6 * 6 * (4*8 + softmax)},
		{`ReduceWindow(%2) {ReductionType: "Max", WindowDimensions: [1, 2, 2, 1], Strides: [1, 2, 2, 1]} -> float32[2,4,4,3]`, 2 * 4 * 4 * 3 * 4},
	} {
		ops := parse(t, parameters+"  %4 = "+c.op+" : forward\n  return %4\n}\n")
		if got := Of(lastOf(ops)); got.Flops != c.want {
			t.Errorf("%s: %d flops, not %d", c.op, got.Flops, c.want)
		}
	}
}

func TestFlopsOfAConvolution(t *testing.T) {
	ops := parse(t, `input %0
input %1
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[2,8,8,3]} -> float32[2,8,8,3] : forward
  %1 = Parameter() {Name: "arg1", Shape: float32[3,3,3,16]} -> float32[3,3,3,16] : forward
  %2 = ConvGeneral(%0, %1) {Axes: {InputChannels: 3, InputSpatial: [1, 2], KernelInputChannels: 2, KernelOutputChannels: 3, KernelSpatial: [0, 1], OutputChannels: 3, OutputSpatial: [1, 2]}} -> float32[2,6,6,16] : forward
  return %2
}
`)
	if got, want := Of(lastOf(ops)).Flops, int64(2*(2*6*6*16)*(3*3*3)); got != want {
		t.Errorf("%d flops, not %d", got, want)
	}
}

func TestClosuresCountAsOftenAsIsKnown(t *testing.T) {
	ops := parse(t, `input %0
input %1
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: bool[]} -> bool[] : forward
  %1 = Parameter() {Name: "arg1", Shape: float32[100]} -> float32[100] : forward
  %2 = If(%0) [closure 0 {
    %3 = Exp(%1) -> float32[100] : forward
    return %3
  }, closure 1 {
    %4 = Neg(%1) -> float32[100] : forward
    return %4
  }] -> float32[100] : forward
  return %2
}
`)
	if got := Of(lastOf(ops)).Flops; got != 100*exp {
		t.Errorf("an If costs %d flops, its larger side %d", got, 100*exp)
	}
}

func TestBytesOfOps(t *testing.T) {
	for _, c := range []struct {
		op          string
		read, write int64
	}{
		{"Add(%0, %0) -> float32[10,10]", 800, 400},
		{"Reshape(%0) {Dimensions: [100]} -> float32[100]", 0, 0},
		{"Slice(%0) {Starts: [0, 0], Limits: [1, 10], Strides: [1, 1]} -> float32[1,10]", 40, 40},
	} {
		got := Of(lastOf(parse(t, parameters+"  %4 = "+c.op+" : forward\n  return %4\n}\n")))
		if got.BytesRead != c.read || got.BytesWritten != c.write {
			t.Errorf("%s: %d bytes read, %d written; not %d, %d", c.op, got.BytesRead, got.BytesWritten, c.read, c.write)
		}
	}
}

func TestTimeIsThatOfTheScarcerResource(t *testing.T) {
	ops := parse(t, parameters+"  %4 = Add(%0, %0) -> float32[10,10] : forward\n  return %4\n}\n")
	p := Flat(100, 1e9, 0)
	if got := p.Op(lastOf(ops)); got != time.Second {
		t.Errorf("100 flops take %v", got)
	}
	p = Flat(1e9, 600, time.Second)
	if got := p.Op(lastOf(ops)); got != 3*time.Second {
		t.Errorf("1200 bytes take %v", got)
	}
	if got := p.Op(ops[0]); got != 0 {
		t.Errorf("a parameter takes %v", got)
	}
	l := Link{Bandwidth: 10, Latency: time.Second}
	if got := l.Time(20); got != 3*time.Second {
		t.Errorf("a transfer takes %v", got)
	}
	if got := l.Time(0); got != 0 {
		t.Errorf("nothing takes %v", got)
	}
}

func TestActivationsAreWhatBackwardReadsOfForward(t *testing.T) {
	ops := parse(t, `variable "/w" %1 trainable
input %0
gradient %1 = %6
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[10]} -> float32[10] : forward
  %1 = Parameter() {Name: "/w", Shape: float32[10]} -> float32[10] : forward
  %2 = Mul(%0, %1) -> float32[10] : forward
  %3 = Tanh(%2) -> float32[10] : forward
  %4 = Neg(%3) -> float32[10] : forward
  %5 = Mul(%3, %3) -> float32[10] : backward
  %6 = Mul(%5, %0) -> float32[10] : backward
  return %4
}
`)
	if got := Activations(ops); got != 40 {
		t.Errorf("%d bytes are kept, not the 40 of one value", got)
	}
}

// Every operation of the IR stands in one of the tables, or has a case of its own, so that none counts as nothing by
// oversight.
func TestEveryOperationHasACost(t *testing.T) {
	own := map[ir.OpType]bool{ // cases of flops and fused
		ir.OpDotGeneral: true, ir.OpConvGeneral: true, ir.OpReduceWindow: true, ir.OpSelectAndScatterMax: true, ir.OpSelectAndScatterMin: true,
		ir.OpFFT: true, ir.OpRNGBitGenerator: true, ir.OpSort: true, ir.OpWhile: true, ir.OpIf: true, ir.OpCall: true,
		ir.OpFusedDense: true, ir.OpFusedQuantizedDense: true, ir.OpFusedAttentionQKVProjection: true,
		ir.OpFusedScaledDotProductAttention: true, ir.OpFusedScaledDotProductAttentionVJP: true,
	}
	source, err := os.ReadFile("../ir/gen_ops.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\tOp\w+ +OpType = "(\w+)"$`).FindAllSubmatch(source, -1)
	if len(found) < 100 {
		t.Fatalf("only %d operations were found", len(found))
	}
	for _, m := range found {
		op := ir.OpType(m[1])
		_, perElement := weights[op]
		_, perInput := perInput[op]
		n := 0
		for _, in := range []bool{perElement, perInput, moves[op], renames[op], own[op]} {
			if in {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s stands in %d tables of costs", op, n)
		}
	}
}

func TestSignificantLeavesSoManyDigits(t *testing.T) {
	for _, c := range []struct {
		x      float64
		digits int
		want   float64
	}{{12345, 2, 12000}, {12345, 3, 12300}, {99.96, 3, 100}, {1, 2, 1}, {0, 2, 0}} {
		if got := Significant(c.x, c.digits); got != c.want {
			t.Errorf("%g with %d digits is %g, not %g", c.x, c.digits, got, c.want)
		}
	}
}
