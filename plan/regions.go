// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/passes"
)

// chooseRegions divides forward into regions, stage by stage, and backward into as many, the other way round: the mirror of
// region r of R is 2R-1-r. They end where the user put a checkpoint, between blocks that the model repeats, or where
// little crosses. What recompute keeps is marked.
func chooseRegions(p *ir.Program, o passes.Options) (*passes.RegionChoice, error) {
	if !o.Divides() || !p.IsTraining() {
		return nil, nil
	}
	if err := checkCheckpoints(p, o); err != nil {
		return nil, err
	}
	p = p.Clone()
	d := newDivider(p, o)
	for i := range d.lines {
		l := &d.lines[i]
		l.first = d.regions
		l.ends = l.cut(o)
		d.regions += len(l.ends)
	}
	d.forward()
	d.keep()
	d.backward()
	if d.regions > 1 && o.Checkpoint == config.CheckpointAuto {
		d.choose()
	}
	r := &passes.RegionChoice{Count: d.regions}
	for i, op := range p.Main.Ops {
		r.Of = append(r.Of, op.Region)
		if op.Keep {
			r.Keep = append(r.Keep, i)
		}
	}
	return r, nil
}

// divider finds the regions of a program.
type divider struct {
	*analysis.Index
	p       *ir.Program
	o       passes.Options
	lines   []line // by stage
	regions int    // of forward
	// cheap ops are done at once from what is given, and need no place of their own in a line: masks, broadcast numbers,
	// weights of another type.
	cheap map[*ir.Op]bool
	// crossing are the values that a later region of forward reads.
	crossing map[*ir.Value]bool
}

// line is what a stage does in forward, in order.
type line struct {
	analysis.Line
	backward []*ir.Op
	read     map[*ir.Value]bool // what backward reads of it
	marked   map[*ir.Op]bool    // in the collection Checkpoints
	first    int                // its first region
	ends     []int              // the position after the last op of each region
}

func newDivider(p *ir.Program, o passes.Options) *divider {
	d := &divider{Index: analysis.Of(p), p: p, o: o, lines: make([]line, max(len(p.Stages), 1))}
	marked := map[*ir.Op]bool{}
	if o.Checkpoint == config.CheckpointCollection {
		for _, v := range p.Collection("Checkpoints") {
			marked[v.Op] = true
		}
	}
	d.cheap = cost.Cheap(p, marked)
	for i := range d.lines {
		d.lines[i].marked, d.lines[i].read = marked, map[*ir.Value]bool{}
	}
	for _, op := range p.Main.Ops {
		l := &d.lines[d.Stage(op)]
		switch {
		case op.IsLeaf() || op.Phase == ir.Apply || d.cheap[op]:
		case op.Phase == ir.Forward:
			l.Ops = append(l.Ops, op)
		default:
			l.backward = append(l.backward, op)
			op.Uses(func(v *ir.Value) { l.read[v] = true })
		}
	}
	for i := range d.lines {
		d.lines[i].measure()
	}
	return d
}

// measure finds what the ops of the line cost, and what crosses its positions.
func (l *line) measure() {
	at, last := map[*ir.Op]int{}, map[*ir.Value]int{}
	for i, op := range l.Ops {
		at[op] = i
		op.Uses(func(v *ir.Value) {
			if _, ok := at[v.Op]; ok {
				last[v] = i
			}
		})
	}
	var values []analysis.Span
	for v, i := range last {
		values = append(values, analysis.Span{First: at[v.Op], Last: i, Bytes: v.Bytes()})
	}
	l.Line = analysis.NewLine(l.Ops, each(l.Ops, cost.Default.Op), values)
}

// forward gives forward ops their regions. A cheap op is done where it is first read.
func (d *divider) forward() {
	for _, l := range d.lines {
		r := 0
		for i, op := range l.Ops {
			for i >= l.ends[r] {
				r++
			}
			op.Region = l.first + r
		}
	}
	first := map[*ir.Op]int{} // of those that read an op, in its stage
	for _, op := range slices.Backward(d.p.Main.Ops) {
		if op.IsLeaf() || op.Phase != ir.Forward {
			continue
		}
		s := d.Stage(op)
		if d.cheap[op] {
			op.Region = d.lines[s].first + len(d.lines[s].ends) - 1
			if r, ok := first[op]; ok {
				op.Region = r
			}
		}
		op.Uses(func(v *ir.Value) {
			if r, ok := first[v.Op]; d.Stage(v.Op) == s && (!ok || op.Region < r) {
				first[v.Op] = op.Region
			}
		})
	}
	d.crossing = analysis.Of(d.p).Crossing() // now that there are regions
}

