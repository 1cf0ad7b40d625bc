// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"log"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/support/exceptions"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// fakeGPUs makes the backend "xla" one whose modules compute what GoMLX's pure-Go backend does. At the end of the test nothing is left of it.
func fakeGPUs(t *testing.T, n int, memory int64) *pjrttest.Fake {
	t.Helper()
	if *onGPUs {
		t.Skip("there is one fake at a time, and -equiv.gpus has it")
	}
	f := pjrttest.New(t, pjrttest.Options{Devices: n, Memory: memory})
	var training atomic.Bool // from when a step runs on
	see := func(s *ir.Segment, donate []bool, text string) {
		if !slices.ContainsFunc(s.Ops, func(op *ir.Op) bool { return op.Phase == ir.Backward }) {
			return
		}
		if training.Load() {
			t.Errorf("%s is compiled while steps run", s.Name)
		}
		p := xlatest.Program(t, s, donate)
		run := p.Run
		p.Run = func(device int, args [][]byte) ([][]byte, error) { training.Store(true); return run(device, args) }
		f.Program(text, p)
	}
	exec.Register("xla", func(string) (exec.Kind, error) {
		training.Store(false)
		return xlatest.Kind(t, f, xla.Options{Compiling: see}), nil
	})
	return f
}

// Whatever the plan is, training on GPUs gives the bits of the pure-Go backend, because the fake computes with it: so buffers are
// uploaded, donated, read and freed as they should be.
func TestTrainingOnGPUsUpToXLAItself(t *testing.T) {
	staged := stagedMLP()
	pipeline := Model{Name: staged.Name, Loss: staged.Loss, Batch: staged.Batch, Build: func(scope *model.Scope, x *graph.Node) *graph.Node {
		return staged.Build(2)(scope, []*graph.Node{x})[0]
	}}
	parted := partedModel("mlp")
	split := Model{Name: "split", Loss: parted.Loss, Batch: parted.Batch, Build: func(scope *model.Scope, x *graph.Node) *graph.Node {
		return parted.Build(Strategies{epl.Split(2, "all"), epl.Split(2, "all")}[:parted.Least])(scope, []*graph.Node{x})[0]
	}}
	for name, c := range map[string]struct {
		m              Model
		devices, micro int
		params         map[string]any
	}{
		"one device":   {Models()[0], 1, 1, nil},
		"replicas":     {Models()[1], 2, 2, nil},
		"pipeline":     {pipeline, 2, 3, map[string]any{"cluster.colocate_split_and_replicate": false}},
		"split":        {split, 2, 1, nil},
		"ZeRO v2":      {Models()[0], 2, 2, map[string]any{"zero.level": "v2"}},
		"offload":      {Models()[0], 1, 2, map[string]any{"offload.level": "v0"}},
		"apply groups": {Models()[0], 1, 1, map[string]any{"optimizer.num_apply_group": 3}},
		"recompute":    {Models()[1], 2, 1, map[string]any{"gradient_checkpoint.type": "auto"}},
	} {
		t.Run(name, func(t *testing.T) {
			fakeGPUs(t, 2, 0)
			run := func(inner string) *Run {
				env := newCluster(t, c.devices, c.micro, c.params, epl.WithInner(inner))
				run, err := TrainOn(env.Backend(), env.Dataset(Dataset{c.m.Batch}), c.m, epl.Optimizer(sgd()), 3)
				if err != nil {
					t.Fatalf("%s: %v", inner, err)
				}
				if run.Store, err = run.Store.Clone(); err != nil {
					t.Fatal(err)
				}
				if err := env.Close(); err != nil {
					t.Fatalf("%s: %v", inner, err)
				}
				return run
			}
			if err := SameBits(run("go"), run("xla:fake")); err != nil {
				t.Error(err)
			}
		})
	}
}

// amp.tf32 is in the text of modules, and so in the key of their cache. Explain and the log say where it has no effect.
func TestTF32IsForGPUs(t *testing.T) {
	const rounds, idle = "amp.tf32: float32 products", "amp.tf32 has no effect"
	for name, c := range map[string]struct {
		inner string
		yes   bool
		says  string
	}{
		"asked for": {"xla:fake", true, rounds},
		"not":       {"xla:fake", false, ""},
		"on CPUs":   {"cpu", true, idle},
	} {
		t.Run(name, func(t *testing.T) {
			f := pjrttest.New(t, pjrttest.Options{})
			var all, said, explained strings.Builder
			exec.Register("xla", func(string) (exec.Kind, error) {
				see := func(_ *ir.Segment, _ []bool, text string) { all.WriteString(text) }
				return xlatest.Kind(t, f, xla.Options{Compiling: see}), nil
			})
			before := log.Writer()
			log.SetOutput(&said)
			defer log.SetOutput(before)
			env := newCluster(t, 1, 1, map[string]any{"amp.tf32": c.yes}, epl.WithInner(c.inner))
			m := Models()[0]
			run, err := TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 1)
			if err != nil {
				t.Fatal(err)
			}
			if run.Store, err = run.Store.Clone(); err != nil {
				t.Fatal(err)
			}
			if err := env.Explain(&explained); err != nil {
				t.Fatal(err)
			}
			if err := env.Close(); err != nil {
				t.Fatal(err)
			}
			if text := all.String(); c.inner != "cpu" && (!strings.Contains(text, "dot_general") || strings.Contains(text, "HIGHEST") == c.yes) {
				t.Errorf("full precision: %t", c.yes)
			}
			for _, sentence := range []string{rounds, idle} {
				if strings.Contains(explained.String(), sentence) != (sentence == c.says) {
					t.Errorf("Explain has %q: %t", sentence, sentence != c.says)
				}
			}
			if strings.Contains(said.String(), idle) != (c.says == idle) {
				t.Errorf("the log is %q", said.String())
			}
		})
	}
}

