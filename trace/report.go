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
	// such tasks, communication and waiting for data, too. It is not a number if there are no such tasks.
	Bubble float64
	// Ideal is the bubble that the schedule cannot avoid: with stages that take equally long, and values that travel at
	// once. It is not a number if the pipeline is not known.
	Ideal float64
}

// DeviceReport is what one device did.
type DeviceReport struct {
	Device  int
	Replica int   // -1: it ran no task
	Stages  []int // that it worked for, in order
	Times
}

// Times of a device. Busy, Waiting and Idle add up to the span of the step.
type Times struct {
	Busy    time.Duration
	Waiting time.Duration // it waited for data, for values of others or for its communicators, or it sent
	Idle    time.Duration
	// Communication goes on beside the rest, or while the device waits.
	Communication time.Duration
}

// Report adds up what the devices did.
func (s *Step) Report() *Report {
	events := s.Events()
	r := &Report{Bubble: math.NaN(), Ideal: s.Pipeline.ideal(events)}
	byDevice := map[int][]Event{}
	var all, tasks []Event
	for _, e := range events {
		byDevice[e.Device] = append(byDevice[e.Device], e)
		all = append(all, e)
		if e.Task.inPipeline() {
			tasks = append(tasks, e)
		}
	}
	start, end := bounds(all)
	r.Span = end.Sub(start)
	var inTasks time.Duration
	inPipeline := 0 // devices
	for device, list := range byDevice {
		d := DeviceReport{Device: device, Replica: -1}
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
		d.Busy = covered(list, func(e Event) bool { return e.Lane == 0 && e.Kind == Run })
		here := covered(list, func(e Event) bool { return e.Lane == 0 })
		d.Waiting, d.Idle = here-d.Busy, r.Span-here
		d.Communication = covered(list, func(e Event) bool { return e.communicates() })
		if t := covered(list, func(e Event) bool { return e.Task.inPipeline() }); t > 0 {
			inTasks += t
			inPipeline++
		}
		r.Devices = append(r.Devices, d)
		r.Total.Busy += d.Busy
		r.Total.Waiting += d.Waiting
		r.Total.Idle += d.Idle
		r.Total.Communication += d.Communication
	}
	slices.SortFunc(r.Devices, func(a, b DeviceReport) int {
		// What ran no task comes last.
		return cmp.Or(cmp.Compare(uint(a.Replica), uint(b.Replica)), slices.Compare(a.Stages, b.Stages), cmp.Compare(a.Device, b.Device))
	})
	if inPipeline > 0 {
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
func (e Event) communicates() bool { return e.Kind == Communicate || e.Kind == Send }

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
