// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"sync"
	"testing"

	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// newEnv makes EPL on one device, with all TaskGraphs on it.
func newEnv(t testing.TB, passes string) *epl.Env {
	t.Helper()
	cfg, err := epl.NewConfig(map[string]any{"cluster.colocate_split_and_replicate": true})
	if err != nil {
		t.Fatal(err)
	}
	env, err := epl.Init(cfg, epl.WithPasses(passes))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Close() })
	return env
}

var optimizers = []struct {
	name string
	make func() optimizer.Interface
}{
	{"sgd", func() optimizer.Interface { return optimizer.StochasticGradientDescent() }},
	{"adam", func() optimizer.Interface { return optimizer.Adam().Done() }},
}

func train1(t *testing.T, m Model, opt optimizer.Interface, steps int, env *epl.Env) *Run {
	t.Helper()
	backend := Plain()
	if env != nil {
		backend = env.Backend()
	}
	run, err := Train(backend, m, opt, steps)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return run
}

const steps = 40

// references are runs of the plain backend, by model and optimizer, that several tests compare with.
var references sync.Map

// reference is training of all steps by the plain backend, which the first test that needs it does.
func reference(t *testing.T, m Model, optimizer int) *Run {
	t.Helper()
	o := optimizers[optimizer]
	run, _ := references.LoadOrStore(m.Name+"/"+o.name, sync.OnceValues(func() (*Run, error) { return Train(Plain(), m, o.make(), steps) }))
	got, err := run.(func() (*Run, error))()
	if err != nil {
		t.Fatalf("%+v", err)
	}
	return got
}

func TestWithoutPassesEveryBitOfFortyStepsIsThatOfThePlainBackend(t *testing.T) {
	for _, m := range Models() {
		for i, o := range optimizers {
			t.Run(m.Name+"/"+o.name, func(t *testing.T) {
				t.Parallel()
				want := reference(t, m, i)
				got := train1(t, m, epl.Optimizer(o.make()), steps, newEnv(t, "none"))
				if err := SameBits(want, got); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestOnThePlainBackendAnnotationsAndTheWrappedOptimizerChangeNothing(t *testing.T) {
	for _, m := range Models() {
		for _, o := range optimizers {
			t.Run(m.Name+"/"+o.name, func(t *testing.T) {
				t.Parallel()
				want := train1(t, m, o.make(), 5, nil)
				got := train1(t, m, epl.Optimizer(o.make()), 5, nil)
				if err := SameBits(want, got); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestWithAllPassesTrainingStaysWithinRounding(t *testing.T) {
	for _, m := range Models() {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			sgd, adam := optimizers[0].make, optimizers[1].make
			want, got := reference(t, m, 0), train1(t, m, epl.Optimizer(sgd()), steps, newEnv(t, "all"))
			if err := CloseWeights(want, got, 1e-5); err != nil {
				t.Error("sgd:", err)
			}
			want, got = reference(t, m, 1), train1(t, m, epl.Optimizer(adam()), steps, newEnv(t, "all"))
			if err := CloseLosses(want, got, 1e-3); err != nil {
				t.Error("adam:", err)
			}
		})
	}
}
