// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"log"
	"slices"
	"sync"
	"time"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// A device of which a timeline is made tells it what it does itself, one thing after the other, in lane 0. What goes on beside
// is in lanes of its own: that of its communicator, and these.
func (r *run) sendLane() int     { return 1 + r.opts.Communicators }
func (r *run) hostLane() int     { return 2 + r.opts.Communicators }
func (r *run) exchangeLane() int { return 3 + r.opts.Communicators }
func (r *run) kernelLane() int   { return 4 + r.opts.Communicators }

// profile begins to collect the kernels of devices that tell them afterwards. told ends it, and puts them into the timeline.
func (s *step) profile() (told func()) {
	first := slices.IndexFunc(s.devices, func(d *device) bool { _, ok := d.backend.(exec.Profiled); return ok })
	if s.trace == nil || s.trace.Coarse || first < 0 {
		return func() {}
	}
	begun := time.Now()
	p := s.devices[first].backend.(exec.Profiled)
	all := make([]compute.Backend, len(s.devices))
	for i, d := range s.devices {
		all[i] = d.backend
	}
	stop, err := p.Profile(all)
	if err != nil {
		noKernels.Do(func() { log.Printf("epl: the timeline has no kernels of GPUs: %v", err) })
		return func() {}
	}
	s.profiled = p
	s.trace.Overhead += time.Since(begun)
	return func() {
		defer func(begun time.Time) { s.trace.Late = time.Since(begun) }(time.Now())
		if err := stop(func(device int, x emit.Step, start, end time.Time) { s.runs[device].kernel(x, start, end) }); err != nil {
			log.Printf("epl: the timeline of step %d has no kernels of GPUs: %v", s.trace.Number, err)
		}
	}
}

// noKernels is for saying once why there are no kernels of GPUs.
var noKernels sync.Once

// kernel notes what was part of a segment.
func (r *run) kernel(s emit.Step, start, end time.Time) {
	r.trace.Add(trace.Event{Device: r.id, Lane: r.kernelLane(), Kind: trace.Kernel, Op: s.Kind, Name: s.String(), Start: start, End: end,
		Bytes: s.Read + s.Written, Flops: s.Flops, Sites: sitesOf(s), Task: trace.Task{Kind: s.Phase}})
}

// execute runs a segment. If a timeline is made, and the device can tell, the steps of the segment are in it: a device that tells afterwards ends with the
// segment here, so that it is known how long that took.
func (r *run) execute(segment int, ins []compute.Buffer, donate []bool, others []readers) ([]compute.Buffer, error) {
	x := r.device.segments[segment]
	defer r.runner.drag(r.local, r.schedule.Segments[segment].On(r.at().At(ir.Model)), time.Now())
	w, ok := x.(emit.Watched)
	switch {
	case r.trace == nil || r.trace.Coarse || !ok && r.profiled == nil:
		return r.runner.execute(x, ins, donate, others)
	case !ok:
		outs, err := r.runner.execute(x, ins, donate, others)
		for i := 0; err == nil && i < len(outs); i++ {
			err = r.profiled.Await(outs[i])
		}
		return outs, err
	}
	r.runner.settle(donate, others)
	return w.ExecuteWatched(ins, donate, 0, r.kernel)
}

// sitesOf are the places in the model that a step comes from.
func sitesOf(s emit.Step) []trace.Site {
	sites := make([]trace.Site, len(s.Sites))
	for i, x := range s.Sites {
		sites[i] = trace.Site(x)
	}
	return sites
}

// did notes what the device itself did, until now.
func (r *run) did(e trace.Event) {
	e.Device = r.id
	r.trace.Add(e)
}

// ran notes a task, until now.
func (r *run) ran(task trace.Task, name func() string, start time.Time) {
	r.busy += time.Since(start)
	if r.trace == nil {
		return
	}
	task.Replica = r.replica
	r.noted(trace.Event{Kind: trace.Run, Task: task, Start: start}, func(e *trace.Event) { e.Name = name() })
}

