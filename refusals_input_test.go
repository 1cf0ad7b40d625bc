// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"log"
	"os"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// samples is a dataset of so many batches; do, if it is not nil, spoils the one with its number.
type samples struct {
	batches, bad int
	do           func(b *train.Batch) error
}

func (s samples) Name() string { return "samples" }

func (s samples) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for i := range s.batches {
			b := train.Batch{Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{1, 2}, {3, 4}})},
				Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{1}, {2}})}}
			var err error
			if s.do != nil && i == s.bad {
				err = s.do(&b)
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// fit trains a linear regression.
func fit(env *epl.Env, opt optimizer.Interface, ds train.Dataset, steps int) error {
	_, err := train.NewLoop(trainer(env.Backend(), opt, nil)).RunSteps(ds, steps)
	return err
}

func sgdOf() optimizer.Interface { return epl.Optimizer(optimizer.StochasticGradientDescent()) }

// Whatever a program gets wrong, it learns what and where, on one device as on two.
func TestBadInputIsAnErrorThatSaysWhatAndWhere(t *testing.T) {
	spoiled := func(do func(b *train.Batch) error) func(env *epl.Env) error {
		return func(env *epl.Env) error { return fit(env, sgdOf(), env.Dataset(samples{12, 5, do}), 6) }
	}
	annotated := func(annotate func(x *Node)) func(env *epl.Env) error {
		return func(env *epl.Env) error {
			return run(env.Backend(), func(x *Node) *Node { annotate(x); return Sin(x) })
		}
	}
	finished := func(annotate func(other, x *Node)) func(env *epl.Env) error {
		return func(env *epl.Env) error {
			var other *Node
			exec := MustNewExec(env.Backend(), func(x *Node) *Node { other = x; return Sin(x) })
			if _, err := exec.Call([]float32{1}); err != nil {
				return err
			}
			return run(env.Backend(), func(x *Node) *Node { annotate(other, x); return Sin(x) })
		}
	}
	const line = "refusals_input_test.go:"
	for name, test := range map[string]struct {
		do   func(env *epl.Env) error
		want []string
	}{
		"no dataset":    {func(env *epl.Env) error { return fit(env, sgdOf(), env.Dataset(nil), 1) }, []string{"epl: env.Dataset(nil) at", line}},
		"a nil dataset": {func(env *epl.Env) error { return fit(env, sgdOf(), env.Dataset((*logs)(nil)), 1) }, []string{"is given a nil *epl_test.logs", line}},
		"a dataset that is dealt twice": {func(env *epl.Env) error {
			return fit(env, sgdOf(), env.Dataset(env.Dataset(samples{batches: 12})), 1)
		}, []string{"epl: env.Dataset at", line, "deal batches twice", `wrap "samples" once`}},
		"a dataset without batches": {func(env *epl.Env) error {
			_, err := train.NewLoop(trainer(env.Backend(), sgdOf(), nil)).RunEpochs(env.Dataset(samples{}), 1)
			return err
		}, []string{`epl: the dataset "samples" of worker 0 has no batch`, "not larger than all of its samples"}},
		"a dataset that fails": {spoiled(func(*train.Batch) error { return errors.New("disk on fire") }),
			[]string{`epl: the dataset "samples" of worker 0 failed at batch 5, counted from 0: disk on fire`}},
		"a dataset that panics": {spoiled(func(*train.Batch) error { panic("no memory") }),
			[]string{`epl: the dataset "samples" of worker 0 failed at batch 5, counted from 0: panic: no memory`}},
		"a missing input": {spoiled(func(b *train.Batch) error { b.Inputs[0] = nil; return nil }),
			[]string{`the dataset "samples" of worker 0 failed at batch 5`, "input 0 is nil"}},
		"a missing label":    {spoiled(func(b *train.Batch) error { b.Labels[0] = nil; return nil }), []string{"label 0 is nil"}},
		"a batch of nothing": {spoiled(func(b *train.Batch) error { *b = train.Batch{}; return nil }), []string{"batch 5", "no inputs and no labels"}},

		"no optimizer": {func(env *epl.Env) error { return fit(env, epl.Optimizer(nil), env.Dataset(samples{batches: 4}), 1) },
			[]string{"epl: Optimizer(nil) at", line}},
		"no body":                 {annotated(func(x *Node) { epl.With(x, epl.Replicate(1), nil) }), []string{"epl: With at", line, "there is no body"}},
		"a negative device count": {annotated(func(x *Node) { epl.With(x, epl.Split(-3), func() {}) }), []string{"epl: With at", line, "Split(-3)"}},
		"a node of a finished graph": {finished(func(other, _ *Node) { epl.With(other, epl.Replicate(1), func() {}) }),
			[]string{"epl: With at", line, "is compiled already"}},
		"a default for a finished graph": {finished(func(other, _ *Node) { epl.SetDefaultStrategy(other, epl.Replicate(1)) }),
			[]string{"epl: SetDefaultStrategy at", line, "is compiled already"}},
		"a collection of a finished graph": {finished(func(other, _ *Node) { epl.AddToCollection(epl.GlobalMean, other) }),
			[]string{"epl: AddToCollection(GlobalMean) at", line, "is compiled already"}},

		"no writer": {func(env *epl.Env) error { return env.Explain(nil) }, []string{"epl: Explain(nil)"}},
		"no files":  {func(env *epl.Env) error { _, err := env.Files(nil); return err }, []string{"epl: env.Files is given no files"}},
		"no hook":   {func(env *epl.Env) error { return env.OnFirstWorker(nil)(nil, nil) }, []string{"epl: OnFirstWorker(nil) at", line}},
	} {
		for _, devices := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/%d", name, devices), func(t *testing.T) {
				env := newEnv(t, nil, epl.WithLocalDevices(devices))
				says(t, test.do(env), test.want...)
			})
		}
	}
}

