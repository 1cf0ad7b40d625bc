// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/easyparallel/epl/ir"
)

// Choice says which variables are sharded, by their parameters, and along which dim. The others are on every device as a whole.
// What else it names is data of a split stage, an input or what another stage makes: every device is offered its rows, so that
// what is computed from these may be sharded, too.
type Choice map[*ir.Value]Placement

// Chosen is a choice, and how it was made. It is data, for all programs that are the same: variables are named as by
// [ir.Program.VariableNames], other values by the index of their op in main.
type Chosen struct {
	Variables []Variable `json:"variables"` // that are sharded
	Data      []Data     `json:"data,omitempty"`
	Groups    []Decision `json:"why"` // by bytes, the largest first
	// Shared are variables that are whole because other stages read them.
	Shared    []string      `json:"shared,omitempty"`
	Start     string        `json:"start"`     // the plan that the search began with
	Estimates int           `json:"estimates"` // how many choices were compared
	Time      time.Duration `json:"time_ns"`   // of forward and backward, estimated
}

// Variable is one of which each device has some rows.
type Variable struct {
	Variable string `json:"variable"`
	Placement
}

// Data are those of which each device takes some rows.
type Data struct {
	Op     int    `json:"op"`
	Output int    `json:"output"`
	Name   string `json:"name"` // of the input; or the op that makes it, with its line
	Placement
}

// Decision is what was chosen for variables that have the same part in repeated layers.
type Decision struct {
	Variables []string `json:"variables"`
	Placement
	Pinned bool   `json:"pinned,omitempty"` // by the user
	Why    string `json:"why,omitempty"`    // what the sharded dim is for the op that reads it
	// Bytes is what each device has of the variables, with what the optimizer keeps for them.
	Bytes int64 `json:"bytes"`
	// Alternatives are other ways that were estimated, the best first.
	Alternatives []Alternative `json:"alternatives,omitempty"`
}

// Alternative is another way to shard variables, and what it would cost.
type Alternative struct {
	Placement
	Time  string `json:"time"`  // of forward and backward, estimated
	Bytes int64  `json:"bytes"` // of the variables on each device, with what the optimizer keeps for them
}

// In is the choice for a program.
func (c *Chosen) In(p *ir.Program) (Choice, error) {
	choice, variables := Choice{}, byName(p)
	missing := func(names ...string) error {
		for _, n := range names {
			if variables[n] == nil {
				return errors.Errorf("epl: the plan says how variable %q is sharded, and the program has none", n)
			}
		}
		return nil
	}
	for _, x := range c.Variables {
		if err := missing(x.Variable); err != nil {
			return nil, err
		}
		choice[variables[x.Variable].Param] = x.Placement
	}
	for _, x := range c.Data {
		if x.Op < 0 || x.Op >= len(p.Main.Ops) || x.Output < 0 || x.Output >= len(p.Main.Ops[x.Op].Outputs) {
			return nil, errors.Errorf("epl: the plan shards output %d of op %d (%s), which the program does not have here", x.Output, x.Op, x.Name)
		}
		choice[p.Main.Ops[x.Op].Outputs[x.Output]] = x.Placement
	}
	for _, d := range c.Groups {
		if err := missing(d.Variables...); err != nil {
			return nil, err
		}
	}
	return choice, missing(c.Shared...)
}

// byName finds the variables of a program by their names.
func byName(p *ir.Program) map[string]*ir.Variable {
	variables := map[string]*ir.Variable{}
	for i, n := range p.VariableNames() {
		variables[n] = p.Variables[i]
	}
	return variables
}

// Search chooses how the variables and data of split TaskGraphs are sharded. What the user pinned is as he says. For the others it
// starts from the best of a few plans that are known to be good (choose_seeds.go), and changes the sharding of one group of
// variables, or of an input, after the other as long as that makes the step cheaper (choose_search.go). It counts estimates and not
// seconds, and so finds the same on every worker.
func Search(p *ir.Program) (*Chosen, error) {
	if !Partitions(p) {
		return &Chosen{}, nil
	}
	var all errgroup.Group
	var second *chooser         // of what Partition makes of it if data are sharded; nil: of nothing else
	all.Go(func() (err error) { // reading a program takes as long as several estimates
		if q := p.Clone(); unflatten(q) > 0 {
			second, err = newChooser(q)
		}
		return err
	})
	c, err := newChooser(p)
	other := all.Wait()
	if err == nil && len(c.inputs()) > 0 && (second != nil || other != nil) {
		c, err = second, other
	}
	if err == nil {
		err = c.pin()
	}
	switch {
	case err != nil:
		return nil, err
	case c.variables == 0:
		return &Chosen{Shared: c.shared}, nil
	}
	return c.search(), nil
}

// pin lets variables be sharded as the user says.
func (c *chooser) pin() error {
	for _, x := range c.vars() {
		for _, pin := range x.v.TaskGraph.Pins {
			if x.v.Path != pin.Variable && !strings.HasSuffix(x.v.Path, "/"+pin.Variable) {
				continue
			}
			dim := pin.Dim
			if dim < 0 {
				dim += x.v.Param.Shape.Rank()
			}
			t := x.v.TaskGraph
			if x.pinned && x.ways[0].Dim != dim {
				return errors.Errorf("epl: TaskGraph %q (%s): Shard(%q, %d) is for variable %q, which another Shard pins to dim %d: leave one of them out",
					t.Title(), t.Source, pin.Variable, pin.Dim, x.v.Path, x.ways[0].Dim)
			}
			if dim < 0 || dim >= x.v.Param.Shape.Rank() {
				return errors.Errorf("epl: Shard(%q, %d) of TaskGraph %q (%s): variable %q, %s, has no such dim: pin one from 0 to %d",
					pin.Variable, pin.Dim, t.Title(), t.Source, x.v.Path, ir.ShapeText(x.v.Param.Shape), x.v.Param.Shape.Rank()-1)
			}
			at := x.along(dim)
			if at < 0 {
				return errors.Errorf("epl: Shard(%q, %d) of TaskGraph %q (%s): dim %d of variable %q, %s, has fewer rows than there are devices, %d: "+
					"pin another dim, or use fewer devices", pin.Variable, pin.Dim, t.Title(), t.Source, dim, x.v.Path, ir.ShapeText(x.v.Param.Shape), x.Devices)
			}
			x.ways, x.pinned, x.follows = x.ways[at:at+1], true, nil
		}
	}
	return nil
}

// along is the index of the way that shards a dim, -1 if there is none.
func (x *variable) along(dim int) int {
	return slices.IndexFunc(x.ways, func(w Placement) bool { return isAlong(w, dim) })
}
