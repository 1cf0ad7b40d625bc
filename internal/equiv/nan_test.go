// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// breakable makes a model whose outputs are not finite for a batch that spoiled has changed.
func breakable(m Staged) Staged {
	build := m.Build
	m.Build = func(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			outs := build(stages)(scope, inputs)
			x := inputs[0]
			if x.DType().IsFloat() {
				return outs
			}
			same := ReduceAllMax(Abs(Sub(x, Reshape(Slice(x, AxisElem(0), AxisElem(0)), 1, 1)))) // tokens that are all the same
			for i, o := range outs {
				nan := BroadcastToShape(Scalar(o.Graph(), o.DType(), math.NaN()), o.Shape())
				outs[i] = Where(Equal(same, ScalarZero(same.Graph(), same.DType())), nan, o)
			}
			return outs
		}
	}
	return m
}

// spoiled makes one batch one that gives no number.
func spoiled(batch func(int) (in, labels []*tensors.Tensor), at int, with float64) func(int) (in, labels []*tensors.Tensor) {
	return func(step int) (in, labels []*tensors.Tensor) {
		in, labels = batch(step)
		if step == at {
			in[0].MustMutableFlatData(func(flat any) {
				switch x := flat.(type) {
				case []float32:
					x[len(x)-1] = float32(with)
				case []int32:
					for i := range x {
						x[i] = 1
					}
				}
			})
		}
		return in, labels
	}
}

// leftOut leaves batches out.
func leftOut(batch func(int) (in, labels []*tensors.Tensor), from, to int) func(int) (in, labels []*tensors.Tensor) {
	return func(step int) (in, labels []*tensors.Tensor) {
		if step >= from {
			step += to - from
		}
		return batch(step)
	}
}

// averaged trains, and returns what was said of the moving average of the loss, too.
func (m Staged) averaged(env *epl.Env, stages int, opt optimizer.Interface, steps int) (run *Run, averages []float32, err error) {
	run = &Run{Store: newStore()}
	loop := train.NewLoop(train.NewTrainer(env.Backend(), run.Store, m.Build(stages), m.Loss, epl.Optimizer(opt), nil, nil))
	loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
		run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
		averages = append(averages, tensors.ToScalar[float32](metrics[1]))
		return nil
	})
	_, err = loop.RunSteps(env.Dataset(Dataset{m.Batch}), steps)
	return run, averages, err
}

// skipsOne checks that a run with a step that gives no numbers is a run without that step, bit for bit, whatever the plan; and that a run without any such step is that
// without the guard.
func (w workload) skipsOne(t *testing.T, params map[string]any, opt func() optimizer.Interface, with float64) {
	t.Helper()
	const steps, bad = 5, 2
	n := w.replicas * w.micro
	all := map[string]any{"reliability.nan": "skip", "reliability.check_every": 1}
	maps.Copy(all, params)
	run := func(batch func(int) (in, labels []*tensors.Tensor), params map[string]any, steps int) (*Run, []float32, *epl.Env) {
		m := w.model
		m.Batch = batch
		env := w.make(t, params)
		got, averages, err := m.averaged(env, w.stages, opt(), steps)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		return got, averages, env
	}
	batch := w.model.Batch
	got, averages, env := run(spoiled(batch, (bad+1)*n-1, with), all, steps)
	want, wanted, _ := run(leftOut(batch, bad*n, (bad+1)*n), all, steps-1)
	plain, _, _ := run(leftOut(batch, bad*n, (bad+1)*n), params, steps-1)
	if got.Losses[bad] != got.Losses[bad-1] || averages[bad] != averages[bad-1] {
		t.Errorf("the step that is skipped reports a loss of %v and an average of %v; before it they were %v and %v", got.Losses[bad], averages[bad], got.Losses[bad-1], averages[bad-1])
	}
	for _, r := range []*Run{got, want, plain} { // what the loops meant to do
		if err := r.Store.Scope(train.TrainerAbsoluteScope).DeleteVariable(train.TrainLastStepVarName); err != nil {
			t.Fatal(err)
		}
	}
	got.Losses, averages = slices.Delete(got.Losses, bad, bad+1), slices.Delete(averages, bad, bad+1)
	if err := SameBits(want, got); err != nil {
		t.Errorf("not as without the step: %v", err)
	}
	if !slices.Equal(averages, wanted) {
		t.Errorf("averages of the loss are %v, not %v", averages, wanted)
	}
	if err := CloseLosses(plain, want, 1e-5); err != nil {
		t.Errorf("not as without the guard: %v", err)
	}
	for v := range plain.Store.IterVariables() {
		if strings.HasPrefix(v.Path(), "/metrics/") {
			continue
		}
		x, y := numbers(v.MustValue()), numbers(want.Store.GetVariable(v.Path()).MustValue())
		for i := range x {
			if !(math.Abs(x[i]-y[i]) <= 1e-4*(1+math.Abs(x[i]))) {
				t.Errorf("variable %s is %v without the guard, and %v with it, at %d", v.Path(), x[i], y[i], i)
				break
			}
		}
	}
	if skipped, err := env.SkippedSteps(); err != nil || skipped != 1 {
		t.Errorf("%d steps were skipped, %v", skipped, err)
	}
}

