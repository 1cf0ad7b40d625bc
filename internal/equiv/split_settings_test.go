// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/train/optimizer/cosineschedule"

	"github.com/easyparallel/epl"
)

// fewSplits are plans that differ in everything.
func fewSplits() []splitPlan {
	plans := []splitPlan{
		{parts: []int{2}, replicas: 2, micro: 2},
		{parts: []int{-3, 3}, colocate: true, replicas: 1, micro: 1},
		{parts: []int{-1, 3}, replicas: 1, micro: 3, schedule: "PreferForward"},
		{parts: []int{2, -2, 2}, colocate: true, replicas: 2, micro: 1},
		{parts: []int{2, 3}, replicas: 1, micro: 2, schedule: "ZeroBubble"},
	}
	if testing.Short() {
		return plans[:3]
	}
	return plans
}

// momentum keeps a velocity for every variable, and moves the variable by a share of its norm. It also keeps a mean over the
// rows of each gradient, which has another shape than the variable.
type momentum struct{}

func (m momentum) UpdateGraph(scope *model.Scope, g *Graph, loss *Node) {
	m.UpdateGraphWithGradients(scope, scope.BuildTrainableVariablesGradientsGraph(loss), loss.DType())
}

func (m momentum) UpdateGraphWithGradients(scope *model.Scope, gradients []*Node, lossDType dtypes.DType) {
	g := gradients[0].Graph()
	optimizer.IncrementGlobalStep(g, lossDType)
	i := 0
	for v := range scope.IterVariables() {
		if !v.Trainable || !v.InUseByGraph(g) {
			continue
		}
		slot := func(name string, dims ...int) *model.Variable {
			return scope.Store().Scope("/momentum"+v.Scope()+"/"+name).WithInitializer(initializer.Zero).
				VariableWithShape(v.Name(), shapes.Make(v.DType(), dims...)).SetTrainable(false)
		}
		velocity := slot("velocity", v.Shape().Dimensions...)
		next := Add(MulScalar(velocity.NodeValue(g), 0.9), gradients[i])
		if v.Shape().Rank() > 1 {
			rows := slot("rows", v.Shape().Dimensions[0])
			mean := Reshape(gradients[i], v.Shape().Dimensions[0], -1)
			now := Add(MulScalar(rows.NodeValue(g), 0.5), ReduceMean(mean, 1))
			rows.SetNodeValue(now)
			next = Mul(next, OnePlus(Reshape(now, append([]int{-1}, slices.Repeat([]int{1}, v.Shape().Rank()-1)...)...)))
		}
		velocity.SetNodeValue(next)
		norm := func(x *Node) *Node { return Sqrt(AddScalar(ReduceAllSum(Square(x)), 1e-3)) }
		v.SetNodeValue(Sub(v.NodeValue(g), MulScalar(Mul(next, Div(norm(v.NodeValue(g)), norm(next))), 0.01)))
		i++
	}
}

func (m momentum) Clear(scope *model.Scope) error { return nil }

