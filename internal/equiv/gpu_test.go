package equiv

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/exec/xla"
	"github.com/easyparallel/epl/exec/xla/xlatest"
	"github.com/easyparallel/epl/pjrt/pjrttest"
)

// fakeGPUs makes the backend "xla" one whose modules compute what GoMLX's pure-Go backend does. At the end of the test nothing is left of it.
func fakeGPUs(t *testing.T, n int) {
	t.Helper()
	f := pjrttest.New(t, pjrttest.Options{Devices: n})
	exec.Register("xla", func(_ string, needed int) (all []compute.Backend, _ error) {
		if needed > n {
			return nil, errors.Errorf("there are %d", n)
		}
		for i, d := range xlatest.Devices(t, f, xla.Options{}) {
			if i < needed {
				all = append(all, d)
			} else {
				d.Finalize()
			}
		}
		return all, nil
	})
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
			fakeGPUs(t, 2)
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
