package equiv

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
)

// alikeInside trains on fake GPUs and on the pure-Go backend: weights are the same within a tolerance, and nothing that GPUs merge went through the host.
func alikeInside(t *testing.T, m Staged, devices, micro, steps int, params map[string]any, tolerance float64) {
	t.Helper()
	fakeGPUs(t, devices, 0)
	run := func(inner string) *Run {
		env := newCluster(t, devices, micro, params, epl.WithInner(inner))
		run := m.piped(t, env, 1, sgd(), steps)
		for _, d := range env.Stats().Devices {
			for op, bytes := range d.Sent {
				if inner == fake && bytes > 0 {
					t.Errorf("%d bytes go through the host by %s", bytes, op)
				}
			}
		}
		var err error
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

// What is to be concatenated is so in the order of instances.
func TestGPUsConcatenateInTheOrderOfInstances(t *testing.T) {
	fakeGPUs(t, 2, 0)
	var got [2][][]float64
	for i, inner := range []string{"go", fake} {
		env := newCluster(t, 2, 3, nil, epl.WithInner(inner))
		got[i] = collectedStep(t, env, func(x *graph.Node) []*graph.Node {
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
}
