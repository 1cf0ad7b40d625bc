// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// workload is a training under a plan, to be run with techniques that save memory and without.
type workload struct {
	name            string
	model           Staged
	stages          int
	replicas, micro int
	make            func(t testing.TB, params map[string]any, opts ...epl.Option) *epl.Env
}

// replicated is data parallelism.
func replicated(m Staged, replicas, micro int) workload {
	return workload{fmt.Sprintf("%s/replicas/%dx%d", m.Name, replicas, micro), m, 3, replicas, micro, func(t testing.TB, params map[string]any, opts ...epl.Option) *epl.Env {
		return newCluster(t, replicas, micro, params, opts...)
	}}
}

// inStages is a pipeline.
func inStages(m Staged, p pipelinePlan) workload {
	return workload{fmt.Sprintf("%s/stages/%s", m.Name, p), m, p.stages, p.replicas, p.micro, p.env}
}

// inParts has TaskGraphs of several devices.
func inParts(m Parted, p splitPlan) workload {
	return workload{m.Name + "/parts/" + p.String(), m.under(p), 0, p.replicas, p.micro, p.env}
}

// staged is a model whose stages are its own.
func staged(m Model) Staged {
	return Staged{m.Name, func(int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node { return []*Node{m.Build(scope, inputs[0])} }
	}, m.Loss, m.Batch}
}

// run trains with some settings.
func (w workload) run(t testing.TB, params map[string]any, opt optimizer.Interface, steps int, opts ...epl.Option) *Run {
	t.Helper()
	return w.on(t, w.make(t, params, opts...), Dataset{w.model.Batch}, opt, steps)
}

