// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// halves are the types of mixed precision, with how far losses may be from those of float32, and weights after a few steps: some
// units in the last place of the type.
var halves = []struct {
	name            string
	losses, weights float64
}{
	{"bfloat16", 3e-2, 5e-2},
	{"float16", 1e-2, 1e-2},
}

// inHalf switches mixed precision on. The scale is fixed, so that no step is skipped.
func inHalf(dtype string, more map[string]any) map[string]any {
	params := map[string]any{"amp.level": "O1", "amp.dtype": dtype}
	if dtype == "float16" {
		params["amp.loss_scale"] = 128
	}
	for k, v := range more {
		params[k] = v
	}
	return params
}

// mustBeNear compares losses and trainable variables.
func mustBeNear(t *testing.T, want, got *Run, losses, weights float64) {
	t.Helper()
	if err := CloseLosses(want, got, losses); err != nil {
		t.Error(err)
	}
	for v := range want.Store.IterVariables() {
		if !v.Trainable {
			continue
		}
		w := got.Store.GetVariable(v.Path())
		if w == nil {
			t.Errorf("there is no variable %s", v.Path())
			continue
		}
		if diff, norm := distance(numbers(v.MustValue()), numbers(w.MustValue())); !(diff <= weights*(norm+1e-2)) {
			t.Errorf("variable %s differs by %g at a norm of %g", v.Path(), diff, norm)
		}
	}
}

func TestMixedPrecisionTrainsLikeFloat32(t *testing.T) {
	for _, m := range Models() {
		for _, h := range halves {
			t.Run(m.Name+"/"+h.name, func(t *testing.T) {
				t.Parallel()
				want := trainParallel(t, newCluster(t, 1, 1, nil), m, sgd(), 4)
				got := trainParallel(t, newCluster(t, 1, 1, inHalf(h.name, nil)), m, sgd(), 4)
				mustBeNear(t, want, got, h.losses, h.weights)
			})
		}
	}
}

func TestMixedPrecisionOfModelReplicasAndMicroBatchesTrainsLikeFloat32(t *testing.T) {
	for _, m := range []Model{Models()[0], Models()[2], Models()[3]} {
		for _, h := range halves {
			for _, c := range [][2]int{{2, 1}, {1, 3}, {2, 2}} {
				t.Run(fmt.Sprintf("%s/%s/%dx%d", m.Name, h.name, c[0], c[1]), func(t *testing.T) {
					t.Parallel()
					want := trainParallel(t, newCluster(t, c[0], c[1], nil), m, sgd(), 3)
					got := trainParallel(t, newCluster(t, c[0], c[1], inHalf(h.name, nil)), m, sgd(), 3)
					mustBeNear(t, want, got, h.losses, h.weights)
				})
			}
		}
	}
}

func TestMixedPrecisionOfPipelinesTrainsLikeFloat32(t *testing.T) {
	for i, m := range StagedModels() {
		h := halves[i%2]
		p := pipelinePlan{stages: 2 + i%2, replicas: 1 + i/2%2, micro: 1 + i%3, strategy: strategies[i%4]}
		t.Run(m.Name+"/"+h.name+"/"+p.String(), func(t *testing.T) {
			t.Parallel()
			want := m.piped(t, p.env(t, nil), p.stages, sgd(), 3)
			got := m.piped(t, p.env(t, inHalf(h.name, nil)), p.stages, sgd(), 3)
			mustBeNear(t, want, got, h.losses, h.weights)
		})
	}
}

func TestMixedPrecisionOfSplitTaskGraphsTrainsLikeFloat32(t *testing.T) {
	for i, m := range PartedModels() {
		h := halves[i%2]
		p := m.whole(2+i%2, 1+i/2%2, 1+i%2)
		t.Run(m.Name+"/"+h.name+"/"+p.String(), func(t *testing.T) {
			t.Parallel()
			want := m.under(p).piped(t, p.env(t, nil), 0, sgd(), 3)
			got := m.under(p).piped(t, p.env(t, inHalf(h.name, nil)), 0, sgd(), 3)
			mustBeNear(t, want, got, h.losses, h.weights)
		})
	}
}

