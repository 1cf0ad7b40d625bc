// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
)

// splitPlan is how a model with split TaskGraphs runs.
type splitPlan struct {
	parts           []int // the devices of each TaskGraph: split over so many, or, if negative, replicated
	colocate        bool  // they share their devices
	replicas, micro int
	schedule        string // "": the default one
}

func (p splitPlan) String() string {
	var parts []string
	for _, k := range p.parts {
		if k < 0 {
			parts = append(parts, fmt.Sprintf("replicate(%d)", -k))
		} else {
			parts = append(parts, fmt.Sprintf("split(%d)", k))
		}
	}
	by := " then "
	if p.colocate {
		by = " with "
	}
	return strings.Trim(fmt.Sprintf("%s/%dx%d/%s", strings.Join(parts, by), p.replicas, p.micro, p.schedule), "/")
}

// batches is how many batches a step takes.
func (p splitPlan) batches() int { return p.replicas * p.micro }

// devices is how many a model replica has.
func (p splitPlan) devices() (n int) {
	for _, k := range p.parts {
		if p.colocate {
			return max(k, -k)
		}
		n += max(k, -k)
	}
	return n
}

func (p splitPlan) env(t testing.TB, params map[string]any, opts ...epl.Option) *epl.Env {
	t.Helper()
	return newCluster(t, p.devices()*p.replicas, p.micro, p.params(params), opts...)
}

// params adds what the plan asks for.
func (p splitPlan) params(params map[string]any) map[string]any {
	all := map[string]any{"cluster.colocate_split_and_replicate": p.colocate}
	if p.schedule != "" {
		all["pipeline.strategy"] = p.schedule
	}
	for k, v := range params {
		all[k] = v
	}
	return all
}

// alone is the plan for one device that does the same: instances of the whole model.
func (p splitPlan) alone() splitPlan {
	one := splitPlan{colocate: true, replicas: p.replicas, micro: p.micro}
	for range p.parts {
		one.parts = append(one.parts, 1)
	}
	return one
}

// pin says along which dim a variable is sharded.
type pin struct {
	variable string
	dim      int
}

// under is the model with the strategies of a plan.
func (m Parted) under(p splitPlan, pins ...pin) Staged {
	var s Strategies
	for i, k := range p.parts {
		if k == 0 { // no annotation
			s = append(s, epl.Strategy{})
			continue
		}
		if k < 0 {
			s = append(s, epl.Replicate(-k, fmt.Sprintf("part_%d", i)))
			continue
		}
		split := epl.Split(k, fmt.Sprintf("part_%d", i))
		for _, x := range pins {
			split = split.Shard(x.variable, x.dim)
		}
		s = append(s, split)
	}
	return Staged{m.Name, func(int) func(scope *model.Scope, inputs []*Node) []*Node { return m.Build(s) }, m.Loss, m.Batch}
}

// measure trains as the plan must: on one device of plain GoMLX, or, where each instance is by itself, on one device for
// each model replica.
func (m Parted) measure(t testing.TB, p splitPlan, steps int) *Run {
	t.Helper()
	if m.PerInstance {
		return m.under(p.alone()).piped(t, p.alone().env(t, nil), 0, sgd(), steps)
	}
	return m.under(p).alone(t, 0, p.batches(), sgd(), steps)
}

// partedModel finds a model by its name.
func partedModel(name string) Parted {
	return PartedModels()[slices.IndexFunc(PartedModels(), func(m Parted) bool { return m.Name == name })]
}

// whole is the plan that splits all of a model over k devices, or all but what needs another strategy.
func (m Parted) whole(k, replicas, micro int) splitPlan {
	p := splitPlan{parts: []int{k}, colocate: m.Least > 1, replicas: replicas, micro: micro}
	if m.Least > 1 {
		p.parts = []int{-k, k}
	}
	return p
}

func TestSplitTaskGraphsGiveTheWeightsOfOneDevice(t *testing.T) {
	for _, m := range PartedModels() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			for i, k := range []int{2, 3, 4, 8} {
				p := m.whole(k, 1+(i+1)/2%2, 1+i/2)
				t.Run(p.String(), func(t *testing.T) {
					mustBeClose(t, m.measure(t, p, 3), m.under(p).piped(t, p.env(t, nil), 0, sgd(), 3))
				})
			}
		})
	}
}

// mixes are TaskGraphs after each other, with other numbers of devices, or on the same ones.
func mixes(m Parted) (plans []splitPlan) {
	if m.Colocated {
		return []splitPlan{{parts: []int{-2, 2}}, {parts: []int{-3, 3}}, {parts: []int{-4, 4}}, {parts: []int{-5, 5}}}
	}
	for _, parts := range [][]int{{-1, 2}, {-1, 3}, {3, -1}, {2, -2}, {-2, 4}, {2, 2}, {2, 3}, {4, 2}, {-1, 2, 3}, {2, -1, 2}, {-2, 3, -1}, {3, 1, 2}} {
		plans = append(plans, splitPlan{parts: parts})
	}
	for _, parts := range [][]int{{-2, 2}, {2, -2}, {-3, 3}, {-2, -2, 2}, {4, -4}, {3, 3}, {2, -2, 2}} {
		plans = append(plans, splitPlan{parts: parts, colocate: true})
	}
	return plans
}

