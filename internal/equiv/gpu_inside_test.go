// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/easyparallel/epl"
)

// alikeInside trains on fake GPUs and on the pure-Go backend: weights are the same within a tolerance, and nothing that GPUs merge went through the host.
func alikeInside(t *testing.T, m Staged, devices, micro, steps int, params map[string]any, tolerance float64) {
	t.Helper()
	alikeOn(t, m, 1, devices, micro, math.MaxInt, steps, params, tolerance)
}

// alikeOn is the same for so many batches, and some stages: these copy from each other.
func alikeOn(t *testing.T, m Staged, stages, devices, micro, batches, steps int, params map[string]any, tolerance float64) {
	t.Helper()
	fakeGPUs(t, devices, 0)
	run := func(inner string) *Run {
		env := newCluster(t, devices, micro, params, epl.WithInner(inner))
		run, err := m.train(env.Backend(), stages, env.Dataset(finite{m.Batch, batches}), epl.Optimizer(sgd()), steps)
		if err != nil {
			t.Fatalf("%+v", err)
		}
		for _, d := range env.Stats().Devices {
			for op, bytes := range d.Sent {
				if inner == fake && bytes > 0 && op != "copy" {
					t.Errorf("%d bytes go through the host by %s", bytes, op)
				}
			}
		}
		if run.Store, err = run.Store.Clone(); err != nil {
			t.Fatal(err)
		}
		if err := env.Close(); err != nil {
			t.Fatal(err)
		}
		return run
	}
	want, got := run("go"), run(fake)
	if err := CloseWeights(want, got, tolerance); err != nil {
		t.Error(err)
	}
	if err := CloseLosses(want, got, tolerance); err != nil {
		t.Error(err)
	}
}

// Gradients travel as float16 between GPUs that run segments together, scaled as on CPUs.
func TestGradientsTravelAsFloat16BetweenGPUs(t *testing.T) {
	for name, params := range map[string]map[string]any{
		"replicas":                  {},
		"a scale that does not fit": {"communication.fp16_scale": 1 << 30},
		"sums":                      {"communication.gradients_reduce_method": "sum"},
		"ZeRO v1":                   {"zero.level": "v1"},
		"ZeRO v2, a loss scale":     {"zero.level": "v2", "amp.level": "O1"},
	} {
		for _, micro := range []int{1, 3} {
			t.Run(name, func(t *testing.T) {
				params["communication.fp16"] = true
				alikeInside(t, magnified(1, 0), 3, micro, 4, params, 1e-3)
			})
		}
	}
}

// Sparse gradients of several micro-batches are put one after the other by the GPUs.
func TestGPUsGatherSparseGradientsOfMicroBatches(t *testing.T) {
	m := Staged{"embedding", func(int) func(scope *model.Scope, inputs []*graph.Node) []*graph.Node {
		return func(scope *model.Scope, inputs []*graph.Node) []*graph.Node {
			e := layers.Embedding(scope.In("tokens"), inputs[0], dtypes.Float32, 32, 16, false)
			return []*graph.Node{layers.Dense(scope.In("out"), e, true, 32)}
		}
	}, Models()[1].Loss, Tokens(2, 16, 32)}
	for _, micro := range []int{1, 2, 3} {
		for _, devices := range []int{1, 3} {
			t.Run(fmt.Sprint(devices, micro), func(t *testing.T) { alikeInside(t, m, devices, micro, 3, nil, 1e-6) })
		}
	}
}

