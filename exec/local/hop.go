// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// leg is what one device of a place sends to one of another: some rows of a value, all if dim is -1.
type leg struct {
	from, to int // positions
	dim      int
	rows     [2]int // of the value
}

// legs say who sends what to whom: each device of the second place gets what it needs from those of the first that have it.
func (r *run) legs(t schedule.Transfer) (legs []leg) {
	n, m := len(r.schedule.Groups[t.From]), len(r.schedule.Groups[t.To])
	has, needs := t.Value.On(ir.Model), t.Into.On(ir.Model)
	dims := t.Value.Shape.Dimensions
	for to := range m {
		if has.Kind != ir.Sharded && needs.Kind != ir.Sharded {
			legs = append(legs, leg{to % n, to, -1, [2]int{}})
			continue
		}
		x := leg{to % n, to, needs.Dim, [2]int{}}
		if needs.Kind != ir.Sharded {
			x.dim = has.Dim
			x.rows[1] = dims[x.dim]
		} else {
			x.rows[0], x.rows[1] = needs.Rows(dims[x.dim], to, t.Into.Division(ir.Model))
		}
		if has.Kind != ir.Sharded {
			legs = append(legs, x)
			continue
		}
		for from := range n {
			first, last := has.Rows(dims[x.dim], from, t.Value.Division(ir.Model))
			if first, last = max(first, x.rows[0]), min(last, x.rows[1]); first < last {
				legs = append(legs, leg{from, to, x.dim, [2]int{first, last}})
			}
		}
	}
	return legs
}

// within are the rows of a leg in what a device has of a value, which is of the given shape; nil if they are all of it.
func (x leg) within(v *ir.Value, at ir.Coordinates, s shapes.Shape) *rows {
	if x.dim < 0 {
		return nil
	}
	r := &rows{dim: x.dim, start: x.rows[0], size: x.rows[1] - x.rows[0]}
	if mine, ok := rowsOf(v, at); ok && mine.dim == x.dim {
		r.start -= mine.start
	}
	if r.size == s.Dimensions[x.dim] {
		return nil
	}
	return r
}

// whole tells whether what one device has of a value is what the other gets.
func (r *run) whole(t schedule.Transfer, x leg) bool {
	from, to := seat{r.replica, t.From, x.from}, seat{r.replica, t.To, x.to}
	return x.within(t.Value, from.at(), t.Value.LocalShape(from.at())) == nil && x.within(t.Into, to.at(), t.Into.LocalShape(to.at())) == nil
}

// hop is a leg that begins or ends at a device, which is the same in every step.
type hop struct {
	leg
	other int // the rank at the other end
	by    way
}

// way is how a value gets from device to device.
type way int

const (
	byHost     way = iota
	byHandover     // see handover
	byDevices      // of different workers, see parting
)

// hops are the legs of a transfer that are the device's.
func (r *run) hops(transfer int) []hop {
	known := &r.device.hops[transfer]
	if *known != nil {
		return *known
	}
	t := r.schedule.Transfers[transfer]
	all := []hop{}
	for _, x := range r.legs(t) {
		from, to := r.rank(seat{r.replica, t.From, x.from}), r.rank(seat{r.replica, t.To, x.to})
		if from != r.id && to != r.id {
			continue
		}
		h := hop{leg: x, other: from + to - r.id}
		switch {
		case !r.whole(t, x):
		case r.near(from, to):
			h.by = byHandover
		case r.reaches(from, to):
			h.by = byDevices
		}
		all = append(all, h)
	}
	*known = all
	return all
}
