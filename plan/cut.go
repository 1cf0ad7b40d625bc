// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/passes"
)

// Cut tells how a program without annotations was cut into TaskGraphs, and why.
type Cut struct {
	// Parts are the TaskGraphs; nil: every stage is one, on one device.
	Parts   []Part      `json:"parts,omitempty"`
	Stages  []StageCost `json:"stages"`
	Slowest int         `json:"slowest"` // the stage that all others wait for
	Notes   []string    `json:"notes"`   // sentences
	// Ops and Variables are the TaskGraphs of all ops of main and of all variables; -1: none.
	Ops       passes.Runs `json:"ops"`
	Variables passes.Runs `json:"variables"`
}

// Part is a TaskGraph that EPL made.
type Part struct {
	Name    string `json:"name"`
	Split   bool   `json:"split,omitempty"` // else it is replicated
	Devices int    `json:"devices"`
}

// StageCost is what one stage has to do for a micro-batch, as estimated.
type StageCost struct {
	First         string        `json:"first"`  // its first forward op, with the user's line
	Last          string        `json:"last"`   // its last
	Ops           int           `json:"ops"`    // forward and backward, as far as they will run
	Blocks        int           `json:"blocks"` // whole blocks of those that the model repeats
	ForwardFlops  int64         `json:"forward_flops"`
	BackwardFlops int64         `json:"backward_flops"`
	Weights       int64         `json:"weight_bytes"`     // of its trainable variables
	Activations   int64         `json:"activation_bytes"` // that forward keeps for backward
	SentOn        int64         `json:"sent_on_bytes"`    // that forward sends to later stages
	SentBack      int64         `json:"sent_back_bytes"`  // that backward sends to earlier stages
	Time          time.Duration `json:"time_ns"`
}

// explain adds up what each stage does.
func (c *chain) explain(d division, runs []analysis.Run, p pace) *Cut {
	cut := &Cut{Stages: make([]StageCost, len(d.ends))}
	ops := make([][]*ir.Op, len(d.ends))
	for _, op := range c.p.Main.Ops {
		at, ok := c.at[op]
		if !ok || !c.live[op] {
			continue
		}
		i := d.stage(at)
		ops[i] = append(ops[i], op)
		flops := &cut.Stages[i].BackwardFlops
		if op.Phase == ir.Forward {
			flops = &cut.Stages[i].ForwardFlops
		}
		*flops += cost.Of(op).Flops
	}
	for v, at := range c.homes() {
		if v.Trainable {
			cut.Stages[d.stage(at)].Weights += v.Param.Bytes()
		}
	}
	for _, r := range runs {
		for i := range r.Count {
			first, last := d.stage(r.Start+i*r.Size), d.stage(r.Start+(i+1)*r.Size-1)
			if first == last {
				cut.Stages[first].Blocks++
			}
		}
	}
	received := c.send(d, cut)
	start := 0
	for i, end := range d.ends {
		s := &cut.Stages[i]
		s.First, s.Last = c.Ops[start].String(), c.Ops[end-1].String()
		s.Ops, s.Activations = len(ops[i]), cost.Activations(ops[i])
		s.Time = p.takes(i, c.Time[end]-c.Time[start], c.link.Time(received[i].down)+c.link.Time(received[i].up))
		start = end
	}
	cut.Slowest = slices.IndexFunc(cut.Stages, func(s StageCost) bool { return s.Time == d.slowest })
	if p != nil {
		cut.Notes = append(cut.Notes, fmt.Sprintf("The devices of the stages have speeds %s, relative to the first of the cluster, and stages have work in proportion.", listOf(p, "%.3g")))
	}
	for _, r := range runs {
		cut.Notes = append(cut.Notes, fmt.Sprintf("The model repeats a block of %d ops %d times, the first from %s.", r.Size, r.Count, c.Ops[r.Start]))
	}
	return cut
}

type traffic struct{ down, up int64 }

// send counts what goes from stage to stage: a value once to every stage that reads it.
func (c *chain) send(d division, cut *Cut) []traffic {
	received := make([]traffic, len(d.ends))
	for _, s := range c.sends {
		from, last := d.stage(s.from), -1
		for _, at := range s.to {
			switch to := d.stage(at); {
			case to == last:
			case to > from:
				cut.Stages[from].SentOn += s.bytes
				received[to].down += s.bytes
				last = to
			case to < from:
				cut.Stages[from].SentBack += s.bytes
				received[to].up += s.bytes
				last = to
			}
		}
	}
	return received
}

// Table is the cut as cells of text, a row per stage. A heading that starts with ">" is that of numbers.
func (c *Cut) Table() (head []string, rows [][]string) {
	head = []string{">stage", ">ops", ">blocks", ">forward", ">backward", ">weights", ">activations", ">sent on", ">sent back", ">time", "from", "to"}
	for i, s := range c.Stages {
		rows = append(rows, []string{fmt.Sprint(i), fmt.Sprint(s.Ops), fmt.Sprint(s.Blocks), flopsText(s.ForwardFlops), flopsText(s.BackwardFlops),
			humanize.Bytes(s.Weights), humanize.Bytes(s.Activations), humanize.Bytes(s.SentOn), humanize.Bytes(s.SentBack),
			humanize.Duration(s.Time), s.First, s.Last})
	}
	return head, rows
}

// flopsText is a number of operations as "12.3 Gflop".
func flopsText(n int64) string {
	x, unit := float64(n), ""
	for _, u := range []string{"k", "M", "G", "T", "P"} {
		if x < 1000 {
			break
		}
		x, unit = x/1000, u
	}
	return fmt.Sprintf("%.3g %sflop", x, unit)
}
