// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/passes"
)

// chooseTaskGraphs finds a TaskGraph for every op of forward and backward, so that each runs somewhere: those outside every scope
// join the neighbour that costs least traffic, and backward follows forward. Stages are put in the order in which data
// flow through them.
func chooseTaskGraphs(p *ir.Program, o passes.Options) (*passes.TaskGraphChoice, error) {
	if !o.Staged() {
		return nil, nil
	}
	p = p.Clone()
	a := &attacher{p: p, live: analysis.Live(p), reader: map[*ir.Op]*ir.Op{}}
	c := &passes.TaskGraphChoice{}
	var err error
	if c.Stages, err = a.stages(o); err != nil {
		return nil, err
	}
	a.forward()
	a.join()
	a.follow()
	a.variables()
	p.ReadOriginals(a.at)
	a.backward()
	of := func(op *ir.Op) int {
		if op.TaskGraph == nil {
			return -1
		}
		return op.TaskGraph.ID
	}
	c.Ops = each(p.Main.Ops, of)
	c.Variables = each(p.Variables, func(v *ir.Variable) int { return of(v.Param.Op) })
	return c, nil
}

type attacher struct {
	p     *ir.Program
	index *analysis.Index // of its stages
	live  map[*ir.Op]bool
	// reader is an op in a TaskGraph that reads a value of the op.
	reader map[*ir.Op]*ir.Op
	loose  []*ir.Op // ops that no neighbour had a TaskGraph for
}

// at is the stage of an op; -1 if it has none yet.
func (a *attacher) at(op *ir.Op) int {
	if op.TaskGraph == nil {
		return -1
	}
	return a.index.Stage(op)
}

// put gives an op a stage. Where several TaskGraphs share the devices, it joins that of the largest value it reads there,
// or of what reads it.
func (a *attacher) put(op *ir.Op, stage int) {
	var largest *ir.Value
	op.Uses(func(v *ir.Value) {
		if !v.Op.IsLeaf() && a.at(v.Op) == stage && (largest == nil || v.Bytes() > largest.Bytes()) {
			largest = v
		}
	})
	switch reader := a.reader[op]; {
	case largest != nil:
		op.TaskGraph = largest.Op.TaskGraph
	case reader != nil && a.at(reader) == stage:
		op.TaskGraph = reader.TaskGraph
	default:
		op.TaskGraph = a.p.Stages[stage].TaskGraphs[0]
		a.loose = append(a.loose, op)
	}
}

// join lets ops that read nothing but inputs, and that only ops outside read, join those. What is made of labels alone
// follows the loss, which follows the logits.
func (a *attacher) join() {
	readers := map[*ir.Op]*ir.Op{}
	for _, op := range slices.Backward(a.p.Main.Ops) {
		if op.IsLeaf() || op.Phase != ir.Forward {
			continue
		}
		if r := readers[op]; r != nil && slices.Contains(a.loose, op) && a.at(r) == a.at(op) {
			op.TaskGraph = r.TaskGraph
		}
		op.Uses(func(v *ir.Value) {
			if r := readers[v.Op]; r == nil || !a.live[r] && a.live[op] {
				readers[v.Op] = op
			}
		})
	}
}

// stages makes the stages of the program, in an order in which forward goes from earlier to later ones only.
func (a *attacher) stages(o passes.Options) (order []int, err error) {
	p := a.p
	var all []int
	for i := range p.TaskGraphs {
		all = append(all, i)
	}
	p.Stages = o.Stages(p, all)
	a.index = analysis.Of(p)
	ops, reads := a.reads()
	for i, s := range p.Stages {
		if ops[i] == 0 && p.IsTraining() {
			return nil, errors.Errorf("epl: %s has nothing to compute that a training step needs, so that a stage of the pipeline would be empty: "+
				"leave the annotation out, or put ops into it", titled(s.TaskGraphs[0]))
		}
	}
	left := slices.Clone(all[:len(p.Stages)])
	for len(left) > 0 {
		next := slices.IndexFunc(left, func(i int) bool {
			return !slices.ContainsFunc(left, func(from int) bool { return reads[i][from] != nil })
		})
		if next < 0 {
			return nil, a.cycle(left, reads)
		}
		order, left = append(order, left[next]), slices.Delete(left, next, next+1)
	}
	if o.StagesPerDevice > 1 && !slices.IsSorted(order) {
		return nil, errors.Errorf("epl: with pipeline.stages_per_device = %d TaskGraphs must be annotated in the order in which data flow through them, "+
			"but %s reads what later ones compute; annotate them in that order", o.StagesPerDevice, titled(p.TaskGraphs[slices.IndexFunc(order, func(s int) bool { return order[s] != s })]))
	}
	p.Stages = o.Stages(p, order)
	a.index = analysis.Of(p)
	return order, nil
}

