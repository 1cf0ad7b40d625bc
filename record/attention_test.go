// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"errors"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/record"
)

// keeper keeps the program that it is to compile.
type keeper struct {
	record.Engine
	program *ir.Program
}

func (k *keeper) Compile(p *ir.Program) (compute.Executable, error) {
	k.program = p
	return nil, errors.New("seen")
}

func TestAttentionThatIsFusedInHalfPrecisionOnlyIsRecordedSoUnderMixedPrecision(t *testing.T) {
	for _, half := range []dtypes.DType{dtypes.InvalidDType, dtypes.BFloat16} {
		k := &keeper{}
		b := record.NewBackend(k, record.Options{HalfType: half})
		exec, err := model.NewExec(b, model.NewStore(), func(scope *model.Scope, g *graph.Graph) *graph.Node {
			x := scope.VariableWithShape("x", shapes.Make(dtypes.Float32, 2, 4, 2, 8)).NodeValue(g)
			y, _ := attention.Core(x, x, x, attention.LayoutBSHD, attention.CoreOptions{Scale: 0.3})
			l := graph.ReduceAllSum(y)
			epl.Optimizer(optimizer.StochasticGradientDescent()).UpdateGraph(scope, g, l)
			return l
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := exec.Call(); err == nil || k.program == nil {
			t.Fatalf("nothing was recorded: %v", err)
		}
		fused := map[ir.OpType]int{}
		for _, op := range k.program.Main.Ops {
			switch op.Attrs.(type) {
			case *ir.FusedScaledDotProductAttention, *ir.FusedScaledDotProductAttentionVJP:
				fused[op.Type()]++
				if d := op.Outputs[0].Shape.DType; d != half {
					t.Errorf("%s is in %s", op, d)
				}
			}
		}
		want := 0
		if half != dtypes.InvalidDType {
			want = 1
		}
		if fused[ir.OpFusedScaledDotProductAttention] != want || fused[ir.OpFusedScaledDotProductAttentionVJP] != want {
			t.Errorf("with %s there are %v", half, fused)
		}
	}
}

func TestABiasOfAttentionStaysWithinFloat16(t *testing.T) {
	for half, want := range map[dtypes.DType]ir.OpType{dtypes.Float16: ir.OpMax, dtypes.BFloat16: ir.OpParameter} {
		k := &keeper{}
		b := record.NewBackend(k, record.Options{HalfType: half})
		exec, err := model.NewExec(b, model.NewStore(), func(scope *model.Scope, g *graph.Graph) *graph.Node {
			x := scope.VariableWithShape("x", shapes.Make(dtypes.Float32, 2, 4, 2, 8)).NodeValue(g)
			bias := scope.VariableWithShape("bias", shapes.Make(dtypes.Float32, 2, 2, 4, 4)).SetTrainable(false).NodeValue(g)
			y, _ := attention.Core(x, x, x, attention.LayoutBSHD, attention.CoreOptions{AttentionBias: bias})
			l := graph.ReduceAllSum(y)
			epl.Optimizer(optimizer.StochasticGradientDescent()).UpdateGraph(scope, g, l)
			return l
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := exec.Call(); err == nil || k.program == nil {
			t.Fatalf("nothing was recorded: %v", err)
		}
		fused := 0
		for _, op := range k.program.Main.Ops {
			switch op.Attrs.(type) {
			case *ir.FusedScaledDotProductAttention, *ir.FusedScaledDotProductAttentionVJP:
				fused++
				if cast := op.Inputs[5].Op; cast.Type() != ir.OpConvertDType || cast.Inputs[0].Op.Type() != want {
					t.Errorf("with %s, %s reads a bias that is the cast of %s", half, op, cast.Inputs[0].Op)
				}
			}
		}
		if fused != 2 {
			t.Errorf("with %s there are %d", half, fused)
		}
	}
}
