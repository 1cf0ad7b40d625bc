// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
)

// annotated is a model of which all has one strategy.
func annotated(s epl.Strategy) equiv.Model { return annotatedOf(s, 96) }

// annotatedOf is such a model with batches of so many rows.
func annotatedOf(s epl.Strategy, rows int) equiv.Model {
	const width = 512
	return equiv.Model{
		Name: "annotated",
		Build: func(scope *model.Scope, x *Node) *Node {
			epl.With(x, s, func() {
				for i := range 3 {
					x = activation.Relu(layers.Dense(scope.In("layer_%d", i), x, true, width))
				}
				x = layers.Dense(scope.In("out"), x, true, 1)
			})
			return x
		},
		Loss:  loss.MeanSquaredError,
		Batch: equiv.Regression(rows, width),
	}
}

// Devices of a TaskGraph get parts in proportion to their speed, which the plan says, and with which it can be applied again. A step is predicted to be faster.
func TestDevicesOfATaskGraphGetPartsInProportionToSpeed(t *testing.T) {
	for _, c := range []struct {
		strategy epl.Strategy
		speeds   []float64
		want     []int // nil: all get as much
		gain     float64
	}{
		{epl.Replicate(2, "all"), []float64{1, 1}, nil, 0},
		{epl.Replicate(2, "all"), []float64{2, 1}, []int{2, 1}, 1.1},
		{epl.Replicate(2, "all"), []float64{2, 1, 2, 1}, []int{2, 1}, 1.1},
		{epl.Replicate(2, "all"), []float64{2, 1, 1, 2}, nil, 0}, // model replicas are divided in the same way
		{epl.Replicate(3, "all"), []float64{3, 2, 1}, []int{3, 2, 1}, 1.1},
		{epl.Split(2, "all"), []float64{1, 3}, []int{1, 3}, 1.1},
		{epl.Replicate(2, "all"), []float64{1.01, 1}, nil, 0}, // it would save less than 2 %
	} {
		p := recorded(t, annotated(c.strategy))
		pl, r := onSpeeds(t, p, nil, false, c.speeds...)
		if c.want == nil {
			if pl.Weights != nil {
				t.Errorf("%v on devices of speeds %v: weights %v", c.strategy, c.speeds, pl.Weights.Of)
			}
			continue
		}
		if pl.Weights == nil || !slices.Equal(pl.Weights.Of[0], c.want) || !strings.Contains(pl.Weights.Why, "because they are unequal") || !slices.Equal(r.Final.Stages[0].Weights, c.want) {
			t.Fatalf("%v on devices of speeds %v: weights %+v, want %v", c.strategy, c.speeds, pl.Weights, c.want)
		}
		if q, err := ir.Parse(r.Final.String()); err != nil || q.String() != r.Final.String() || q.Verify() != nil {
			t.Errorf("the text of a program with weights reads as another one, %v", err)
		}
		var devices []cost.Device
		for _, s := range c.speeds {
			devices = append(devices, cost.Device{Profile: cost.Default, Speed: s})
		}
		cfg, target := withDevices(t, nil, devices...)
		unknown := target
		unknown.Hardware = nil
		_, even, err := plan.Decide(p, cfg, unknown)
		if err != nil {
			t.Fatal(err)
		}
		slow, _, err := even.Simulate(target.Hardware)
		if err != nil {
			t.Fatal(err)
		}
		fast, _, err := r.Simulate(target.Hardware)
		if err != nil {
			t.Fatal(err)
		}
		if gain := slow.Step.Seconds() / fast.Step.Seconds(); gain < c.gain {
			t.Errorf("%v on devices of speeds %v: a step takes %s, and %s with equal parts, %.2f times as long", c.strategy, c.speeds, fast.Step, slow.Step, gain)
		}
		var text bytes.Buffer
		if err := pl.Encode(&text); err != nil {
			t.Fatal(err)
		}
		again, err := plan.Decode(&text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := again.Apply(p, unknown); err != nil { // the plan says all, whatever is known of the devices
			t.Error(err)
		}
	}
}
