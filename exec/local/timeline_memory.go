// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"time"

	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// lived is what lived on a device from a time on. It is put into the timeline when the step is over: that takes longer than what comes between tasks otherwise.
type lived struct {
	at   time.Time
	live schedule.Bytes
	// held are the values, where it was looked at them; peak: more lived than before in the step.
	held []schedule.Held
	peak bool
}

// remember notes what lives on the device from now on, beyond is what of it a segment takes while it runs. When more lives than before in the step, or much more or
// less than when it looked last, it notes all values.
func (r *run) remember(live schedule.Bytes, beyond func() []schedule.Held) {
	if r.trace == nil || r.trace.Coarse {
		return
	}
	x := lived{at: time.Now(), live: live}
	n := live.Total()
	if x.peak = n > r.most; x.peak || max(n-r.looked, r.looked-n) > r.most/often {
		r.looked, r.most = n, max(n, r.most)
		x.held = r.holds(beyond)
	}
	r.lived = append(r.lived, x)
}

// often is at which part of the most that has lived it is looked again where memory comes from: to look takes time.
const often = 20

// recall puts what was remembered into the timeline.
func (r *run) recall() {
	for _, x := range r.lived {
		bytes := map[string]int64{}
		for _, u := range schedule.Uses() {
			bytes[u.String()] = x.live[u]
		}
		r.trace.AddMemory(trace.Memory{Device: r.id, At: x.at, Bytes: bytes})
		if x.held == nil {
			continue
		}
		p := trace.Peak{Device: r.id, Bytes: x.live.Total(), Held: r.sites(x.held)}
		if r.trace.AddSites(x.at, p); x.peak {
			r.trace.SetPeak(p)
		}
	}
}

// holds are the values that the device holds, and those that a segment takes beyond.
func (r *run) holds(beyond func() []schedule.Held) []schedule.Held {
	all := make([]schedule.Held, 0, len(r.values)+len(r.outbox))
	for slot, h := range r.values {
		all = append(all, schedule.Held{Value: slot.Value, Use: h.use, Bytes: h.bytes})
	}
	for _, h := range r.outbox {
		all = append(all, schedule.Held{Use: h.use, Bytes: h.bytes})
	}
	if beyond != nil {
		all = append(all, beyond()...)
	}
	return all
}

// sites are where what lives on the device comes from: the values that it holds, and those in its arena when most are there.
func (r *run) sites(held []schedule.Held) []trace.Held {
	sum := map[trace.Held]*trace.Held{}
	add := func(h schedule.Held) {
		at := trace.Held{Use: h.Use.String()}
		if h.Value != nil {
			at.What, at.Line, at.Scope = string(h.Value.Op.Type()), string(h.Value.Op.Source), h.Value.Op.Scope
			if p, ok := h.Value.Op.Attrs.(*ir.Parameter); ok {
				at.What = p.Name
			}
		}
		if sum[at] == nil {
			x := at
			sum[at] = &x
		}
		sum[at].Tensors++
		sum[at].Bytes += h.Bytes
	}
	for _, h := range held {
		add(h)
	}
	if p := r.schedule.Largest(r.profiles, r.place); p != nil {
		for _, h := range p.InArena() {
			add(h)
		}
	}
	all := make([]trace.Held, 0, len(sum))
	for _, h := range sum {
		all = append(all, *h)
	}
	return all
}
