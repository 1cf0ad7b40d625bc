// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/ir/analysis"
	"github.com/easyparallel/epl/passes"
)

// chain is a program in one line. Each live forward op of the model has a position of its own; every other op, backward
// ones above all, shares the position of the forward op that it belongs to, so that a cut of the line cuts everything.
// Values of forward flow to higher positions, gradients to lower ones.
type chain struct {
	analysis.Line // of the forward ops, with what all phases but apply take
	p             *ir.Program
	device        *cost.Profile
	link          cost.Link
	at            map[*ir.Op]int // the positions of all ops but parameters, constants and apply
	live          map[*ir.Op]bool
	// stead maps what does not run to what runs in its stead: a fused op to its twin, or the ops of a twin to the fused
	// op.
	stead map[*ir.Op]*ir.Op

	costly  []int        // how many ops up to a position compute something
	sends   []*sending   // what may cross
	reads   [][]*sending // by position: those read there that come from others
	sources [][]*sending // by position: those made there that lower positions read
}

func chainOf(p *ir.Program, device *cost.Profile, link cost.Link) *chain {
	c := &chain{p: p.Clone(), device: device, link: link, at: map[*ir.Op]int{}, stead: map[*ir.Op]*ir.Op{}}
	c.writeOut()
	var model, later, backward []*ir.Op
	optimized := false
	for _, op := range c.p.Main.Ops {
		optimized = optimized || op.Phase != ir.Forward
		switch {
		case op.IsLeaf() || op.Phase == ir.Apply:
		case op.Phase == ir.Backward:
			backward = append(backward, op)
		case !optimized && c.live[op]:
			model = append(model, op)
		default:
			later = append(later, op)
		}
	}
	c.Ops = c.sink(model, backward)
	for i, op := range c.Ops {
		c.at[op] = i
	}
	c.follow(later)
	c.goBack(backward)
	c.measure()
	return c
}

// writeOut leaves of fused ops and the written-out twins that GoMLX recorded for gradients what passes will leave of them.
func (c *chain) writeOut() {
	live, by := analysis.Live(c.p), map[*ir.Value]*ir.Value{}
	for _, op := range c.p.Main.Ops {
		switch {
		case op.Twin == nil:
		case passes.WritesOut(op, live):
			c.stead[op] = op.Twin[0].Op
			for i, v := range op.Twin {
				by[op.Outputs[i]] = v
			}
		default:
			for o := range passes.WrittenOut(op) {
				c.stead[o] = op
			}
		}
	}
	c.p.ReplaceUses(by)
	c.live = analysis.Live(c.p)
}

// runs is the op that runs in the place of op; nil if none does.
func (c *chain) runs(op *ir.Op) *ir.Op {
	for op != nil && !c.live[op] {
		op = c.stead[op]
	}
	return op
}

// sink moves light ops that depend on parameters and constants only (masks, one-hot labels, position ids) in front of
// the first op that reads them, unless their inputs are larger than what they make of them: then less crosses a cut
// between the two.
func (c *chain) sink(model, backward []*ir.Op) []*ir.Op {
	sinks := map[*ir.Op]bool{}
	for _, op := range model {
		sinks[op] = c.sinks(op, sinks)
	}
	needs := map[*ir.Op][]*ir.Op{} // what the gradient of a forward op reads must be there when that op is done
	for _, b := range backward {
		if !c.live[b] || b.Of == nil {
			continue
		}
		f := c.runs(b.Of.Op)
		b.Uses(func(v *ir.Value) {
			if v.Op != f && sinks[v.Op] {
				needs[f] = append(needs[f], v.Op)
			}
		})
	}
	var order []*ir.Op
	done := map[*ir.Op]bool{}
	var put func(op *ir.Op)
	put = func(op *ir.Op) {
		if done[op] {
			return
		}
		done[op] = true
		op.Uses(func(v *ir.Value) {
			if sinks[v.Op] {
				put(v.Op)
			}
		})
		for _, x := range needs[op] {
			put(x)
		}
		order = append(order, op)
	}
	for _, op := range model {
		if !sinks[op] {
			put(op)
		}
	}
	for _, op := range model {
		put(op)
	}
	return order
}

