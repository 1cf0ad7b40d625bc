// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
)

// saving is how many times less of what backward reads lives at once with recompute, at least: values that take long to
// compute again and are small are kept while it stays above.
const saving = 4.6

// choose keeps more than regions hand on: of what a region would compute again, the values that save the most time for
// their bytes. They are found by what they cost, so that products of matrices with long sums and masks of random numbers
// come before what is done at once.
func (d *divider) choose() {
	again := make([]*recomputed, d.regions)
	for r := range again {
		again[r] = &recomputed{region: r, need: map[*ir.Op]bool{}, wanted: map[*ir.Value]int64{}, takes: map[*ir.Op]time.Duration{}}
	}
	var kept int64
	all := map[*ir.Value]int64{} // what backward reads of forward
	for _, op := range d.p.Main.Ops {
		for _, v := range op.Outputs {
			if op.Phase == ir.Forward && d.crossing[v] && !d.cheap[op] {
				kept += v.Bytes()
			}
		}
		if op.IsLeaf() || op.Phase != ir.Backward {
			continue
		}
		op.Uses(func(v *ir.Value) {
			if v.Op.IsLeaf() || v.Op.Phase != ir.Forward || d.cheap[v.Op] {
				return
			}
			if all[v] = v.Bytes(); !d.crossing[v] {
				again[v.Op.Region].wanted[v] = v.Bytes()
			}
		})
	}
	var largest int64
	var total time.Duration
	for _, p := range again {
		largest = max(largest, sum(p.wanted))
	}
	for _, p := range again[:d.regions-1] {
		p.time = p.cost(d, nil)
		total += p.time
	}
	budget := float64(sum(all))/saving - float64(kept+largest)
	for _, p := range again[:d.regions-1] {
		p.choose(d, int64(budget*p.time.Seconds()/total.Seconds()))
	}
}

// recomputed is what a region of backward computes again.
type recomputed struct {
	region int
	wanted map[*ir.Value]int64 // what it reads, with the bytes that live until then
	need   map[*ir.Op]bool     // what that takes
	takes  map[*ir.Op]time.Duration
	time   time.Duration
}

// cost is how long the region takes to compute again what is wanted, if v is kept, too.
func (p *recomputed) cost(d *divider, kept *ir.Value) (t time.Duration) {
	clear(p.need)
	var want func(v *ir.Value)
	want = func(v *ir.Value) {
		op := v.Op
		if v == kept || p.need[op] || op.IsLeaf() || op.Region != p.region || d.cheap[op] || op.Keep && len(op.Outputs) == 1 || d.crossing[v] {
			return
		}
		p.need[op] = true
		takes, ok := p.takes[op]
		if !ok {
			takes = timeOf(op)
			p.takes[op] = takes
		}
		t += takes
		op.Uses(want)
	}
	for v := range p.wanted {
		want(v)
	}
	return t
}

// timeOf is how long an op takes. The pure-Go backend calls a function for every element of an exp, an erf or a random
// number, which there take longer than anything else: what they take was measured.
func timeOf(op *ir.Op) time.Duration {
	var each time.Duration
	switch op.Attrs.(type) {
	case *ir.Erf, *ir.Tanh, *ir.Logistic, *ir.Pow, *ir.Atan2:
		each = 60 * time.Nanosecond
	case *ir.Exp, *ir.Expm1, *ir.Log, *ir.Log1p, *ir.Sin, *ir.Cos:
		each = 30 * time.Nanosecond
	case *ir.RNGBitGenerator:
		each = 8 * time.Nanosecond
	}
	return cost.Default.Op(op) + each*time.Duration(op.Outputs[len(op.Outputs)-1].Shape.Size())
}

// choose keeps values while there are bytes left for them.
func (p *recomputed) choose(d *divider, bytes int64) {
	for range 16 {
		now := p.cost(d, nil)
		need := maps.Clone(p.need)
		var best *ir.Value
		var most float64
		for _, l := range d.lines {
			for _, op := range l.Ops {
				if !need[op] || len(op.Outputs) != 1 || op.Outputs[0].Bytes() > bytes {
					continue
				}
				v := op.Outputs[0]
				if gain := (now - p.cost(d, v)).Seconds() / float64(max(v.Bytes(), 1)); gain > most {
					best, most = v, gain
				}
			}
		}
		if best == nil {
			return
		}
		best.Op.Keep = true
		bytes -= best.Bytes()
	}
}
