// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"slices"
	"strings"
	"time"

	"github.com/easyparallel/epl/comm/internal/transport"
)

// refresh is how old findings get before there is another inquiry.
const refresh = time.Second

// Overdue implements transport.Owner. It is called on the goroutine that runs the call, or on one for each connection that it makes. Who
// holds the others up is found out beside it, and before the timeout, so that the error comes in time.
func (k *request) Overdue(missing []int, began time.Duration) error {
	w, g := k.of.group.world, k.of.group
	if len(missing) == 0 {
		return nil
	}
	w.looking.Lock() // connections of a call look at the same time
	defer w.looking.Unlock()
	rank, now := g.ranks[k.Pos], w.base.Now()
	w.ranks[rank].recorder.waits(k.ticket, missing)
	if err := w.ended(k, rank, missing, now); err != nil {
		return err
	}
	inquire, giveUp := w.Patience()
	if now < began+inquire {
		return nil
	}
	const witnesses = 8
	if k.inquiry != nil && k.inquiry.over() {
		k.found = k.inquiry
	}
	if k.inquiry == nil || k.found == k.inquiry && now >= k.inquired+refresh {
		k.inquiry, k.inquired = w.inquire(rank, missing, g.ranks[:min(witnesses, len(g.ranks))]), now
		if w.base.Mesh == nil {
			k.found = k.inquiry
		}
	}
	if now < began+giveUp || k.found == nil {
		return nil
	}
	f := &k.found.findings
	if !slices.Equal(k.found.ranks, missing) || w.busy(f.causes) || f.unsure && now < began+w.base.Timeout+aliveTime {
		return nil
	}
	if len(f.causes) == 0 && !k.again {
		// They wait for each other, or one of them has gone on since it last said for whom it waits: ask again.
		k.again, k.found, k.inquiry = true, nil, nil
		return nil
	}
	return w.timeoutError(k, g, missing, *f)
}

// ended returns an error if one of the ranks belongs to a worker that has ended its part. What it sent last may be still on
// its way, so the call has to be seen waiting for it twice.
func (w *World) ended(k *request, rank int, missing []int, now time.Duration) error {
	if w.base.Mesh == nil {
		return nil
	}
	for _, worker := range w.workersOf(missing) {
		if h := w.base.Mesh.Health(worker); worker != w.base.Layout.Worker && h.Ended {
			if k.left == 0 {
				k.left = max(now, 1)
			} else if now >= k.left+transport.LookEvery/2 {
				return w.base.Ended(&k.Call, rank, worker)
			}
			return nil
		}
	}
	k.left = 0
	return nil
}

// timeoutError is the error of a call that has waited too long.
func (w *World) timeoutError(k *request, g *Group, missing []int, f findings) error {
	e := &TimeoutError{Header: k.Header, Timeout: w.base.Timeout, Missing: missing, Causes: f.causes, Workers: w.workersOf(f.causes), Details: w.details(f, &k.Call)}
	if k.Op.PointToPoint() {
		e.Waiting = []int{g.ranks[k.Pos]}
	} else {
		// Whom a call misses may have come, and be waiting for others.
		come := func(r int) bool {
			return slices.ContainsFunc(f.states[w.base.WorkerOf[r]].Waits, func(o toldWait) bool { return o.Rank == r && sameCall(o.Header, &k.Call) })
		}
		absent := slices.DeleteFunc(slices.Clone(missing), come)
		for _, r := range f.causes {
			if slices.Contains(g.ranks, r) && !slices.Contains(absent, r) {
				absent = append(absent, r)
			}
		}
		if len(absent) > 0 {
			slices.Sort(absent)
			e.Missing = absent
		}
		for _, r := range g.ranks {
			if !slices.Contains(e.Missing, r) {
				e.Waiting = append(e.Waiting, r)
			}
		}
	}
	const ranks = 8
	var concerned []int
	for _, r := range slices.Concat(e.Causes, e.Missing, e.Waiting) {
		if len(concerned) < ranks && !slices.Contains(concerned, r) {
			concerned = append(concerned, r)
		}
	}
	var tables strings.Builder
	for _, r := range concerned {
		tables.WriteString(w.tableOf(r, f))
	}
	e.Recorders = tables.String()
	return e
}

// tableOf returns the last calls of a rank, as far as its worker has told them.
func (w *World) tableOf(rank int, f findings) string {
	const calls = 5
	if w.base.IsLocal(rank) {
		return w.ranks[rank].recorder.table(calls)
	}
	return f.states[w.base.WorkerOf[rank]].Tables[rank]
}
