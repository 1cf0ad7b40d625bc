// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
)

// link is what estimates are for: as slow as propagation takes it to be, like one to another host. What exchanges little is then found
// best, also if experts do not divide and a device has one more of them.
func link() cost.Link {
	l := cost.DefaultLink
	l.Bandwidth = cost.Default.Bandwidth / between
	return l
}

// estimate is what a price is made of.
type estimate struct {
	time        time.Duration
	whole, kept float64
	gathered    int
}

// estimate looks at a choice, once.
func (c *chooser) estimate(s state) estimate {
	e, known := c.known[string(s)]
	if !known {
		e = c.look(s)
		c.known[string(s)] = e
	}
	return e
}

// lookAt looks at choices that are not known, each on a core of its own.
func (c *chooser) lookAt(states []state) {
	var todo []state
	for _, s := range states {
		if _, known := c.known[string(s)]; !known && !slices.ContainsFunc(todo, func(t state) bool { return slices.Equal(s, t) }) {
			todo = append(todo, s)
		}
	}
	found := make([]estimate, len(todo))
	var next atomic.Int32
	var all sync.WaitGroup
	for lane := range min(len(todo), runtime.GOMAXPROCS(0)) {
		if lane == len(c.lanes) {
			own, x := *c, *c.problem
			own.problem, x.memory, own.fold = &x, arena{}, c.fold.copy()
			c.lanes = append(c.lanes, &own)
		}
		own := c.lanes[lane]
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(todo); i = int(next.Add(1)) - 1 {
				found[i] = own.look(todo[i])
			}
		})
	}
	all.Wait()
	for i, s := range todo {
		c.known[string(s)] = found[i]
	}
}

// look looks at a choice.
func (c *chooser) look(s state) estimate {
	vars, err := c.shard(c.choice(s))
	if err != nil {
		panic(err) // ways fit
	}
	e, ok := estimate{}, false
	if c.fold != nil {
		if todo, steady := c.fold.propagate(vars); steady {
			e, ok = c.fold.estimate(todo, c.kept), true
		}
	}
	if !ok {
		e = c.problem.estimate(c.propagate(vars), c.kept)
	}
	var all, whole float64
	for _, x := range c.vars() {
		all += float64(x.bytes)
		if vars.of(x.v).Kind == Replicated {
			whole += float64(x.bytes)
		}
	}
	e.whole = whole / all
	if len(vars.offers) > 0 {
		e.whole = min(e.whole, (whole+e.kept*float64(c.kept))/(all+float64(c.kept)))
	}
	return e
}

// estimate is what a plan costs, but for variables.
func (x *problem) estimate(todo *plan, kept int64) estimate {
	e := estimate{time: x.time(todo), kept: float64(x.keptWhole(todo)) / float64(max(kept, 1))}
	for _, s := range todo.steps {
		if s.kind == gatherStep && x.values[s.out[0].value].of != nil {
			e.gathered += int(x.times(s))
		}
	}
	return e
}

// times is how many steps of the program a step stands for: itself, and those of layers that were left out.
func (x *problem) times(s *step) int64 {
	if s.kind == opStep {
		return 1 + s.task.more
	}
	return 1 + x.values[x.number[s.op.Outputs[0]]].more
}

// keptWhole is how many bytes of what split stages compute in forward and keep for backward every device has as a whole.
func (x *problem) keptWhole(todo *plan) (n int64) {
	seen := x.memory.marks.take(len(x.values))
	for _, s := range todo.steps {
		if s.phase != ir.Backward || !s.g.split {
			continue
		}
		for _, h := range s.in {
			if h != nil && h.by != nil && h.phase == ir.Forward && h.Kind != Sharded && !seen[h.value] {
				seen[h.value] = true
				n += x.values[h.value].bytes * (1 + x.values[h.value].more)
			}
		}
	}
	return n
}

