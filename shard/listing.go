package shard

import (
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/ir"
)

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
	k := v.Param.Devices(ir.Model)
	if p.Kind != Sharded || k == 0 {
		return p.String()
	}
	n := dims(v.Param)[p.Dim]
	rows := most(n, p.Unit, k)
	up := ""
	if rows*k != n {
		up = "up to "
	}
	return fmt.Sprintf("%s: %s%d of %d rows", p, up, rows, n)
}