func TestAStepThatIsNotFiniteIsSkippedUnderEveryPlan(t *testing.T) {
	stagedModel := func(name string) Staged {
		return StagedModels()[slices.IndexFunc(StagedModels(), func(m Staged) bool { return m.Name == name })]
	}
	parted := func(name string) Parted {
		return PartedModels()[slices.IndexFunc(PartedModels(), func(m Parted) bool { return m.Name == name })]
	}
	loads := []workload{
		replicated(staged(Models()[0]), 1, 1), // batch norms
		replicated(staged(Models()[0]), 2, 2),
		replicated(staged(Models()[1]), 2, 1), // dropout
		replicated(stagedModel("embeddings"), 2, 1),
		replicated(stagedModel("regularised"), 1, 3),
		inStages(stagedModel("regularised"), pipelinePlan{stages: 2, replicas: 1, micro: 3}),
		inStages(stagedModel("tied"), pipelinePlan{stages: 2, replicas: 2, micro: 2}),
		inStages(stagedModel("shared-by-all"), pipelinePlan{stages: 4, replicas: 1, micro: 2, strategy: "Interleaved", perDevice: 2}),
		inStages(stagedModel("checkpoints"), pipelinePlan{stages: 3, replicas: 1, micro: 2, strategy: "ZeroBubble"}),
		inParts(parted("mlp"), splitPlan{parts: []int{2}, replicas: 2, micro: 1}),
		inParts(parted("dropout"), splitPlan{parts: []int{2, 1}, replicas: 1, micro: 2}),
		inParts(parted("states"), splitPlan{parts: []int{3}, replicas: 1, micro: 2}),
		inParts(parted("batch-norm"), splitPlan{parts: []int{-2, 2}, colocate: true, replicas: 2, micro: 1}),
	}
	settings := []map[string]any{
		{}, {"zero.level": "v0"}, {"zero.level": "v1"}, {"zero.level": "v2"}, {"offload.level": "v0"},
		{"optimizer.num_apply_group": 2, "gradient_checkpoint.type": "auto"}, {"communication.fp16": true}, {"amp.level": "O1", "amp.dtype": "bfloat16"},
		{"amp.level": "O1", "amp.loss_scale": 128}, {"communication.gradients_reduce_method": "sum", "communication.max_splits": 1},
	}
	k := 0
	for i, load := range loads {
		for j, params := range settings {
			if (i+j)%3 != 0 && j > 0 { // every plan with some settings, and every setting with some plans
				continue
			}
			load.model = breakable(load.model)
			k++
			opt, with := sgd, math.NaN()
			if k%2 == 0 {
				opt, with = adam, math.Inf(1)
			}
			t.Run(fmt.Sprint(load.name, " ", params), func(t *testing.T) {
				t.Parallel()
				load.skipsOne(t, params, opt, with)
			})
		}
	}
}

// Clipping may hide what is not finite.
func TestClippingDoesNotHideAStepThatIsNotFinite(t *testing.T) {
	for _, after := range []bool{false, true} {
		for name, clip := range map[string]func() optimizer.Interface{
			"value": func() optimizer.Interface { return epl.ClipByValue(sgd(), 0.5) },
			"norm":  func() optimizer.Interface { return epl.ClipByGlobalNorm(adam(), 0.5) },
		} {
			t.Run(fmt.Sprint(name, " ", after), func(t *testing.T) {
				t.Parallel()
				params := map[string]any{"communication.clip_after_allreduce": after}
				inStages(stagedMLP(), pipelinePlan{stages: 2, replicas: 2, micro: 2}).skipsOne(t, params, clip, math.Inf(-1))
			})
		}
	}
}

// A device computes a gradient that is no number, as a fault of a drill does: nobody uses the step, and all is finite when it is computed again.
func TestAFaultInAGradientIsSkippedAndStops(t *testing.T) {
	for _, c := range []struct {
		load   workload
		params map[string]any
	}{
		{replicated(stagedMLP(), 2, 2), nil},
		{replicated(stagedMLP(), 2, 1), map[string]any{"zero.level": "v1"}},
		{replicated(stagedMLP(), 2, 1), map[string]any{"zero.level": "v2"}},
		{replicated(stagedMLP(), 2, 1), map[string]any{"amp.level": "O1", "amp.loss_scale": 128}},
		{inStages(stagedMLP(), pipelinePlan{stages: 2, replicas: 1, micro: 2}), nil},
	} {
		t.Run(fmt.Sprint(c.load.name, " ", c.params), func(t *testing.T) {
			t.Setenv(epl.EnvFaults, "nan:rank=1,step=3")
			env := c.load.make(t, with(c.params, map[string]any{"reliability.nan": "skip", "reliability.check_every": 1}))
			if _, _, err := c.load.model.averaged(env, c.load.stages, adam(), 5); err != nil {
				t.Fatal(err)
			}
			if n, err := env.SkippedSteps(); err != nil || n != 1 {
				t.Errorf("%d steps were skipped, %v", n, err)
			}
			err := c.load.model.stopped(t, c.load.make(t, with(c.params, map[string]any{"reliability.nan": "stop"})), c.load.stages, 2)
			if !strings.Contains(err.Error(), "step 3 is not finite") || !strings.Contains(err.Error(), "a device has computed something wrong") {
				t.Error(err)
			}
		})
	}
}

// What each device of a split computes for itself is not reduced: if one of them computes something wrong, it alone skips the step, and who compares notices.
func TestAFaultInWhatDevicesOfASplitComputeAlikeIsFound(t *testing.T) {
	t.Setenv(epl.EnvFaults, "nan:rank=1,step=3")
	load := inParts(PartedModels()[0], splitPlan{parts: []int{2}, replicas: 1, micro: 1})
	err := load.model.stopped(t, load.make(t, map[string]any{"reliability.nan": "skip", "reliability.check_every": 1}), load.stages, 2)
	if !strings.Contains(err.Error(), "after step 3, bits differ") {
		t.Error(err)
	}
}
