// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package simulate

import "container/heap"

// clock lets things happen in the order of time. Things of the same time happen in the order in which they were planned, so that a run is the same every time.
type clock struct {
	now     float64 // nanoseconds
	queue   moments
	planned int
	events  int // that happened
}

type moment struct {
	at     float64
	number int
	do     func()
}

type moments []moment

func (q moments) Len() int { return len(q) }
func (q moments) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].number < q[j].number
}
func (q moments) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *moments) Push(x any)   { *q = append(*q, x.(moment)) }
func (q *moments) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = moment{}
	*q = old[:len(old)-1]
	return last
}

// after lets something happen later.
func (c *clock) after(delay float64, do func()) {
	c.planned++
	heap.Push(&c.queue, moment{c.now + delay, c.planned, do})
}

// run lets everything happen.
func (c *clock) run() {
	for len(c.queue) > 0 {
		m := heap.Pop(&c.queue).(moment)
		c.now = m.at
		c.events++
		m.do()
	}
}

// resource is something that works share: the cores of a host, a link. If they ask for more than it has, all become slower alike.
type resource struct {
	capacity float64
	load     float64 // that is asked for
	works    []*work // that ask
}

// speed is that of a work which would have it for itself otherwise.
func (r *resource) speed() float64 { return min(1, r.capacity/r.load) }

// use is how much a work asks of a resource.
type use struct {
	*resource
	units float64
}

// work takes time, and resources meanwhile. It is as fast as the one that has least for it.
type work struct {
	clock   *clock
	uses    []use
	left    float64 // nanoseconds, if it has its resources for itself
	since   float64 // when that was so
	speed   float64
	planned int // which of the ends that were planned is the right one
	done    func()
}

// start begins a work of so many nanoseconds, and does something when it is over.
func (c *clock) start(ns float64, uses []use, done func()) {
	w := &work{clock: c, uses: uses, left: ns, since: c.now, done: done}
	if len(uses) == 0 {
		w.speed = 1
		w.plan()
		return
	}
	for _, u := range uses {
		u.works = append(u.works, w)
	}
	w.changed(+1)
	w.adapt()
}

// changed adds what a work asks for to its resources, or takes it off, and makes others slower or faster.
func (w *work) changed(sign float64) {
	for _, u := range w.uses {
		before := u.speed()
		if u.load += sign * u.units; u.speed() == before {
			continue
		}
		for _, other := range u.works {
			if other != w {
				other.adapt()
			}
		}
	}
}

// adapt goes on at the speed that resources allow now.
func (w *work) adapt() {
	speed := 1.0
	for _, u := range w.uses {
		speed = min(speed, u.speed())
	}
	if speed == w.speed {
		return
	}
	w.left -= w.speed * (w.clock.now - w.since)
	w.since, w.speed = w.clock.now, speed
	w.plan()
}

// plan finds the end.
func (w *work) plan() {
	w.planned++
	number := w.planned
	w.clock.after(max(w.left, 0)/w.speed, func() {
		if number == w.planned { // its speed has not changed since
			w.end()
		}
	})
}

func (w *work) end() {
	for _, u := range w.uses {
		for i, x := range u.works {
			if x == w {
				u.works[i] = u.works[len(u.works)-1]
				u.works = u.works[:len(u.works)-1]
				break
			}
		}
	}
	w.changed(-1)
	w.done()
}

// signal is something that happens once, and that others wait for.
type signal struct {
	clock   *clock
	over    bool
	waiting []func()
}

// fire lets it happen. Who waits goes on now, one after the other, but not inside of who fires.
func (s *signal) fire() {
	s.over = true
	for _, do := range s.waiting {
		s.clock.after(0, do)
	}
	s.waiting = nil
}

// then does something when it has happened, at once if it has.
func (s *signal) then(do func()) {
	if s == nil || s.over {
		do()
		return
	}
	s.waiting = append(s.waiting, do)
}