// reads counts the forward ops of each stage and finds, for each, the stages that it reads values of: straight, or
// through ops outside. Of every pair it keeps an op that does so.
func (a *attacher) reads() (ops []int, reads []map[int]*ir.Op) {
	ops, reads = make([]int, len(a.p.Stages)), make([]map[int]*ir.Op, len(a.p.Stages))
	for i := range reads {
		reads[i] = map[int]*ir.Op{}
	}
	through := map[*ir.Op]map[int]bool{} // of ops outside
	for _, op := range a.p.Main.Ops {
		if op.IsLeaf() || op.Phase != ir.Forward || !a.live[op] {
			continue
		}
		from := map[int]bool{}
		op.Uses(func(v *ir.Value) {
			if s := a.at(v.Op); s >= 0 && !v.Op.IsLeaf() {
				from[s] = true
			}
			for s := range through[v.Op] {
				from[s] = true
			}
		})
		s := a.at(op)
		if s < 0 {
			through[op] = from
			continue
		}
		ops[s]++
		for f := range from {
			if f != s && reads[s][f] == nil {
				reads[s][f] = op
			}
		}
	}
	return ops, reads
}

// cycle is the error for stages that wait for each other: each of those that are left reads one of them.
func (a *attacher) cycle(left []int, reads []map[int]*ir.Op) error {
	var path []int
	at := left[0]
	for !slices.Contains(path, at) { // following them comes back
		path = append(path, at)
		at = left[slices.IndexFunc(left, func(from int) bool { return reads[at][from] != nil })]
	}
	path = append(path[slices.Index(path, at):], at)
	var waits []string
	for i, x := range path[:len(path)-1] {
		y := path[i+1]
		waits = append(waits, fmt.Sprintf("%s reads a value of %s in %s", titled(a.p.Stages[x].TaskGraphs[0]), titled(a.p.Stages[y].TaskGraphs[0]), reads[x][y]))
	}
	return errors.Errorf("epl: %s: stages on different devices cannot wait for each other. Open a new TaskGraph for what comes after, "+
		"with epl.With or epl.SetDefaultStrategy, or set cluster.colocate_split_and_replicate", strings.Join(waits, ", and "))
}

// titled names a TaskGraph and its line.
func titled(t *ir.TaskGraph) string {
	if t.Source == "" {
		return t.Title()
	}
	return fmt.Sprintf("%s (%s)", t.Title(), t.Source)
}

// forward attaches the forward ops outside every TaskGraph. Such an op can run on any stage from the last of those it
// reads to the first of those that read it. It runs where what it reads is, or where it is read, whichever sends fewer
// bytes.
func (a *attacher) forward() {
	last := len(a.p.Stages) - 1
	until := map[*ir.Op]int{} // first stage that needs a result of the op
	for _, op := range slices.Backward(a.p.Main.Ops) {
		if op.IsLeaf() || op.Phase != ir.Forward {
			continue
		}
		at, reader := a.at(op), op
		if at < 0 { // what reads it counts
			at, reader = last, a.reader[op]
			if u, ok := until[op]; ok {
				at = u
			}
		}
		op.Uses(func(v *ir.Value) {
			if u, ok := until[v.Op]; !ok || at < u {
				until[v.Op] = at
			}
			if reader != nil {
				a.reader[v.Op] = reader
			}
		})
	}
	for _, op := range a.p.Main.Ops {
		if op.IsLeaf() || op.Phase != ir.Forward || op.TaskGraph != nil {
			continue
		}
		from, out := 0, int64(0)
		in := map[*ir.Value]int64{}
		op.Uses(func(v *ir.Value) {
			if !v.Op.IsLeaf() {
				in[v] = v.Bytes()
				from = max(from, a.at(v.Op))
			}
		})
		for _, v := range op.Outputs {
			out += v.Bytes()
		}
		// What is computed from inputs and variables alone goes to its reader; what nobody reads stays.
		if to, read := until[op]; read && (len(in) == 0 || sum(in) < out) {
			from = max(from, to)
		}
		a.put(op, from)
	}
}

// variables lets variables that were read outside every scope live where they are read first now, and what the optimizer
// does with them.
func (a *attacher) variables() {
	for _, x := range a.p.Variables {
		param := x.Param.Op
		if param.TaskGraph != nil || param.Phase == ir.Apply {
			continue
		}
		for _, op := range a.index.Users(x.Param) { // the first that is live, or else the first
			if op.Phase != ir.Apply && op.TaskGraph != nil && (param.TaskGraph == nil || a.live[op]) {
				if param.TaskGraph = op.TaskGraph; a.live[op] {
					break
				}
			}
		}
	}
	a.p.PlaceApply(nil)
}

// follow attaches backward ops to the stage of their forward op.
func (a *attacher) follow() {
	for _, op := range a.p.Main.Ops {
		if !op.IsLeaf() && op.Phase == ir.Backward && op.TaskGraph == nil && op.Of != nil {
			op.TaskGraph = op.Of.Op.TaskGraph
		}
	}
}

// backward attaches the other backward ops, and sees to it that none runs later than the gradients that it reads come
// from.
func (a *attacher) backward() {
	last := len(a.p.Stages) - 1
	for _, op := range a.p.Main.Ops {
		if op.IsLeaf() || op.Phase != ir.Backward {
			continue
		}
		from, to := -1, last
		op.Uses(func(v *ir.Value) {
			switch {
			case v.Op.IsLeaf():
			case v.Op.Phase == ir.Backward:
				to = min(to, a.at(v.Op))
			default:
				from = max(from, a.at(v.Op))
			}
		})
		at := a.at(op)
		if at < 0 {
			at = from
		}
		if at < 0 || at > to {
			at = to
		}
		if a.at(op) != at {
			a.put(op, at)
		}
	}
}
