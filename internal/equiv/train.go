// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	half "github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
)

// Plain is the inner backend that EPL uses by default, by itself.
func Plain() compute.Backend {
	b, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		panic(err)
	}
	return b
}

// Run is a finished training.
type Run struct {
	Losses []float32
	Store  *model.Store
}

// newStore makes every run start from the same weights.
func newStore() *model.Store {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	store.SetParam(optimizer.ParamLearningRate, 0.01)
	return store
}

// Train trains a model for some steps, always from the same start.
func Train(backend compute.Backend, m Model, opt optimizer.Interface, steps int) (*Run, error) {
	return TrainOn(backend, Dataset{m.Batch}, m, opt, steps)
}

// TrainOn trains on a dataset other than the model's batches one by one.
func TrainOn(backend compute.Backend, ds train.Dataset, m Model, opt optimizer.Interface, steps int) (*Run, error) {
	return TrainFrom(newStore(), backend, ds, m, opt, steps)
}

// Start is a model before its first step, with the initial weights that the CPU draws: backends draw different ones.
func Start(m Model) (*model.Store, error) {
	store := newStore()
	trainer := train.NewTrainer(Plain(), store, m.Build, m.Loss, optimizer.StochasticGradientDescent(), nil, nil)
	in, labels := m.Batch(0)
	if _, err := trainer.EvalStep(train.Batch{Inputs: in, Labels: labels}); err != nil {
		return nil, err
	}
	for v := range store.IterVariables() {
		if err := v.MustValue().ToLocal(); err != nil {
			return nil, err
		}
	}
	return store, nil
}

// TrainFrom trains from where a store is.
func TrainFrom(store *model.Store, backend compute.Backend, ds train.Dataset, m Model, opt optimizer.Interface, steps int) (*Run, error) {
	trainer := train.NewTrainer(backend, store, m.Build, m.Loss, opt, nil, nil)
	loop := train.NewLoop(trainer)
	run := &Run{Store: store}
	loop.OnStep("loss", 0, func(_ *train.Loop, metrics []*tensors.Tensor) error {
		run.Losses = append(run.Losses, tensors.ToScalar[float32](metrics[0]))
		return nil
	})
	if _, err := loop.RunSteps(ds, steps); err != nil {
		return nil, err
	}
	return run, nil
}

// Dataset yields the batches of step 0, 1, 2, … without end.
type Dataset struct {
	Batch func(step int) (inputs, labels []*tensors.Tensor)
}

// Name implements train.Dataset.
func (d Dataset) Name() string { return "steps" }

// Iter implements train.Dataset.
func (d Dataset) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for step := 0; ; step++ {
			in, labels := d.Batch(step)
			if !yield(train.Batch{Inputs: in, Labels: labels}, nil) {
				return
			}
		}
	}
}

// Joined makes one large batch of the k batches of a step.
func Joined(batch func(int) (in, labels []*tensors.Tensor), k int) func(int) (in, labels []*tensors.Tensor) {
	return func(step int) (in, labels []*tensors.Tensor) {
		var ins, labs [][]*tensors.Tensor
		for i := range k {
			a, b := batch(step*k + i)
			ins, labs = append(ins, a), append(labs, b)
		}
		return concat(ins), concat(labs)
	}
}

func concat(parts [][]*tensors.Tensor) []*tensors.Tensor {
	var out []*tensors.Tensor
	for j := range parts[0] {
		dims := append([]int(nil), parts[0][j].Shape().Dimensions...)
		for _, p := range parts[1:] {
			dims[0] += p[j].Shape().Dimensions[0]
		}
		switch parts[0][j].DType() {
		case dtypes.Float32:
			out = append(out, tensors.FromFlatDataAndDimensions(flatten[float32](parts, j), dims...))
		case dtypes.Bool:
			out = append(out, tensors.FromFlatDataAndDimensions(flatten[bool](parts, j), dims...))
		default:
			out = append(out, tensors.FromFlatDataAndDimensions(flatten[int32](parts, j), dims...))
		}
	}
	return out
}

func flatten[T float32 | int32 | bool](parts [][]*tensors.Tensor, j int) (all []T) {
	for _, p := range parts {
		p[j].MustConstFlatData(func(flat any) { all = append(all, flat.([]T)...) })
	}
	return all
}

