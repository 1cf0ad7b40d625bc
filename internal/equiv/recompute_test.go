// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/zoo/transformer"

	"github.com/easyparallel/epl"
)

// recomputing adds recompute to other settings.
func recomputing(params map[string]any) map[string]any {
	all := map[string]any{"gradient_checkpoint.type": "auto"}
	for k, v := range params {
		all[k] = v
	}
	return all
}

// mustRecompute fails unless EPL said that it computes something again.
func mustRecompute(t testing.TB, env *epl.Env) {
	t.Helper()
	var text strings.Builder
	if err := env.Explain(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "gradient checkpoint: backward computes") {
		t.Error("nothing was recomputed")
	}
}

func sameBits(t testing.TB, want, got *Run) {
	t.Helper()
	if err := SameBits(want, got); err != nil {
		t.Error(err)
	}
}

// Every op is computed twice on the same values: nothing may change, dropout included.
func TestRecomputeOnOneDeviceChangesNoBit(t *testing.T) {
	for _, m := range Models() {
		for _, passes := range []string{"none", "all"} {
			t.Run(m.Name+"/"+passes, func(t *testing.T) {
				t.Parallel()
				opt := func() optimizer.Interface { return epl.Optimizer(optimizer.StochasticGradientDescent()) }
				env := newCluster(t, 1, 1, recomputing(nil), epl.WithPasses(passes))
				want := train1(t, m, opt(), 10, newCluster(t, 1, 1, nil, epl.WithPasses(passes)))
				sameBits(t, want, train1(t, m, opt(), 10, env))
				mustRecompute(t, env)
			})
		}
	}
}

func TestRecomputeInDataParallelTrainingChangesNoBit(t *testing.T) {
	for _, m := range Models() {
		for _, c := range []struct{ devices, micro int }{{1, 3}, {2, 2}} {
			t.Run(fmt.Sprintf("%s/%dx%d", m.Name, c.devices, c.micro), func(t *testing.T) {
				t.Parallel()
				run := func(params map[string]any) *Run {
					env := newCluster(t, c.devices, c.micro, params)
					r, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 5)
					if err != nil {
						t.Fatal(err)
					}
					return r
				}
				sameBits(t, run(nil), run(recomputing(nil)))
			})
		}
	}
}

func TestRecomputeInPipelinesChangesNoBit(t *testing.T) {
	r := rand.New(rand.NewSource(7))
	for i, m := range StagedModels() {
		for j, strategy := range strategies {
			if (i+j)%3 != 0 && *seedCount <= 120 || m.Name == "reordered" && strategy == "Interleaved" {
				continue
			}
			p := pipelinePlan{stages: 2 + r.Intn(3), replicas: 1 + r.Intn(2), micro: 1 + r.Intn(4), strategy: strategy}
			if strategy == "Interleaved" {
				p.stages, p.perDevice = 4, 2
			}
			t.Run(fmt.Sprintf("%s/%s", m.Name, p), func(t *testing.T) {
				t.Parallel()
				want := m.piped(t, p.env(t, nil), p.stages, sgd(), 3)
				sameBits(t, want, m.piped(t, p.env(t, recomputing(nil)), p.stages, sgd(), 3))
			})
		}
	}
}

func TestRecomputeOfSplitTaskGraphsChangesNoBit(t *testing.T) {
	for i, m := range PartedModels() {
		for j, p := range fewSplits() {
			if (i+j)%2 != 0 && *seedCount <= 120 || len(p.parts) < m.Least || len(p.parts) > m.Most ||
				m.Least > 1 && (!p.colocate || p.parts[0] > 0) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", m.Name, p), func(t *testing.T) {
				t.Parallel()
				want := m.under(p).piped(t, p.env(t, nil), 0, sgd(), 3)
				sameBits(t, want, m.under(p).piped(t, p.env(t, recomputing(nil)), 0, sgd(), 3))
			})
		}
	}
}

// checkpointed is a network of dense layers with dropout, of which some are checkpoints.
func checkpointed(marked ...int) Model {
	build := func(scope *model.Scope, x *Node) *Node {
		first := x
		for i := range 6 {
			x = Tanh(layers.Dense(scope.In("dense_%d", i), x, true, 16))
			for _, k := range marked {
				if i == k {
					epl.AddToCollection(epl.Checkpoints, x)
				}
			}
			x = layers.DropoutStatic(scope, x, 0.2)
			if i == 0 {
				first = x
			}
		}
		return layers.Dense(scope.In("out"), Add(x, first), true, 1)
	}
	return Model{"dense", build, loss.MeanSquaredError, Regression(16, 8)}
}

func TestCheckpointsOfTheUserChangeNoBit(t *testing.T) {
	collection := map[string]any{"gradient_checkpoint.type": "collection"}
	for _, marked := range [][]int{{0}, {3}, {5}, {1, 3}, {0, 1, 2, 3, 4, 5}} {
		for _, micro := range []int{1, 2} {
			t.Run(fmt.Sprintf("%v/%d", marked, micro), func(t *testing.T) {
				t.Parallel()
				m := checkpointed(marked...)
				run := func(params map[string]any) (*Run, *epl.Env) {
					env := newCluster(t, 1, micro, params)
					r, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 5)
					if err != nil {
						t.Fatal(err)
					}
					return r, env
				}
				want, _ := run(nil)
				got, env := run(collection)
				sameBits(t, want, got)
				mustRecompute(t, env)
			})
		}
	}
}

