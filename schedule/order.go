// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/schedule/play"
)

// Strategy is the order in which stages work on micro-batches: a value of pipeline.strategy.
type Strategy string

// The strategies, spelled as in the configuration.
const (
	PreferForward           Strategy = "PreferForward"           // GPipe: all forwards, then all backwards
	PreferBackward          Strategy = "PreferBackward"          // 1F1B: a backward as soon as one is ready
	PreferBackwardOptimizer Strategy = "PreferBackwardOptimizer" // 1F1B with one more warm-up forward on all stages but the last, which hides communication
	Interleaved             Strategy = "Interleaved"             // 1F1B with several stages on each group of devices
	ZeroBubble              Strategy = "ZeroBubble"              // 1F1B with backwards cut into input and weight halves
)

// TaskKind says which part of a stage's work a task is.
type TaskKind uint8

// The kinds of tasks.
const (
	ForwardTask  TaskKind = iota
	BackwardTask          // under ZeroBubble only the gradients that the stage before waits for
	WeightsTask           // under ZeroBubble the gradients of weights, for which nobody waits; no other strategy has it
)

// String returns the letter used in the text of an order: F, B or W.
func (k TaskKind) String() string { return "FBW"[k : k+1] }

// Task is the work of one stage on one micro-batch, in one direction.
type Task struct {
	Kind         TaskKind
	Stage, Micro int
}

// String returns the kind and the micro-batch, "F0"; the stage is that of the list in which the task stands. Where
// several stages share a list, [Pipeline.Text] adds it.
func (t Task) String() string { return fmt.Sprintf("%s%d", t.Kind, t.Micro) }

// Pipeline is what an order is made for.
type Pipeline struct {
	Strategy Strategy
	Stages   int
	// Groups is how many groups of devices the stages are dealt to: stage i is on group i mod Groups. Only Interleaved
	// has fewer groups than stages.
	Groups int
	Micro  int // how many micro-batches a step has
}

// Order returns what each group of devices runs, in order. No group waits forever, if what is sent can be kept until it is
// received, and none holds more than [Pipeline.InFlight]: tests prove it of all small pipelines, and [Program.Check] proves of
// every schedule that it ends.
//
// All strategies are one pattern: a group runs so many forwards ahead, then a backward and a forward in turn, then the
// backwards that are left. They differ in how many are ahead, and ZeroBubble in the weight halves that it adds. On one
// group there is nothing to overlap: it is gradient accumulation, one micro-batch after the other.
func (p Pipeline) Order() ([][]Task, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	order := make([][]Task, p.Groups)
	for g := range order {
		order[g] = p.alternate(g)
	}
	if p.Strategy == ZeroBubble {
		order = p.addWeights(order)
	}
	return order, nil
}

// alternate merges the forwards and the backwards of a group.
func (p Pipeline) alternate(group int) []Task {
	var l []Task
	if p.Groups == 1 {
		for m := range p.Micro {
			for s := range p.Stages {
				l = append(l, Task{ForwardTask, s, m})
			}
			for s := range p.Stages {
				l = append(l, Task{BackwardTask, p.Stages - 1 - s, m})
			}
		}
		return l
	}
	add := func(kind TaskKind, k int) {
		if t := p.nth(kind, group, k); t.Micro >= 0 {
			l = append(l, t)
		}
	}
	ahead, tasks := p.ahead(group), (p.Micro+p.missing())*p.perGroup()
	for k := range ahead + tasks {
		if k >= ahead {
			add(BackwardTask, k-ahead)
		}
		if k < tasks {
			add(ForwardTask, k)
		}
	}
	return l
}

// perGroup is how many stages share a group.
func (p Pipeline) perGroup() int { return p.Stages / p.Groups }

// nth is the k-th forward or backward of a group; a negative micro-batch does not exist. If stages share groups, then a
// round of as many micro-batches as there are groups passes through one stage of the group before it comes to the
// next one: that is how long the first of them is on its way through the other groups.
func (p Pipeline) nth(kind TaskKind, group, k int) Task {
	round, visit := k/p.Groups/p.perGroup(), k/p.Groups%p.perGroup()
	if kind == BackwardTask {
		visit = p.perGroup() - 1 - visit
	}
	return Task{Kind: kind, Stage: visit*p.Groups + group, Micro: round*p.Groups + k%p.Groups - p.missing()}
}

// missing is how many micro-batches the first round is short of. The order is made as if they were there, and then they
// are left out: a micro-batch never waits for another, so it stays an order. In the first round that costs less time
// than in the last.
func (p Pipeline) missing() int {
	if p.Groups == p.Stages {
		return 0 // there are no rounds
	}
	return (p.Groups - p.Micro%p.Groups) % p.Groups
}

