// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
)

// offloaded is what switches offload on.
var offloaded = map[string]any{"offload.level": "v0"}

// Ample has variables that are large enough for the host: tables and weights that one stage or several use.
func Ample(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	const vocabulary, width = 32, 16
	return func(scope *model.Scope, inputs []*Node) []*Node {
		ids := inputs[0]
		g := ids.Graph()
		table := scope.In("embedding").VariableWithShape("table", shapes.Make(dtypes.Float32, vocabulary, width))
		shared := scope.In("shared").VariableWithShape("w", shapes.Make(dtypes.Float32, width, width))
		var x *Node
		for i := range stages {
			stage(ids, i, func() {
				if i == 0 {
					x = Gather(table.NodeValue(g), InsertAxes(ids, -1))
				}
				x = Add(x, Tanh(Einsum("bsd,de->bse", x, shared.NodeValue(g))))
				if x = block(scope.In("stage_%d", i), x, 0); i == stages-1 {
					x = Einsum("bsd,vd->bsv", x, table.NodeValue(g))
				}
			})
		}
		return []*Node{x}
	}
}

func ample() Staged {
	return Staged{"ample", Ample, loss.SparseCategoricalCrossEntropyLogits, Tokens(2, 6, 32)}
}

// ampleClassifier has most of its weights in the last TaskGraph.
func ampleClassifier() Parted {
	return Parted{Name: "ample-classifier", Least: 1, Most: 3, Build: Classifier(64), Loss: loss.SparseCategoricalCrossEntropyLogits, Batch: Classes(10, 8, 64)}
}

// ampleWorkloads are some of each kind of parallelism that have variables on the host under offload.
func ampleWorkloads() []workload {
	return []workload{
		replicated(ample(), 1, 2),
		replicated(ample(), 2, 3),
		replicated(ample(), 3, 1),
		inStages(ample(), fewPlans()[0]),
		inStages(ample(), fewPlans()[1]),
		inParts(ampleClassifier(), splitPlan{parts: []int{2}, replicas: 2, micro: 2}),
		inParts(ampleClassifier(), splitPlan{parts: []int{-2, 3}, replicas: 2, micro: 2, schedule: "PreferForward"}),
		inParts(blocks(4, 16, 64, 2), splitPlan{parts: []int{2}, replicas: 2, micro: 1}),
	}
}

var onHost = regexp.MustCompile(`offload\.level=v0: ([0-9]+) variables? of `)

// hasOnHost checks that a program of the environment keeps variables on the host.
func hasOnHost(env *epl.Env) error {
	var text strings.Builder
	if err := env.Explain(&text); err != nil {
		return err
	}
	for _, found := range onHost.FindAllStringSubmatch(text.String(), -1) {
		if found[1] != "0" {
			return nil
		}
	}
	return errors.Errorf("nothing is on the host:\n%s", &text)
}

func mustHaveOnHost(t testing.TB, env *epl.Env) {
	t.Helper()
	if err := hasOnHost(env); err != nil {
		t.Error(err)
	}
}

// Where a variable waits changes no bit of it.
func TestOffloadGivesTheBitsOfTrainingWithout(t *testing.T) {
	all := ampleWorkloads()
	for i, m := range Models()[:3] { // the others are too small
		all = append(all, replicated(staged(m), 1, 1+i%3))
	}
	for i, w := range all {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			opt := []func() optimizer.Interface{sgd, adam}[i%2]
			env := w.make(t, offloaded)
			if err := SameBits(w.run(t, nil, opt(), 3), w.on(t, env, Dataset{w.model.Batch}, opt(), 3)); err != nil {
				t.Error(err)
			}
			mustHaveOnHost(t, env)
		})
	}
}

func TestOffloadGoesWithZero(t *testing.T) {
	for i, w := range ampleWorkloads() {
		r := memoryRules()[i%len(memoryRules())]
		t.Run(w.name+"/"+r.name, func(t *testing.T) {
			t.Parallel()
			want := w.run(t, r.params, r.make(), 3)
			for _, level := range someLevels(i) {
				env := w.make(t, with(r.params, offloaded, level))
				r.compare(t, want, w.on(t, env, Dataset{w.model.Batch}, r.make(), 3))
				mustHaveOnHost(t, env)
			}
		})
	}
}

// Weights and state of the optimizer come to the device for what needs them, and go.
func TestOffloadLowersWhatDevicesHave(t *testing.T) {
	w := replicated(weighty(), 1, 1)
	plain, off := w.metered(t, nil, adam())[0], w.metered(t, offloaded, adam())[0]
	if off.PeakBytes >= plain.PeakBytes {
		t.Errorf("the peak is %d bytes %v, without offload %d %v", off.PeakBytes, off.Peak, plain.PeakBytes, plain.Peak)
	}
	if off.Most["weights"] > plain.Most["weights"]*2/3 {
		t.Errorf("%d bytes of weights are on the device at once, without offload %d", off.Most["weights"], plain.Most["weights"])
	}
	grouped := w.metered(t, with(offloaded, map[string]any{"optimizer.num_apply_group": 5}), adam())[0]
	if grouped.Most["optimizer state"] > plain.Most["optimizer state"]/2 {
		t.Errorf("%d bytes of state are on the device at once, without offload %d", grouped.Most["optimizer state"], plain.Most["optimizer state"])
	}
}

func TestOffloadedVariablesAreReadSetAndEvaluatedBetweenSteps(t *testing.T) {
	for _, w := range ampleWorkloads() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			want, read := w.inspected(t, w.make(t, nil))
			env := w.make(t, offloaded)
			got, now := w.inspected(t, env)
			mustHaveOnHost(t, env)
			plainSGD.compare(t, want, got)
			if d, n := distance(read, now); len(read) != len(now) || d > 1e-5*n {
				t.Errorf("what was read differs by %g at a norm of %g", d, n)
			}
		})
	}
}

// A checkpoint does not know where variables were.
func TestACheckpointSavedUnderOffloadGoesOnWithoutAndBack(t *testing.T) {
	m := ample()
	for _, o := range memoryRules()[:6] {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			all, folder := &Run{}, t.TempDir()
			for i, params := range []map[string]any{offloaded, nil, with(offloaded, zeroLevels[2]), zeroLevels[2], offloaded} {
				at := func(step int) (in, labels []*tensors.Tensor) { return m.Batch(2*2*i + step) }
				env := newCluster(t, 2, 1, params)
				all.Store = newStore()
				handler, err := checkpoint.Build(all.Store).Dir(folder).Done()
				if err != nil {
					t.Fatal(err)
				}
				loop := train.NewLoop(train.NewTrainer(env.Backend(), all.Store, m.Build(2), m.Loss, epl.Optimizer(o.make()), nil, nil))
				loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
					all.Losses = append(all.Losses, tensors.ToScalar[float32](metrics[0]))
					return nil
				})
				if _, err := loop.RunSteps(env.Dataset(Dataset{at}), 2); err != nil {
					t.Fatalf("run %d: %v", i, err)
				}
				if err := handler.Save(); err != nil {
					t.Fatal(err)
				}
				if params["offload.level"] != nil {
					mustHaveOnHost(t, env)
				}
			}
			o.compare(t, replicated(m, 2, 1).with(2).run(t, o.params, o.make(), len(all.Losses)), all)
		})
	}
}

// with is the workload with so many stages.
func (w workload) with(stages int) workload {
	w.stages, w.name = stages, fmt.Sprintf("%s/%d", w.name, stages)
	return w
}