// keep marks what recompute starts from: the checkpoints of the user, with the states of random numbers, else all those before would
// have to be made again; or what regions of forward hand on.
func (d *divider) keep() {
	collection := d.o.Checkpoint == config.CheckpointCollection
	if collection {
		for _, v := range d.p.Collection("Checkpoints") {
			v.Op.Keep = true
		}
	}
	for v := range d.crossing {
		v.Op.Keep = v.Op.Keep || collection && analysis.RandomState(v) || d.o.Checkpoint == config.CheckpointAuto && !d.cheap[v.Op]
	}
}

// backward gives backward ops their regions. They come in the order in which the gradients of forward ops were built,
// which is that of forward, backwards. Where it goes from one region to the next is told by what ops read: values that
// only one region of forward has, and weights that only one reads.
func (d *divider) backward() {
	home := d.homes()
	for _, l := range d.lines {
		border := 0 // the first op that is not of region r's mirror, nor of a later one's
		for r := l.first + len(l.ends) - 1; r >= l.first; r-- {
			end := len(l.backward)
			if r > l.first {
				end = border + l.border(border, r, home)
			}
			for _, op := range l.backward[border:end] {
				op.Region = 2*d.regions - 1 - r
			}
			border = end
		}
	}
	passes.Settle(d.p, d.regions)
}

// border is how many ops of backward, from one on, are of the mirror of region r: with the fewest bytes read on the wrong side.
func (l *line) border(from, r int, home map[*ir.Value]int) (n int) {
	var best, wrong int64
	for i, op := range l.backward[from:] {
		op.Uses(func(v *ir.Value) {
			switch at, ok := home[v]; {
			case ok && at < r:
				wrong += v.Bytes() + 1
			case ok:
				wrong -= v.Bytes() + 1
			}
		})
		if wrong <= best {
			best, n = wrong, i+1
		}
	}
	return n
}

// homes are the regions of values that only one region has, and of variables that only one reads.
func (d *divider) homes() map[*ir.Value]int {
	const several = -1
	home := map[*ir.Value]int{}
	see := func(v *ir.Value, r int) {
		if at, ok := home[v]; ok && at != r {
			r = several
		}
		home[v] = r
	}
	for _, op := range d.p.Main.Ops {
		if op.IsLeaf() || op.Phase != ir.Forward {
			continue
		}
		for _, v := range op.Outputs {
			if !d.crossing[v] {
				see(v, op.Region)
			}
		}
		op.Uses(func(v *ir.Value) {
			if _, isParam := v.Op.Attrs.(*ir.Parameter); isParam {
				see(v, op.Region)
			}
		})
	}
	maps.DeleteFunc(home, func(_ *ir.Value, r int) bool { return r == several })
	return home
}

// checkCheckpoints refuses what cannot be a checkpoint.
func checkCheckpoints(p *ir.Program, o passes.Options) error {
	if n := len(p.TaskGraphs); o.Checkpoint != "" && o.CheckpointEnd > n {
		return errors.Errorf("epl: gradient_checkpoint.end_taskgraph is %d, but program %q has %s, of which the last has the number %d; "+
			"set it to at most that, or to -1 for all", o.CheckpointEnd-1, p.Name, words.Count(n, "TaskGraph"), n-1)
	}
	if o.Checkpoint != config.CheckpointCollection {
		return nil
	}
	all := p.Collection("Checkpoints")
	if len(all) == 0 {
		return errors.Errorf("epl: gradient_checkpoint.type is %q, but program %q has no value in the collection Checkpoints that a result depends on: "+
			"add those to keep by epl.AddToCollection(epl.Checkpoints, …), or set gradient_checkpoint.type to %q", o.Checkpoint, p.Name, config.CheckpointAuto)
	}
	for _, v := range all {
		what := ""
		switch _, isParam := v.Op.Attrs.(*ir.Parameter); {
		case p.Variable(v) != nil:
			what = fmt.Sprintf("the variable %q", p.Variable(v).Path)
		case isParam:
			what = fmt.Sprintf("the input %s of the program", v.Op.Attrs.(*ir.Parameter).Name)
		case v.Op.IsLeaf():
			what = "a constant"
		case v.Op.Phase != ir.Forward:
			what = "computed in " + v.Op.Phase.String()
		default:
			continue
		}
		return errors.Errorf("epl: the collection Checkpoints has %s, which is %s: only activations, which forward computes, can be kept or computed again; "+
			"take it out", v.Op, what)
	}
	return nil
}
