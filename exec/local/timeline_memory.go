// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// remember notes what lives on the device from now on, beyond is what of it a segment takes while it runs. When more lives than before in the step, or much more or
// less than when it looked last, it notes where all of that comes from.
func (r *run) remember(live schedule.Bytes, beyond []schedule.Held) {
	if r.trace == nil || r.trace.Coarse {
		return
	}
	bytes := map[string]int64{}
	for _, u := range schedule.Uses() {
		bytes[u.String()] = live[u]
	}
	r.trace.AddMemory(trace.Memory{Device: r.id, Bytes: bytes})
	n := live.Total()
	if peak := n > r.most; peak || max(n-r.looked, r.looked-n) > r.most/often {
		p := trace.Peak{Device: r.id, Bytes: n, Held: r.sites(beyond)}
		r.trace.AddSites(p)
		if r.looked = n; peak {
			r.most = n
			r.trace.SetPeak(p)
		}
	}
}

// often is at which part of the most that has lived it is looked again where memory comes from: to look takes time.
const often = 20

// sites are where what lives on the device comes from: the values that it holds, those in its arena when most are there, and those that a segment takes beyond.
func (r *run) sites(beyond []schedule.Held) []trace.Held {
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
	for slot, h := range r.values {
		add(schedule.Held{Value: slot.Value, Use: h.use, Bytes: h.bytes})
	}
	for _, h := range r.outbox {
		add(schedule.Held{Use: h.use, Bytes: h.bytes})
	}
	if p := r.schedule.Largest(r.profiles, r.place); p != nil {
		for _, h := range p.InArena() {
			add(h)
		}
	}
	for _, h := range beyond {
		add(h)
	}
	all := make([]trace.Held, 0, len(sum))
	for _, h := range sum {
		all = append(all, *h)
	}
	return all
}
