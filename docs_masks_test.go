// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"bytes"
	"log"
	"math"
	"regexp"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
)

// masks makes what EPL says about losses that batches divide by numbers of their own, and about steps that are skipped.
func masks(t *testing.T, made map[string]string) {
	t.Helper()
	run := func(params map[string]any, steps int, loss func(errors, mask *Node) *Node) (plan, logged string) {
		env := newEnv(t, params, epl.WithLocalDevices(2))
		var lines bytes.Buffer
		before, flags := log.Writer(), log.Flags()
		log.SetOutput(&lines)
		log.SetFlags(0)
		defer log.SetOutput(before)
		defer log.SetFlags(flags)
		build := func(scope *model.Scope, inputs []*Node) []*Node {
			y := layers.Dense(scope.In("out"), inputs[0], true, 1)
			train.AddMainLoss(loss(Square(y), inputs[1]))
			return []*Node{y}
		}
		trainer := train.NewTrainer(env.Backend(), model.NewStore(), build, nil, epl.Optimizer(sgd()), nil, nil)
		ds := dataset.Const(train.Batch{Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{1, 2}, {3, 4}}), tensors.FromValue([][]float32{{1}, {0}})}})
		if _, err := train.NewLoop(trainer).RunSteps(env.Dataset(ds), steps); err != nil {
			t.Fatal(err)
		}
		return explained(t, env), strings.TrimSpace(lines.String())
	}
	masked := func(errors, mask *Node) *Node {
		return Div(ReduceAllSum(Mul(errors, mask)), MaxScalar(ReduceAllSum(mask), 1))
	}
	plan, _ := run(nil, 1, masked)
	note := regexp.MustCompile(`(?s)the loss is divided by.*?InstanceWeight`).FindString(plan)
	made["masked note"] = fenced("text", asInAModel(strings.Join(strings.Fields(note), " ")))
	_, warning := run(nil, 1, func(errors, mask *Node) *Node { return Sqrt(masked(errors, mask)) })
	made["masked warning"] = fenced("text", asInAModel(warning))
	_, skipped := run(map[string]any{"amp.level": "O1", "amp.loss_scale": math.Pow(2, 40)}, 8, masked)
	made["skipped steps"] = fenced("text", skipped)
}
