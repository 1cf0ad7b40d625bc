// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"math"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/easyparallel/epl"
)

func sgd() *optimizer.SGDConfig { return optimizer.StochasticGradientDescent() }

// fromLoss is an optimizer that cannot start from gradients.
type fromLoss struct{ optimizer.Interface }

// annotating is an optimizer that annotates what it does.
type annotating struct {
	*optimizer.SGDConfig
	at *string
}

func (o annotating) UpdateGraphWithGradients(scope *model.Scope, gradients []*Node, lossDType dtypes.DType) {
	*o.at = line(1)
	epl.With(gradients[0], epl.Replicate(1, "update"), func() { o.SGDConfig.UpdateGraphWithGradients(scope, gradients, lossDType) })
}

// twice is an optimizer that uses another two times.
type twice struct{ optimizer.Interface }

func (o twice) UpdateGraph(scope *model.Scope, g *Graph, loss *Node) {
	o.Interface.UpdateGraph(scope, g, loss)
	o.Interface.UpdateGraph(scope, g, MulScalar(loss, 2))
}

func TestAnOptimizerThatOnlyStartsFromALossIsRefusedOnEPL(t *testing.T) {
	opt := epl.Optimizer(fromLoss{sgd()})
	wantError(t, step(trainer(newEnv(t, nil).Backend(), opt, nil)), "epl: the optimizer epl_test.fromLoss cannot be used on EPL, "+
		"since it only starts from a loss: give it the method UpdateGraphWithGradients(scope, gradients, lossDType) of train.OptimizeWithGradients")
	plain, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Finalize()
	if err := step(trainer(plain, opt, nil)); err != nil {
		t.Errorf("on another backend: %v", err)
	}
}

func TestClippingRefusesWhatItCannotDo(t *testing.T) {
	for want, clip := range map[string]func(){
		"epl: ClipByGlobalNorm: the limit must be positive, not 0": func() { epl.ClipByGlobalNorm(sgd(), 0) },
		"epl: ClipByValue: the limit must be positive, not NaN":    func() { epl.ClipByValue(sgd(), math.NaN()) },
		"epl: ClipByValue cannot wrap the optimizer epl_test.fromLoss, since it only starts from a loss: give it the method " +
			"UpdateGraphWithGradients(scope, gradients, lossDType) of train.OptimizeWithGradients": func() { epl.ClipByValue(fromLoss{sgd()}, 1) },
	} {
		wantError(t, exceptions.TryCatch[error](clip), want)
	}
}

func TestTwoOptimizersInOneProgramAreRefused(t *testing.T) {
	err := step(trainer(newEnv(t, nil).Backend(), twice{epl.Optimizer(sgd())}, nil))
	wantError(t, err, `epl: program "Trainer#1" has two optimizers: EPL reduces the gradients of one loss per program; `+
		"add the losses up, or train in two programs")
}

func TestAccumulateGradientsIsRefusedAtTheFirstStep(t *testing.T) {
	const want = "epl: Trainer.AccumulateGradients does not work on EPL, which accumulates gradients itself: " +
		"remove the call and set pipeline.num_micro_batch to the number of steps"
	env := newEnv(t, nil)
	for name, opt := range map[string]optimizer.Interface{"wrapped": epl.Optimizer(sgd()), "unwrapped": sgd()} {
		for _, steps := range []int{1, 4} {
			tr := trainer(env.Backend(), opt, nil)
			if err := tr.AccumulateGradients(steps); err != nil {
				t.Fatal(err)
			}
			t.Log(name, steps)
			wantError(t, step(tr), want)
		}
	}
}

func TestAccumulateGradientsWorksOnOtherBackends(t *testing.T) {
	plain, err := compute.NewWithConfig("go:ops_sequential")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Finalize()
	tr := trainer(plain, epl.Optimizer(sgd()), nil)
	if err := tr.AccumulateGradients(2); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if err := step(tr); err != nil {
			t.Fatal(err)
		}
	}
	if n := tr.GlobalStep(); n != 2 {
		t.Errorf("4 steps of 2 accumulated give %d global steps, want 2", n)
	}
}

func TestOnlyTheForwardPartIsAnnotated(t *testing.T) {
	const why = ": only the forward part of a model is annotated; backward and apply follow it by themselves"
	env := newEnv(t, colocated)
	var at string
	t.Run("in backward", func(t *testing.T) {
		wantError(t, step(trainer(env.Backend(), epl.Optimizer(sgd()), func(scope *model.Scope, x *Node) *Node {
			x = layers.Dense(scope, x, true, 1)
			return IdentityWithCustomGradient(x, func(_, v *Node) *Node {
				at = line(1)
				epl.With(v, epl.Replicate(1, "gradient"), func() { v = Neg(v) })
				return v
			})
		})), `epl: replicate(1) "gradient" at `+at+why)
	})
	t.Run("in the optimizer", func(t *testing.T) {
		wantError(t, step(trainer(env.Backend(), epl.Optimizer(annotating{sgd(), &at}), nil)), `epl: replicate(1) "update" at `+at+why)
	})
	t.Run("after the optimizer", func(t *testing.T) {
		wantError(t, step(trainer(env.Backend(), epl.Optimizer(sgd()), func(scope *model.Scope, x *Node) *Node {
			train.AddPerStepUpdateGraphFn(scope, x.Graph(), func(_ *model.Scope, g *Graph) {
				at = line(1)
				epl.SetDefaultStrategy(g, epl.Replicate(2))
			})
			return layers.Dense(scope, x, true, 1)
		})), `epl: replicate(2) at `+at+why)
	})
}

func TestTheGradientsOfTheWrappedOptimizerAreKnown(t *testing.T) {
	for name, test := range map[string]struct {
		opt       optimizer.Interface
		gradients int
	}{
		"wrapped":   {epl.Optimizer(sgd()), 2}, // weights and biases
		"unwrapped": {sgd(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := dumpDir(t)
			if err := step(trainer(newEnv(t, nil).Backend(), test.opt, nil)); err != nil {
				t.Fatal(err)
			}
			if n := len(recorded(t, dir)[0].Gradients); n != test.gradients {
				t.Errorf("EPL knows %d gradients, want %d", n, test.gradients)
			}
		})
	}
}
