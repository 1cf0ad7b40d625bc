// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Division is the devices along an axis among which dims are divided: evenly, or in proportion to weights.
type Division struct {
	Devices int
	Weights []int // of each device, in any unit; nil: they are equal
}

// MaxWeight bounds weights.
const MaxWeight = 1 << 20

// Even is a division among k devices.
func Even(k int) Division { return Division{Devices: k} }

// Equal tells whether dims are divided in the same way.
func (d Division) Equal(other Division) bool {
	return d.Devices == other.Devices && slices.Equal(d.Weights, other.Weights)
}

// ok tells whether there can be such a division.
func (d Division) ok() bool {
	return d.Devices > 0 && (d.Weights == nil || len(d.Weights) == d.Devices && slices.Min(d.Weights) > 0 && slices.Max(d.Weights) <= MaxWeight)
}

// String prints it, as "2 devices" or "2 devices of weights 3, 1".
func (d Division) String() string {
	if d.Weights == nil {
		return fmt.Sprintf("%d devices", d.Devices)
	}
	return fmt.Sprintf("%d devices of weights %s", d.Devices, strings.Trim(strings.ReplaceAll(fmt.Sprint(d.Weights), " ", ", "), "[]"))
}

// weights prints those of devices, if they differ.
func (w *printer) weights(list []int) {
	for _, x := range list {
		w.printf(" weight %d", x)
	}
}

// Part is what a device has of many rows, of all 1.
func (d Division) Part(j int) float64 {
	if d.Weights == nil {
		return 1 / float64(d.Devices)
	}
	total := 0
	for _, w := range d.Weights {
		total += w
	}
	return float64(d.Weights[j]) / float64(total)
}

// Shares are the rows of each device, of n in units.
func (d Division) Shares(n, unit int) []int {
	rows := make([]int, d.Devices)
	for j := range rows {
		from, to := Placement{Unit: unit}.Rows(n, j, d)
		rows[j] = to - from
	}
	return rows
}

// Most is how many rows the device has that has most.
func (d Division) Most(n, unit int) int {
	from, to := Placement{Unit: unit}.Rows(n, d.largest(), d)
	return to - from
}

// starts are where the units of each device begin, and where the last end: in proportion to weights, and at least one for each, if there are so many. No device has
// more than one of more weight, nor than one of the same weight before it.
func (d Division) starts(units int) []int {
	all := make([]int, d.Devices+1)
	shares, total, left := all[1:], 0, units
	for _, w := range d.Weights {
		total += w
	}
	part := func(j int) int { return units * d.Weights[j] % total } // that rounding down leaves
	order := make([]int, d.Devices)
	for j, w := range d.Weights {
		order[j], shares[j] = j, units*w/total
		left -= shares[j]
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(part(j), part(i)) })
	for _, j := range order[:left] {
		shares[j]++
	}
	for j := range shares {
		if shares[j] == 0 && units >= d.Devices {
			most := 0 // the last of those that have most
			for i, n := range shares {
				if n >= shares[most] {
					most = i
				}
			}
			shares[j]++
			shares[most]--
		}
	}
	for j := range shares {
		shares[j] += all[j]
	}
	return all
}

// largest is the device that has most, the first of them.
func (d Division) largest() (j int) {
	for i, w := range d.Weights {
		if w > d.Weights[j] {
			j = i
		}
	}
	return j
}

// startBefore computes the first row of a device: those of the devices before it.
func (p Placement) startBefore(at *Value, n int, d Division, add func(Attrs, ...*Value) *Value, number func(int) *Value) (start *Value) {
	for j, rows := range d.Shares(n, p.Unit) {
		after := add(&Min{}, add(&Max{}, add(&Sub{}, at, number(j)), number(0)), number(1)) // 1 if device j is before
		if rows := add(&Mul{}, after, number(rows)); start == nil {
			start = rows
		} else {
			start = add(&Add{}, start, rows)
		}
	}
	return start
}