func TestOptimizersOfSplitTaskGraphsGiveWhatTheyGiveOnOneDevice(t *testing.T) {
	after := map[string]any{"communication.clip_after_allreduce": true}
	cases := []struct {
		name   string
		make   func() optimizer.Interface
		params map[string]any
		adam   bool // it divides by the size of gradients, which makes much of rounding errors: losses only
	}{
		{"sgd with decay", func() optimizer.Interface { return optimizer.StochasticGradientDescent() }, nil, false},
		{"adam", func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Done() }, nil, true},
		{"adam with weight decay", func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).WeightDecay(0.01).Done() }, nil, true},
		{"adamax", func() optimizer.Interface { return optimizer.Adam().LearningRate(1e-3).Adamax().Done() }, nil, true},
		{"rmsprop", func() optimizer.Interface { return optimizer.RMSProp().LearningRate(1e-3).Done() }, nil, true},
		{"momentum", func() optimizer.Interface { return momentum{} }, nil, false},
		{"global norm", func() optimizer.Interface { return epl.ClipByGlobalNorm(sgd(), 0.01) }, after, false},
		{"value", func() optimizer.Interface { return epl.ClipByValue(sgd(), 0.001) }, after, false},
		{"adam and global norm", func() optimizer.Interface {
			return epl.ClipByGlobalNorm(optimizer.Adam().LearningRate(1e-3).Done(), 0.01)
		}, after, true},
	}
	for i, c := range cases {
		for j, p := range fewSplits() {
			m := partedModel([]string{"mlp", "classifier", "embeddings", "losses"}[(i+j)%4])
			t.Run(fmt.Sprintf("%s/%s/%s", c.name, m.Name, p), func(t *testing.T) {
				t.Parallel()
				want := m.under(p).alone(t, 0, p.batches(), c.make(), 5)
				got := m.under(p).piped(t, p.env(t, c.params), 0, c.make(), 5)
				if !c.adam {
					mustBeClose(t, want, got)
				} else if err := CloseLosses(want, got, 1e-3); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// What is done to the gradients of each instance is not what one device does to the gradient of all: data parallel
// training is the measure.
func TestSplitTaskGraphsClipTheGradientsOfEachInstanceAsDataParallelTrainingDoes(t *testing.T) {
	clips := map[string]func() optimizer.Interface{
		"global norm": func() optimizer.Interface { return epl.ClipByGlobalNorm(sgd(), 0.01) },
		"value":       func() optimizer.Interface { return epl.ClipByValue(sgd(), 0.001) },
	}
	for name, clip := range clips {
		for i, p := range fewSplits() {
			m := partedModel([]string{"mlp", "tied", "classifier"}[i%3])
			t.Run(fmt.Sprintf("%s/%s/%s", name, m.Name, p), func(t *testing.T) {
				t.Parallel()
				want := m.under(p.alone()).piped(t, p.alone().env(t, nil), 0, clip(), 3)
				mustBeClose(t, want, m.under(p).piped(t, p.env(t, nil), 0, clip(), 3))
				if free := m.under(p).alone(t, 0, p.batches(), sgd(), 3); CloseWeights(free, want, 1e-6) == nil {
					t.Error("clipping changed nothing")
				}
			})
		}
	}
}

func TestALearningRateThatFollowsAScheduleDoesSoOnAllDevicesOfASplit(t *testing.T) {
	for i, p := range fewSplits() {
		m := partedModel([]string{"mlp", "classifier"}[i%2]).under(p)
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			plain := m.Build
			m.Build = func(n int) func(scope *model.Scope, inputs []*Node) []*Node {
				return func(scope *model.Scope, inputs []*Node) []*Node {
					cosineschedule.New(scope, inputs[0].Graph(), dtypes.Float32).PeriodSteps(4).WarmUpSteps(2).LearningRate(0.05).Done()
					return plain(n)(scope, inputs)
				}
			}
			mustBeClose(t, m.alone(t, 0, p.batches(), sgd(), 7), m.piped(t, p.env(t, nil), 0, sgd(), 7))
		})
	}
}

// A gradient of a part is that part of the whole gradient: neither the devices of a split nor its instances scale it.
func TestSplitGradientsAreNotScaledByTheNumberOfDevices(t *testing.T) {
	m := partedModel("classifier")
	for _, method := range []string{"mean", "sum"} {
		for _, p := range append(fewSplits(), splitPlan{parts: []int{8}, replicas: 1, micro: 1}, splitPlan{parts: []int{-4, 4}, colocate: true, replicas: 1, micro: 1}) {
			t.Run(fmt.Sprintf("%s/%s", method, p), func(t *testing.T) {
				t.Parallel()
				rate := func(x float64) optimizer.Interface {
					return optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(x)
				}
				factor := 1.0
				if method == "sum" { // over instances, of which each has the mean of its batch
					factor = float64(p.batches())
				}
				want := m.under(p).alone(t, 0, p.batches(), rate(0.1*factor), 1)
				start := m.under(p).alone(t, 0, p.batches(), rate(0), 1)
				got := m.under(p).piped(t, p.env(t, map[string]any{"communication.gradients_reduce_method": method}), 0, rate(0.1), 1)
				for v := range want.Store.IterVariables() {
					if !v.Trainable {
						continue
					}
					begin := numbers(start.Store.GetVariable(v.Path()).MustValue())
					change := func(run *Run) []float64 {
						x := numbers(run.Store.GetVariable(v.Path()).MustValue())
						for i := range x {
							x[i] -= begin[i]
						}
						return x
					}
					if d, n := distance(change(want), change(got)); n == 0 || d > 1e-4*n {
						t.Errorf("the change of %s differs by %g at a norm of %g", v.Path(), d, n)
					}
				}
			})
		}
	}
}

func TestSettingsOfCommunicationDoNotChangeWhatSplitTaskGraphsLearn(t *testing.T) {
	settings := []map[string]any{
		{"communication.max_splits": 1},
		{"communication.max_splits": 7, "communication.num_communicators": 3},
		{"communication.sparse_as_dense": true},
		{"communication.sparse_as_dense": false, "communication.num_communicators": 1},
		{"cluster.device_place_prefer_intra_node": false},
	}
	for i, params := range settings {
		for j, p := range fewSplits() {
			m := partedModel([]string{"tied", "embeddings", "classifier"}[(i+j)%3])
			t.Run(fmt.Sprintf("%d/%s/%s", i, m.Name, p), func(t *testing.T) {
				t.Parallel()
				mustBeClose(t, m.measure(t, p, 3), m.under(p).piped(t, p.env(t, params), 0, sgd(), 3))
			})
		}
	}
}

func TestGradientsOfSplitTaskGraphsThatTravelAsFloat16StayClose(t *testing.T) {
	for i, p := range fewSplits() {
		m := partedModel([]string{"mlp", "classifier"}[i%2])
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			want := m.measure(t, p, 3)
			got := m.under(p).piped(t, p.env(t, map[string]any{"communication.fp16": true}), 0, sgd(), 3)
			if err := CloseWeights(want, got, 1e-3); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEveryPassMayBeOffUnderSplit(t *testing.T) {
	for i, p := range fewSplits() {
		m := partedModel([]string{"transformer", "classifier", "convolution"}[i%3])
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			mustBeClose(t, m.measure(t, p, 3), m.under(p).piped(t, p.env(t, nil, epl.WithPasses("none")), 0, sgd(), 3))
		})
	}
}

// A NaN in one sample reaches the gradients on all devices.
func TestNaNGradientsOfASplitAreSkippedOnEveryDevice(t *testing.T) {
	for _, parts := range [][]int{{3}, {2, -1}} {
		p := splitPlan{parts: parts, replicas: 1, micro: 1}
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			m := partedModel("mlp").under(p)
			m.Batch = poisoned(m.Batch, 1)
			plain := m.Build
			m.Build = func(n int) func(scope *model.Scope, inputs []*Node) []*Node {
				return func(scope *model.Scope, inputs []*Node) []*Node {
					scope.Store().SetParam("/"+optimizer.ParamClipNaN, true)
					return plain(n)(scope, inputs)
				}
			}
			got := m.stepByStep(t, p.env(t, nil), 0, 4)
			for v := range got.Store.IterVariables() {
				if v.Trainable {
					for _, x := range numbers(v.MustValue()) {
						if math.IsNaN(x) {
							t.Fatalf("%s has become NaN", v.Path())
						}
					}
				}
			}
			if !math.IsNaN(float64(got.Losses[1])) || math.IsNaN(float64(got.Losses[3])) {
				t.Errorf("the losses are %v", got.Losses)
			}
		})
	}
}
