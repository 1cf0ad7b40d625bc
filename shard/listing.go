package shard

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/ir"
)

// Alternative is another way to shard variables, and what it would cost.
type Alternative struct {
	Placement
	Time  string `json:"time"`  // of forward and backward, estimated
	Bytes int64  `json:"bytes"` // of the variables on each device, with what the optimizer keeps for them
}

// Head are the columns of [Listing].
var Head = []string{"variable", "sharding", ">time", ">on each device", "why"}

// Listing are the rows of a table that tells how variables are sharded: those of the same layers in one row, and below it how
// they could be sharded instead, with the time of forward and backward and the memory that takes.
func Listing(c *Chosen, r *Report) (rows [][]string) {
	told := map[*ir.Variable]bool{}
	for _, d := range c.Groups {
		name := d.Variables[0].Path
		if n := len(d.Variables) - 1; n > 0 {
			name += fmt.Sprintf(" and %d like it", n)
		}
		for _, v := range d.Variables {
			told[v] = true
		}
		why := d.Why
		if d.Pinned {
			why = "the annotation says so"
		}
		rows = append(rows, []string{name + " " + ir.ShapeText(d.Variables[0].Param.Shape), r.sharding(d.Variables[0], d.Placement), short(c.Time), humanize.Bytes(d.Bytes), why})
		for _, a := range d.Alternatives {
			rows = append(rows, []string{"", "or " + a.String(), a.Time, humanize.Bytes(a.Bytes), ""})
		}
	}
	// Others follow them. Those of the same shape that are sharded alike share a row.
	type kind struct{ shape, sharding string }
	followers := map[kind][]*ir.Variable{}
	var kinds []kind
	for _, v := range r.Variables {
		if told[v] {
			continue
		}
		k := kind{ir.ShapeText(v.Param.Shape), r.sharding(v, r.placed[v])}
		if followers[k] == nil {
			kinds = append(kinds, k)
		}
		followers[k] = append(followers[k], v)
	}
	for _, k := range kinds {
		name := followers[k][0].Path
		if n := len(followers[k]) - 1; n > 0 {
			name += fmt.Sprintf(" and %d like it", n)
		}
		rows = append(rows, []string{name + " " + k.shape, k.sharding, "", "", "it follows those above"})
	}
	return rows
}

// sharding says what each device has of a variable.
func (r *Report) sharding(v *ir.Variable, p Placement) string {
	k := r.places[v]
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

// alternatives are the other ways of a group of variables that the search has estimated, the best first.
func (c *chooser) alternatives(best state, group []int) (all []Alternative) {
	type timed struct {
		Alternative
		e estimate
	}
	var found []timed
	first := c.vars[group[0]]
	for way := range first.ways {
		if way == int(best[group[0]]) {
			continue
		}
		other := slices.Clone(best)
		for _, i := range group {
			other[i] = byte(way)
		}
		if e, known := c.known[string(other)]; known {
			found = append(found, timed{Alternative{first.ways[way].Placement, short(e.time), c.bytesOn(group, way)}, e})
		}
	}
	slices.SortStableFunc(found, func(x, y timed) int { return int(x.e.time - y.e.time) })
	for _, x := range found {
		all = append(all, x.Alternative)
	}
	return all
}

// bytesOn is what a device has of a group of variables that are sharded in one of their ways.
func (c *chooser) bytesOn(group []int, way int) (n int64) {
	for _, i := range group {
		x := c.vars[i]
		bytes := x.bytes
		if w := x.ways[way]; w.Kind == Sharded {
			rows := int64(dims(x.v.Param)[w.Dim])
			bytes = bytes / rows * int64(most(int(rows), w.Unit, x.k))
		}
		n += bytes
	}
	return n
}