// time is how long a step takes: what the busiest device computes and touches, and exchanges. Time is not saved by doing several
// things at once. It is without what backends compute on the way, element by element: otherwise it would seem worth several
// exchanges to share the work of a layer norm.
func (x *problem) time(todo *plan) time.Duration {
	type load struct{ flops, bytes int64 }
	loads := make([]load, len(x.groups))
	for _, s := range todo.steps {
		l, times := &loads[s.g.index], x.times(s)
		fused := s.kind == opStep && s.task.fused
		if s.kind == opStep && !fused {
			l.flops += times * s.flops()
		}
		for _, h := range s.in {
			if h != nil && !fused {
				l.bytes += times * x.localBytes(h)
			}
		}
		for _, h := range s.out {
			if !fused || x.values[h.value].uses > 1 {
				l.bytes += times * x.localBytes(h)
			}
		}
	}
	var most load
	for _, l := range loads {
		most = load{max(most.flops, l.flops), max(most.bytes, l.bytes)}
	}
	var moved [ir.Apply + 1]Exchanges
	x.exchanges(todo, func(phase ir.Phase, _ ir.Collective, bytes int64) {
		moved[phase].Count++
		moved[phase].Bytes += bytes
	})
	device, link, microBatches := cost.Default, link(), 1.0
	if x.p.Local != nil {
		microBatches = float64(x.p.Local.MicroBatches)
	}
	total := microBatches * max(float64(most.flops)/device.Rate(cost.Dot, dtypes.Float32, 1), float64(most.bytes)/device.Bandwidth)
	for phase, e := range moved {
		n := microBatches
		if ir.Phase(phase) == ir.Apply {
			n = 1
		}
		total += n * (float64(e.Count)*link.Latency.Seconds() + float64(e.Bytes)/link.Bandwidth)
	}
	return time.Duration(total * float64(time.Second))
}

// exchanges tells which exchanges there are between devices of a stage, and the bytes that a device sends: of one instance in
// forward and backward, and of the whole step in apply, with the merges of gradients that several devices have terms of, which
// go together and count as one.
func (x *problem) exchanges(todo *plan, exchange func(phase ir.Phase, how ir.Collective, bytes int64)) {
	var merged int64
	for _, s := range todo.steps {
		k, times := int64(len(s.g.places)), x.times(s)
		sends := func(phase ir.Phase, how ir.Collective, bytes int64) {
			n := bytes * (k - 1) / k
			switch how {
			case ir.AllReduceOf:
				n *= 2
			case ir.AllToAllOf:
				n /= k
			}
			for range times {
				exchange(phase, how, n)
			}
		}
		if s.kind == opStep {
			s.inside(func(how ir.Collective, bytes int64) { sends(s.phase, how, bytes) })
			if s.task.op.IsMerge() && s.s.in[0].Kind == Partial {
				merged += times * (2 * x.values[s.out[0].value].bytes * (k - 1) / k)
			}
		} else if how := collectives[s.kind]; how != 0 {
			v, phase := &x.values[s.out[0].value], s.phase
			if !v.v.Op.Varying && x.p.Local != nil && phase == ir.Backward {
				phase = ir.Apply // of a merged value: once per step
			}
			sends(phase, how, v.bytes)
		}
	}
	if merged > 0 {
		exchange(ir.Apply, ir.AllReduceOf, merged)
	}
}

// fuses tells whether an op with one output makes each element from a few others.
func fuses(r *Rule) bool {
	return len(r.Factors) > 0 && !slices.ContainsFunc(r.Factors, func(f *Factor) bool { return f.Reduce != 0 })
}

// localBytes is how much the device has of a value that has most.
func (x *problem) localBytes(h *held) int64 {
	v := &x.values[h.value]
	if h.Kind != Sharded {
		return v.bytes
	}
	n := dims(v.v)[h.Dim]
	return v.bytes / int64(n) * int64(h.g.Most(n, h.Unit))
}

// flops are the operations of an op on the device that has most to do.
func (s *step) flops() int64 {
	f := s.s.factor
	if f == nil {
		return s.task.flops
	}
	return int64(float64(s.task.flops) / float64(f.Size) * float64(s.g.Most(f.Size, s.s.unit)))
}
