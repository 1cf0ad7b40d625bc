// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"bytes"
	"fmt"
	"log"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// samples are the inputs and labels of a model, a row for each.
type samples struct {
	inputs, labels []*tensors.Tensor
	n              int
}

// samplesOf takes n samples of a model.
func samplesOf(batch func(int) (in, labels []*tensors.Tensor), n int) samples {
	in, _ := batch(0)
	size := in[0].Shape().Dimensions[0]
	inputs, labels := Joined(batch, (n+size-1)/size)(0)
	all := samples{inputs, labels, n}
	return all.rows(0, n)
}

// rows are some of them.
func (s samples) rows(from, to int) samples {
	cut := func(all []*tensors.Tensor) (out []*tensors.Tensor) {
		for _, t := range all {
			dims := slices.Clone(t.Shape().Dimensions)
			each := t.Shape().Size() / dims[0]
			dims[0] = to - from
			t.MustConstFlatData(func(flat any) {
				switch t.DType() {
				case dtypes.Float32:
					out = append(out, tensors.FromFlatDataAndDimensions(slices.Clone(flat.([]float32)[from*each:to*each]), dims...))
				default:
					out = append(out, tensors.FromFlatDataAndDimensions(slices.Clone(flat.([]int32)[from*each:to*each]), dims...))
				}
			})
		}
		return out
	}
	return samples{cut(s.inputs), cut(s.labels), to - from}
}

// inBatches yields batches of the given sizes.
func (s samples) inBatches(sizes ...int) train.Dataset {
	return custom(func(yield func(train.Batch, error) bool) {
		at := 0
		for _, n := range sizes {
			b := s.rows(at, at+n)
			at += n
			if !yield(train.Batch{Inputs: b.inputs, Labels: b.labels}, nil) {
				return
			}
		}
	})
}

// inMemory is GoMLX's own dataset of them: its last batch has what is left.
func (s samples) inMemory(t testing.TB, backend compute.Backend, batch int) train.Dataset {
	t.Helper()
	values := func(all []*tensors.Tensor) (out []any) {
		for _, x := range all {
			out = append(out, x)
		}
		return out
	}
	all := s.rows(0, s.n)
	ds, err := dataset.InMemoryFromData(backend, "samples", values(all.inputs), values(all.labels))
	if err != nil {
		t.Fatal(err)
	}
	return ds.BatchSize(batch, false)
}

// stepsOf is how many samples each step takes of batches of some sizes, k batches a step.
func stepsOf(k int, sizes ...int) (steps []int) {
	batches := 0
	for i, n := range sizes {
		if i == 0 || batches == k || n != sizes[i-1] {
			steps, batches = append(steps, 0), 0
		}
		steps[len(steps)-1] += n
		batches++
	}
	return steps
}

// batchesOf is how many samples GoMLX's datasets put into each batch.
func batchesOf(samples, batch int) (sizes []int) {
	for ; samples > 0; samples -= batch {
		sizes = append(sizes, min(samples, batch))
	}
	return sizes
}

// epochs trains for some epochs.
func (m Staged) epochs(t testing.TB, backend compute.Backend, ds train.Dataset, opt optimizer.Interface, epochs int) *Run {
	t.Helper()
	run := &Run{Store: newStore()}
	loop := train.NewLoop(train.NewTrainer(backend, run.Store, m.Build(0), m.Loss, opt, nil, nil))
	loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
		run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
		return nil
	})
	if _, err := loop.RunEpochs(ds, epochs); err != nil {
		t.Fatalf("%+v", err)
	}
	return run
}

func TestStepsAreWhatBatchesOfOneShapeMake(t *testing.T) {
	if got := stepsOf(4, batchesOf(32, 5)...); !slices.Equal(got, []int{20, 10, 2}) {
		t.Errorf("got %v", got)
	}
}