// SameBits compares two runs bit by bit: losses, and every variable at the end.
func SameBits(a, b *Run) error {
	for i := range a.Losses {
		if math.Float32bits(a.Losses[i]) != math.Float32bits(b.Losses[i]) {
			return fmt.Errorf("losses differ at step %d: %v and %v", i, a.Losses[i], b.Losses[i])
		}
	}
	return eachVariable(a, b, func(path string, x, y []float64) error {
		for i := range x {
			if math.Float64bits(x[i]) != math.Float64bits(y[i]) {
				return fmt.Errorf("variable %s differs at element %d: %v and %v", path, i, x[i], y[i])
			}
		}
		return nil
	})
}

// CloseLosses compares the losses of two runs, relative to their size, but at least to a twentieth of the largest: the
// smaller a loss of squares, the more it is a difference of numbers that are nearly equal.
func CloseLosses(a, b *Run, tolerance float64) error {
	least := 1e-3
	for _, x := range a.Losses {
		least = max(least, math.Abs(float64(x))/20)
	}
	for i := range a.Losses {
		x, y := float64(a.Losses[i]), float64(b.Losses[i])
		if !(math.Abs(x-y) <= tolerance*(math.Abs(x)+least)) {
			return fmt.Errorf("losses differ at step %d: %v and %v", i, x, y)
		}
	}
	return nil
}

// CloseWeights compares every variable of two runs: ‖x-y‖ ≤ tolerance·(‖x‖+0.001).
func CloseWeights(a, b *Run, tolerance float64) error {
	return eachVariable(a, b, func(path string, x, y []float64) error {
		var norm, diff float64
		for i := range x {
			norm += x[i] * x[i]
			diff += (x[i] - y[i]) * (x[i] - y[i])
		}
		if norm, diff = math.Sqrt(norm), math.Sqrt(diff); !(diff <= tolerance*(norm+1e-3)) {
			return fmt.Errorf("variable %s differs by %g at a norm of %g", path, diff, norm)
		}
		return nil
	})
}

// lastLoss is epl.LastLossVariable.
const lastLoss = "/" + optimizer.Scope + "/epl_last_loss"

func eachVariable(a, b *Run, compare func(path string, x, y []float64) error) error {
	n := 0
	for v := range a.Store.IterVariables() {
		n++
		if strings.HasPrefix(v.Path(), "/metrics/") { // their paths are drawn at random
			continue
		}
		w := b.Store.GetVariable(v.Path())
		if w == nil && v.Path() == lastLoss { // only one of them has reliability.nan
			n--
			continue
		}
		if w == nil {
			return fmt.Errorf("variable %s exists in one run only", v.Path())
		}
		x, y := numbers(v.MustValue()), numbers(w.MustValue())
		if strings.HasSuffix(v.Path(), "#rngState") && len(x) == len(y) {
			// The pure-Go backend uses the first two words, each two numbers here, and may leave anything in the third.
			x, y = x[:4], y[:4]
		}
		if len(x) != len(y) {
			return fmt.Errorf("variable %s has %d and %d elements", v.Path(), len(x), len(y))
		}
		if err := compare(v.Path(), x, y); err != nil {
			return err
		}
	}
	m := b.Store.NumVariables()
	if b.Store.GetVariable(lastLoss) != nil && a.Store.GetVariable(lastLoss) == nil {
		m--
	}
	if m != n {
		return fmt.Errorf("the runs have %d and %d variables", n, m)
	}
	return nil
}

// numbers copies a tensor's elements out as float64, which holds float32 and the integers in use here exactly.
func numbers(t *tensors.Tensor) []float64 {
	var r []float64
	t.MustConstFlatData(func(flat any) {
		switch f := flat.(type) {
		case []float32:
			for _, x := range f {
				r = append(r, float64(x))
			}
		case []float64:
			r = append(r, f...)
		case []half.Float16:
			for _, x := range f {
				r = append(r, float64(x.Float32()))
			}
		case []bfloat16.BFloat16:
			for _, x := range f {
				r = append(r, float64(x.Float32()))
			}
		case []int64:
			for _, x := range f {
				r = append(r, float64(x))
			}
		case []int32:
			for _, x := range f {
				r = append(r, float64(x))
			}
		case []uint64:
			for _, x := range f { // two halves, to lose no bit
				r = append(r, float64(x>>32), float64(x&0xffffffff))
			}
		default:
			panic(fmt.Sprintf("equiv: variables of type %T are not compared yet", flat))
		}
	})
	return r
}
