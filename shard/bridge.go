package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// A value of one stage that another needs: what the devices of the other stage read is made on the devices that have it, so
// that no more rows cross than are needed. An op that reads a value of another device is all there is to a transfer.

// fetchWhole returns a value of another stage, whole on every device of g.
func (e *expansion) fetchWhole(v *ir.Value, g *group, at site) []*ir.Value {
	home := e.groupOf(v.Op)
	values := make([]*ir.Value, len(g.places))
	h := e.held[key{v, home}]
	if x := h.kind(Sharded, at.phase); x != nil && h.kind(Replicated, at.phase) == nil {
		for j, place := range g.places {
			values[j] = e.join(at, place, v, x.Dim, x.values)
		}
		return values
	}
	source, _ := e.source(v, home, at.phase)
	for j, place := range g.places {
		values[j] = source[nearest(home, place, j)]
	}
	return values
}

// source returns a value as a whole where it was made, and where ops that cut it up for others belong.
func (e *expansion) source(v *ir.Value, home *group, phase ir.Phase) ([]*ir.Value, site) {
	there := siteOf(v.Op)
	if x := e.held[key{v, home}].kind(Replicated, phase); x != nil {
		there.phase = x.phase
	}
	return e.want(v, home, Placement{}, there), there
}

// fetchRows returns a value of another stage, sharded over the devices of g.
func (e *expansion) fetchRows(v *ir.Value, g *group, p Placement, at site) []*ir.Value {
	home := e.groupOf(v.Op)
	values := make([]*ir.Value, len(g.places))
	for _, x := range e.held[key{v, home}] {
		if x.phase > at.phase || x.Kind != Sharded || x.Dim != p.Dim {
			continue
		}
		there := siteOf(v.Op)
		there.phase = x.phase
		for j, place := range g.places {
			from, to := p.rows(v.Shape, j, len(g.places))
			var pieces []*ir.Value
			for i, w := range x.values {
				first, last := x.rows(v.Shape, i, len(x.values))
				if a, b := max(first, from), min(last, to); a < b {
					pieces = append(pieces, e.rows(there, home.places[i], w, p.Dim, a-first, b-first))
				}
			}
			values[j] = e.join(at, place, v, p.Dim, pieces)
		}
		return values
	}
	source, there := e.source(v, home, at.phase)
	for j, place := range g.places {
		from, to := p.rows(v.Shape, j, len(g.places))
		i := nearest(home, place, j)
		values[j] = e.rows(there, home.places[i], source[i], p.Dim, from, to)
	}
	return values
}

// nearest chooses among the devices that have a whole value the one that device j of another stage takes it from: itself if
// it is one of them.
func nearest(home *group, place, j int) int {
	if i := slices.Index(home.places, place); i >= 0 {
		return i
	}
	return j % len(home.places)
}

// join puts pieces of a value one after the other on a device.
func (e *expansion) join(at site, place int, v *ir.Value, dim int, pieces []*ir.Value) *ir.Value {
	if len(pieces) == 1 {
		return pieces[0]
	}
	s := v.Shape.Clone()
	s.Dimensions[dim] = 0
	for _, w := range pieces {
		s.Dimensions[dim] += dims(w)[dim]
	}
	return e.add(at, place, &ir.Concatenate{Axis: dim}, pieces, s).Outputs[0]
}
