// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/activation"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/schedule"
)

// pipelines are the orders that docs/pipeline.md draws: one network on four devices.
var pipelines = []schedule.Pipeline{
	{Strategy: schedule.PreferBackward, Stages: 4, Groups: 4, Micro: 6},
	{Strategy: schedule.PreferForward, Stages: 4, Groups: 4, Micro: 6},
	{Strategy: schedule.PreferBackwardOptimizer, Stages: 4, Groups: 4, Micro: 6},
	{Strategy: schedule.Interleaved, Stages: 8, Groups: 4, Micro: 6},
	{Strategy: schedule.ZeroBubble, Stages: 4, Groups: 4, Micro: 6},
}

// orders draws the pipelines, and compares them. A stage's forward takes 2 units of time, half as much if a device has
// two; backward takes twice as long, and has equal halves.
func orders(t *testing.T, made map[string]string) {
	t.Helper()
	var table strings.Builder
	table.WriteString("| `pipeline.strategy` | most micro-batches in flight, by device | time | idle |\n|---|---|---|---|\n")
	for _, p := range pipelines {
		order, err := p.Order()
		if err != nil {
			t.Fatal(err)
		}
		took := map[schedule.TaskKind]int{schedule.ForwardTask: 2 * p.Groups / p.Stages, schedule.BackwardTask: 4 * p.Groups / p.Stages, schedule.WeightsTask: 2}
		if p.Strategy == schedule.ZeroBubble {
			took[schedule.BackwardTask] = 2
		}
		made["order "+string(p.Strategy)] = fenced("text", drawOrder(t, p, order, took))
		total, idle := p.Slots(order, float64(took[schedule.ForwardTask]), float64(took[schedule.BackwardTask]), float64(took[schedule.WeightsTask]))
		var inFlight []string
		sum := 0.0
		for g := range order {
			inFlight = append(inFlight, fmt.Sprint(p.InFlight(g)))
			sum += idle[g]
		}
		fmt.Fprintf(&table, "| `%s` | %s | %g | %.1f%% |\n", p.Strategy, strings.Join(inFlight, ", "), total, 100*sum/total/float64(p.Groups))
	}
	made["orders"] = table.String()
}

// drawOrder draws an order: a row per device, two columns per unit of time.
func drawOrder(t *testing.T, p schedule.Pipeline, order [][]schedule.Task, took map[schedule.TaskKind]int) string {
	t.Helper()
	ends := map[schedule.Task]int{}
	rows, free, at := make([]bytes.Buffer, p.Groups), make([]int, p.Groups), make([]int, p.Groups)
	letters := map[schedule.TaskKind]string{schedule.ForwardTask: "F-", schedule.BackwardTask: "B=", schedule.WeightsTask: "W~"}
	for left := len(order[0]) * p.Groups; left > 0; {
		before := left
		for g := range order {
			for at[g] < len(order[g]) {
				x := order[g][at[g]]
				start, ready := free[g], true
				for _, need := range reads(p, x) {
					end, ok := ends[need]
					start, ready = max(start, end), ready && ok
				}
				if !ready {
					break
				}
				letter := letters[x.Kind]
				if x.Stage >= p.Groups { // the second stage of a device
					letter = strings.ToLower(letter)
				}
				free[g] = start + took[x.Kind]
				ends[x] = free[g]
				rows[g].WriteString(strings.Repeat(" ", 2*start-rows[g].Len()))
				rows[g].WriteString(letter[:1] + fmt.Sprint(x.Micro) + strings.Repeat(letter[1:], 2*took[x.Kind]-2))
				at[g]++
				left--
			}
		}
		if left == before {
			t.Fatalf("%s: all wait for each other", p.Strategy)
		}
	}
	var b strings.Builder
	for g := range rows {
		stages := fmt.Sprint(g)
		if p.Groups < p.Stages {
			stages += fmt.Sprintf(", %d", g+p.Groups)
		}
		fmt.Fprintf(&b, "stage %s |%s\n", stages, &rows[g])
	}
	return b.String()
}