// The last step may lack batches: GPUs run the same modules, and what they compute for nothing does not count.
func TestGPUsRunIncompleteStepsWithTheSameModules(t *testing.T) {
	sparse := Staged{"embedding", func(int) func(scope *model.Scope, inputs []*graph.Node) []*graph.Node {
		return func(scope *model.Scope, inputs []*graph.Node) []*graph.Node {
			e := layers.Embedding(scope.In("tokens"), inputs[0], dtypes.Float32, 32, 16, false)
			return []*graph.Node{layers.Dense(scope.In("out"), e, true, 32)}
		}
	}, Models()[1].Loss, Tokens(2, 16, 32)}
	pipeline := map[string]any{"cluster.colocate_split_and_replicate": false}
	for name, c := range map[string]struct {
		m                               Staged
		stages, devices, micro, lacking int
		params                          map[string]any
	}{
		"replicas":                 {stagedMLP(), 1, 3, 1, 2, nil},
		"micro-batches":            {stagedMLP(), 1, 1, 3, 2, nil},
		"a replica has none":       {stagedMLP(), 1, 3, 2, 4, nil},
		"ZeRO v1":                  {stagedMLP(), 1, 3, 2, 2, map[string]any{"zero.level": "v1"}},
		"ZeRO v2":                  {stagedMLP(), 1, 3, 2, 4, map[string]any{"zero.level": "v2"}},
		"sums as float16":          {stagedMLP(), 1, 2, 2, 3, map[string]any{"communication.fp16": true, "communication.gradients_reduce_method": "sum"}},
		"sparse gradients":         {sparse, 1, 2, 2, 1, nil},
		"stages":                   {stagedMLP(), 2, 2, 3, 1, pipeline},
		"replicas of stages":       {stagedMLP(), 2, 4, 3, 4, pipeline},
		"checks of what is merged": {stagedMLP(), 1, 2, 2, 3, checked(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			instances, tolerance := c.devices/c.stages*c.micro, 1e-6
			if c.params["communication.fp16"] != nil {
				tolerance = 1e-3
			}
			alikeOn(t, c.m, c.stages, c.devices, c.micro, 2*instances-c.lacking, 2, c.params, tolerance)
		})
	}
}

// What is to be concatenated is so in the order of instances. A step that lacks some gives less.
func TestGPUsConcatenateInTheOrderOfInstances(t *testing.T) {
	for _, batches := range []int{6, 4, 1} {
		t.Run(fmt.Sprint(batches), func(t *testing.T) {
			fakeGPUs(t, 2, 0)
			var got [2][][]float64
			for i, inner := range []string{"go", fake} {
				env := newCluster(t, 2, 3, nil, epl.WithInner(inner))
				got[i] = collectedFrom(t, env, finite{Regression(4, 4), batches}, func(x *graph.Node) []*graph.Node {
					all, local, first := graph.Square(x), graph.Exp(x), graph.Neg(x)
					epl.AddToCollection(epl.GlobalConcat, all)
					epl.AddToCollection(epl.LocalConcat, local)
					return []*graph.Node{all, local, first}
				})
				if err := env.Close(); err != nil {
					t.Fatal(err)
				}
			}
			for k, want := range got[0] {
				if d, n := distance(want, got[1][k]); len(want) != len(got[1][k]) || !(d <= 1e-6*n) {
					t.Errorf("output %d is %v, not %v", k, got[1][k], want)
				}
			}
		})
	}
}

