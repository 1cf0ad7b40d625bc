// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// OpTime is what a device computed again and again: a kernel of a task, or what kernels have of a place in the model. Fields that differ between what it adds up are empty.
type OpTime struct {
	Kind, Name string // "product", and what it multiplies
	Task       string // [Forward]; "": it is not known
	Stage      int
	within     string // the part of the time that has it
	// Line, TaskGraph and Scope are where in the model it comes from; "": it is not known.
	Line, TaskGraph, Scope string
	Calls                  float64 // of which a place has its share
	Time                   time.Duration
	Flops, Bytes           float64
	// Best is how long it takes at least by the roofline of the device; 0: that is not known.
	Best time.Duration
}

// Roofline is the least time that a device takes for a kernel: its peak, or the bandwidth of its memory, limits it.
type Roofline func(flops, bytes float64) time.Duration

// plus adds what another one took.
func (o *OpTime) plus(x OpTime) {
	o.Calls, o.Time, o.Flops, o.Bytes, o.Best = o.Calls+x.Calls, o.Time+x.Time, o.Flops+x.Flops, o.Bytes+x.Bytes, o.Best+x.Best
}

// sampler adds up kernels.
type sampler map[OpTime]*OpTime

// add notes those of a device in a step. Each belongs to the task in whose time it began.
func (s sampler) add(events []Event) {
	var task Event
	runs := slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return !e.computes() })
	for _, e := range events {
		if e.Kind != Kernel {
			continue
		}
		for len(runs) > 0 && !runs[0].Start.After(e.Start) {
			task, runs = runs[0], runs[1:]
		}
		of := OpTime{Kind: e.Op, Name: e.Name}
		if e.Start.Before(task.End) {
			of.Task, of.Stage, of.within = task.Task.Kind, task.Task.Stage, task.Task.Kind
		}
		if e.Task.Kind != "" { // it knows better: the task is more than that
			of.Task = e.Task.Kind
		}
		s.divide(of, e)
	}
}

// divide gives each place of a kernel its share.
func (s sampler) divide(of OpTime, e Event) {
	sites, left := e.Sites, e.End.Sub(e.Start)
	if len(sites) == 0 {
		sites = []Site{{Share: 1}}
	}
	for i, at := range sites {
		of.Line, of.TaskGraph, of.Scope = at.Line, at.TaskGraph, at.Scope
		took := min(left, time.Duration(at.Share*float64(e.End.Sub(e.Start))))
		if i == len(sites)-1 {
			took = left // nothing is lost by rounding
		}
		left -= took
		sum := s[of]
		if sum == nil {
			sum = &OpTime{}
			*sum, s[of] = of, sum
		}
		sum.plus(OpTime{Calls: at.Share, Time: took, Flops: at.Share * float64(e.Flops), Bytes: at.Share * float64(e.Bytes)})
	}
}

// sorted are the samples, the longest first.
func (s sampler) sorted() (all []OpTime) {
	for _, o := range s {
		all = append(all, *o)
	}
	slices.SortFunc(all, func(a, b OpTime) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Stage, b.Stage),
			cmp.Compare(a.Line, b.Line), cmp.Compare(a.TaskGraph, b.TaskGraph), cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// by adds up the samples that have the same key, the longest first.
func (p *Profile) by(key func(OpTime) OpTime) []OpTime {
	sums := sampler{}
	for _, o := range p.samples {
		k := key(o)
		if sums[k] == nil {
			sums[k] = &OpTime{}
			*sums[k] = k
		}
		sums[k].plus(o)
	}
	return sums.sorted()
}

// Lines are the samples by line of the model.
func (p *Profile) Lines() []OpTime {
	return p.by(func(o OpTime) OpTime { return OpTime{Line: o.Line} })
}

// TaskGraphs are the samples by TaskGraph.
func (p *Profile) TaskGraphs() []OpTime {
	return p.by(func(o OpTime) OpTime { return OpTime{TaskGraph: o.TaskGraph} })
}

// kinds are the samples by kind of op.
func (p *Profile) kinds() []OpTime {
	return p.by(func(o OpTime) OpTime { return OpTime{Kind: o.Kind} })
}

// Against compares ops with the least time that they need on these devices.
func (p *Profile) Against(r Roofline) {
	for i := range p.samples {
		if o := &p.samples[i]; o.Calls > 0 { // calls of one op are of one size
			o.Best = time.Duration(o.Calls * float64(r(o.Flops/o.Calls, o.Bytes/o.Calls)))
		}
	}
	p.Ops = p.ops()
}

// ops are the samples by op, wherever they come from.
func (p *Profile) ops() []OpTime {
	return p.by(func(o OpTime) OpTime { return OpTime{Kind: o.Kind, Name: o.Name, Task: o.Task, Stage: o.Stage} })
}

// stack names where a sample is, from the outside in: its stage, task, TaskGraph, the scopes of the model, the line, and the op itself.
func (p *Profile) stack(o OpTime, taskGraphs bool) (names []string) {
	if p.Pipeline.Stages > 1 {
		names = append(names, fmt.Sprintf("stage %d", o.Stage))
	}
	names = append(names, cmp.Or(o.Task, otherWork))
	if taskGraphs && o.TaskGraph != "" {
		names = append(names, o.TaskGraph)
	}
	names = append(names, strings.FieldsFunc(o.Scope, func(r rune) bool { return r == '/' })...)
	if o.Line != "" {
		names = append(names, o.Line)
	}
	return append(names, o.Name)
}

// stacks are all samples, and the parts of the time that no kernel has.
func (p *Profile) stacks(visit func(names []string, o OpTime)) {
	several := len(p.TaskGraphs()) > 1
	tasks := map[string]time.Duration{} // of kernels
	for _, o := range p.samples {
		tasks[cmp.Or(o.within, otherWork)] += o.Time
		visit(p.stack(o, several), o)
	}
	for _, part := range p.Parts { // of tasks, what is in no kernel
		if rest := part.Time - tasks[part.Name]; rest > 0 {
			visit([]string{part.Name}, OpTime{Time: rest})
		}
	}
}
