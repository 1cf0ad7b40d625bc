package equiv

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model/checkpoint"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// offloaded is what switches offload on.
var offloaded = map[string]any{"offload.level": "v0"}

// Where a variable waits changes no bit of it.
func TestOffloadGivesTheBitsOfTrainingWithout(t *testing.T) {
	var all []workload
	for i, m := range Models() {
		all = append(all, replicated(staged(m), 1, 1+i%3))
	}
	for i, m := range StagedModels() {
		if *seedCount > 120 || i%3 == 0 {
			all = append(all, replicated(m, 1+i%2, 1+i%2))
		}
	}
	for i, w := range append(all, memoryWorkloads()...) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			opt := []func() optimizer.Interface{sgd, adam}[i%2]
			if err := SameBits(w.run(t, nil, opt(), 3), w.run(t, offloaded, opt(), 3)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOffloadGoesWithZero(t *testing.T) {
	for i, w := range memoryWorkloads() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			for _, level := range someLevels(i) {
				w.changesNothing(t, memoryRules()[i%len(memoryRules())], with(offloaded, level))
			}
		})
	}
}

// Weights and state of the optimizer come to the device for what needs them, and go.
func TestOffloadLowersWhatDevicesHave(t *testing.T) {
	w := replicated(weighty(), 1, 1)
	plain, off := w.metered(t, nil, adam())[0], w.metered(t, offloaded, adam())[0]
	if off.PeakBytes >= plain.PeakBytes {
		t.Errorf("the peak is %d bytes %v, without offload %d %v", off.PeakBytes, off.Peak, plain.PeakBytes, plain.Peak)
	}
	if off.Most["weights"] > plain.Most["weights"]*2/3 {
		t.Errorf("%d bytes of weights are on the device at once, without offload %d", off.Most["weights"], plain.Most["weights"])
	}
	grouped := w.metered(t, with(offloaded, map[string]any{"optimizer.num_apply_group": 5}), adam())[0]
	if grouped.Most["optimizer state"] > plain.Most["optimizer state"]/2 {
		t.Errorf("%d bytes of state are on the device at once, without offload %d", grouped.Most["optimizer state"], plain.Most["optimizer state"])
	}
}

func TestOffloadedVariablesAreReadSetAndEvaluatedBetweenSteps(t *testing.T) {
	for _, w := range memoryWorkloads() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			want, read := w.inspected(t, nil)
			got, now := w.inspected(t, offloaded)
			plainSGD.compare(t, want, got)
			if d, n := distance(read, now); len(read) != len(now) || d > 1e-5*n {
				t.Errorf("what was read differs by %g at a norm of %g", d, n)
			}
		})
	}
}

// A checkpoint does not know where variables were.
func TestACheckpointSavedUnderOffloadGoesOnWithoutAndBack(t *testing.T) {
	m := stagedModel(t, "unused")
	for _, o := range memoryRules()[:6] {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			all, folder := &Run{}, t.TempDir()
			for i, params := range []map[string]any{offloaded, nil, with(offloaded, zeroLevels[2]), zeroLevels[2], offloaded} {
				at := func(step int) (in, labels []*tensors.Tensor) { return m.Batch(2*2*i + step) }
				env := newCluster(t, 2, 1, params)
				all.Store = newStore()
				handler, err := checkpoint.Build(all.Store).Dir(folder).Done()
				if err != nil {
					t.Fatal(err)
				}
				loop := train.NewLoop(train.NewTrainer(env.Backend(), all.Store, m.Build(2), m.Loss, epl.Optimizer(o.make()), nil, nil))
				loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
					all.Losses = append(all.Losses, tensors.ToScalar[float32](metrics[0]))
					return nil
				})
				if _, err := loop.RunSteps(env.Dataset(Dataset{at}), 2); err != nil {
					t.Fatalf("run %d: %v", i, err)
				}
				if err := handler.Save(); err != nil {
					t.Fatal(err)
				}
			}
			o.compare(t, replicated(m, 2, 1).with(2).run(t, o.params, o.make(), len(all.Losses)), all)
		})
	}
}

// with is the workload with so many stages.
func (w workload) with(stages int) workload {
	w.stages, w.name = stages, fmt.Sprintf("%s/%d", w.name, stages)
	return w
}
