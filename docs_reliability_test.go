// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"bytes"
	"log"
	"regexp"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
)

// notFinite makes what EPL says about steps whose loss is not finite.
func notFinite(t *testing.T, made map[string]string) {
	t.Helper()
	run := func(nan string) (logged string, err error) {
		env := newEnv(t, map[string]any{"reliability.nan": nan}, epl.WithLocalDevices(2))
		var lines bytes.Buffer
		before, flags := log.Writer(), log.Flags()
		log.SetOutput(&lines)
		log.SetFlags(0)
		defer log.SetOutput(before)
		defer log.SetFlags(flags)
		build := func(scope *model.Scope, inputs []*Node) []*Node {
			y := layers.Dense(scope.In("out"), inputs[0], true, 1)
			train.AddMainLoss(ReduceAllMean(Log(inputs[1])))
			train.AddMainLoss(ReduceAllMean(Square(y)))
			return []*Node{y}
		}
		trainer := train.NewTrainer(env.Backend(), model.NewStore(), build, nil, epl.Optimizer(sgd()), nil, nil)
		ds := dataset.Const(train.Batch{Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{1, 2}, {3, 4}}), tensors.FromValue([][]float32{{1}, {0}})}})
		_, err = train.NewLoop(trainer).RunSteps(env.Dataset(ds), 2)
		return strings.TrimSpace(lines.String()), err
	}
	logged, err := run("skip")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(epl.EnvFaults, "flip:rank=1,step=7")
	env := newEnv(t, map[string]any{"reliability.check_every": 1}, epl.WithLocalDevices(3))
	build := func(scope *model.Scope, inputs []*Node) []*Node {
		return []*Node{layers.Dense(scope, inputs[0], true, 1)}
	}
	trainer := train.NewTrainer(env.Backend(), model.NewStore(), build, loss.MeanSquaredError, epl.Optimizer(sgd()), nil, nil)
	ds := dataset.Const(train.Batch{Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{1, 2}, {3, 4}})}, Labels: []*tensors.Tensor{tensors.FromValue([][]float32{{1}, {0}})}})
	if _, err = train.NewLoop(trainer).RunSteps(env.Dataset(ds), 10); err == nil {
		t.Fatal("nothing differs")
	}
	t.Setenv(epl.EnvFaults, "")
	made["bits differ"] = fenced("text", regexp.MustCompile(`epl: after .*`).FindString(err.Error()))
	made["step skipped"] = fenced("text", logged)
	if _, err = run("stop"); err == nil {
		t.Fatal("nothing stops")
	}
	made["step not finite"] = fenced("text", asInAModel(regexp.MustCompile(`epl: step .*`).FindString(err.Error())))
}