// GPUs check that integers agree. A step that they refuse leaves variables as they were; the error, which names the step, comes to who reads a result, or else
// to who runs the next step.
func TestGPUsRefuseAStepWhoseIntegersDiffer(t *testing.T) {
	for _, micro := range []int{1, 2} {
		t.Run(fmt.Sprint(micro), func(t *testing.T) {
			fakeGPUs(t, 2, 0)
			env := newCluster(t, 2, micro, nil, epl.WithInner(fake))
			store, m := newStore(), regression()
			exec := model.MustNewExec(env.Backend(), store, func(scope *model.Scope, x, y *graph.Node) []*graph.Node {
				loss := graph.ReduceAllMean(graph.Square(graph.Sub(m.Build(scope, x), y)))
				epl.Optimizer(sgd()).UpdateGraph(scope, x.Graph(), loss)
				rows := graph.ReduceAllSum(graph.ConvertDType(graph.GreaterThan(x, graph.ScalarZero(x.Graph(), x.DType())), dtypes.Int32))
				return []*graph.Node{loss, rows}
			})
			equal := []bool{true, true, false, false} // by step: all instances have the same batch
			number := 0
			batches := func(step int) (in, labels []*tensors.Tensor) {
				if equal[min(step/(2*micro), len(equal)-1)] {
					step = 0
				}
				return m.Batch(step)
			}
			weights := func() (all []float64) {
				for v := range store.IterVariables() {
					all = append(all, numbers(v.MustValue())...)
				}
				return all
			}
			var before []float64
			for batch, err := range env.Dataset(Dataset{batches}).Iter() {
				if err != nil {
					t.Fatal(err)
				}
				number++
				out, err := exec.Call(batch.Inputs[0], batch.Labels[0])
				switch number {
				case 1, 2:
					if err != nil {
						t.Fatal(err)
					}
					numbers(out[1])
					before = weights()
					continue
				case 3:
					if err != nil {
						t.Fatal(err)
					}
					mustFail(t, exceptions.TryCatch[error](func() { numbers(out[0]) }), "step 3", "differs between instances 0 and 1", "epl.AddToCollection", "gpu_inside_test.go")
					if after := weights(); !slices.Equal(before, after) {
						t.Errorf("a step that was refused changes variables: %v, %v", before, after)
					}
					continue
				case 4: // the error of step 3 was seen
					if err != nil {
						t.Fatal(err)
					}
					continue
				}
				mustFail(t, err, "step 4", "differs between instances 0 and 1")
				break
			}
			for _, d := range env.Stats().Devices {
				for op, bytes := range d.Sent {
					if bytes > 0 {
						t.Errorf("%d bytes go through the host by %s", bytes, op)
					}
				}
			}
			if err := env.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// GPUs check recomputed gradients by themselves.
func TestGPUsCheckRecomputedGradients(t *testing.T) {
	m := Model{"mlp", MLP(6, 16, false), Models()[0].Loss, Regression(8, 8)}
	for _, micro := range []int{1, 2} {
		t.Run(fmt.Sprint("right ", micro), func(t *testing.T) {
			s := Staged{m.Name, func(int) func(scope *model.Scope, inputs []*graph.Node) []*graph.Node {
				return func(scope *model.Scope, inputs []*graph.Node) []*graph.Node {
					return []*graph.Node{m.Build(scope, inputs[0])}
				}
			}, m.Loss, m.Batch}
			alikeInside(t, s, 2, micro, 3, checked(nil), 1e-6)
		})
		t.Run(fmt.Sprint("wrong ", micro), func(t *testing.T) {
			defer recomputesWrongly()()
			fakeGPUs(t, 2, 0)
			env := newCluster(t, 2, micro, checked(nil), epl.WithInner(fake))
			var err error
			if late := exceptions.TryCatch[error](func() {
				_, err = TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 1)
			}); late != nil {
				err = late
			}
			mustFail(t, err, "step 1", `the gradient of "/`, "gradient_checkpoint.check_gradients")
			if err := env.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Where the host checks, Explain says why.
func TestExplainSaysWhyTheHostChecks(t *testing.T) {
	m := Model{"mlp", MLP(6, 16, false), Models()[0].Loss, Regression(8, 8)}
	for why, params := range map[string]map[string]any{"": nil, "refused must not change": {"offload.level": "v0"}} {
		t.Run(why, func(t *testing.T) {
			fakeGPUs(t, 2, 0)
			env := newCluster(t, 2, 2, checked(params), epl.WithInner(fake))
			run, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 1)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := env.Explain(&text); err != nil {
				t.Fatal(err)
			}
			if says := strings.Contains(text.String(), "the host merges"); says != (why != "") || !strings.Contains(text.String(), why) {
				t.Errorf("Explain says\n%s", text.String())
			}
			if run.Store, err = run.Store.Clone(); err != nil {
				t.Fatal(err)
			}
			if err := env.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