// says expects an error with these words.
func says(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Error("there is no error")
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

// A dataset of GoMLX between two of EPL hides the inner one, whose batches stand for several.
func TestBatchesOfEnvDatasetAreNotDealtAgain(t *testing.T) {
	env := newEnv(t, nil, epl.WithLocalDevices(2))
	says(t, fit(env, sgdOf(), env.Dataset(dataset.Take(env.Dataset(samples{batches: 12}), 4)), 2), "epl: the dataset", "comes from env.Dataset already")
}

// A loop may end before its dataset does, and its own panics are not the dataset's.
func TestADatasetIsNotBlamedForItsLoop(t *testing.T) {
	env := newEnv(t, nil)
	ds := env.Dataset(samples{batches: 3})
	for range ds.Iter() {
		break
	}
	func() {
		defer func() {
			if p := recover(); p != "mine" {
				t.Errorf("the panic is %v", p)
			}
		}()
		for range ds.Iter() {
			panic("mine")
		}
	}()
}

func TestUseAfterCloseIsAnError(t *testing.T) {
	const closed = "epl: this Env is closed"
	for _, devices := range []int{1, 2} {
		env := newEnv(t, nil, epl.WithLocalDevices(devices))
		exec := MustNewExec(env.Backend(), func(x *Node) *Node { return Sin(x) })
		if _, err := exec.Call([]float32{1}); err != nil {
			t.Fatal(err)
		}
		store := model.NewStore()
		loop := train.NewLoop(train.NewTrainer(env.Backend(), store, func(scope *model.Scope, x *Node) *Node { return layers.Dense(scope, x, true, 1) },
			loss.MeanSquaredError, sgdOf(), nil, nil))
		if _, err := loop.RunSteps(env.Dataset(samples{batches: 4}), 1); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := env.Close(); err != nil {
				t.Errorf("closing: %v", err)
			}
		}
		_, err := exec.Call([]float32{1})
		says(t, err, closed)
		says(t, run(env.Backend(), func(x *Node) *Node { return Cos(x) }), closed)
		says(t, run(env.Backend(), func(x *Node) *Node { return Const(x.Graph(), 1.0) }), closed)
		_, err = MustNewExec(env.Backend(), func(g *Graph) *Node { return Const(g, 1.0) }).Call()
		says(t, err, closed)
		for v := range store.IterVariables() {
			if v.Trainable {
				says(t, v.MustValue().ConstFlatData(func(any) {}), closed)
			}
		}
		_, err = loop.RunSteps(env.Dataset(samples{batches: 4}), 1)
		says(t, err, closed)
		store.Finalize() // lets go of what is gone
		if err := env.Explain(&bytes.Buffer{}); err != nil {
			t.Errorf("what was planned is known all the same: %v", err)
		}
	}
	var none *epl.Env
	if err := none.Close(); err != nil {
		t.Errorf("closing what Init did not make: %v", err)
	}
}

// Two environments that are alone do not know of each other.
func TestTwoEnvironmentsMayBeOpenAtTheSameTime(t *testing.T) {
	a, b := newEnv(t, nil), newEnv(t, nil)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := run(b.Backend(), func(x *Node) *Node { return Sin(x) }); err != nil {
		t.Errorf("%+v", err)
	}
}

func TestClippingForNoOptimizerIsRefused(t *testing.T) {
	defer func() {
		err, _ := recover().(error)
		says(t, err, "epl: ClipByValue(nil) at", "refusals_input_test.go:")
	}()
	epl.ClipByValue(nil, 1)
}

// What has no effect is said when training starts, once.
func TestZeroOnOneDeviceIsSaidAtTheStart(t *testing.T) {
	var said bytes.Buffer
	log.SetOutput(&said)
	defer log.SetOutput(os.Stderr)
	env := newEnv(t, map[string]any{"zero.level": "v1"})
	for range 2 {
		if err := fit(env, sgdOf(), env.Dataset(samples{batches: 4}), 2); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(said.String(), "epl: zero.level has no effect: the program has one model replica"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, said.String())
	}
	if text := explained(t, env); !strings.Contains(text, "zero.level has no effect") {
		t.Errorf("Explain does not say it:\n%s", text)
	}
}
