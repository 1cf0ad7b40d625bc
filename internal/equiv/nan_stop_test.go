// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"math"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
)

// logged takes the logarithm of something that is negative for large inputs; -Inf elsewhere does no harm.
func logged() Staged {
	m := stagedMLP()
	m.Build = func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			for i := range stages {
				stage(x, i, func() { x = hidden(scope, x, i, 12) })
			}
			stage(x, stages, func() {
				masked := Where(GreaterThan(x, ScalarZero(x.Graph(), x.DType())), x, BroadcastToShape(Scalar(x.Graph(), x.DType(), math.Inf(-1)), x.Shape()))
				first := ReduceAllMax(inputs[0])
				x = Add(layers.Dense(scope.In("out"), Add(x, Softmax(masked)), true, 1), MulScalar(Log(OneMinus(Square(first))), 0.01))
			})
			return []*Node{x}
		}
	}
	batch := m.Batch
	m.Batch = func(step int) (in, labels []*tensors.Tensor) {
		in, labels = batch(step)
		in[0].MustMutableFlatData(func(flat any) { // all are below 0.9
			for i := range flat.([]float32) {
				flat.([]float32)[i] *= 0.9
			}
		})
		return in, labels
	}
	return m
}

// stopped trains until the error, and checks that nobody hears of the step: nothing can be saved after it.
func (m Staged) stopped(t testing.TB, env *epl.Env, stages, steps int) error {
	t.Helper()
	store := newStore()
	loop := train.NewLoop(train.NewTrainer(env.Backend(), store, m.Build(stages), m.Loss, epl.Optimizer(adam()), nil, nil))
	hooks := 0
	loop.OnStep("count", 0, func(*train.Loop, []*tensors.Tensor) error { hooks++; return nil })
	_, err := loop.RunSteps(env.Dataset(Dataset{m.Batch}), steps+1)
	if err == nil {
		t.Fatal("nothing stops")
	}
	if hooks != steps {
		t.Errorf("hooks are called after %d steps, which are to be %d", hooks, steps)
	}
	return err
}

func TestAStepThatIsNotFiniteStopsTheJobAndNamesTheOp(t *testing.T) {
	for _, p := range []struct {
		plan   pipelinePlan
		params map[string]any
	}{
		{pipelinePlan{stages: 1, replicas: 1, micro: 1}, nil},
		{pipelinePlan{stages: 1, replicas: 1, micro: 3}, map[string]any{"offload.level": "v0"}},
		{pipelinePlan{stages: 1, replicas: 3, micro: 1}, map[string]any{"zero.level": "v2"}},
		{pipelinePlan{stages: 3, replicas: 1, micro: 2}, nil},
		{pipelinePlan{stages: 3, replicas: 2, micro: 2}, map[string]any{"amp.level": "O1"}},
	} {
		t.Run(p.plan.String(), func(t *testing.T) {
			t.Parallel()
			m, n := logged(), p.plan.batches()
			at := 2*n + n/2
			clean := m.Batch
			m.Batch = func(step int) (in, labels []*tensors.Tensor) {
				in, labels = clean(step)
				if step == at {
					in[0].MustMutableFlatData(func(flat any) { flat.([]float32)[3] = 1.5 })
				}
				return in, labels
			}
			params := map[string]any{"reliability.nan": "stop"}
			for k, v := range p.params {
				params[k] = v
			}
			env := newCluster(t, p.plan.replicas, p.plan.micro, params)
			if p.plan.stages > 1 {
				env = p.plan.env(t, params)
			}
			stages := max(p.plan.stages-1, 1)
			err := m.stopped(t, env, stages, 2)
			for _, want := range []string{"is not finite, and changed no variable (reliability.nan = stop): computed again op by op, batch " + []string{"0", "1", "2"}[n/2],
				"the loss is not finite. It begins with Log", "(equiv/nan_stop_test.go:", "it is NaN; it reads", "from -1.25 to -1.25"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
		})
	}
}

func TestABatchOrAVariableThatIsNotFiniteIsNamed(t *testing.T) {
	m := stagedMLP()
	m.Batch = poisoned(m.Batch, 1)
	stop := map[string]any{"reliability.nan": "stop"}
	if err := m.stopped(t, newCluster(t, 1, 1, stop), 2, 1); !strings.Contains(err.Error(), `because input "arg0", float32[4,8], of the batch is not: 1 of 32 elements, from element 0 on, are NaN`) {
		t.Error(err)
	}
	clean := stagedMLP()
	env := newCluster(t, 2, 1, stop)
	store := newStore()
	trainer := train.NewTrainer(env.Backend(), store, clean.Build(2), clean.Loss, epl.Optimizer(sgd()), nil, nil)
	loop := train.NewLoop(trainer)
	if _, err := loop.RunSteps(env.Dataset(Dataset{clean.Batch}), 1); err != nil {
		t.Fatal(err)
	}
	v := store.GetVariable("/stage_1/dense/biases")
	value := make([]float32, 12)
	value[5] = float32(math.NaN())
	if err := v.SetValue(tensors.FromFlatDataAndDimensions(value, 12)); err != nil {
		t.Fatal(err)
	}
	_, err := loop.RunSteps(env.Dataset(Dataset{clean.Batch}), 1)
	if err == nil || !strings.Contains(err.Error(), `because variable "/stage_1/dense/biases" was not before the step: 1 of 12 elements, from element 5 on, are NaN`) {
		t.Error(err)
	}
}

// What a loss scale skips is no error, as long as a smaller one may help.
func TestALossScaleMaySkipStepsWhateverTheGuardDoes(t *testing.T) {
	for _, nan := range []string{"skip", "stop"} {
		m := magnified(10, 0) // overflows at the first scale
		env := newCluster(t, 2, 1, map[string]any{"amp.level": "O1", "reliability.nan": nan})
		run := m.piped(t, env, 1, sgdFor(10)(), 12)
		if scale := numbers(run.Store.GetVariable(epl.LossScaleVariable).MustValue())[0]; scale >= 1<<15 {
			t.Errorf("%s: no step has overflowed: the scale is %v", nan, scale)
		}
		if n, err := env.SkippedSteps(); n != 0 || err != nil {
			t.Errorf("%s: %d steps, %v", nan, n, err)
		}
	}
}
