// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes_test

import (
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
)

// comparedText has an exponential %4, what CHOSEN makes of it, a dot that reads that, and OTHER with which backward compares it.
const comparedText = `program "compared"
taskgraph 0 "" replicate(1)
variable "/w" %1 trainable update %19 taskgraph 0
input %0
gradient %1 = %18
loss %9
outputs update %1 result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[4,4]} -> float32[4,4] : forward taskgraph 0
  %1 = Parameter() {Name: "/w", Shape: float32[4,4]} -> float32[4,4] : forward taskgraph 0
  %2 = Constant() {Value: float32[](NUMBER)} -> float32[] : forward taskgraph 0
  %3 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[4,4] : forward taskgraph 0
  %4 = Exp(%3) -> float32[4,4] : forward taskgraph 0
  %5 = BroadcastInDim(%2) {OutputShape: float32[4,4]} -> float32[4,4] : forward taskgraph 0
  %6 = CHOSEN : forward taskgraph 0
  %7 = DotGeneral(%6, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[4,4] : forward taskgraph 0
  %8 = Mul(%7, %7) -> float32[4,4] : forward taskgraph 0
  %9 = ReduceSum(%8) {Axes: [0, 1]} -> float32[] : forward taskgraph 0
  %10 = OTHER : backward taskgraph 0
  %11 = Sub(%4, %10) -> float32[4,4] : backward taskgraph 0
  %12 = Sign(%11) -> float32[4,4] : backward taskgraph 0
  %13 = Mul(%7, %12) -> float32[4,4] : backward taskgraph 0
  %18 = DotGeneral(%0, %13) {LHSContractingAxes: [0], RHSContractingAxes: [0]} -> float32[4,4] : backward taskgraph 0
  %19 = Sub(%1, %18) -> float32[4,4] : apply taskgraph 0
  return %19, %9
}
`

// isCast tells whether a value comes from others by way of a cast.
func isCast(v *ir.Value) bool {
	switch v.Op.Attrs.(type) {
	case *ir.ConvertDType:
		return true
	case *ir.Reshape, *ir.BroadcastInDim:
		return isCast(v.Op.Inputs[0])
	}
	return false
}

func TestValuesAreRoundedAlikeOrNotAtAllWhereTheyAreCompared(t *testing.T) {
	const (
		largest = "ReduceMax(%4) {Axes: [0]} -> float32[4]"
		spread  = "BroadcastInDim(%6) {OutputShape: float32[4,4], BroadcastAxes: [1]} -> float32[4,4]"
		dot     = "%7 = DotGeneral(%6, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]}"
		vector  = "%20 = Reshape(%6) {Dimensions: [1, 4]} -> float32[1,4] : forward taskgraph 0\n  " +
			"%21 = BroadcastInDim(%20) {OutputShape: float32[4,4], BroadcastAxes: [0, 1]} -> float32[4,4] : forward taskgraph 0\n  " +
			"%7 = DotGeneral(%21, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]}"
	)
	for _, c := range []struct {
		name, number, chosen, other string
		cast                        bool // in bfloat16
	}{
		{"a maximum", "0", largest, spread, false},
		{"an element-wise maximum", "0.1", "Max(%4, %5) -> float32[4,4]", "Identity(%6) -> float32[4,4]", false},
		{"its operands", "0.1", "Max(%4, %5) -> float32[4,4]", "Identity(%5) -> float32[4,4]", false},
		// The sign of what is rounded is the same: here backward may read what takes half the memory.
		{"zero", "0", "Max(%4, %5) -> float32[4,4]", "Identity(%5) -> float32[4,4]", true},
	} {
		for _, d := range []dtypes.DType{dtypes.BFloat16, dtypes.Float16} {
			text := strings.NewReplacer("NUMBER", c.number, "CHOSEN", c.chosen, "OTHER", c.other).Replace(comparedText)
			if c.chosen == largest {
				text = strings.Replace(text, dot, vector, 1)
			}
			if c.name == "zero" { // as GoMLX writes it
				text = strings.ReplaceAll(text, "Sub(%4, %10)", "Sub(%4, %5)")
			}
			p := parse(t, text)
			log := mixed(t, p, passes.Options{AMP: d})
			for _, op := range p.Main.Ops {
				switch {
				case op.Type() == ir.OpDotGeneral && op.Inputs[0].Shape.DType != d:
					t.Errorf("%s in %s: %s reads %s", c.name, d, op, op.Inputs[0].Shape.DType)
				case op.Type() != ir.OpSub || op.Phase != ir.Backward:
				case isCast(op.Inputs[0]) != (c.cast && d == dtypes.BFloat16) || isCast(op.Inputs[1]):
					t.Errorf("%s in %s:\n%s\n%s", c.name, d, p, strings.Join(log, "\n"))
				}
			}
		}
	}
}

// What a limit cut off equals the limit, if the type has it or not.
func TestALimitIsNotRoundedWhereItIsComparedWithWhatItCutOff(t *testing.T) {
	const text = `program "limit"
taskgraph 0 "" replicate(1)
variable "/w" %1 trainable update %19 taskgraph 0
input %0
gradient %1 = %18
loss %9
outputs update %1 result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[4,4]} -> float32[4,4] : forward taskgraph 0
  %1 = Parameter() {Name: "/w", Shape: float32[4,4]} -> float32[4,4] : forward taskgraph 0
  %2 = Constant() {Value: float32[](NUMBER)} -> float32[] : forward taskgraph 0
  %3 = DotGeneral(%0, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[4,4] : forward taskgraph 0
  %5 = BroadcastInDim(%2) {OutputShape: float32[4,4]} -> float32[4,4] : forward taskgraph 0
  %6 = Min(%3, %5) -> float32[4,4] : forward taskgraph 0
  %7 = OTHER(%6, %5) -> bool[4,4] : forward taskgraph 0
  %8 = Where(%7, %3, %6) -> float32[4,4] : forward taskgraph 0
  %10 = DotGeneral(%8, %1) {LHSContractingAxes: [1], RHSContractingAxes: [0]} -> float32[4,4] : forward taskgraph 0
  %9 = ReduceSum(%10) {Axes: [0, 1]} -> float32[] : forward taskgraph 0
  %18 = DotGeneral(%0, %10) {LHSContractingAxes: [0], RHSContractingAxes: [0]} -> float32[4,4] : backward taskgraph 0
  %19 = Sub(%1, %18) -> float32[4,4] : apply taskgraph 0
  return %19, %9
}
`
	for number, want := range map[string]dtypes.DType{"0.1": dtypes.Float32, "6": dtypes.BFloat16} {
		for _, comparison := range []string{"Equal", "GreaterOrEqual", "LessThan"} {
			p := parse(t, strings.NewReplacer("NUMBER", number, "OTHER", comparison).Replace(text))
			mixed(t, p, passes.Options{AMP: dtypes.BFloat16})
			for _, op := range p.Main.Ops {
				if op.Type() == ir.OpMin && op.Outputs[0].Shape.DType != want {
					t.Errorf("with a limit of %s and %s, the minimum is %s", number, comparison, op.Outputs[0].Shape.DType)
				}
				if string(op.Type()) == comparison && (isCast(op.Inputs[0]) && want == dtypes.Float32 || isCast(op.Inputs[1])) {
					t.Errorf("with a limit of %s, %s reads what is rounded:\n%s", number, comparison, p)
				}
			}
		}
	}
}
