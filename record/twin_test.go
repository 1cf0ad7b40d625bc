// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"testing"

	. "github.com/gomlx/gomlx/core/graph"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/record"
)

// twinOf builds a program of two inputs and returns the twin of its fused op.
func twinOf(t *testing.T, build func(x, w *Node) *Node) []*ir.Value {
	t.Helper()
	b, eng := newBackend(t, record.Options{})
	if _, err := CallOnce(b, build, [][]float32{{1, 2}, {3, 4}}, [][]float32{{5, 6}, {7, 8}}); err != nil {
		t.Fatalf("%+v", err)
	}
	for _, op := range eng.Programs()[0].Recorded.Main.Ops {
		switch op.Attrs.(type) {
		case *ir.FusedSoftmax, *ir.FusedDense:
			return op.Twin
		}
	}
	t.Fatal("there is no fused op")
	return nil
}

func TestTheTwinOfAFusedOpIsWhatGoMLXBuiltForItsGradient(t *testing.T) {
	if twin := twinOf(t, func(x, _ *Node) *Node { return Softmax(x, -1) }); len(twin) != 1 {
		t.Fatalf("the twin is %v", twin)
	} else if _, ok := twin[0].Op.Attrs.(*ir.Div); !ok {
		t.Errorf("the twin is %s", twin[0].Op)
	}
}

// Something that merely stands in front of a fused op must never be taken for its twin: the pass would put it in the
// fused op's place.
func TestWhatMerelyStandsBeforeAFusedOpIsNotItsTwin(t *testing.T) {
	fusedDense := func(x, w *Node) func() *Node {
		return func() *Node { return BackendFusedDense(x, w, nil, compute.DenseConfig{}) }
	}
	for name, build := range map[string]func(x, w *Node) *Node{
		"a fused op without a caller": func(x, _ *Node) *Node {
			y := Exp(x)
			return Add(BackendFusedSoftmax(x, 1), y)
		},
		"a value of another shape": func(x, _ *Node) *Node {
			y, _ := InternalFusedOpCaller(func() *Node { return BackendFusedSoftmax(x, 1) }, func() *Node { return ReduceAllSum(Exp(x)) }, true)
			return y
		},
		"a value that depends on more than the inputs": func(x, w *Node) *Node {
			y, _ := InternalFusedOpCaller(func() *Node { return BackendFusedSoftmax(x, 1) }, func() *Node { return Mul(x, w) }, true)
			return y
		},
		"a value that depends on less than the inputs": func(x, w *Node) *Node {
			y, _ := InternalFusedOpCaller(fusedDense(x, w), func() *Node { return Exp(x) }, true)
			return y
		},
	} {
		if twin := twinOf(t, build); twin != nil {
			t.Errorf("%s is taken for a twin: %s", name, twin[0].Op)
		}
	}
}
