package comm

import (
	"slices"
	"strings"
	"time"
)

// lookEvery is how often a call that waits looks whether somebody is overdue, or has ended.
const lookEvery = 200 * time.Millisecond

// refresh is how old findings get before there is another inquiry.
const refresh = time.Second

// overdue is called now and then by a call that has waited for ranks since began, on the goroutine that runs it, or on one for
// each connection that it makes. It returns nil while they may be late, and else why they will not come. It does not wait: who
// holds them up is found out beside it, and before the timeout, so that the error comes in time.
func (w *World) overdue(k *call, g *Group, missing []int, began time.Duration) error {
	if len(missing) == 0 {
		return nil
	}
	w.looking.Lock() // connections of a call look at the same time
	defer w.looking.Unlock()
	rank, now := g.ranks[k.pos], w.now()
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
		if w.mesh == nil {
			k.found = k.inquiry
		}
	}
	if now < began+giveUp || k.found == nil {
		return nil
	}
	f := &k.found.findings
	if !slices.Equal(k.found.ranks, missing) || w.busy(f.causes) || f.unsure && now < began+w.timeout+aliveTime {
		return nil
	}
	if len(f.causes) == 0 && !k.again {
		// They wait for each other, or one of them has gone on since it last said for whom it waits: ask again.
		k.again, k.found, k.inquiry = true, nil, nil
		return nil
	}
	return w.timeoutError(k, g, missing, *f)
}

// Patience returns how long who waits for others has to wait before it inquires who holds it up, and before it gives up.
// Both are a little less than the timeout: an inquiry takes time, and who looks only now and then would be late next time.
func (w *World) Patience() (inquire, giveUp time.Duration) {
	if w.mesh == nil {
		return w.timeout, w.timeout // there is nobody to ask who could take long
	}
	return w.timeout - inquiryTime(w.timeout), w.timeout - min(lookEvery*3/2, w.timeout/25)
}

// inquiryTime is how long before the timeout an inquiry begins. It may take half of that.
func inquiryTime(timeout time.Duration) time.Duration { return min(timeout/4, 2*time.Second) }

// untilLook returns how long a call that is woken when its ranks have come may sleep before it has to look whether they are
// overdue: until the inquiry begins, then for short whiles.
func (w *World) untilLook(began time.Duration) time.Duration {
	inquire, _ := w.Patience()
	if left := began + inquire - w.now(); left > 0 {
		return left
	}
	return lookEvery
}

// ended returns an error if one of the ranks belongs to a worker that has ended its part. What it sent last may be still on
// its way, so the call has to be seen waiting for it twice.
func (w *World) ended(k *call, rank int, missing []int, now time.Duration) error {
	if w.mesh == nil {
		return nil
	}
	for _, worker := range w.workersOf(missing) {
		if h := w.mesh.Health(worker); worker != w.layout.Worker && h.Ended {
			if k.left == 0 {
				k.left = max(now, 1)
			} else if now >= k.left+lookEvery/2 {
				return w.endedError(k, rank, worker)
			}
			return nil
		}
	}
	k.left = 0
	return nil
}

// endedError is the error of a call that waits for a worker that has ended: because the job has failed, or because it did
// not need the others any more.
func (w *World) endedError(k *call, rank, worker int) error {
	select {
	case <-w.mesh.Done():
		return w.mesh.Err()
	default:
	}
	h := w.mesh.Health(worker)
	return &EndedError{Header: k.Header, Rank: rank, Worker: worker, Name: h.Name, After: h.Steps, Step: w.mesh.Health(w.layout.Worker).Steps + 1}
}

// timeoutError is the error of a call that has waited too long.
func (w *World) timeoutError(k *call, g *Group, missing []int, f findings) error {
	e := &TimeoutError{Header: k.Header, Timeout: w.timeout, Missing: missing, Causes: f.causes, Workers: w.workersOf(f.causes), Details: w.details(f, k)}
	if k.Op.pointToPoint() {
		e.Waiting = []int{g.ranks[k.pos]}
	} else {
		// Whom a call misses may have come, and be waiting for others.
		come := func(r int) bool {
			return slices.ContainsFunc(f.states[w.workerOf[r]].Waits, func(o toldWait) bool { return o.Rank == r && sameCall(o.Header, k) })
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
	if w.isLocal(rank) {
		return w.ranks[rank].recorder.table(calls)
	}
	return f.states[w.workerOf[rank]].Tables[rank]
}