func TestMixedPrecisionGoesWithTheOtherMemorySavers(t *testing.T) {
	m := stagedModel(t, "tied")
	for i, params := range []map[string]any{
		{"gradient_checkpoint.type": "auto"},
		{"zero.level": "v1"},
		{"zero.level": "v2", "gradient_checkpoint.type": "auto"},
		{"optimizer.num_apply_group": 3, "zero.level": "v0"},
		{"offload.level": "v0"},
	} {
		h := halves[i%2]
		p := pipelinePlan{stages: 2, replicas: 2, micro: 3}
		t.Run(fmt.Sprint(params, h.name), func(t *testing.T) {
			t.Parallel()
			want := m.piped(t, p.env(t, inHalf(h.name, nil)), p.stages, sgd(), 3)
			got := m.piped(t, p.env(t, inHalf(h.name, params)), p.stages, sgd(), 3)
			mustBeNear(t, want, got, 1e-3, 1e-3)
		})
	}
}

// With a dynamic scale, too, a small model learns as well as in float32, by any optimizer.
func TestMixedPrecisionEndsAtTheLossOfFloat32(t *testing.T) {
	m := Model{"mlp", MLP(2, 16, false), Models()[0].Loss, Regression(16, 8)}
	for _, o := range optimizers {
		want := trainParallel(t, newCluster(t, 1, 1, nil), m, o.make(), 60)
		for _, h := range halves {
			t.Run(o.name+"/"+h.name, func(t *testing.T) {
				params := map[string]any{"amp.level": "O1", "amp.dtype": h.name}
				got := trainParallel(t, newCluster(t, 1, 1, params), m, o.make(), 60)
				mean := func(losses []float32) (sum float64) {
					for _, l := range losses[50:] {
						sum += float64(l) / 10
					}
					return sum
				}
				a, b := mean(want.Losses), mean(got.Losses)
				if first := float64(want.Losses[0]); !(b < 0.9*first) || math.Abs(a-b) > 0.05*a {
					t.Errorf("from %v the loss falls to %v, in float32 to %v", first, b, a)
				}
			})
		}
	}
}

// scaled trains by hand, and shows the loss scale and all variables after each step.
type scaled struct {
	t       *testing.T
	trainer *train.Trainer
	run     *Run
	next    func() train.Batch
}