// somePlans are a few mixes for a model, with other instances and schedules each: more if the flag for long runs says so.
func (m Parted) somePlans(seed int64) (plans []splitPlan) {
	n := *seedCount / 30
	if testing.Short() {
		n = 1
	}
	r := rand.New(rand.NewSource(seed))
	all := mixes(m)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, p := range all {
		p.colocate = p.colocate || m.Colocated
		if p.replicas, p.micro = 1+r.Intn(2), 1+r.Intn(4); !p.colocate {
			p.schedule = strategies[r.Intn(4)]
		}
		if len(p.parts) <= m.Most && len(plans) < n {
			plans = append(plans, p)
		}
	}
	return plans
}

func TestSplitTaskGraphsBesideOthersGiveTheWeightsOfOneDevice(t *testing.T) {
	for i, m := range PartedModels() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			for _, p := range m.somePlans(int64(i)) {
				t.Run(p.String(), func(t *testing.T) {
					mustBeClose(t, m.measure(t, p, 3), m.under(p).piped(t, p.env(t, nil), 0, sgd(), 3))
				})
			}
		})
	}
}

// Two stages share each pair of devices.
func TestInterleavedStagesMayBeSplit(t *testing.T) {
	p := splitPlan{parts: []int{2, 2, 2, 2}, replicas: 1, micro: 3, schedule: "Interleaved"}
	m := partedModel("mlp")
	env := newCluster(t, 4, p.micro, p.params(map[string]any{"pipeline.stages_per_device": 2}))
	mustBeClose(t, m.measure(t, p, 3), m.under(p).piped(t, env, 0, sgd(), 3))
}

// Unlike the devices of replicate, those of a split do not share the samples.
func TestASplitNeedsNoMoreSamplesThanOne(t *testing.T) {
	for _, p := range []splitPlan{{parts: []int{8}, replicas: 1, micro: 2}, {parts: []int{-1, 3}, replicas: 2, micro: 1}} {
		t.Run(p.String(), func(t *testing.T) {
			m := partedModel("mlp")
			m.Batch = Regression(1, 8)
			mustBeClose(t, m.measure(t, p, 3), m.under(p).piped(t, p.env(t, nil), 0, sgd(), 3))
		})
	}
}

func TestSplitOverOneDeviceIsNoSplit(t *testing.T) {
	m := partedModel("classifier")
	p := splitPlan{parts: []int{1, 1}, colocate: true, replicas: 1, micro: 1}
	got := m.under(p).piped(t, p.env(t, nil, epl.WithPasses("none")), 0, sgd(), 5)
	if err := SameBits(m.measure(t, p, 5), got); err != nil {
		t.Error(err)
	}
}

// computedIn is an MLP that computes in one type; its weights are of it, too, or stay float32.
func computedIn(dtype dtypes.DType, weights bool) Parted {
	m := partedModel("mlp")
	m.Build = func(s Strategies) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x := inputs[0]
			for i := range s {
				s.part(x, i, func() {
					scope := scope.In("part_%d", i)
					if weights {
						x = Tanh(layers.Dense(scope, ConvertDType(x, dtype), true, 13))
					} else {
						w := scope.VariableWithShape("w", shapes.Make(dtypes.Float32, x.Shape().Dimensions[1], 13)).NodeValue(x)
						x = ConvertDType(Tanh(Dot(ConvertDType(x, dtype), ConvertDType(w, dtype)).Product()), dtypes.Float32)
					}
				})
			}
			return []*Node{ConvertDType(layers.Dense(scope.In("out"), x, true, 1), dtypes.Float32)}
		}
	}
	return m
}

func TestSplitTaskGraphsComputeInOtherTypes(t *testing.T) {
	for _, p := range fewSplits() {
		t.Run("float64/"+p.String(), func(t *testing.T) {
			t.Parallel()
			m := computedIn(dtypes.Float64, true)
			mustBeClose(t, m.measure(t, p, 3), m.under(p).piped(t, p.env(t, nil), 0, sgd(), 3))
		})
		t.Run("bfloat16/"+p.String(), func(t *testing.T) {
			t.Parallel()
			m := computedIn(dtypes.BFloat16, false)
			want, got := m.measure(t, p, 3), m.under(p).piped(t, p.env(t, nil), 0, sgd(), 3)
			if err := CloseWeights(want, got, 1e-2); err != nil {
				t.Error(err)
			}
		})
	}
}

// A pin is what the user gets, and Explain says so.
func TestPinsAreWhereTheUserWantsThem(t *testing.T) {
	m := partedModel("mlp")
	for _, dim := range []int{0, 1} {
		p := splitPlan{parts: []int{3}, replicas: 1, micro: 2}
		env := p.env(t, nil)
		got := m.under(p, pin{"up/dense/weights", dim}, pin{"/part_0/down/dense/weights", dim}).piped(t, env, 0, sgd(), 3)
		mustBeClose(t, m.measure(t, p, 3), got)
		var text strings.Builder
		if err := env.Explain(&text); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/part_0/up/dense/weights", "/part_0/down/dense/weights"} {
			if want := fmt.Sprintf("sharded(%d)", dim); !slices.ContainsFunc(strings.Split(text.String(), "\n"), func(line string) bool {
				return strings.Contains(line, path) && strings.Contains(line, want)
			}) {
				t.Errorf("no line says that %s is %s:\n%s", path, want, &text)
			}
		}
	}
}