// reads are the tasks that a task waits for.
func reads(p schedule.Pipeline, x schedule.Task) (needs []schedule.Task) {
	at := func(kind schedule.TaskKind, stage int) {
		if stage >= 0 && stage < p.Stages {
			needs = append(needs, schedule.Task{Kind: kind, Stage: stage, Micro: x.Micro})
		}
	}
	switch x.Kind {
	case schedule.ForwardTask:
		at(schedule.ForwardTask, x.Stage-1)
	case schedule.BackwardTask:
		at(schedule.ForwardTask, x.Stage)
		at(schedule.BackwardTask, x.Stage+1)
	default:
		at(schedule.BackwardTask, x.Stage)
	}
	return needs
}

// pipelineMessages provokes the errors that docs/pipeline.md and docs/errors.md explain.
func pipelineMessages(t *testing.T, message func(name string, err error)) {
	t.Helper()
	dense := func(scope *model.Scope, x *Node, name string, width int) *Node {
		return activation.Relu(layers.Dense(scope.In("%s", name), x, true, width))
	}
	refused := func(name string, devices int, params map[string]any, fn func(scope *model.Scope, x *Node) *Node) {
		env := newEnv(t, params, epl.WithLocalDevices(devices))
		message(name, step(trainer(env.Backend(), epl.Optimizer(sgd()), fn)))
	}
	refused("cycle", 2, nil, func(scope *model.Scope, x *Node) *Node {
		epl.SetDefaultStrategy(x, epl.Replicate(1, "body"))
		x = layers.Dense(scope.In("before"), x, true, 8)
		epl.With(x, epl.Replicate(1, "middle"), func() { x = layers.Dense(scope.In("middle"), x, true, 8) })
		return layers.Dense(scope.In("after"), x, true, 1) // in the body again
	})
	refused("empty", 2, nil, func(scope *model.Scope, x *Node) *Node {
		epl.With(x, epl.Replicate(1, "stage_0"), func() { x = dense(scope, x, "hidden", 8) })
		epl.With(x, epl.Replicate(1, "stage_1"), func() { _ = Sin(x) })
		return dense(scope, x, "out", 1)
	})
	whole := func(s epl.Strategy) func(scope *model.Scope, x *Node) *Node {
		return func(scope *model.Scope, x *Node) *Node {
			epl.With(x, s, func() { x = dense(scope, x, "all", 1) })
			return x
		}
	}
	refused("split", 50, nil, whole(epl.Split(50, "head")))
	refused("annotated", 2, map[string]any{"auto.auto_parallel": true, "pipeline.num_stages": 2}, whole(epl.Replicate(1, "encoder")))
	refused("uneven stages", 4, map[string]any{"auto.auto_parallel": true, "pipeline.num_stages": 3}, nil)
	refused("global batch", 2, map[string]any{"auto.auto_parallel": true, "auto.global_batch": 7}, nil)
	refused("no way", 2, map[string]any{"auto.auto_parallel": true, "cluster.device_memory": 150}, nil)
	refused("too many stages", 50, map[string]any{"auto.auto_parallel": true, "pipeline.num_stages": 50}, nil)
	stages := func(n int) func(scope *model.Scope, x *Node) *Node {
		return func(scope *model.Scope, x *Node) *Node {
			for i := range n {
				name := fmt.Sprintf("stage_%d", i)
				epl.With(x, epl.Replicate(1, name), func() { x = dense(scope, x, name, 1) })
			}
			return x
		}
	}
	refused("placement", 1, nil, stages(2))
	refused("uneven", 3, nil, stages(2))
	refused("interleaved", 2, map[string]any{"pipeline.strategy": "Interleaved", "pipeline.stages_per_device": 2}, stages(3))
	_, err := epl.NewConfig(map[string]any{"pipeline.num_micro_batch": 0})
	message("micro-batches", err)
	_, err = epl.NewConfig(map[string]any{"pipeline.strategy": "Interleaved"})
	message("stages per device", err)
}
