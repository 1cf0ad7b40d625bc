// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

func TestVariablesThatTakeMuchOfTheMemoryWaitForThePlan(t *testing.T) {
	p := ir.NewProgram("train")
	shape := shapes.Make(dtypes.Float32, 256)
	w := p.NewOp(&ir.Parameter{Name: "/w", Shape: shape}, nil, shape)
	p.Variables = append(p.Variables, &ir.Variable{Path: "/w", Param: w.Outputs[0]})
	for host, want := range map[int64]bool{0: false, 4 << 10: false, 16 << 10: true} {
		if got := (Options{Host: host}).early(p); got != want {
			t.Errorf("%d bytes: %v", host, got)
		}
	}
}

func TestWhatRunsBesidePanicsWhereItIsWaitedFor(t *testing.T) {
	wait := beside(func() { panic("lost") })
	defer func() {
		if p := recover(); p != "lost" {
			t.Errorf("panic %v", p)
		}
	}()
	wait()
	t.Error("it went on")
}
