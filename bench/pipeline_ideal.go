// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/easyparallel/epl/trace"
)

// bubble is the part of the time of a pipeline's devices in which they do not work on micro-batches.
type bubble struct {
	measured float64
	// played is what is left if values travel at once and nothing comes between tasks, typical is that if tasks of a stage also take equally long in all steps, and
	// ideal if they do so on all stages.
	played, typical, ideal float64
	// formula is that of equal stages.
	formula float64
	// quiet: nobody else was seen on the cores.
	quiet bool
}

// bubblesOf takes the bubbles of steps apart. The first micro-batch has nothing to add its gradients to, and what is not added up by backward itself follows what a stage passes on:
// nobody waits for it. The formulas, (S-1)/(M+S-1) and others, know neither.
func bubblesOf(steps []*trace.Step) (all []bubble, err error) {
	times := map[work][]float64{} // of all steps: what makes a core slower for a while falls on all stages alike
	for _, s := range steps {
		for _, tasks := range tasksOf(s) {
			for _, t := range tasks {
				times[workOf(t)] = append(times[workOf(t)], float64(t.time))
			}
		}
	}
	typical := map[work]time.Duration{}
	for w, x := range times {
		typical[w] = time.Duration(median(x))
	}
	for _, s := range steps {
		r, tasks := s.Report(), tasksOf(s)
		mean := tasks.means()
		b := bubble{measured: r.Bubble, formula: r.Ideal}
		for to, long := range map[*float64]func(t task) time.Duration{
			&b.played:  func(t task) time.Duration { return t.time },
			&b.typical: func(t task) time.Duration { return typical[workOf(t)] },
			&b.ideal:   func(t task) time.Duration { return mean[kindOf(t.Task)] },
		} {
			if *to, err = tasks.play(long); err != nil {
				return nil, err
			}
		}
		all = append(all, b)
	}
	return all, nil
}

// work is what takes equally long for all micro-batches, but for the first, which may have less to add up.
type work struct {
	kind  string
	stage int
	first bool
}

func workOf(t task) work { return work{t.Kind, t.Stage, t.Micro == 0} }

// task is what a device did for a micro-batch, and how long it took.
type task struct {
	trace.Task
	time time.Duration
}

// devices are the tasks of each device, in order.
type devices map[int][]task

// tasksOf finds the tasks of a step. What is added up after a task is one, whatever the number of buckets.
func tasksOf(s *trace.Step) devices {
	d := devices{}
	for _, e := range s.Events() {
		all := d[e.Device]
		switch e.Task.Kind {
		case trace.Forward, trace.Backward, trace.Weights:
			d[e.Device] = append(all, task{e.Task, e.End.Sub(e.Start)})
		case trace.Accumulate:
			if last := len(all) - 1; strings.HasPrefix(all[last].Kind, trace.Accumulate) {
				all[last].time += e.End.Sub(e.Start)
			} else {
				e.Task.Kind += " after " + all[last].Kind
				d[e.Device] = append(all, task{e.Task, e.End.Sub(e.Start)})
			}
		}
	}
	return d
}

// kindOf is the same for tasks that should take equally long. The first stage passes no gradients on: under ZeroBubble its whole backward is in the weights.
func kindOf(t trace.Task) string {
	if t.Kind == trace.Weights && t.Stage == 0 {
		return "backward and weights"
	}
	return t.Kind
}

// means is how long tasks of each kind take, on all stages.
func (d devices) means() map[string]time.Duration {
	sum, count := map[string]time.Duration{}, map[string]time.Duration{}
	for _, tasks := range d {
		for _, t := range tasks {
			sum[kindOf(t.Task)] += t.time
			count[kindOf(t.Task)]++
		}
	}
	for kind := range sum {
		sum[kind] /= count[kind]
	}
	return sum
}

// play lets every device do its tasks, as soon as those are over that they need, and returns the bubble.
func (d devices) play(long func(t task) time.Duration) (float64, error) {
	over, now, next := map[trace.Task]time.Duration{}, map[int]time.Duration{}, map[int]int{}
	var end, busy time.Duration
	for left := true; left; {
		left = false
		for device, tasks := range d {
			for next[device] < len(tasks) {
				t := tasks[next[device]]
				ready, ok := d.ready(t.Task, over)
				if !ok {
					break
				}
				time := long(t)
				now[device] = max(now[device], ready) + time
				busy += time
				end = max(end, now[device])
				over[t.Task] = now[device]
				next[device]++
				left = true
			}
		}
	}
	for device, tasks := range d {
		if next[device] < len(tasks) {
			return 0, fmt.Errorf("the timeline lacks what %+v of device %d needs", tasks[next[device]].Task, device)
		}
	}
	return 1 - float64(busy)/float64(len(d))/float64(end), nil
}

// ready is when a task has what it needs of other stages.
func (d devices) ready(t trace.Task, over map[trace.Task]time.Duration) (at time.Duration, ok bool) {
	switch {
	case t.Kind == trace.Forward && t.Stage > 0:
		t.Stage--
	case t.Kind == trace.Backward || t.Kind == trace.Weights && t.Stage == 0:
		t.Kind = trace.Backward
		t.Stage++
	default:
		return 0, true
	}
	if at, ok = over[t]; ok {
		return at, true
	}
	return 0, !d.has(t)
}

// has tells whether there is such a task: the last stage waits for nobody.
func (d devices) has(t trace.Task) bool {
	for _, tasks := range d {
		for _, x := range tasks {
			if x.Task == t {
				return true
			}
		}
	}
	return false
}
