// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"bytes"
	"fmt"
	"log"
	"math"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/optimizer"

	"github.com/easyparallel/epl"
)

// magnified has a loss, and so gradients, that are larger by a factor; sgdFor undoes that. Its instances may have weights.
func magnified(factor, weight float64) Staged {
	return Staged{"magnified", func(int) func(scope *model.Scope, inputs []*Node) []*Node {
		return func(scope *model.Scope, inputs []*Node) []*Node {
			x, mask := inputs[0], inputs[1]
			y := layers.Dense(scope.In("out"), Tanh(layers.Dense(scope.In("hidden"), x, true, 16)), true, 1)
			if weight != 0 {
				epl.AddToCollection(epl.InstanceWeight, MulScalar(ReduceAllSum(mask), weight))
			}
			train.AddMainLoss(MulScalar(ReduceAllMean(Square(AddScalar(y, 1))), factor))
			return []*Node{y}
		}
	}, nil, maskedBatch}
}

func sgdFor(factor float64) func() optimizer.Interface {
	return func() optimizer.Interface {
		return optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.05 / factor)
	}
}

// asFloat32 trains with communication.fp16 and without: both must learn, and the same within what float16 rounds.
func asFloat32(t *testing.T, m Staged, opt func() optimizer.Interface, devices, micro int, params map[string]any, scale int) {
	t.Helper()
	with := map[string]any{"communication.fp16": true, "communication.fp16_scale": scale}
	for k, v := range params {
		with[k] = v
	}
	start := m.piped(t, newCluster(t, devices, micro, params), 1, opt(), 1)
	want := m.piped(t, newCluster(t, devices, micro, params), 1, opt(), 8)
	got := m.piped(t, newCluster(t, devices, micro, with), 1, opt(), 8)
	for v := range want.Store.IterVariables() {
		if !v.Trainable {
			continue
		}
		from, x, y := numbers(start.Store.GetVariable(v.Path()).MustValue()), numbers(v.MustValue()), numbers(got.Store.GetVariable(v.Path()).MustValue())
		moved, _ := distance(from, x)
		if d, _ := distance(x, y); !(d <= 5e-3*moved) || moved == 0 {
			t.Errorf("%s moved by %g, and is off by %g as float16", v.Path(), moved, d)
		}
	}
}

func TestGradientsTravelAsFloat16WhateverTheirSize(t *testing.T) {
	for _, factor := range []float64{1e-30, 1e-9, 1, 1e4, 1e25} {
		for _, params := range []map[string]any{nil, {"communication.gradients_reduce_method": "sum"}, {"zero.level": "v1"}} {
			for _, scale := range []int{1, 128, 1 << 30} {
				t.Run(fmt.Sprint(factor, params, scale), func(t *testing.T) {
					t.Parallel()
					asFloat32(t, magnified(factor, 0), sgdFor(factor), 4, 1, params, scale)
				})
			}
		}
	}
}

// Everything that makes gradients larger before they travel, with everything that decides how.
func TestFloat16OnTheWireGoesWithLossScalesAndWeights(t *testing.T) {
	amps := map[string]map[string]any{
		"float32":          {},
		"float16, fixed":   {"amp.level": "O1", "amp.loss_scale": 32768},
		"float16, dynamic": {"amp.level": "O1"},
		"bfloat16":         {"amp.level": "O1", "amp.dtype": "bfloat16"},
	}
	for name, amp := range amps {
		for i, weight := range []float64{0, 0.01, 400, 1e7} {
			for j, level := range []string{"", "v0", "v1", "v2"} {
				for k, micro := range []int{1, 3} {
					if (i+j)%2 == k { // half of the combinations have all pairs
						continue
					}
					params := map[string]any{}
					for k, v := range amp {
						params[k] = v
					}
					if level != "" {
						params["zero.level"] = level
					}
					t.Run(fmt.Sprintf("%s/weight %g/%s/%d", name, weight, level, micro), func(t *testing.T) {
						t.Parallel()
						asFloat32(t, magnified(1, weight), sgdFor(1), 3, micro, params, 128)
					})
				}
			}
		}
	}
}

// What is no number stays none, so that it is noticed: float16 is no reason for it, and hides none.
func TestANaNTravelsAsFloat16(t *testing.T) {
	for _, level := range []map[string]any{{}, {"zero.level": "v1"}} {
		m := magnified(1, 0)
		m.Batch = poisoned(m.Batch, 1)
		level["communication.fp16"] = true
		got := m.stepByStep(t, newCluster(t, 2, 1, level), 1, 1)
		if x := numbers(got.Store.GetVariable("/hidden/dense/weights").MustValue()); !math.IsNaN(x[0]) {
			t.Errorf("%v: a weight is %v", level, x[0])
		}
	}
}

// Whatever is set, a job that skips every step says so.
func TestAJobThatSkipsEveryStepSaysSo(t *testing.T) {
	for _, c := range []struct {
		name   string
		factor float64 // of the loss: beyond float16 at a scale of 32768, or at any
		steps  int
		params map[string]any
		plan   pipelinePlan
		want   []string
	}{
		{"fixed", 10, 40, map[string]any{"amp.loss_scale": 32768}, pipelinePlan{stages: 1, replicas: 2, micro: 1},
			[]string{"the last 8 steps", "amp.loss_scale = 32768", "the last 16 steps", "the last 32 steps"}},
		{"fixed, on the wire", 10, 8, map[string]any{"amp.loss_scale": 32768, "communication.fp16": true}, pipelinePlan{stages: 1, replicas: 2, micro: 2},
			[]string{"the last 8 steps"}},
		{"fixed, in parts", 10, 8, map[string]any{"amp.loss_scale": 32768, "zero.level": "v2"}, pipelinePlan{stages: 1, replicas: 2, micro: 2},
			[]string{"the last 8 steps"}},
		{"fixed, on one device", 10, 8, map[string]any{"amp.loss_scale": 32768}, pipelinePlan{stages: 1, replicas: 1, micro: 1},
			[]string{"the last 8 steps"}},
		{"dynamic", 1e7, 24, map[string]any{}, pipelinePlan{stages: 1, replicas: 2, micro: 1},
			[]string{"amp.loss_scale = dynamic"}},
		{"dynamic, that gets there", 10, 40, map[string]any{}, pipelinePlan{stages: 1, replicas: 2, micro: 1}, nil},
		{"bfloat16", 1e7, 8, map[string]any{"amp.dtype": "bfloat16"}, pipelinePlan{stages: 1, replicas: 2, micro: 1}, nil},
	} {
		c.params["amp.level"] = "O1"
		m := magnified(c.factor, 0)
		var text bytes.Buffer
		before := log.Writer()
		log.SetOutput(&text)
		m.piped(t, newCluster(t, c.plan.replicas, c.plan.micro, c.params), 1, sgdFor(c.factor)(), c.steps)
		log.SetOutput(before)
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if c.want == nil && text.Len() > 0 {
			t.Errorf("%s: %q", c.name, lines)
		}
		for _, want := range c.want {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%s: %q lacks %q", c.name, lines, want)
			}
		}
		if c.steps > 32 && c.want != nil && len(lines) != 3 {
			t.Errorf("%s: %d lines %q", c.name, len(lines), lines)
		}
	}
}