// The last batch of GoMLX's datasets is smaller: it is a step of its own, and the one before it is shorter.
func TestASmallerLastBatchIsAStepOfItsOwn(t *testing.T) {
	for i, p := range []splitPlan{
		{parts: []int{-1}, replicas: 4, micro: 1},
		{parts: []int{-1}, replicas: 1, micro: 4},
		{parts: []int{-1}, replicas: 2, micro: 2},
		{parts: []int{-1, -1}, replicas: 2, micro: 2},
		{parts: []int{-1, -1}, replicas: 1, micro: 4, schedule: "ZeroBubble"},
		{parts: []int{-2}, replicas: 2, micro: 2},
		{parts: []int{-3}, replicas: 1, micro: 4}, // more devices than the last batch has samples
		{parts: []int{-4, -2}, replicas: 1, micro: 4},
		{parts: []int{-2, 3}, replicas: 1, micro: 4},
		{parts: []int{-3, 3}, colocate: true, replicas: 2, micro: 2},
		{parts: []int{2}, replicas: 2, micro: 2},
	} {
		for j, name := range []string{"mlp", "transformer", "classifier", "batch-norm", "dropout", "states"} {
			m := partedModel(name)
			if len(p.parts) > m.Most || (i+j)%2 != 0 && *seedCount <= 120 {
				continue // some of them
			}
			t.Run(fmt.Sprintf("%s/%s", name, p), func(t *testing.T) {
				t.Parallel()
				all := samplesOf(m.Batch, 32)
				env := p.env(t, nil)
				got := m.under(p).epochs(t, env.Backend(), env.Dataset(all.inMemory(t, env.Backend(), 5)), epl.Optimizer(sgd()), 2)
				var want *Run
				if m.PerInstance {
					one := p.alone()
					alone := one.env(t, nil)
					want = m.under(one).epochs(t, alone.Backend(), alone.Dataset(all.inMemory(t, alone.Backend(), 5)), epl.Optimizer(sgd()), 2)
				} else {
					want = m.under(p).epochs(t, Plain(), all.inBatches(stepsOf(p.batches(), batchesOf(32, 5)...)...), sgd(), 2)
				}
				if len(got.Losses) != 6 {
					t.Errorf("there were %d steps", len(got.Losses))
				}
				mustBeClose(t, want, got)
			})
		}
	}
}

// A step that is not full, and a smaller batch, are no matter to what else is done to a program.
func TestASmallerLastBatchGoesWithOtherSettings(t *testing.T) {
	for i, params := range []map[string]any{
		{"zero.level": "v0"}, {"zero.level": "v1"}, {"zero.level": "v2"}, {"offload.level": "v0"},
		{"gradient_checkpoint.type": "auto"}, {"optimizer.num_apply_group": 3}, {"communication.sparse_as_dense": true},
		{"zero.level": "v2", "offload.level": "v0", "gradient_checkpoint.type": "auto"},
	} {
		t.Run(fmt.Sprint(params), func(t *testing.T) {
			t.Parallel()
			p := splitPlan{parts: []int{-1}, replicas: 2, micro: 2}
			m := partedModel([]string{"embeddings", "classifier"}[i%2])
			all := samplesOf(m.Batch, 32)
			env := p.env(t, params)
			got := m.under(p).epochs(t, env.Backend(), env.Dataset(all.inMemory(t, Plain(), 5)), epl.Optimizer(sgd()), 2)
			mustBeClose(t, m.under(p).epochs(t, Plain(), all.inBatches(20, 10, 2), sgd(), 2), got)
		})
	}
}