// ahead is how many forwards a group runs before its first backward, if there are so many.
func (p Pipeline) ahead(group int) int {
	switch {
	case p.Groups == 1:
		return p.Stages
	case p.Strategy == PreferForward:
		return p.Micro
	case p.Strategy == PreferBackwardOptimizer && group < p.Groups-1: // the last has nothing to wait for
		return p.Stages - group + 1
	case p.Groups < p.Stages: // as in Megatron-LM
		return p.Stages - p.Groups + 2*(p.Groups-1-group) + 1
	}
	return p.Stages - group
}

// InFlight is the promise that the order keeps: for how many micro-batches the group holds activations at once, at
// most, counted once for each of its stages. They are held from the forward until no task needs them: until the
// backward, under ZeroBubble until the weight half. Order must not refuse the pipeline.
//
// ZeroBubble holds as many on every group as 1F1B on the first. On group g, Stages-g of them are whole, as in 1F1B; of
// the others only what their weight half reads is left.
func (p Pipeline) InFlight(group int) int {
	if p.Strategy == ZeroBubble {
		return min(p.Stages, p.Micro)
	}
	return min(p.ahead(group), p.perGroup()*p.Micro)
}

// needs are the tasks whose results a task reads.
func (p Pipeline) needs(t Task) []Task {
	switch {
	case t.Kind == WeightsTask:
		return []Task{{BackwardTask, t.Stage, t.Micro}}
	case t.Kind == BackwardTask && t.Stage < p.Stages-1:
		return []Task{{ForwardTask, t.Stage, t.Micro}, {BackwardTask, t.Stage + 1, t.Micro}}
	case t.Kind == BackwardTask:
		return []Task{{ForwardTask, t.Stage, t.Micro}}
	case t.Stage > 0:
		return []Task{{ForwardTask, t.Stage - 1, t.Micro}}
	}
	return nil
}

// Slots is how long an order takes if a forward of a stage takes f, a backward b and a weight half w, and transfers
// nothing; and how long each group idles in that time.
func (p Pipeline) Slots(order [][]Task, f, b, w float64) (total float64, idle []float64) {
	times := [...]float64{ForwardTask: f, BackwardTask: b, WeightsTask: w}
	now, idle, done := make([]float64, len(order)), make([]float64, len(order)), map[Task]float64{}
	_, _ = play.Play(order, p.events, func(g, at int) error {
		t := order[g][at]
		for _, n := range p.needs(t) {
			now[g] = max(now[g], done[n])
		}
		now[g] += times[t.Kind]
		idle[g] -= times[t.Kind]
		done[t] = now[g]
		return nil
	})
	total = slices.Max(now)
	for g := range idle {
		idle[g] += total
	}
	return total, idle
}

// events of a player are tasks that are done.
func (p Pipeline) events(t Task) (needs, tells []Task) { return p.needs(t), []Task{t} }

// Text prints what a group runs: "F0 F1 B0 B1". Where stages share groups, the stage follows: "F0@2".
func (p Pipeline) Text(tasks []Task) string {
	words := make([]string, len(tasks))
	for i, t := range tasks {
		words[i] = t.String() + textIf(p.Groups != p.Stages, fmt.Sprintf("@%d", t.Stage))
	}
	return strings.Join(words, " ")
}

func (p Pipeline) validate() error {
	switch p.Strategy {
	case PreferForward, PreferBackward, PreferBackwardOptimizer, Interleaved, ZeroBubble:
	default:
		return errors.Errorf("epl: pipeline.strategy = %q is not known; use %q, %q, %q, %q or %q", string(p.Strategy),
			PreferBackward, PreferForward, PreferBackwardOptimizer, Interleaved, ZeroBubble)
	}
	switch {
	case p.Micro < 1:
		return errors.Errorf("epl: pipeline.num_micro_batch = %d must be at least 1", p.Micro)
	case p.Stages < 1:
		return errors.Errorf("epl: a pipeline of %d stages has nothing to run; it needs at least one TaskGraph", p.Stages)
	case p.Groups < 1:
		return errors.Errorf("epl: %d stages have %d groups of devices to run on; pipeline.stages_per_device must not be more than the number of stages",
			p.Stages, p.Groups)
	case p.Stages%p.Groups != 0:
		return errors.Errorf("epl: %d stages do not divide over %d groups of devices; set pipeline.stages_per_device to a divisor of %d, or change the number of stages",
			p.Stages, p.Groups, p.Stages)
	case p.Groups < p.Stages && p.Strategy != Interleaved:
		return errors.Errorf("epl: %d stages share %d groups of devices (pipeline.stages_per_device = %d), for which pipeline.strategy = %q has no order; set it to %q, or pipeline.stages_per_device to 1",
			p.Stages, p.Groups, p.perGroup(), p.Strategy, Interleaved)
	}
	return nil
}
