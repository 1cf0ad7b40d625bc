// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Report is what a step comes to in numbers.
type Report struct {
	// Span is from the start of the first event to the end of the last, over all devices.
	Span time.Duration
	// Devices are in the order of the picture: by model replica, then by stage.
	Devices []DeviceReport
	// Total is the sum over the devices.
	Total Times
	// Bubble is the part of the devices' time in which the pipeline gave them nothing to do, from the start of the first
	// task on a micro-batch to the end of the last: 1 - busy / (devices · time). It counts all that keeps a device from
	// such tasks, communication and waiting for data, too. It is not a number if there is no pipeline: no such tasks, or
	// one stage.
	Bubble float64
	// Ideal is the bubble that the schedule cannot avoid: with stages that take equally long, and values that travel at
	// once. It is not a number if the pipeline is not known.
	Ideal float64
	// Traffic is what was communicated, by the kind of communication, over all devices; the longest first.
	Traffic []Traffic
}

// Traffic is communication of one kind.
type Traffic struct {
	Op    string
	Calls int
	Bytes int64
	// Time for which a device did it, and the part of it in which it computed nothing, added up over devices.
	Time, Exposed time.Duration
}

// Rate is how fast it was, in bytes per nanosecond, which is GB/s.
func (t Traffic) Rate() float64 { return float64(t.Bytes) / float64(max(t.Time, 1)) }

// DeviceReport is what one device did.
type DeviceReport struct {
	Device  int
	Replica int   // -1: it ran no task
	Stages  []int // that it worked for, in order
	Times

	name string // if its number does not say it
}

// Times of a device. Busy, Waiting and Idle add up to the span of the step.
type Times struct {
	Busy    time.Duration
	Waiting time.Duration // it waited for data, for values of others or for its communicators, or gave them something
	Idle    time.Duration
	// Communication goes on beside the rest, or while the device waits. Exposed is the part of it in which the device
	// computed nothing.
	Communication, Exposed time.Duration
}

// add adds the times of a device to those of others.
func (t *Times) add(o Times) {
	t.Busy += o.Busy
	t.Waiting += o.Waiting
	t.Idle += o.Idle
	t.Communication += o.Communication
	t.Exposed += o.Exposed
}

// Sum adds up what one device did, in a step that takes so long. Its events are ordered by start.
func Sum(events []Event, span time.Duration) Times {
	t := Times{Busy: covered(events, Event.computes)}
	here := covered(events, func(e Event) bool { return e.Lane == 0 })
	t.Waiting, t.Idle = here-t.Busy, span-here
	t.Communication, t.Exposed = exposed(events, Event.communicates)
	return t
}

// Report adds up what the devices did.
func (s *Step) Report() *Report {
	events := s.Events()
	r := &Report{Bubble: math.NaN(), Ideal: s.Pipeline.ideal(events)}
	byDevice := map[int][]Event{}
	var tasks []Event
	for _, e := range events {
		byDevice[e.Device] = append(byDevice[e.Device], e)
		if e.Task.inPipeline() {
			tasks = append(tasks, e)
		}
	}
	start, end := bounds(events)
	r.Span = end.Sub(start)
	traffic := map[string]*Traffic{}
	var inTasks time.Duration
	inPipeline := 0 // devices
	for device, list := range byDevice {
		d := DeviceReport{Device: device, Replica: -1, Times: Sum(list, r.Span), name: s.names[device]}
		for _, e := range list {
			if e.Task.Kind == "" {
				continue
			}
			d.Replica = e.Task.Replica
			if !slices.Contains(d.Stages, e.Task.Stage) {
				d.Stages = append(d.Stages, e.Task.Stage)
			}
		}
		slices.Sort(d.Stages)
		for _, e := range list {
			if !e.communicates() {
				continue
			}
			t := traffic[e.Op]
			if t == nil {
				t = &Traffic{Op: e.Op}
				traffic[e.Op] = t
			}
			t.Calls++
			t.Bytes += e.Bytes
		}
		for op, t := range traffic {
			time, alone := exposed(list, func(e Event) bool { return e.communicates() && e.Op == op })
			t.Time += time
			t.Exposed += alone
		}
		if t := covered(list, func(e Event) bool { return e.Task.inPipeline() }); t > 0 {
			inTasks += t
			inPipeline++
		}
		r.Devices = append(r.Devices, d)
		r.Total.add(d.Times)
	}
	for _, t := range traffic {
		r.Traffic = append(r.Traffic, *t)
	}
	slices.SortFunc(r.Traffic, func(a, b Traffic) int { return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Op, b.Op)) })
	slices.SortFunc(r.Devices, func(a, b DeviceReport) int {
		// What ran no task comes last.
		return cmp.Or(cmp.Compare(uint(a.Replica), uint(b.Replica)), slices.Compare(a.Stages, b.Stages), cmp.Compare(a.Device, b.Device))
	})
	if inPipeline > 0 && s.Pipeline.Stages != 1 {
		first, last := bounds(tasks)
		r.Bubble = 1 - float64(inTasks)/(float64(inPipeline)*float64(last.Sub(first)))
	}
	return r
}

// reportRow is a line of the report as a table: one device, or all of them. Span is what the times are parts of.
type reportRow struct {
	Label string
	T     Times
	Span  time.Duration
}

func (r *Report) rows(p Pipeline) []reportRow {
	var rows []reportRow
	for _, d := range r.Devices {
		rows = append(rows, reportRow{d.label(p), d.Times, r.Span})
	}
	if len(rows) > 1 {
		rows = append(rows, reportRow{"all", r.Total, r.Span * time.Duration(len(rows))})
	}
	return rows
}

// communicates tells whether values are on their way during the event.
func (e Event) communicates() bool { return e.Kind == Communicate }

// computes tells whether the device computes something during the event.
func (e Event) computes() bool { return e.Lane == 0 && e.Kind == Run }

// rate is how fast something was communicated, or read and written by a kernel, in GB/s; 0 for all else.
func (e Event) rate() float64 {
	if !e.communicates() && e.Kind != Kernel || e.Bytes == 0 {
		return 0
	}
	return Traffic{Bytes: e.Bytes, Time: e.End.Sub(e.Start)}.Rate()
}

// gflops is how fast a kernel computed, in GFLOP/s.
func (e Event) gflops() float64 { return float64(e.Flops) / float64(max(e.End.Sub(e.Start), 1)) }

// exposed returns for how long one of the chosen events of a device went on, and for how long of that it computed nothing.
func exposed(events []Event, choose func(Event) bool) (all, alone time.Duration) {
	both := covered(events, func(e Event) bool { return choose(e) || e.computes() })
	return covered(events, choose), both - covered(events, Event.computes)
}

// bounds returns when the first of the events starts and when the last ends.
func bounds(events []Event) (start, end time.Time) {
	for i, e := range events {
		if i == 0 || e.Start.Before(start) {
			start = e.Start
		}
		if i == 0 || e.End.After(end) {
			end = e.End
		}
	}
	return start, end
}

// covered returns for how long one of the chosen events went on, or several. They are ordered by start.
func covered(events []Event, choose func(Event) bool) (sum time.Duration) {
	var until time.Time
	for _, e := range events {
		if !choose(e) || !e.End.After(until) {
			continue
		}
		if e.Start.After(until) {
			until = e.Start
		}
		sum += e.End.Sub(until)
		until = e.End
	}
	return sum
}
