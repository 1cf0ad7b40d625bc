// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"fmt"
	"testing"

	. "github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl/schedule"
)

// What a stage of bulky keeps of a micro-batch for backward: something large, and what it got from the stage before.
const (
	bulkyBatch, bulkyWidth, narrowWidth = 128, 64, 4

	bulk   = bulkyBatch * bulkyWidth * 4
	narrow = bulkyBatch * narrowWidth * 4
)

// bulky has equal stages, each with one large value that backward needs. What travels between them is small.
func bulky(stages int) func(scope *model.Scope, inputs []*Node) []*Node {
	return func(scope *model.Scope, inputs []*Node) []*Node {
		x := inputs[0]
		for i := range stages {
			stage(x, i, func() {
				h := hidden(scope, x, i, bulkyWidth)
				x = layers.Dense(scope.In("narrow_%d", i), h, true, narrowWidth)
				if i == stages-1 {
					x = ReduceAndKeep(x, ReduceMean, -1)
				}
			})
		}
		return []*Node{x}
	}
}

// peaks are the most bytes that lived on each device of a pipeline, in training.
func peaks(t *testing.T, p pipelinePlan) (bytes []int64) {
	t.Helper()
	m := Staged{"bulky", bulky, Models()[0].Loss, Regression(bulkyBatch, narrowWidth)}
	env := p.env(t, nil)
	m.piped(t, env, p.stages, sgd(), 2)
	for _, d := range env.Stats().Devices {
		bytes = append(bytes, d.PeakBytes)
	}
	return bytes
}

// Every further micro-batch in flight costs the values that backward needs of it, and no more than the promised number
// are in flight, however many micro-batches a step has. Less than half of such a value is left for all else, such as
// gradients being added up; what travels is small, and lives until its receiver takes it.
func TestTheBytesOnADeviceFollowThePromiseOfTheSchedule(t *testing.T) {
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			at := func(micro int) ([]int64, schedule.Pipeline) {
				p := pipelinePlan{stages: 4, replicas: 1, micro: micro, strategy: strategy}
				groups := 4
				if strategy == "Interleaved" {
					p.perDevice, groups = 2, 2
				}
				return peaks(t, p), schedule.Pipeline{Strategy: schedule.Strategy(strategy), Stages: 4, Groups: groups, Micro: micro}
			}
			first, alone := at(1)
			for _, micro := range []int{2, 3, 5, 8} {
				got, pipeline := at(micro)
				for d := range got {
					more := int64(pipeline.InFlight(d) - alone.InFlight(d))
					switch strategy { // in words of the documentation
					case "PreferForward":
						more = int64(micro) - 1
					case "PreferBackward":
						more = int64(min(4-d, micro)) - 1
					case "PreferBackwardOptimizer":
						more = int64(min([]int{5, 4, 3, 1}[d], micro)) - 1
					}
					least, most := more, more
					if strategy == "ZeroBubble" { // of micro-batches that wait for their weight half, what that reads: here, two large values
						least = int64(min(4-d, micro)) - 1
						most = least + 2*(more-least) + 1
					}
					const slack = bulk * 2 / 5
					travel := int64(2*micro) * narrow // what a slow neighbour has not taken yet, in both directions
					if grown := got[d] - first[d]; grown < least*bulk-slack || grown > most*(bulk+narrow)+slack+travel {
						t.Errorf("%d micro-batches: device %d has %s, with one micro-batch %s; %d more are in flight", micro, d, inBulks(got[d]), inBulks(first[d]), more)
					}
				}
			}
		})
	}
}

func inBulks(bytes int64) string { return fmt.Sprintf("%.2f large values", float64(bytes)/bulk) }