// Batches may change their shape at any time, and change back.
func TestABatchOfAnotherShapeClosesTheStepBeforeIt(t *testing.T) {
	m := partedModel("mlp")
	for _, sizes := range [][]int{{5, 2}, {1, 5, 5, 5}, {3, 3, 2, 3, 3, 3, 3, 3, 1, 1}, {1, 2, 3, 4}, {4, 4, 4, 4, 2}} {
		for _, p := range []splitPlan{{parts: []int{-1}, replicas: 2, micro: 2}, {parts: []int{-1, -2}, replicas: 1, micro: 4}} {
			t.Run(fmt.Sprintf("%v/%s", sizes, p), func(t *testing.T) {
				t.Parallel()
				total := 0
				for _, n := range sizes {
					total += n
				}
				all := samplesOf(m.Batch, total)
				env := p.env(t, nil)
				got := m.under(p).epochs(t, env.Backend(), env.Dataset(all.inBatches(sizes...)), epl.Optimizer(sgd()), 2)
				want := m.under(p).epochs(t, Plain(), all.inBatches(stepsOf(4, sizes...)...), sgd(), 2)
				mustBeClose(t, want, got)
				if len(want.Losses) != len(got.Losses) {
					t.Errorf("there were %d steps, not %d", len(got.Losses), len(want.Losses))
				}
			})
		}
	}
}

// GoMLX builds a graph for each spec, so that batches with another one are no step together either.
func TestABatchOfAnotherSpecClosesTheStepBeforeIt(t *testing.T) {
	m := partedModel("mlp")
	p := splitPlan{parts: []int{-1}, replicas: 2, micro: 2}
	all := samplesOf(m.Batch, 18)
	env := p.env(t, nil)
	specs := []string{"a", "a", "a", "b", "b", "a"}
	got := m.under(p).epochs(t, env.Backend(), env.Dataset(custom(func(yield func(train.Batch, error) bool) {
		for i, spec := range specs {
			b := all.rows(3*i, 3*i+3)
			if !yield(train.Batch{Spec: spec, Inputs: b.inputs, Labels: b.labels}, nil) {
				return
			}
		}
	})), epl.Optimizer(sgd()), 1)
	mustBeClose(t, m.under(p).epochs(t, Plain(), all.inBatches(9, 6, 3), sgd(), 1), got)
}

// A training loop hears once, not every epoch, that steps are not full, and that a batch is too small for the devices.
func TestUnevenBatchesAreSaidOnce(t *testing.T) {
	var out bytes.Buffer
	log.SetOutput(&out)
	defer log.SetOutput(log.Default().Writer())
	p := splitPlan{parts: []int{-3}, replicas: 1, micro: 4}
	m := partedModel("mlp")
	env := p.env(t, nil)
	m.under(p).epochs(t, env.Backend(), env.Dataset(samplesOf(m.Batch, 32).inBatches(batchesOf(32, 5)...)), epl.Optimizer(sgd()), 3)
	for _, sentence := range []string{
		"a batch differs from those before it (input 0 is float32[2,8], not float32[5,8])",
		"the step before it runs on 2 of 4 batches",
		`a batch of 2 has fewer samples than TaskGraph "part_0"`,
	} {
		if n := strings.Count(out.String(), sentence); n != 1 {
			t.Errorf("%q is said %d times:\n%s", sentence, n, out.String())
		}
	}
	if n := strings.Count(out.String(), "epl:"); n != 2 {
		t.Errorf("%d things are said:\n%s", n, out.String())
	}
}

// Evaluation takes batches one by one, of whatever shape.
func TestEvaluationSeesTheSmallerLastBatch(t *testing.T) {
	m := partedModel("mlp")
	all := samplesOf(m.Batch, 32)
	var want float32
	for i, p := range []splitPlan{{parts: []int{-1}, replicas: 1, micro: 1}, {parts: []int{-1}, replicas: 2, micro: 2}, {parts: []int{-3}, replicas: 2, micro: 2}} {
		env := p.env(t, nil)
		run := &Run{Store: newStore()}
		trainer := train.NewTrainer(env.Backend(), run.Store, m.under(p).Build(0), m.Loss, epl.Optimizer(sgd()), nil, nil)
		metrics, err := trainer.Eval(env.Dataset(all.inMemory(t, env.Backend(), 5)))
		if err != nil {
			t.Fatalf("%+v", err)
		}
		if got := tensors.ToScalar[float32](metrics[0]); i == 0 {
			want = got
		} else if math.Abs(float64(got-want)) > 1e-5*float64(want) { // sums over devices are rounded elsewhere
			t.Errorf("%s: the loss is %v, not %v", p, got, want)
		}
	}
}
