// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	"github.com/easyparallel/epl/ir"
)

// sending is a value that others than its own position read.
type sending struct {
	bytes int64
	from  int
	to    []int // positions, in order, without repeats
}

// findSends collects what may cross a cut. Batches are fed to the first stage, which passes on what others need of
// them. Not counted is what crosses once a step instead of once a micro-batch: variables that several stages read, and
// the parts of their gradients, which are added up at the end.
func (c *chain) findSends() {
	parts := c.gradientParts()
	of := map[*ir.Value]*sending{}
	for _, op := range c.p.Main.Ops { // in order, so that the result does not depend on that of a map
		at, ok := c.at[op]
		if !ok || !c.live[op] {
			continue
		}
		op.Uses(func(v *ir.Value) {
			from, ok := c.at[v.Op]
			if !ok && !slices.Contains(c.p.Inputs, v) || from == at || parts[v] {
				return
			}
			if of[v] == nil {
				of[v] = &sending{bytes: v.Bytes(), from: from}
				c.sends = append(c.sends, of[v])
			}
			if s := of[v]; !slices.Contains(s.to, at) {
				s.to = append(s.to, at)
			}
		})
	}
	c.reads, c.sources = make([][]*sending, len(c.Ops)), make([][]*sending, len(c.Ops))
	for _, s := range c.sends {
		slices.Sort(s.to)
		for _, at := range s.to {
			c.reads[at] = append(c.reads[at], s)
		}
		if s.to[0] < s.from {
			c.sources[s.from] = append(c.sources[s.from], s)
		}
	}
}

// gradientParts are the values whose sum is the gradient of a variable.
func (c *chain) gradientParts() map[*ir.Value]bool {
	parts := map[*ir.Value]bool{}
	var split func(v *ir.Value)
	split = func(v *ir.Value) {
		if _, adds := v.Op.Attrs.(*ir.Add); !adds || v.Op.Of != nil || v.Op.Phase != ir.Backward {
			return
		}
		for _, in := range v.Op.Inputs {
			parts[in] = true
			split(in)
		}
	}
	for _, g := range c.p.Gradients {
		split(g.Value)
	}
	return parts
}

// windows calls visit for every stage that could be: from position a up to b, both of which may be cut at, with how
// long it computes for a micro-batch, how long it waits for what it receives, and how many bytes that is. A stage
// whose ops alone take longer than limit is left out, and so is one that computes nothing.
func (c *chain) windows(mayCut []bool, limit time.Duration, visit func(a, b int, busy, waits time.Duration, bytes int64)) {
	n := len(c.Ops)
	// What a stage [a,b) receives is the sum of these from a to b-1. They are kept up to date for a growing b: a value
	// counts for all a between where it is made, or the start if that is behind b, and where it is last read before b.
	down, up := make([]int64, n), make([]int64, n)
	last := map[*sending]int{} // where it was read, on the same side of where it is made
	for b := 1; b <= n; b++ {
		at := b - 1
		for _, s := range c.reads[at] {
			flow := up
			if s.from < at {
				flow = down
			}
			flow[at] += s.bytes
			if before, ok := last[s]; ok {
				flow[before] -= s.bytes
			} else if s.from < at {
				flow[s.from] -= s.bytes
			}
			last[s] = at
		}
		for _, s := range c.sources[at] { // it is inside now
			up[last[s]] -= s.bytes
			delete(last, s)
		}
		if !mayCut[b] {
			continue
		}
		var fetched, returned int64
		for a := b - 1; a >= 0; a-- {
			busy := c.Time[b] - c.Time[a]
			if busy > limit {
				break
			}
			fetched += down[a]
			returned += up[a]
			if mayCut[a] && c.costly[b] > c.costly[a] {
				visit(a, b, busy, c.link.Time(fetched)+c.link.Time(returned), fetched+returned)
			}
		}
	}
}