func (c *chain) sinks(op *ir.Op, sinks map[*ir.Op]bool) bool {
	if !cost.Light(op) || len(op.Outputs) != 1 {
		return false
	}
	ok, read := true, map[*ir.Value]int64{}
	op.Uses(func(v *ir.Value) {
		ok = ok && (v.Op.IsLeaf() || sinks[v.Op])
		if _, isConst := v.Op.Attrs.(*ir.Constant); !isConst {
			read[v] = v.Bytes()
		}
	})
	return ok && op.Outputs[0].Bytes() >= sum(read)
}

// sum adds up what values have.
func sum(bytes map[*ir.Value]int64) (n int64) {
	for _, b := range bytes {
		n += b
	}
	return n
}

// follow places forward ops that are not of the model: what is dead where it can be computed first, and metrics, which
// are recorded after the optimizer, with the last of what they read, or at the end if that is nothing.
func (c *chain) follow(later []*ir.Op) {
	for _, op := range later {
		at, ok := c.at[c.runs(op)]
		if ok {
			c.at[op] = at
			continue
		}
		at = -1
		op.Uses(func(v *ir.Value) {
			if x, ok := c.at[v.Op]; ok {
				at = max(at, x)
			}
		})
		if at < 0 && c.live[op] {
			at = len(c.Ops) - 1
		}
		c.at[op] = max(at, 0)
	}
}

// goBack places backward ops. One that belongs to a forward op goes there; a sum of gradients goes to the lowest of its
// inputs, because that is the way gradients flow; what only prepares numbers for gradients goes to the highest of its
// users.
func (c *chain) goBack(backward []*ir.Op) {
	gradient := map[*ir.Op]bool{}
	for _, op := range backward {
		lowest := -1
		op.Uses(func(v *ir.Value) {
			if gradient[v.Op] && (lowest < 0 || c.at[v.Op] < lowest) {
				lowest = c.at[v.Op]
			}
		})
		home, known := 0, op.Of != nil
		if known {
			home, known = c.at[op.Of.Op]
		}
		remat := op.Origin == ir.Rematerialised
		gradient[op] = !remat && (known || lowest >= 0)
		switch {
		case known && (remat || lowest < 0 || home <= lowest):
			c.at[op] = home
		case lowest >= 0:
			c.at[op] = lowest
		}
	}
	highest := map[*ir.Op]int{} // of users
	for _, op := range slices.Backward(backward) {
		if _, ok := c.at[op]; !ok {
			c.at[op] = highest[op]
		}
		op.Uses(func(v *ir.Value) { highest[v.Op] = max(highest[v.Op], c.at[op]) })
	}
}

// measure sums up what the ops at each position cost, and finds what crosses it, both ways.
func (c *chain) measure() {
	takes := make([]time.Duration, len(c.Ops))
	for op, at := range c.at {
		if c.live[op] {
			takes[at] += c.device.Op(op)
		}
	}
	c.costly = make([]int, len(c.Ops)+1)
	for i, op := range c.Ops {
		c.costly[i+1] = c.costly[i]
		if cost.Of(op).Flops > 0 {
			c.costly[i+1]++
		}
	}
	c.findSends()
	c.Line = analysis.NewLine(c.Ops, takes, each(c.sends, func(s *sending) analysis.Span {
		return analysis.Span{First: min(s.from, s.to[0]), Last: max(s.from, slices.Max(s.to)), Bytes: s.bytes}
	}))
}

// betweenBlocks are the positions at which the chain may be cut without cutting a block.
func (c *chain) betweenBlocks(runs []analysis.Run) []bool {
	may := c.anywhere()
	for _, r := range runs {
		for i := r.Start; i < r.End(); i++ {
			may[i] = (i-r.Start)%r.Size == 0
		}
	}
	return may
}

func (c *chain) anywhere() []bool { return slices.Repeat([]bool{true}, len(c.Ops)+1) }
