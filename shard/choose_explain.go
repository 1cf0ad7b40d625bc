package shard

import (
	"cmp"
	"fmt"
	"slices"

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
			bytes = bytes / rows * int64(most(int(rows), w.Unit, x.k))
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
