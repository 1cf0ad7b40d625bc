// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/record"
)

// What only some engines have is recorded with its shape, everywhere. An engine that lacks it says so when it compiles the program, with the line.
func TestOpsThatThePureGoBackendLacksAreRecorded(t *testing.T) {
	shape := shapes.Make(dtypes.Float32, 4, 6)
	for name, c := range map[string]struct {
		build func(x *Node) *Node
		op    ir.OpType
		shape string
	}{
		"complex":      {func(x *Node) *Node { return Real(Mul(Complex(x, x), Complex(x, x))) }, ir.OpComplex, "complex64[4,6]"},
		"FFT":          {func(x *Node) *Node { return Imag(FFT(Complex(x, x))) }, ir.OpFFT, "complex64[4,6]"},
		"FFT of reals": {func(x *Node) *Node { return Abs(RealFFT(x)) }, ir.OpFFT, "complex64[4,4]"},
		"its inverse":  {func(x *Node) *Node { return InverseRealFFT(Complex(x, x)) }, ir.OpFFT, "float32[4,10]"},
		"a clamp": {func(x *Node) *Node {
			return Clamp(ScalarZero(x.Graph(), x.DType()), x, ScalarOne(x.Graph(), x.DType()))
		}, ir.OpClamp, "float32[4,6]"},
		"a slice": {func(x *Node) *Node {
			i := Const(x.Graph(), int32(1))
			return DynamicSlice(x, []*Node{i, i}, []int{2, 3})
		}, ir.OpDynamicSlice, "float32[2,3]"},
		"a slice that changes": {func(x *Node) *Node {
			i := Const(x.Graph(), int32(1))
			return DynamicUpdateSlice(x, OnesLike(x), []*Node{i, i})
		}, ir.OpDynamicUpdateSlice, "float32[4,6]"},
	} {
		k := &keeper{}
		_, err := CallOnce(record.NewBackend(k, record.Options{}), func(g *Graph) *Node { return c.build(IotaFull(g, shape)) })
		if k.program == nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		found := false
		for _, op := range k.program.Main.Ops {
			found = found || op.Type() == c.op && ir.ShapeText(op.Outputs[0].Shape) == c.shape
		}
		if !found {
			t.Errorf("%s: there is no %s of %s in\n%s", name, c.op, c.shape, k.program)
		}
	}
	b, _ := newBackend(t, record.Options{})
	_, err := CallOnce(b, func(g *Graph) *Node { x := IotaFull(g, shape); return Imag(FFT(Complex(x, x))) })
	if !errors.Is(err, compute.ErrNotImplemented) || !strings.Contains(err.Error(), "rules_test.go:") {
		t.Errorf("on CPUs: %v", err)
	}
}
