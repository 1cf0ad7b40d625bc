package equiv

import (
	"testing"

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