// ranLine notes an instruction that was a task, until now.
func (r *run) ranLine(task trace.Task, in *schedule.Instr, start time.Time) {
	if r.trace == nil { // it allocates nothing then
		r.busy += time.Since(start)
		return
	}
	r.ran(task, func() string { return r.schedule.Text(*in) }, start)
}

// note is something that the device did, and what is written of it when the step is over: that takes longer than what comes between tasks otherwise.
type note struct {
	trace.Event
	write func(e *trace.Event)
}

// noted notes what the device itself did, until now.
func (r *run) noted(e trace.Event, write func(e *trace.Event)) {
	if r.trace == nil {
		return
	}
	e.Device, e.End = r.id, time.Now()
	r.notes = append(r.notes, note{e, write})
}

// label is text for a timeline; "" if none is made.
func (r *run) label(format string, args ...any) string {
	if r.trace == nil {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// underway is communication of which a timeline is told after the step: nobody has to wait for its end meanwhile.
type underway struct {
	trace.Event
	calls []*comm.Handle
}

// communicates notes communication that began at a time and is over when all calls are.
func (r *run) communicates(lane int, op, name string, start time.Time, bytes int64, calls ...*comm.Handle) {
	if r.trace == nil || op == "" {
		return
	}
	r.underway = append(r.underway, underway{trace.Event{Device: r.id, Lane: lane, Kind: trace.Communicate, Op: op, Name: name, Start: start, Bytes: bytes}, calls})
}

// draw tells the timeline what was noted, and when communication was over.
func (r *run) draw() {
	for _, x := range r.notes {
		x.write(&x.Event)
		r.trace.Add(x.Event)
	}
	for _, x := range r.underway {
		x.End = x.Start // if there was nothing to do
		for _, h := range x.calls {
			_ = h.Wait()
			if h.Ended().After(x.End) {
				x.End = h.Ended()
			}
		}
		r.trace.Add(x.Event)
	}
}

// communicated notes communication that is over.
func (r *run) communicated(lane int, op, name string, start time.Time, bytes int64) {
	r.trace.Add(trace.Event{Device: r.id, Lane: lane, Kind: trace.Communicate, Op: op, Name: name, Start: start, Bytes: bytes})
}

// arrive waits until a value is there, if it is on its way.
func (r *run) arrive(h *held) error {
	if h.arrival == nil {
		return nil
	}
	start := time.Now()
	err := h.arrive()
	r.did(trace.Event{Kind: trace.Wait, Op: h.op, Name: h.what, Start: start})
	return err
}

// flow names a value on its way, by its transfer, or what else tags it.
func (r *run) flow(tag, micro, from, to int) string {
	return r.label("%d/%d/%d/%d/%d", r.replica, tag, micro, from, to)
}

// flowOf is the flow of what an instruction sends or receives.
func (r *run) flowOf(in schedule.Instr, from, to int) func() string {
	return func() string { return r.flow(in.Transfer, in.Micro, from, to) }
}

// opOf is how a bucket is merged; nothing if no other device takes part.
func (r *run) opOf(b schedule.Bucket) string {
	switch {
	case b.How == ir.Check || len(r.schedule.Ranks) == 1 && !b.Terms:
		return ""
	case b.Parts:
		return comm.ReduceScatter.String()
	case b.How.Adds():
		return comm.AllReduce.String()
	case b.How == ir.First:
		return comm.Broadcast.String()
	}
	return comm.AllGather.String()
}

// travels is how many bytes of a bucket that is.
func (r *run) travels(b schedule.Bucket) (n int64) {
	for _, m := range b.Merges {
		size := m.Inputs[0].Bytes()
		if !b.How.Adds() {
			size = max(size, m.Outputs[0].Bytes())
		}
		n += size
	}
	if r.traffic.Half && b.How.Adds() && b.Merges[0].Phase == ir.Backward {
		n /= 2
	}
	return n
}