func (w workload) on(t testing.TB, env *epl.Env, ds train.Dataset, opt optimizer.Interface, steps int) *Run {
	t.Helper()
	run, err := w.model.train(env.Backend(), w.stages, env.Dataset(ds), epl.Optimizer(opt), steps)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// rule is an optimizer, and how what it does is compared.
type rule struct {
	name   string
	make   func() optimizer.Interface
	params map[string]any
	adam   bool // it divides by the size of gradients, which makes much of rounding errors: losses only
}

var plainSGD = rule{name: "sgd", make: sgd}

// compare checks that two runs are equivalent. What an optimizer keeps has the rounding errors of gradients, and may be
// nothing but those where a gradient is zero in theory.
func (r rule) compare(t testing.TB, want, got *Run) {
	t.Helper()
	tolerance := 1e-5
	if r.adam {
		tolerance = 1e-3
	}
	if err := CloseLosses(want, got, tolerance); err != nil {
		t.Error(err)
	}
	if r.adam {
		return
	}
	if err := eachVariable(want, got, func(path string, x, y []float64) error {
		tolerance, rounding := tolerance, 1e-3
		if v := want.Store.GetVariable(path); !v.Trainable {
			tolerance, rounding = 10*tolerance, 3*rounding
		}
		if diff, norm := distance(x, y); !(diff <= tolerance*(norm+rounding)) {
			return fmt.Errorf("variable %s differs by %g at a norm of %g", path, diff, norm)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// with adds settings to others.
func with(params ...map[string]any) map[string]any {
	all := map[string]any{}
	for _, p := range params {
		maps.Copy(all, p)
	}
	return all
}

// changesNothing trains a workload plainly and with each of some settings, which must end at the same weights.
func (w workload) changesNothing(t *testing.T, r rule, settings ...map[string]any) {
	t.Helper()
	want := w.run(t, r.params, r.make(), 3)
	for _, s := range settings {
		t.Run(fmt.Sprint(s), func(t *testing.T) { r.compare(t, want, w.run(t, with(r.params, s), r.make(), 3)) })
	}
}

// explained is what Explain says.
func explained(t testing.TB, env *epl.Env) string {
	t.Helper()
	var text strings.Builder
	if err := env.Explain(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// memorySettings draws techniques that save memory.
func memorySettings(r *rand.Rand) map[string]any {
	return map[string]any{
		"zero.level":                []string{"", "v0", "v1", "v2", "v2"}[r.Intn(5)],
		"gradient_checkpoint.type":  []string{"", "auto", "auto"}[r.Intn(3)],
		"optimizer.num_apply_group": []int{1, 1, 2, 3, 7}[r.Intn(5)],
		"offload.level":             []string{"", "", "v0"}[r.Intn(3)],
	}
}

// randomWorkload draws a model and a plan.
func randomWorkload(r *rand.Rand) workload {
	switch r.Intn(4) {
	case 0:
		models := StagedModels()
		for _, m := range Models() {
			models = append(models, staged(m))
		}
		return replicated(models[r.Intn(len(models))], 2+r.Intn(3), 1+r.Intn(3))
	case 1:
		return inStages(drawPiped(r))
	}
	m := PartedModels()[r.Intn(len(PartedModels()))]
	return inParts(m, randomSplit(r, m))
}

// someSeeds are the seeds of random tests: a few, or many if the flag for long runs says so.
func someSeeds(share int) (all []int64) {
	if testing.Short() {
		share *= 4
	}
	for i := range (*seedCount + share - 1) / share {
		all = append(all, int64(*firstSeed)+int64(i))
	}
	return all
}

// Whatever the model, the plan, the passes and the settings of communication: techniques that save memory, all together,
// change nothing.
func TestRandomCombinationsOfTechniquesThatSaveMemoryChangeNothing(t *testing.T) {
	for _, seed := range someSeeds(6) {
		r := rand.New(rand.NewSource(seed))
		w, memory, setting, spec := randomWorkload(r), memorySettings(r), randomSetting(r), randomPasses(r)
		rule := memoryRules()[r.Intn(len(memoryRules()))]
		offload := memory["offload.level"] != ""
		if offload { // most models are too small for it
			w = ampleWorkloads()[r.Intn(len(ampleWorkloads()))]
		}
		params := setting.reliable(r).Params()
		t.Run(fmt.Sprintf("%d/%s/%s", seed, w.name, rule.name), func(t *testing.T) {
			t.Parallel()
			t.Logf("%v, %v, passes %s", memory, params, spec)
			want := w.run(t, rule.params, rule.make(), 3)
			env := w.make(t, with(params, rule.params, memory), epl.WithPasses(spec))
			rule.compare(t, want, w.on(t, env, Dataset{w.model.Batch}, rule.make(), 3))
			if offload {
				mustHaveOnHost(t, env)
			}
		})
	}
}

// What the pure-Go backend leaves of old memory in the state of random numbers is in no variable.
func TestTheStateOfRandomNumbersIsTheSameOnAllDevices(t *testing.T) {
	m := find(t, "dropout", PartedModels(), func(m Parted) string { return m.Name })
	for _, parts := range [][]int{{-1, 2}, {2, 2}, {4, -1, 2}} {
		w := inParts(m, splitPlan{parts: parts, replicas: 1, micro: 1})
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			params := map[string]any{"gradient_checkpoint.type": "auto", "reliability.check_every": 1}
			w.on(t, w.make(t, params, epl.WithPasses("none")), Dataset{w.model.Batch}, sgd(), 4)
		})
	}
}

// Variables without gradients have the same zeros instead. What the optimizer keeps for those of one stage is not taken for that of another, which has other devices.
func TestVariablesWithoutGradientsOfSeveralStagesAreTrained(t *testing.T) {
	m := find(t, "losses", PartedModels(), func(m Parted) string { return m.Name })
	for _, r := range memoryRules() {
		if r.name == "velocity" || r.name == "adamax" {
			t.Run(r.name, func(t *testing.T) {
				inParts(m, splitPlan{parts: []int{4, 2}, replicas: 2, micro: 1}).changesNothing(t, r, zeroLevels[2])
			})
		}
	}
}

// Programs that train the same variables divide them over other numbers of replicas, and over other devices of each.
func TestProgramsThatDivideVariablesOtherwiseTrainTheSameOnes(t *testing.T) {
	m, opt := ampleClassifier(), rule{make: func() optimizer.Interface { return velocity{} }}
	learn := func(t *testing.T, params map[string]any) *Run {
		env, run := newPipeline(t, 6, 2, params), &Run{Store: newStore()}
		for i, parts := range [][]int{{-1}, {2}, {-3}, {3}, {6}, {-2}, {-1}} {
			at := func(step int) (in, labels []*tensors.Tensor) { return m.Batch(100*i + step) }
			build := m.under(splitPlan{parts: parts}).Build(0)
			loop := train.NewLoop(train.NewTrainer(env.Backend(), run.Store, build, m.Loss, epl.Optimizer(opt.make()), nil, nil))
			loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
				run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
				return nil
			})
			if _, err := loop.RunSteps(env.Dataset(Dataset{at}), 2); err != nil {
				t.Fatalf("%v: %v", parts, err)
			}
		}
		if params["offload.level"] != nil {
			mustHaveOnHost(t, env)
		}
		return run
	}
	want := learn(t, nil)
	for _, params := range slices.Concat(zeroLevels, []map[string]any{offloaded, with(offloaded, zeroLevels[2])}) {
		t.Run(fmt.Sprint(params), func(t *testing.T) { opt.compare(t, want, learn(t, params)) })
	}
}

// Random programs have ops of all kinds, and weights that several stages or parts use.
func TestRandomProgramsUnderTechniquesThatSaveMemoryGiveWhatTheyGiveWithout(t *testing.T) {
	plans := allPlans()
	// One step: what jumps when a weight changes by a rounding error must not.
	opt := func() optimizer.Interface {
		return optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(1)
	}
	for _, seed := range someSeeds(3) {
		rng := rand.New(rand.NewSource(seed))
		var w workload
		var r *Random
		switch rng.Intn(3) {
		case 0:
			var m Staged
			m, r = randomStages(uint64(seed))
			w = replicated(m, 2+rng.Intn(2), 1+rng.Intn(2))
		case 1:
			var m Staged
			m, r = randomStages(uint64(seed))
			w = inStages(m, plans[rng.Intn(len(plans))])
		case 2:
			var m Parted
			m, r = randomParts(uint64(seed))
			w = inParts(m, randomSplit(rng, m))
		}
		memory, params := memorySettings(rng), randomSetting(rng).reliable(rng).Params()
		t.Run(fmt.Sprintf("%d/%s", seed, w.name), func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%v, %v\n%s", memory, params, r)
				}
			})
			want, got := w.run(t, params, opt(), 1), w.run(t, with(params, memory), opt(), 1)
			if err := CloseWeights(want, got, 1e-4); err != nil {
				t.Error(err)
			}
			if err := CloseLosses(want, got, 1e-4); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestApplyGroupsChangeNothing(t *testing.T) {
	for i, w := range memoryWorkloads() {
		rules := memoryRules()
		r := rules[i%len(rules)]
		t.Run(w.name+"/"+r.name, func(t *testing.T) {
			t.Parallel()
			want := w.run(t, r.params, r.make(), 3)
			for _, groups := range []int{2, 100} {
				got := w.run(t, with(r.params, map[string]any{"optimizer.num_apply_group": groups}), r.make(), 3)
				if err := CloseLosses(want, got, 1e-6); err != nil {
					t.Errorf("%d groups: %v", groups, err)
				}
				r.compare(t, want, got)
			}
		})
	}
}

// Gradients are merged where they are: the variable must not be.
func TestAVariableThatIsTheGradientOfAnotherStaysAsItIs(t *testing.T) {
	m := Model{"own", func(scope *model.Scope, x *Node) *Node {
		g := x.Graph()
		u := scope.VariableWithShape("u", shapes.Make(dtypes.Float32, 8, 8)).SetTrainable(false).NodeValue(g)
		w := scope.VariableWithShape("w", shapes.Make(dtypes.Float32, 8, 8)).NodeValue(g)
		x = Dot(x, IdentityWithCustomGradient(w, func(_, _ *Node) *Node { return u })).Product()
		return layers.Dense(scope.In("out"), x, true, 1)
	}, Models()[0].Loss, Regression(4, 8)}
	for _, micro := range []int{1, 2} {
		w := replicated(staged(m), 2, micro)
		want, err := TrainOn(Plain(), Dataset{Joined(m.Batch, 2*micro)}, m, epl.Optimizer(sgd()), 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, params := range slices.Concat([]map[string]any{nil, offloaded}, zeroLevels) {
			t.Run(fmt.Sprint(micro, params), func(t *testing.T) { mustBeClose(t, want, w.run(t, params, sgd(), 3)) })
		}
	}
}

// What comes for micro-batches that do not exist goes again, and what the others of a gather still read counts.
func TestNoStepNeedsMoreThanTheAccountSaysNorDoesAnIncompleteOne(t *testing.T) {
	w := replicated(weighty(), 2, 3)
	for _, params := range []map[string]any{nil, zeroLevels[2], offloaded, with(offloaded, zeroLevels[2])} {
		for _, batches := range []int{12, 7} {
			t.Run(fmt.Sprint(params, batches), func(t *testing.T) {
				t.Parallel()
				env := w.make(t, params)
				trainer := train.NewTrainer(env.Backend(), newStore(), w.model.Build(w.stages), w.model.Loss, epl.Optimizer(adam()), nil, nil)
				loop := train.NewLoop(trainer)
				loop.OnStep("meter", 0, func(loop *train.Loop, _ []*tensors.Tensor) error {
					if loop.LoopStep == 0 {
						env.Stats() // with what variables needed to get their first values
					}
					return nil
				})
				if _, err := loop.RunSteps(env.Dataset(finite{w.model.Batch, batches}), 2); err != nil {
					t.Fatal(err)
				}
				for d, got := range env.Stats().Devices {
					if want := env.Predicted().Devices[d]; got.PeakBytes > want.PeakBytes {
						t.Errorf("device %d: metered %d bytes %v, predicted %d %v", d, got.PeakBytes, got.Peak, want.PeakBytes, want.Peak)
					}
				}
			})
		}
	}
}

// Devices exchange it in instances, and once more for the optimizer.
func TestAnOptimizerMayNeedANormOfShardedWeightsThatTheLossHas(t *testing.T) {
	w := inParts(partedModel("losses"), splitPlan{parts: []int{2, 1}, replicas: 1, micro: 1})
	w.changesNothing(t, rule{make: func() optimizer.Interface { return momentum{} }}, map[string]any{"optimizer.num_apply_group": 2}, offloaded)
}

// memoryWorkloads are a few of each kind of parallelism.
func memoryWorkloads() (all []workload) {
	for i, name := range []string{"tied", "embeddings", "unused"} {
		for _, m := range StagedModels() {
			if m.Name == name {
				all = append(all, replicated(m, 2+i, 3-i), inStages(m, fewPlans()[i%2]))
			}
		}
	}
	return append(all,
		inParts(partedModel("mlp"), splitPlan{parts: []int{2}, replicas: 2, micro: 2}),
		inParts(partedModel("tied"), splitPlan{parts: []int{-2, 2}, colocate: true, replicas: 2, micro: 1}),
		inParts(partedModel("classifier"), splitPlan{parts: []int{-2, 3}, replicas: 2, micro: 2, schedule: "PreferForward"}),
	)
}

// memoryRules are optimizers that do something different each.
func memoryRules() []rule {
	after := map[string]any{"communication.clip_after_allreduce": true}
	return []rule{
		plainSGD,
		{name: "sgd with decay", make: func() optimizer.Interface { return optimizer.StochasticGradientDescent() }},
		{name: "velocity", make: func() optimizer.Interface { return velocity{} }},
		{name: "momentum", make: func() optimizer.Interface { return momentum{} }},
		{name: "rows", make: func() optimizer.Interface { return rowwise{} }},
		{name: "adam", make: adam, adam: true},
		{name: "adam with weight decay", make: func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).WeightDecay(0.01).Done() }, adam: true},
		{name: "adamax", make: func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Adamax().Done() }, adam: true},
		{name: "rmsprop", make: func() optimizer.Interface { return optimizer.RMSProp().LearningRate(1e-3).Done() }, adam: true},
		{name: "global norm", make: func() optimizer.Interface { return epl.ClipByGlobalNorm(sgd(), 0.01) }},
		{name: "global norm after", make: func() optimizer.Interface { return epl.ClipByGlobalNorm(sgd(), 0.01) }, params: after},
		{name: "value", make: func() optimizer.Interface { return epl.ClipByValue(sgd(), 0.001) }},
		{name: "value after", make: func() optimizer.Interface { return epl.ClipByValue(sgd(), 0.001) }, params: after},
		{name: "adam and global norm", make: func() optimizer.Interface { return epl.ClipByGlobalNorm(adam(), 0.01) }, params: after, adam: true},
	}
}

// peak is the most that lived on any device at once in a step after the first.
func (w workload) peak(t testing.TB, params map[string]any, opt optimizer.Interface) (most epl.DeviceStats) {
	t.Helper()
	for _, d := range w.metered(t, params, opt) {
		if d.PeakBytes > most.PeakBytes {
			most = d
		}
	}
	return most
}

// metered is what devices did in a step after the first.
func (w workload) metered(t testing.TB, params map[string]any, opt optimizer.Interface) []epl.DeviceStats {
	t.Helper()
	env := w.make(t, params)
	loop := train.NewLoop(train.NewTrainer(env.Backend(), newStore(), w.model.Build(w.stages), w.model.Loss, epl.Optimizer(opt), nil, nil))
	loop.OnStep("meter", 0, func(loop *train.Loop, _ []*tensors.Tensor) error {
		if loop.LoopStep == 1 {
			env.Stats()
		}
		return nil
	})
	if _, err := loop.RunSteps(env.Dataset(Dataset{w.model.Batch}), 3); err != nil {
		t.Fatal(err)
	}
	return env.Stats().Devices
}

// weightyWidth is the width of the layers of weighty.
const weightyWidth = 128

// weighty is an MLP with many weights, and few samples.
func weighty() Staged {
	return staged(Model{"weighty", MLP(10, weightyWidth, false), Models()[0].Loss, Regression(2, weightyWidth)})
}

// directions makes up its mind about all variables before it changes the first, and so needs something for each at once.
type directions struct{ velocity }

func (directions) UpdateGraphWithGradients(scope *model.Scope, gradients []*Node, lossDType dtypes.DType) {
	var all []*Node
	for _, x := range gradients {
		all = append(all, Add(Tanh(x), Square(x)))
	}
	i := 0
	eachTrained(scope, gradients, lossDType, func(v *model.Variable, _ func(name string) *model.Variable, gradient *Node) {
		v.SetNodeValue(Sub(v.NodeValue(gradient.Graph()), MulScalar(Add(all[i], gradient), 0.01)))
		i++
	})
}

// In groups, what the optimizer computes exists for some variables at a time.
// The engine for CPUs updates in place, all at once, and needs nothing on the way: groups are for backends that run op by op.
func TestApplyGroupsLowerThePeakAndStepOnce(t *testing.T) {
	t.Setenv("GOMLX_BACKEND", "go")
	w := replicated(weighty(), 2, 1)
	one := w.peak(t, nil, directions{})
	before := one.PeakBytes
	for _, groups := range []int{2, 5} {
		params := map[string]any{"optimizer.num_apply_group": groups}
		now := w.peak(t, params, directions{})
		if now.PeakBytes >= before {
			t.Errorf("%d groups: the peak is %d bytes %v, with fewer %d %v", groups, now.PeakBytes, now.Peak, before, one.Peak)
		}
		before = now.PeakBytes
		got := w.run(t, params, directions{}, 3)
		if step := optimizer.GetGlobalStep(got.Store); step != 3 {
			t.Errorf("%d groups: after 3 steps the global step is %d", groups, step)
		}
	}
}

func TestSettingsThatSaveMemoryAreCheckedBeforeTheyAreUsed(t *testing.T) {
	for _, c := range []struct {
		params map[string]any
		words  []string
	}{
		{map[string]any{"zero.level": "v3"}, []string{"zero.level", `"v3"`, `"v0"`, `"v2"`}},
		{map[string]any{"zero.level": "1"}, []string{"zero.level", `"1"`}},
		{map[string]any{"optimizer.num_apply_group": 0}, []string{"optimizer.num_apply_group", "0", "at least 1"}},
		{map[string]any{"optimizer.num_apply_group": -3}, []string{"optimizer.num_apply_group", "-3", "at least 1"}},
		{map[string]any{"offload.level": "v1"}, []string{"offload.level", `"v1"`, `"v0"`}},
		{map[string]any{"gradient_checkpoint.type": "all"}, []string{"gradient_checkpoint.type", `"all"`, `"auto"`}},
	} {
		_, err := epl.NewConfig(c.params)
		mustFail(t, err, c.words...)
	}
}

// What has no effect is said, and does no harm.
func TestZeroWithOneReplicaIsSaidToHaveNoEffect(t *testing.T) {
	for _, w := range []workload{
		replicated(stagedMLP(), 1, 2),
		inStages(stagedMLP(), pipelinePlan{stages: 3, replicas: 1, micro: 2}),
		inParts(partedModel("mlp"), splitPlan{parts: []int{3}, replicas: 1, micro: 1}),
	} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			env := w.make(t, map[string]any{"zero.level": "v2"})
			got := w.on(t, env, Dataset{w.model.Batch}, sgd(), 3)
			if err := SameBits(w.run(t, nil, sgd(), 3), got); err != nil {
				t.Error(err)
			}
			if text := explained(t, env); !strings.Contains(text, "zero.level has no effect: the program has one model replica") {
				t.Errorf("Explain does not say that zero.level has no effect:\n%s", text)
			}
		})
	}
}
