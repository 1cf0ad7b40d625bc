// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math"
	"path"
	"sort"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/metric"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// distanceOf is the mean distance of predictions from labels.
func distanceOf(_ *model.Scope, labels, predictions []*Node) *Node {
	return ReduceAllMean(Abs(Sub(labels[0], predictions[0])))
}

// counted is a metric of a user's own, the share of predictions above the labels among those that are not near: it adds up counts
// that depend on the data, the number of samples as an integer among them, and returns more than their quotient.
type counted struct{ metric.Interface }

func (c counted) UpdateGraph(scope *model.Scope, labels, predictions []*Node) *Node {
	g := predictions[0].Graph()
	difference := Sub(predictions[0], labels[0])
	far := NonNegativeIndicator(AddScalar(Abs(difference), -0.5))
	scope = scope.At(metric.Scope).In("%s", c.ScopeName())
	add := func(name string, zero any, x *Node) *Node {
		v := scope.VariableWithValue(name, zero).SetTrainable(false)
		v.SetNodeValue(Add(v.NodeValue(g), x))
		return v.NodeValue(g)
	}
	above := add("above", float32(0), ReduceAllSum(Mul(far, NonNegativeIndicator(difference))))
	all := add("far", float32(0), ReduceAllSum(far))
	add("samples", int32(0), Const(g, int32(labels[0].Shape().Dimensions[0])))
	return Sqrt(Div(above, AddScalar(all, 1)))
}

func metricsOf() []metric.Interface {
	base := metric.NewBaseMetric("share", "s", "share", distanceOf, nil)
	return []metric.Interface{
		metric.NewMeanMetric("mean", "m", "distance", distanceOf, nil),
		metric.NewExponentialMovingAverageMetric("moving", "~", "distance", distanceOf, nil, 0.01),
		counted{base},
		base,
	}
}

// measured trains for an epoch and returns what the metrics said after each step, and their state at the end.
func (m Staged) measured(t testing.TB, backend compute.Backend, ds train.Dataset, opt optimizer.Interface) (said [][]float64, state map[string][]float64) {
	t.Helper()
	store := newStore()
	loop := train.NewLoop(train.NewTrainer(backend, store, m.Build(0), m.Loss, opt, metricsOf(), nil))
	loop.OnStep("metrics", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
		var all []float64
		for _, x := range metrics {
			all = append(all, numbers(x)...)
		}
		said = append(said, all)
		return nil
	})
	if _, err := loop.RunEpochs(ds, 1); err != nil {
		t.Fatalf("%+v", err)
	}
	state = map[string][]float64{}
	for v := range store.IterVariables() {
		if strings.HasPrefix(v.Path(), "/metrics/") {
			name, _, _ := strings.Cut(path.Base(path.Dir(v.Path())), "_uuid_")
			state[name+"/"+path.Base(v.Path())] = numbers(v.MustValue())
		}
	}
	return said, state
}

// A step that lacks batches counts for what it has, in metrics that add up; moving averages move once per step.
func TestMetricsCountWhatRan(t *testing.T) {
	for _, p := range []splitPlan{
		{parts: []int{-1}, replicas: 4, micro: 1},
		{parts: []int{-1}, replicas: 1, micro: 4},
		{parts: []int{-1, -1}, replicas: 2, micro: 2},
		{parts: []int{-1, -1}, replicas: 1, micro: 4, schedule: "ZeroBubble"},
		{parts: []int{-2}, replicas: 2, micro: 2},
		{parts: []int{2}, replicas: 1, micro: 4},
		{parts: []int{-3, 3}, colocate: true, replicas: 2, micro: 2},
	} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			m := partedModel("mlp")
			all := samplesOf(m.Batch, 52)
			env := p.env(t, nil)
			got, gotState := m.under(p).measured(t, env.Backend(), env.Dataset(all.inMemory(t, Plain(), 5)), epl.Optimizer(sgd()))
			want, wantState := m.under(p).measured(t, Plain(), all.inBatches(20, 20, 10, 2), sgd())
			if fmt.Sprint(names(gotState)) != fmt.Sprint(names(wantState)) || len(gotState) != 9 {
				t.Errorf("the state is %v, not %v", names(gotState), names(wantState))
			}
			for name, x := range wantState {
				if d, n := distance(x, gotState[name]); !(d <= 1e-5*(n+1e-3)) {
					t.Errorf("%s is %v, not %v", name, gotState[name], x)
				}
			}
			for i := range want {
				for j := range want[i] {
					if math.Abs(got[i][j]-want[i][j]) > 1e-5*(math.Abs(want[i][j])+1e-3) {
						t.Errorf("step %d: metric %d is %v, not %v", i, j, got[i][j], want[i][j])
					}
				}
			}
		})
	}
}

// With weights of instances a mean over samples is that of the weights, and a metric's total follows.
func TestMetricsOfWeightedInstancesCountWhatRan(t *testing.T) {
	build := func(weighted bool) Staged {
		return Staged{"masked", func(int) func(scope *model.Scope, inputs []*Node) []*Node { return masked(weighted) }, nil, maskedBatch}
	}
	mean := []metric.Interface{metric.NewMeanMetric("mean", "m", "loss", func(_ *model.Scope, _, predictions []*Node) *Node {
		return train.GetMainLoss(predictions[0].Graph())
	}, nil)}
	run := func(backend compute.Backend, ds train.Dataset, opt optimizer.Interface, weighted bool) (last []*tensors.Tensor) {
		loop := train.NewLoop(train.NewTrainer(backend, newStore(), build(weighted).Build(0), nil, opt, mean, nil))
		loop.OnStep("metrics", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
			last = metrics
			return nil
		})
		if _, err := loop.RunEpochs(ds, 1); err != nil {
			t.Fatalf("%+v", err)
		}
		return last
	}
	all := samplesOf(maskedBatch, 8*7)
	env := newCluster(t, 2, 2, nil)
	got := run(env.Backend(), env.Dataset(all.inBatches(batchesOf(8*7, 8)...)), epl.Optimizer(sgd()), true)
	want := run(Plain(), all.inBatches(32, 24), sgd(), false)
	for i := range want {
		if x, y := numbers(want[i])[0], numbers(got[i])[0]; math.Abs(x-y) > 1e-5*x {
			t.Errorf("metric %d is %v, not %v", i, y, x)
		}
	}
}

func names(m map[string][]float64) (all []string) {
	for name := range m {
		all = append(all, name)
	}
	sort.Strings(all)
	return all
}
