// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"
	"strings"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/ir"
)

// Strategy is what an annotation asks for.
type Strategy struct {
	Kind    ir.StrategyKind
	Devices int
	Name    string
	Pins    []ir.Pin
}

// scopes is the annotation state of a builder.
type scopes struct {
	current *ir.TaskGraph // of ops recorded now; nil: outside
	def     *ir.TaskGraph // the default strategy's, if one is set
	inScope *ir.TaskGraph // the With scope that is open, if any
	opened  bool          // the backend's default strategy was looked at
}

// Of returns the builder of a GoMLX graph, nil if the graph is not on this backend. It makes the graph known to the
// builder, which from then on can tell variables and their updates.
func Of(at graph.GraphProvider) *Builder {
	g := at.Graph()
	if g == nil {
		return nil
	}
	if _, ours := g.Backend().(*Backend); !ours {
		return nil
	}
	if len(g.Nodes()) == 0 {
		graph.Const(g, false) // only nodes lead to the builder
	}
	for _, n := range g.Nodes() {
		if v := ValueOf(n); v != nil {
			v.fn.b.graph = g
			return v.fn.b
		}
	}
	return nil
}

// ValueOf returns the recorded value of a GoMLX node (its first output), nil if its graph is not on this backend.
func ValueOf(n *graph.Node) *Value {
	outs := graph.InternalBackendOutputs(n)
	if len(outs) == 0 {
		return nil
	}
	v, _ := outs[0].(*Value)
	return v
}

// Enter opens a TaskGraph for the ops recorded until the returned function is called. at is the user's line.
func (b *Builder) Enter(s Strategy, at ir.Source) (leave func(), err error) {
	if err := b.mayAnnotate(s, at); err != nil {
		return nil, err
	}
	if in := b.inScope; in != nil {
		way := "end the outer scope first"
		if in.Kind == ir.Replicate {
			way += ", or make the outer one the default by epl.SetDefaultStrategy"
		}
		return nil, errors.Errorf("epl: %s at %s is inside %s, opened at %s: annotations do not nest; %s",
			describe(s.Kind, s.Devices, s.Name), at, describe(in.Kind, in.Devices, in.Name), in.Source, way)
	}
	b.openDefault()
	before := b.current
	t := b.newTaskGraph(s, at)
	b.inScope, b.current = t, t
	return func() { b.inScope, b.current = nil, before }, nil
}

// SetDefault opens a TaskGraph for the ops outside scopes that are recorded from now on.
func (b *Builder) SetDefault(s Strategy, at ir.Source) error {
	if err := b.mayAnnotate(s, at); err != nil {
		return err
	}
	if s.Kind == ir.Split {
		return errors.Errorf("epl: %s at %s cannot be the default strategy: give a split its own scope by epl.With",
			describe(s.Kind, s.Devices, s.Name), at)
	}
	if in := b.inScope; in != nil {
		return errors.Errorf("epl: the default strategy is set at %s inside %s, opened at %s: annotations do not nest; "+
			"set the default before or after that scope", at, describe(in.Kind, in.Devices, in.Name), in.Source)
	}
	b.opened = true
	b.def = b.newTaskGraph(s, at)
	b.def.Default = true
	b.current = b.def
	return nil
}

func (b *Builder) mayAnnotate(s Strategy, at ir.Source) error {
	what := describe(s.Kind, s.Devices, s.Name)
	switch {
	case b.backend.opts.AutoParallel:
		return errors.Errorf("epl: %s at %s: with auto.auto_parallel EPL chooses the strategies; "+
			"remove the annotation, or turn auto.auto_parallel off", what, at)
	case b.graph != nil && !b.graph.IsMainFunc():
		return errors.Errorf("epl: %s at %s is inside a closure or a function, which belongs to the TaskGraph of the op that uses it; "+
			"annotate the main program", what, at)
	case s.Devices < 1:
		return errors.Errorf("epl: %s at %s: a TaskGraph needs at least one device", what, at)
	case b.phase != ir.Forward || b.done:
		return errors.Errorf("epl: %s at %s: only the forward part of a model is annotated; "+
			"backward and apply follow it by themselves", what, at)
	}
	return nil
}

// openDefault opens the TaskGraph of the backend's default strategy when the first op is recorded.
func (b *Builder) openDefault() {
	if b.opened {
		return
	}
	b.opened = true
	if s := b.backend.opts.Default; s != nil {
		b.def = b.newTaskGraph(*s, "")
		b.def.Default = true
		b.current = b.def
	}
}

func (b *Builder) newTaskGraph(s Strategy, at ir.Source) *ir.TaskGraph {
	t := &ir.TaskGraph{ID: len(b.program.TaskGraphs), Name: s.Name, Kind: s.Kind, Devices: s.Devices, Pins: clone(s.Pins), Source: at}
	b.program.TaskGraphs = append(b.program.TaskGraphs, t)
	return t
}

func describe(kind ir.StrategyKind, devices int, name string) string {
	t := ir.TaskGraph{Kind: kind, Devices: devices}
	if name == "" {
		return t.Strategy()
	}
	return t.Strategy() + " \"" + name + "\""
}

// AddToCollection adds a value to a collection of the program; single collections hold one.
func (b *Builder) AddToCollection(key string, single bool, v *ir.Value, at ir.Source) error {
	if v.Op.Func != b.program.Main {
		return errors.Errorf("epl: AddToCollection(%s) at %s: %s belongs to a closure or a function; only values of the main program can be collected", key, at, v.Op)
	}
	for i := range b.program.Collections {
		if c := &b.program.Collections[i]; c.Key == key {
			switch {
			case slices.Contains(c.Values, v): // said twice, meant once
			case single:
				return errors.Errorf("epl: AddToCollection(%s) at %s: the program has one already, %s", key, at, c.Values[0].Op)
			default:
				c.Values = append(c.Values, v)
			}
			return nil
		}
	}
	b.program.Collections = append(b.program.Collections, ir.Collection{Key: key, Values: []*ir.Value{v}})
	return nil
}

// checkPins makes sure that what the user pinned exists.
func (b *Builder) checkPins() error {
	for _, t := range b.program.TaskGraphs {
		for _, pin := range t.Pins {
			found := false
			for _, v := range b.program.Variables {
				if v.TaskGraph != t || v.Path != pin.Variable && !strings.HasSuffix(v.Path, "/"+pin.Variable) {
					continue
				}
				found = true
				if rank := v.Param.Shape.Rank(); pin.Dim >= rank {
					return errors.Errorf("epl: Shard(%q, %d) of %s at %s: variable %q has dims 0 to %d", pin.Variable, pin.Dim,
						describe(t.Kind, t.Devices, t.Name), t.Source, v.Path, rank-1)
				}
			}
			if !found {
				return errors.Errorf("epl: Shard(%q, %d) of %s at %s: no variable that is first read there has a path that ends so",
					pin.Variable, pin.Dim, describe(t.Kind, t.Devices, t.Name), t.Source)
			}
		}
	}
	return nil
}