func newScaled(t *testing.T, env *epl.Env, m Staged, stages int, opt optimizer.Interface, batch func(int) (in, labels []*tensors.Tensor)) *scaled {
	s := &scaled{t: t, run: &Run{Store: newStore()}}
	s.run.Store.SetParam(epl.ParamLossScaleSteps, 3)
	s.trainer = train.NewTrainer(env.Backend(), s.run.Store, m.Build(stages), m.Loss, epl.Optimizer(opt), nil, nil)
	next, stop := iter.Pull2(env.Dataset(Dataset{batch}).Iter()) // no further than asked: a step takes the rest of its batches
	t.Cleanup(stop)
	s.next = func() train.Batch {
		t.Helper()
		b, err, _ := next()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return s
}

func (s *scaled) step() (scale float64) {
	s.t.Helper()
	if _, err := s.trainer.TrainStep(s.next()); err != nil {
		s.t.Fatalf("%+v", err)
	}
	return s.value(epl.LossScaleVariable)
}

func (s *scaled) value(path string) float64 {
	s.t.Helper()
	v := s.run.Store.GetVariable(path)
	if v == nil {
		s.t.Fatalf("there is no variable %s", path)
	}
	return numbers(v.MustValue())[0]
}

// state is all that a step may change, but for the scale itself.
func (s *scaled) state() map[string][]float64 {
	all := map[string][]float64{}
	for v := range s.run.Store.IterVariables() {
		if p := v.Path(); p != epl.LossScaleVariable && p != epl.GoodStepsVariable && !strings.HasPrefix(p, "/metrics/") {
			all[p] = numbers(v.MustValue())
		}
	}
	return all
}

// overflowing makes one batch so large that its gradients leave float16.
func overflowing(batch func(int) (in, labels []*tensors.Tensor), at int) func(int) (in, labels []*tensors.Tensor) {
	return func(step int) (in, labels []*tensors.Tensor) {
		in, labels = batch(step)
		if step == at {
			labels[0].MustMutableFlatData(func(flat any) { flat.([]float32)[0] = 1e8 })
		}
		return in, labels
	}
}

var float16 = map[string]any{"amp.level": "O1", "amp.dtype": "float16"}

// One sample of one micro-batch of one model replica overflows in the third step: nobody may use the gradients of that step.
func TestAnOverflowSkipsTheStepEverywhereAndHalvesTheScale(t *testing.T) {
	clip := func(o optimizer.Interface) optimizer.Interface { return epl.ClipByValue(o, 0.5) }
	same := func(o optimizer.Interface) optimizer.Interface { return o }
	for _, c := range []struct {
		name   string
		plan   pipelinePlan
		wrap   func(optimizer.Interface) optimizer.Interface
		params map[string]any
	}{
		{"alone", pipelinePlan{stages: 1, replicas: 1, micro: 1}, same, nil},
		{"replicas", pipelinePlan{stages: 1, replicas: 3, micro: 1}, same, nil},
		{"micro-batches", pipelinePlan{stages: 1, replicas: 1, micro: 4}, same, nil},
		{"stages", pipelinePlan{stages: 3, replicas: 2, micro: 2}, same, nil},
		{"clipped by each instance", pipelinePlan{stages: 2, replicas: 2, micro: 2}, clip, nil},
		{"clipped afterwards", pipelinePlan{stages: 2, replicas: 2, micro: 2}, clip, map[string]any{"communication.clip_after_allreduce": true}},
	} {
		for _, o := range []struct {
			name string
			make func() optimizer.Interface
		}{{"sgd", sgd}, {"adam", func() optimizer.Interface { return optimizer.Adam().Done() }}} {
			t.Run(c.name+"/"+o.name, func(t *testing.T) {
				t.Parallel()
				m, stages := stagedMLP(), max(c.plan.stages, 2)
				n := c.plan.batches()
				params := map[string]any{}
				for _, more := range []map[string]any{float16, c.params} {
					for k, v := range more {
						params[k] = v
					}
				}
				env := c.plan.env(t, params)
				if c.plan.stages == 1 {
					env = newCluster(t, c.plan.replicas, c.plan.micro, params)
				}
				s := newScaled(t, env, m, stages, c.wrap(o.make()), overflowing(m.Batch, 2*n+n-1))
				s.step()
				s.step()
				before, scale := s.state(), s.value(epl.LossScaleVariable)
				if got := s.step(); got != scale/2 {
					t.Errorf("the scale was %v, and is %v", scale, got)
				}
				if good := s.value(epl.GoodStepsVariable); good != 0 {
					t.Errorf("%v good steps in a row", good)
				}
				for path, x := range s.state() {
					if !slices.Equal(x, before[path]) {
						t.Errorf("variable %s has changed", path)
					}
				}
				s.step()
				changed := false
				for path, x := range s.state() {
					changed = changed || !slices.Equal(x, before[path])
				}
				if !changed {
					t.Error("the next step changes nothing, either")
				}
			})
		}
	}
}

// settle takes steps until one is good: the first scale may be too large.
func (s *scaled) settle() (scale float64) {
	s.t.Helper()
	for range 5 {
		if scale = s.step(); s.value(epl.GoodStepsVariable) == 1 {
			return scale
		}
	}
	s.t.Fatal("no step is good")
	return 0
}

func TestTheScaleDoublesAfterGoodSteps(t *testing.T) {
	m := stagedMLP()
	s := newScaled(t, newCluster(t, 2, 1, float16), m, 2, sgd(), m.Batch)
	first := s.settle()
	scales := []float64{s.step() / first, s.step() / first}
	if want := []float64{1, 2}; !slices.Equal(scales, want) {
		t.Errorf("the scales are %v times the first", scales)
	}
}

func TestTheScaleIsNeverBelowOne(t *testing.T) {
	m := stagedMLP()
	always := func(step int) (in, labels []*tensors.Tensor) { return overflowing(m.Batch, step)(step) }
	s := newScaled(t, newCluster(t, 1, 1, float16), m, 2, sgd(), always)
	var last float64
	for range 18 {
		last = s.step()
	}
	if last != 1 {
		t.Errorf("the scale is %v", last)
	}
}

func TestANumberOfGoodStepsThatCannotBeIsRefused(t *testing.T) {
	m := Models()[3]
	for _, steps := range []int{0, -3, 1 << 40} {
		store := newStore()
		store.SetParam(epl.ParamLossScaleSteps, steps)
		trainer := train.NewTrainer(newCluster(t, 1, 1, float16).Backend(), store, m.Build, m.Loss, epl.Optimizer(sgd()), nil, nil)
		in, labels := m.Batch(0)
		_, err := trainer.TrainStep(train.Batch{Inputs: in, Labels: labels})
		mustFail(t, err, fmt.Sprintf("epl: the hyperparameter epl_loss_scale_steps must be from 1 to 2^31-1, not %d", steps))
	}
}

// The scale is where a checkpoint finds it, and training goes on with it.
func TestACheckpointHoldsTheLossScale(t *testing.T) {
	m, dir := stagedMLP(), t.TempDir()
	s := newScaled(t, newCluster(t, 1, 1, float16), m, 2, sgd(), m.Batch)
	s.settle()
	scale, good := s.step(), s.value(epl.GoodStepsVariable)
	saved, err := checkpoint.Build(s.run.Store).Dir(dir).Done()
	if err != nil {
		t.Fatal(err)
	}
	if err := saved.Save(); err != nil {
		t.Fatal(err)
	}
	next := newScaled(t, newCluster(t, 1, 1, float16), m, 2, sgd(), m.Batch)
	if _, err := checkpoint.Build(next.run.Store).Dir(dir).Done(); err != nil {
		t.Fatal(err)
	}
	// The third good step in a row doubles the scale.
	if got := next.step(); good != 2 || got != 2*scale || next.value(epl.GoodStepsVariable) != 0 {
		t.Errorf("a scale of %v after %v good steps becomes %v", scale, good, got)
	}
}

// A fixed scale does not move, and has no variables; a step that is not finite is skipped all the same.
func TestAFixedScaleStaysAndSkips(t *testing.T) {
	m := stagedMLP()
	for _, dtype := range []string{"float16", "bfloat16"} {
		params := map[string]any{"amp.level": "O1", "amp.dtype": dtype, "amp.loss_scale": 1024}
		s := newScaled(t, newCluster(t, 1, 2, params), m, 2, sgd(), poisoned(m.Batch, 3))
		for step := range 3 {
			before := s.state()
			if _, err := s.trainer.TrainStep(s.next()); err != nil {
				t.Fatal(err)
			}
			for path, x := range s.state() {
				if trains := strings.Contains(path, "weights") && before[path] != nil; trains && slices.Equal(x, before[path]) != (step == 1) {
					t.Errorf("%s: step %d: variable %s changed: %v", dtype, step, path, step == 1)
				}
			}
		}
		if s.run.Store.GetVariable(epl.LossScaleVariable) != nil {
			t.Error("a fixed scale has a variable")
		}
	}
}

// On other backends the annotations of EPL are no-ops, and so is this.
func TestPlainGoMLXHasNoLossScale(t *testing.T) {
	m := Models()[3]
	run, err := Train(Plain(), m, epl.Optimizer(sgd()), 2)
	if err != nil {
		t.Fatal(err)
	}
	if run.Store.GetVariable(epl.LossScaleVariable) != nil {
		t.Error("there is one")
	}
}