func TestRecomputeEndsAtATaskGraph(t *testing.T) {
	m := StagedModels()[1]
	p := pipelinePlan{stages: 4, replicas: 1, micro: 2}
	want := m.piped(t, p.env(t, nil), p.stages, sgd(), 3)
	for end := range 4 {
		sameBits(t, want, m.piped(t, p.env(t, recomputing(map[string]any{"gradient_checkpoint.end_taskgraph": end})), p.stages, sgd(), 3))
	}
}

func TestWhatCannotBeACheckpointIsRefused(t *testing.T) {
	dense := func(scope *model.Scope, x *Node) *Node { return layers.Dense(scope.In("out"), x, true, 1) }
	cases := []struct {
		name   string
		build  func(scope *model.Scope, x *Node) *Node
		params map[string]any
		want   string
	}{
		{"no checkpoint", dense, nil, `has no value in the collection Checkpoints`},
		{"a variable", func(scope *model.Scope, x *Node) *Node {
			w := scope.VariableWithShape("w", shapes.Make(dtypes.Float32, 8, 8)).NodeValue(x.Graph())
			epl.AddToCollection(epl.Checkpoints, w)
			return dense(scope, Dot(x, w).Product())
		}, nil, `which is the variable "/w"`},
		{"an input", func(scope *model.Scope, x *Node) *Node {
			epl.AddToCollection(epl.Checkpoints, x)
			return dense(scope, x)
		}, nil, `which is the input arg`},
		{"a constant", func(scope *model.Scope, x *Node) *Node {
			c := Const(x.Graph(), []float32{1, 2, 3, 4, 5, 6, 7, 8})
			epl.AddToCollection(epl.Checkpoints, c)
			return dense(scope, Mul(x, ExpandAxes(c, 0)))
		}, nil, `which is a constant`},
		{"a TaskGraph that there is not", dense, map[string]any{"gradient_checkpoint.type": "auto", "gradient_checkpoint.end_taskgraph": 3},
			`gradient_checkpoint.end_taskgraph is 3, but program`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			params := c.params
			if params == nil {
				params = map[string]any{"gradient_checkpoint.type": "collection"}
			}
			env := newCluster(t, 1, 1, params)
			_, err := Train(env.Backend(), Model{c.name, c.build, loss.MeanSquaredError, Regression(8, 8)}, epl.Optimizer(sgd()), 1)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Whatever else is switched on: one device on the same samples ends at the same weights.
func TestRandomPlansWithRecomputeGiveTheWeightsOfOneDevice(t *testing.T) {
	for seed := int(*firstSeed); seed < int(*firstSeed)+(*seedCount+5)/6; seed++ {
		r := rand.New(rand.NewSource(int64(seed)))
		m, p := drawPiped(r)
		params, spec := recomputing(randomSettings(r)), randomPasses(r)
		if r.Intn(3) == 0 {
			params["gradient_checkpoint.end_taskgraph"] = r.Intn(p.stages)
		}
		t.Run(fmt.Sprintf("%d/%s/%s", seed, m.Name, p), func(t *testing.T) {
			t.Parallel()
			t.Logf("%v, passes %s", params, spec)
			want := m.alone(t, p.stages, p.batches(), sgd(), 3)
			mustBeClose(t, want, m.piped(t, p.env(t, params, epl.WithPasses(spec)), p.stages, sgd(), 3))
		})
	}
}

// A transformer of 24 layers: besides weights, a device has a quarter of what it has without. The engine for CPUs fuses ops, and
// so keeps less without recompute, too.
func TestRecomputeCutsTheActivationsOfADeepTransformerToAQuarter(t *testing.T) {
	build := func(scope *model.Scope, x *Node) *Node {
		return transformer.New(scope).WithVocabSize(32).WithEmbedDim(32).WithNumLayers(24).WithNumHeads(2).WithHeadDim(16).
			WithMaxPosEmbed(32).WithDropout(0.1).WithCausalMask(true).Logits(x, transformer.CallOptions{})
	}
	m := Model{"deep", build, loss.SparseCategoricalCrossEntropyLogits, Tokens(8, 32, 32)}
	most := func(inner string, params map[string]any) int64 {
		env := newCluster(t, 1, 1, params, epl.WithInner(inner))
		train1(t, m, epl.Optimizer(sgd()), 1, env)
		d := env.Stats().Devices[0]
		return d.PeakBytes - d.Peak["weights"]
	}
	for inner, share := range map[string]float64{"go": 0.25, "cpu": 0.27} {
		if plain, got := most(inner, nil), most(inner, recomputing(nil)); float64(got) > share*float64(plain) {
			t.Errorf("%s: besides weights, a step takes %d bytes, without recompute %d", inner, got, plain)
		}
	}
}
