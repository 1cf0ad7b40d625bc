// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/ir"
)

// explain tells what was chosen, and what was known about other ways.
func (c *chooser) explain(best state, start string, groups [][]int) *Chosen {
	r := &Chosen{Shared: c.shared, Start: start, Time: c.estimate(best).time, Estimates: len(c.known)}
	for _, x := range c.all {
		switch p := c.placement(best, x); {
		case p.Kind != Sharded:
		case x.v != nil:
			r.Variables = append(r.Variables, Variable{x.name, p})
		default:
			v := c.values[x.number].v
			r.Data = append(r.Data, Data{slices.Index(c.p.Main.Ops, v.Op), v.Index, nameOf(v), p})
		}
	}
	for _, g := range groups { // those of a group may differ, if a seed is kept as it is
		for _, alike := range grouped(g, func(i int) uint8 { return best[i] }) {
			x, way := c.all[alike[0]], int(best[alike[0]])
			d := Decision{Placement: x.ways[way], Pinned: x.pinned, Bytes: c.bytesOn(alike, way)}
			for _, i := range alike {
				d.Variables = append(d.Variables, c.all[i].name)
			}
			if d.Kind == Sharded {
				d.Why = c.why(x.number, d.Dim)
			}
			if !x.pinned {
				d.Alternatives = c.alternatives(best, alike)
			}
			r.Groups = append(r.Groups, d)
		}
	}
	return r
}

// nameOf names data for people.
func nameOf(v *ir.Value) string {
	if p, ok := v.Op.Attrs.(*ir.Parameter); ok {
		return fmt.Sprintf("input %s %s", p.Name, ir.ShapeText(v.Shape))
	}
	return fmt.Sprintf("%s, of %s", ir.ShapeText(v.Shape), v.Op)
}

// alternatives are the other ways of a group of variables that the search has estimated, the best first.
func (c *chooser) alternatives(best state, group []int) (all []Alternative) {
	type found struct {
		way int
		estimate
	}
	var others []found
	for way := range c.all[group[0]].ways {
		if e, known := c.known[string(best.with(way, group...))]; known && way != int(best[group[0]]) {
			others = append(others, found{way, e})
		}
	}
	slices.SortStableFunc(others, func(x, y found) int { return cmp.Compare(x.time, y.time) })
	for _, x := range others {
		all = append(all, Alternative{c.all[group[0]].ways[x.way], short(x.time), c.bytesOn(group, x.way)})
	}
	return all
}

// bytesOn is what a device has of a group of variables that are sharded in one of their ways.
func (c *chooser) bytesOn(group []int, way int) (n int64) {
	for _, i := range group {
		x := c.all[i]
		bytes := x.bytes
		if w := x.ways[way]; w.Kind == Sharded {
			rows := int64(dims(x.v.Param)[w.Dim])
			bytes = bytes / rows * int64(x.Most(int(rows), w.Unit))
		}
		n += bytes
	}
	return n
}

// why says what a dim of a variable is for the first op that reads it.
func (c *chooser) why(v, dim int) string {
	for dim >= 0 && len(c.readers[v]) > 0 {
		u := c.readers[v][0]
		f := u.factor(dim)
		if f == nil {
			return ""
		}
		if c.values[u.t.out[0]].of != nil {
			v, dim = u.t.out[0], f.Out[0].Dim
			continue
		}
		op := string(u.t.op.Type())
		if u.t.op.Source != "" {
			op += " (" + string(u.t.op.Source) + ")"
		}
		switch c.partIn(f, u.t) {
		case summed:
			return op + " sums over it: each device adds up what it has"
		case picked:
			return op + " picks rows of it: each device gives those that it has"
		case shared:
			return op + " does something else for each row of it: each device does so for its own"
		}
		return "each device makes a part of the output of " + op
	}
	return ""
}

// Lines describe the choice for people; [Listing] has the variables.
func (c *Chosen) Lines() []string {
	var lines []string
	for _, v := range c.Shared {
		lines = append(lines, fmt.Sprintf("%s is not sharded: another stage reads it", v))
	}
	if len(c.Groups) == 0 {
		return lines
	}
	lines = append(lines, fmt.Sprintf("shardings: best of %d estimates, from the plan %q: forward and backward take %s", c.Estimates, c.Start, short(c.Time)))
	for _, d := range c.Data {
		lines = append(lines, fmt.Sprintf("%s %s: each device computes with its rows where the weights for that are whole", d.Name, d.Placement))
	}
	return lines
}

// short prints a duration with three digits.
func short(d time.Duration) string {
	unit := time.Duration(1)
	for unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit).String()
}

// Head are the columns of [Listing].
var Head = []string{"variable", "sharding", ">time", ">on each device", "why"}

// Listing are the rows of a table that tells how the variables of a program are sharded: those of the same layers in one row, and
// below it how they could be sharded instead, with the time of forward and backward and the memory that takes.
func Listing(p *ir.Program, c *Chosen, r *Report) (rows [][]string) {
	list := func(v *ir.Variable, of int, sharding, time, bytes, why string) {
		name := v.Path
		if of > 1 {
			name += fmt.Sprintf(" and %d like it", of-1)
		}
		rows = append(rows, []string{name + " " + ir.ShapeText(v.Param.Shape), sharding, time, bytes, why})
	}
	variables, told := byName(p), map[*ir.Variable]bool{}
	for _, d := range c.Groups {
		for _, v := range d.Variables {
			told[variables[v]] = true
		}
		why := d.Why
		if d.Pinned {
			why = "the annotation says so"
		}
		first := variables[d.Variables[0]]
		list(first, len(d.Variables), shareText(first, d.Placement), short(c.Time), humanize.Bytes(d.Bytes), why)
		for _, a := range d.Alternatives {
			rows = append(rows, []string{"", "or " + a.String(), a.Time, humanize.Bytes(a.Bytes), ""})
		}
	}
	// Others follow them. Those of the same shape that are sharded alike share a row.
	followers := slices.DeleteFunc(slices.Clone(r.Variables), func(v *ir.Variable) bool { return told[v] })
	share := func(v *ir.Variable) string { return shareText(v, v.Param.On(ir.Model)) }
	for _, g := range grouped(followers, func(v *ir.Variable) string { return ir.ShapeText(v.Param.Shape) + share(v) }) {
		list(g[0], len(g), share(g[0]), "", "", "it follows those above")
	}
	return rows
}

// shareText says what each device has of a variable.
func shareText(v *ir.Variable, p Placement) string {
	d := v.Param.Division(ir.Model)
	if p.Kind != Sharded || d.Devices == 0 {
		return p.String()
	}
	n := dims(v.Param)[p.Dim]
	rows := d.Most(n, p.Unit)
	up := ""
	if rows*d.Devices != n {
		up = "up to "
	}
	return fmt.Sprintf("%s: %s%d of %d rows", p, up, rows, n)
}