// What GPUs need is known exactly once modules are compiled: Explain compares the account with it, the meter counts by it, and a program that
// does not fit is refused before its first step. If a GPU runs out of memory all the same, the error that comes late has the advice, too.
func TestMemoryOfGPUs(t *testing.T) {
	m := Model{"large", MLP(3, 256, false), loss.MeanSquaredError, Regression(64, 8)}
	for name, c := range map[string]struct {
		micro     int
		limit     int64
		exhausted bool
		says      []string // by the error; nil: it trains
	}{
		"whole":                {1, 0, false, nil},
		"in segments":          {2, 0, false, nil},
		"whole, too large":     {1, 256 << 10, false, []string{"needs", "has 256.0 KiB (what XLA may take of the GPU", "are missing, as its modules were compiled", "offload.level=v0"}},
		"too large":            {2, 256 << 10, false, []string{"needs", "are missing, as its modules were compiled", "offload.level=v0"}},
		"whole, out of memory": {1, 0, true, []string{"Out of memory while trying", "a device has no memory left, though a training step alone should fit", "device 0 needs", "and has 1.0 GiB", "offload.level=v0"}},
		"out of memory":        {2, 0, true, []string{"Out of memory while trying", "a device has no memory left", "device 0 needs", "offload.level=v0"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := pjrttest.New(t, pjrttest.Options{Memory: c.limit})
			see := func(s *ir.Segment, donate []bool, text string) {
				if c.exhausted && slices.ContainsFunc(s.Ops, func(op *ir.Op) bool { return op.Phase == ir.Backward }) {
					p := xlatest.Program(t, s, donate)
					p.Run = func(int, [][]byte) ([][]byte, error) {
						return nil, errors.New("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 123 bytes")
					}
					f.Program(text, p)
				}
			}
			exec.Register("xla", func(string) (exec.Kind, error) { return xlatest.Kind(t, f, xla.Options{Compiling: see}), nil })
			env := newCluster(t, 1, c.micro, nil, epl.WithInner("xla:fake"))
			defer env.Close()
			var err error
			if late := exceptions.TryCatch[error](func() { // GoMLX's loop panics where it reads the loss
				_, err = TrainOn(env.Backend(), env.Dataset(Dataset{m.Batch}), m, epl.Optimizer(sgd()), 2)
			}); late != nil {
				err = late
			}
			if c.says != nil {
				for _, want := range c.says {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%q is not said by %v", want, err)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var explained strings.Builder
			if err := env.Explain(&explained); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(explained.String(), "memory of a device, as its modules were compiled") {
				t.Error("Explain does not compare")
			}
			want, got := env.Predicted().Devices[0].PeakBytes, env.Stats().Devices[0].PeakBytes
			if c.micro > 1 && want != got || want == 0 { // as a whole it needs less than the program that makes the variables
				t.Errorf("%d bytes are predicted, and %d counted", want, got)
			}
		})
	}
}

// Variables on the host are in pinned memory, from which the GPU copies by itself, and are there once; devices that share them have them in memory
// of the program. Weights are those of the pure-Go backend.
func TestOffloadOnGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		m              Model
		devices, micro int
		memory         int64
		params         map[string]any
		pinned         bool
	}{
		"one device":               {Models()[0], 1, 1, 0, nil, true},
		"micro-batches":            {Models()[1], 1, 2, 0, nil, true},
		"larger than the device":   {Model{"large", MLP(3, 64, false), loss.MeanSquaredError, Regression(16, 8)}, 1, 1, 100 << 10, nil, true},
		"replicas":                 {Models()[0], 2, 1, 0, nil, false},
		"replicas that have parts": {Models()[0], 2, 1, 0, map[string]any{"zero.level": "v2"}, true},
		"stages":                   {Model{"stages", MLP(2, 64, false), loss.MeanSquaredError, Regression(16, 8)}, 2, 2, 0, map[string]any{"cluster.colocate_split_and_replicate": false}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeGPUs(t, 2, c.memory)
			params := map[string]any{"offload.level": "v0"}
			for k, v := range c.params {
				params[k] = v
			}
			run := func(inner string, steps int) (*Run, int64) {
				env := newCluster(t, c.devices, c.micro, params, epl.WithInner(inner))
				run, err := TrainOn(env.Backend(), env.Dataset(Dataset{c.m.Batch}), c.m, epl.Optimizer(optimizer.Adam().LearningRate(0.01).Done()), steps)
				if err != nil {
					t.Fatalf("%s: %v", inner, err)
				}
				pinned := f.InUse("pinned_host")
				want, got := env.Predicted().Devices[0].PeakBytes, env.Stats().Devices[0].Allocated+xlatest.Temporary // which the fake does not take
				if d := got - want; c.memory > 0 && inner != "go" && (d > want/100 || d < -want/100) {
					t.Errorf("the GPU had %d bytes, predicted %d", got, want)
				}
				if run.Store, err = run.Store.Clone(); err != nil {
					t.Fatal(err)
				}
				if err := env.Close(); err != nil {
					t.Fatalf("%s: %v", inner, err)
				}
				return run, pinned
			}
			want, _ := run("go", 4)
			_, first := run("xla:fake", 1)
			got, then := run("xla:fake", 4)
			if err := SameBits(want, got); err != nil {
				t.Error(err)
			}
			if first != then || (then > 0) != c.pinned {
				t.Errorf("%d bytes are pinned after a step, and %d after four", first, then)
			}
		})
	}
}
