// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// Result is what a step comes to.
type Result struct {
	// Step is from the start of the first device to the end of the last.
	Step time.Duration
	// Batches are the batches that a step takes: one for each model replica and micro-batch.
	Batches int
	// Devices are one of each class of devices that are alike, by place.
	Devices []Device
	// Events is how many things happened: what the simulation cost.
	Events int

	run *run
}

// Trace is the timeline: of all devices, or of one of each class if there are many, or so much happens on them that nobody could look at it.
func (r *Result) Trace() *trace.Step {
	devices, events := 0, 0
	for _, a := range r.run.actors {
		n := len(a.ranks())
		devices += n
		events += n * len(a.events)
	}
	return r.run.timeline(devices <= r.run.o.Devices && events <= mostEvents)
}

// mostEvents is how many events a timeline has, about, if it does not show all devices that it could.
const mostEvents = 50_000

// Kinds is the timeline of one device of each class, however many there are; or of some classes, if too much happens on all of them.
func (r *Result) Kinds() *trace.Step { return r.run.timeline(false) }

// Device is what devices that are alike do in a step.
type Device struct {
	Ranks []int // the first is in the timeline
	Place int   // the group of devices of a model replica
	// Times are those of the step; communication is only what travels.
	trace.Times
	Peak int64 // bytes of memory; 0: it is not known
}

// Bubble is the part of the devices' time in which they neither compute nor wait for communication that is under way.
func (r *Result) Bubble() float64 {
	return r.part(func(t trace.Times) time.Duration { return t.Waiting + t.Idle - t.Exposed })
}

// Exposed is the part of the devices' time in which they communicate and compute nothing.
func (r *Result) Exposed() float64 {
	return r.part(func(t trace.Times) time.Duration { return t.Exposed })
}

// Busy is the part of the devices' time in which they compute.
func (r *Result) Busy() float64 {
	return r.part(func(t trace.Times) time.Duration { return t.Busy })
}

// part adds a time up over all devices.
func (r *Result) part(of func(trace.Times) time.Duration) float64 {
	sum, devices := 0.0, 0
	for _, d := range r.Devices {
		sum += float64(of(d.Times)) * float64(len(d.Ranks))
		devices += len(d.Ranks)
	}
	return sum / float64(max(r.Step, 1)) / float64(max(devices, 1))
}

// result adds up what the devices did.
func (s *run) result() *Result {
	r := &Result{Events: s.clock.events, Batches: s.lists.Local.Instances(), run: s}
	for _, a := range s.actors {
		r.Step = max(r.Step, time.Duration(a.end))
	}
	if s.o.Short {
		return r
	}
	for place := range s.lists.Places {
		for _, a := range s.place(place) {
			d := Device{Ranks: a.ranks(), Place: place, Times: a.times()}
			d.Idle = r.Step - d.Busy - d.Waiting
			if s.o.Account != nil {
				d.Peak = s.o.Account.Places[place].Peak.Total()
			}
			r.Devices = append(r.Devices, d)
		}
	}
	return r
}

// times add up what the device did. Communication is what travels, not what waits to travel, as it does in a timeline.
func (a *actor) times() trace.Times {
	events := make([]trace.Event, 0, len(a.events)+len(a.carried))
	for _, e := range a.events {
		if e.Lane == 0 {
			events = append(events, e)
		}
	}
	for _, x := range a.carried {
		events = append(events, trace.Event{Lane: 1, Kind: trace.Communicate, Start: at(x[0]), End: at(x[1])})
	}
	slices.SortStableFunc(events, func(a, b trace.Event) int { return a.Start.Compare(b.Start) })
	return trace.Sum(events, 0)
}

// ranks are all devices that an actor stands for. The first is simulated.
func (a *actor) ranks() (ranks []int) {
	for _, replica := range a.class.replicas {
		for _, position := range a.positions {
			ranks = append(ranks, a.rankOf(replica, a.place, position))
		}
	}
	return ranks
}

// timeline are the events of all devices, or of one of each class.
func (s *run) timeline(all bool) *trace.Step {
	step := &trace.Step{Program: s.lists.Name, Number: 1, Pipeline: pipeline(s.lists), Predicted: true}
	var courses [][]schedule.Sample
	if s.o.Account != nil {
		courses = s.o.Account.Brief()
	}
	every := 1 // so many actors one is shown
	if !all {
		every = s.every()
	}
	for i, a := range s.actors {
		replicas, positions := a.class.replicas, a.positions
		if i%every != 0 && i < len(s.actors)-1 {
			continue
		}
		if !all {
			replicas, positions = replicas[:1], positions[:1]
		}
		for _, replica := range replicas {
			for _, position := range positions {
				rank := s.rankOf(replica, a.place, position)
				for _, e := range a.events {
					e.Device = rank
					if e.Task != (trace.Task{}) {
						e.Task.Replica = replica
					}
					if e.Flow != "" {
						e.Flow = fmt.Sprintf("%d/%s/%d", replica, e.Flow, position)
					}
					step.Add(e)
				}
				if courses != nil {
					a.remember(step, rank, courses[a.place])
				}
			}
		}
	}
	return step
}

// every is how many kinds of devices there are for one that a timeline shows: it shows all of them unless too much happens on them.
func (s *run) every() int {
	events := 0
	for _, a := range s.actors {
		events += len(a.events)
	}
	return max((events+mostEvents-1)/mostEvents, 1)
}

// remember notes what lives on a device, by the account: the most of each instruction, when it begins.
func (a *actor) remember(step *trace.Step, rank int, course []schedule.Sample) {
	for _, x := range course {
		when := 0.0
		if x.At >= 0 && x.At < len(a.began) {
			when = a.began[x.At]
		}
		bytes := map[string]int64{}
		for _, u := range schedule.Uses() {
			bytes[u.String()] = x.Live[u]
		}
		step.AddMemory(trace.Memory{Device: rank, At: at(when), Bytes: bytes})
	}
}
