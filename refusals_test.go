// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// isRefused builds a program with variables and expects an error with these words, and the line of this file.
func isRefused(t *testing.T, body func(scope *model.Scope, x *Node) *Node, words ...string) {
	t.Helper()
	env := newEnv(t, colocated)
	exec := model.MustNewExec(env.Backend(), model.NewStore(), body)
	_, err := exec.Call([][]float32{{1, 2, 3}})
	if err == nil {
		t.Error("there is no error")
		return
	}
	for _, w := range append(words, "refusals_test.go:") {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func TestAnnotationsWithoutAGraphAreErrors(t *testing.T) {
	for name, annotate := range map[string]func(x *Node){
		"With(nil)":             func(*Node) { epl.With(nil, epl.Replicate(1), func() {}) },
		"SetDefault(nil)":       func(*Node) { epl.SetDefaultStrategy(nil, epl.Replicate(1)) },
		"With(typed nil)":       func(*Node) { epl.With((*Graph)(nil), epl.Replicate(1), func() {}) },
		"SetDefault(nil graph)": func(*Node) { epl.SetDefaultStrategy((*Graph)(nil), epl.Replicate(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			isRefused(t, func(_ *model.Scope, x *Node) *Node { annotate(x); return x }, "there is no graph to annotate")
		})
	}
}

func TestAPinMustFitAVariableOfItsScope(t *testing.T) {
	dense := func(s epl.Strategy) func(scope *model.Scope, x *Node) *Node {
		return func(scope *model.Scope, x *Node) *Node {
			epl.With(x, s, func() { x = layers.Dense(scope, x, true, 4) })
			return x
		}
	}
	isRefused(t, dense(epl.Split(1, "head").Shard("nope", 0)), `Shard("nope", 0) of split(1) "head"`, "no variable")
	isRefused(t, dense(epl.Split(1).Shard("weights", 2)), `"/dense/weights" has dims 0 to 1`)
	isRefused(t, dense(epl.Split(1).Shard("eights", 1)), "no variable") // only whole names count
	env := newEnv(t, colocated)
	if _, err := model.MustNewExec(env.Backend(), model.NewStore(), dense(epl.Split(1).Shard("weights", 1))).Call([][]float32{{1, 2, 3}}); err != nil {
		t.Errorf("a pin that fits: %+v", err)
	}
}

func TestAProgramHasOneInstanceWeight(t *testing.T) {
	isRefused(t, func(_ *model.Scope, x *Node) *Node {
		epl.AddToCollection(epl.InstanceWeight, ReduceAllSum(x))
		epl.AddToCollection(epl.InstanceWeight, ReduceAllMax(x))
		return x
	}, "AddToCollection(InstanceWeight)", "the program has one already")
}

func TestAddingAValueToACollectionTwiceIsAddingItOnce(t *testing.T) {
	env := newEnv(t, colocated)
	exec := model.MustNewExec(env.Backend(), model.NewStore(), func(_ *model.Scope, x *Node) *Node {
		w := ReduceAllSum(x)
		epl.AddToCollection(epl.InstanceWeight, w, w)
		return w
	})
	if _, err := exec.Call([][]float32{{1, 2, 3}}); err != nil {
		t.Errorf("%+v", err)
	}
}

func TestClosuresAreNotAnnotated(t *testing.T) {
	branch := func(use func(x *Node)) func(*model.Scope, *Node) *Node {
		return func(_ *model.Scope, x *Node) *Node {
			g := x.Graph()
			yes := NewClosure(g, func(g *Graph) []*Node {
				one := Const(g, float32(1))
				use(one)
				return []*Node{one}
			})
			no := NewClosure(g, func(g *Graph) []*Node { return []*Node{Const(g, float32(0))} })
			return If(GreaterThan(ReduceAllSum(x), ScalarZero(g, dtypes.Float32)), yes, no)[0]
		}
	}
	isRefused(t, branch(func(x *Node) { epl.With(x, epl.Replicate(1), func() {}) }), "inside a closure or a function")
	isRefused(t, branch(func(x *Node) { epl.AddToCollection(epl.GlobalMean, x) }), "belongs to a closure or a function")
}

func TestWrappingAnOptimizerTwiceIsWrappingItOnce(t *testing.T) {
	opt := epl.Optimizer(optimizer.Adam().Done())
	if epl.Optimizer(opt) != opt {
		t.Error("a wrapped optimizer is wrapped again")
	}
}

func TestAClipOfNothingIsRefused(t *testing.T) {
	for _, limit := range []float64{0, -1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a limit of %v is accepted", limit)
				}
			}()
			epl.ClipByGlobalNorm(optimizer.Adam().Done(), limit)
		}()
	}
}

func TestInitRefusesANilOption(t *testing.T) {
	if _, err := epl.Init(nil, nil); err == nil || !strings.Contains(err.Error(), "option 0 of Init is nil") {
		t.Errorf("got %v", err)
	}
}
