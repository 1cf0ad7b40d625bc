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
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/record"
)

// halfOnly is a backend that fuses attention and its gradient in half precision only, as XLA does on CUDA. It is good for shapes.
type halfOnly struct{ compute.Backend }

func (b halfOnly) Capabilities() compute.Capabilities {
	c := b.Backend.Capabilities().Clone()
	c.Operations[compute.OpTypeFusedScaledDotProductAttention] = true
	c.Operations[compute.OpTypeFusedScaledDotProductAttentionVJP] = true
	return c
}

func (b halfOnly) Builder(name string) compute.Builder { return halfBuilder{b.Backend.Builder(name)} }

type halfBuilder struct{ compute.Builder }

func (b halfBuilder) Main() compute.Function { return halfFunction{b.Builder.Main()} }

type halfFunction struct{ compute.Function }

func (f halfFunction) check(v ...compute.Value) error {
	for _, x := range v {
		if s, err := f.Shape(x); err != nil || !s.DType.IsHalfPrecision() {
			return errors.Join(compute.ErrNotImplemented, err)
		}
	}
	return nil
}

func (f halfFunction) FusedScaledDotProductAttention(q, k, v compute.Value, _ compute.AttentionAxesLayout, _ *compute.ScaledDotProductAttentionConfig) (compute.Value, []compute.Value, error) {
	if err := f.check(q, k, v); err != nil {
		return nil, nil, err
	}
	state, err := f.ConvertDType(q, dtypes.Float32)
	return q, []compute.Value{state}, err
}

func (f halfFunction) FusedScaledDotProductAttentionVJP(q, k, v compute.Value, _ compute.AttentionAxesLayout, _ *compute.ScaledDotProductAttentionConfig, out compute.Value, _ []compute.Value, dOut compute.Value) (compute.Value, compute.Value, compute.Value, error) {
	return q, k, v, f.check(q, k, v, out, dOut)
}

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
		b := record.NewBackend(halfOnly{equiv.Plain()}, k, record.Options{HalfType: half})
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
		b := record.NewBackend(halfOnly{equiv.Plain()}, k, record.Options{HalfType: half})
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
