package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// A value of one stage that another needs: what the devices of the other stage read is made on the devices that have it, so
// that no more rows cross than are needed. An op that reads a value of another device is all there is to a transfer.

// fetch returns a value of another stage as the devices of this one need it.
func (e *expansion) fetch(v *ir.Value, from, to *held, at site) []*ir.Value {
	home, places := from.g, to.g.places
	there := siteOf(v.Op)
	there.Phase = from.phase
	values := make([]*ir.Value, len(places))
	for j, place := range places {
		if from.Kind == Replicated {
			i := nearest(home, place, j)
			if values[j] = from.values[i]; to.Kind == Sharded {
				first, last := to.rows(v.Shape, j, len(places))
				values[j] = e.rows(there, home.places[i], values[j], to.Dim, first, last)
			}
			continue
		}
		first, last := 0, dims(v)[from.Dim]
		if to.Kind == Sharded {
			first, last = to.rows(v.Shape, j, len(places))
		}
		var pieces []*ir.Value
		for i, w := range from.values {
			a, b := from.rows(v.Shape, i, len(from.values))
			if x, y := max(a, first), min(b, last); x < y {
				pieces = append(pieces, e.rows(there, home.places[i], w, from.Dim, x-a, y-a))
			}
		}
		values[j] = e.join(at, place, v, from.Dim, pieces)
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
