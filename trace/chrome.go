// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/pkg/errors"
)

// A file is a timeline in Chrome's trace event format: what [Write] writes and [Read] reads.
//
// What a device does itself are slices of one thread, which do not overlap. Communication goes on beside it, several at a
// time, as asynchronous events, and so are the kernels that its slices consist of. An arrow, called a flow, leads from what sends a value to what receives it. Memory is a
// counter for every use.
type file struct {
	Events []chromeEvent `json:"traceEvents"`
	Unit   string        `json:"displayTimeUnit"`
	Peaks  []filePeak    `json:"peaks,omitempty"`
	Other  *otherData    `json:"otherData"` // the last, which is looked for at the end of the file
}

// filePeak is a peak of memory in a step.
type filePeak struct {
	Step int `json:"step"`
	Peak
}

// otherData is what the format leaves to those who write it. Start is on the clock of the worker's machine, in
// nanoseconds since 1970; as a string, because JavaScript would round it.
type otherData struct {
	fileStep
	Start   string `json:"startUnixNano,omitempty"`
	Workers int    `json:"workers,omitempty"`
	// Steps are those in the file, if there are several; the fields above are the last one's.
	Steps []fileStep `json:"steps,omitempty"`
}

// fileStep is a step in a file: what happens from Begin on, until the next one begins.
type fileStep struct {
	Program   string    `json:"program"`
	Step      int       `json:"step"`
	Predicted bool      `json:"predicted,omitempty"`
	Begin     float64   `json:"begin,omitempty"`    // microseconds
	Overhead  float64   `json:"overhead,omitempty"` // microseconds
	Fetched   float64   `json:"fetched,omitempty"`  // microseconds
	Pipeline  *Pipeline `json:"pipeline,omitempty"`
}

// chromeEvent is an event of the format. Times are microseconds, from the start of the first event.
type chromeEvent struct {
	Name  string   `json:"name"`
	Cat   string   `json:"cat,omitempty"`
	Phase string   `json:"ph"`
	Ts    float64  `json:"ts"`
	Dur   float64  `json:"dur,omitempty"`
	Pid   int      `json:"pid"`
	Tid   int      `json:"tid"`
	ID    string   `json:"id,omitempty"`  // of a flow
	ID2   *localID `json:"id2,omitempty"` // of an asynchronous event
	Bind  string   `json:"bp,omitempty"`
	Args  any      `json:"args,omitempty"`
}

// localID tells the asynchronous events of a device apart.
type localID struct {
	Local string `json:"local"`
}

// chromeArgs are shown when an event is clicked at.
type chromeArgs struct {
	Name  string  `json:"name,omitempty"` // of a row
	Op    string  `json:"op,omitempty"`
	What  string  `json:"what,omitempty"`
	Bytes int64   `json:"bytes,omitempty"`
	Rate  float64 `json:"GB/s,omitempty"`
	Flops int64   `json:"flops,omitempty"`
	Speed float64 `json:"GFLOP/s,omitempty"`
	Sites []Site  `json:"sites,omitempty"`
	Task  string  `json:"task,omitempty"`
	// Of a task only.
	Stage   *int   `json:"stage,omitempty"`
	Micro   *int   `json:"micro,omitempty"`
	Replica *int   `json:"replica,omitempty"`
	Flow    string `json:"flow,omitempty"`
}

// The phases of the format that we use.
const (
	completePhase  = "X" // an event with its duration
	asyncBegin     = "b"
	asyncEnd       = "e"
	flowStart      = "s"
	flowFinish     = "f"
	counterPhase   = "C"
	metadataPhase  = "M"
	bindEnclosing  = "e" // a flow ends at the slice around it, not at the next one
	flowCategory   = "flow"
	memoryCategory = "memory"
)

// memoryCounters are the names of counters: bytes by use, and by place in the model.
var memoryCounters = [2]string{"memory", "memory by place"}

// WriteChrome writes the step in Chrome's trace event format, which Perfetto reads, too.
func (s *Step) WriteChrome(w io.Writer) error { return Write(w, s) }

// Write writes steps, one after the other, in Chrome's trace event format. There is at least one, and none begins before the
// one before has ended.
func Write(w io.Writer, steps ...*Step) error {
	if len(steps) == 0 {
		return errors.New("epl: there are no steps to write")
	}
	last := steps[len(steps)-1]
	out := file{Unit: "ms", Other: &otherData{Workers: last.Workers}}
	var all []Event
	for _, s := range steps {
		all = append(all, s.Events()...)
	}
	zero, _ := bounds(all)
	for _, s := range steps {
		for _, m := range s.Memory() {
			if m.At.Before(zero) {
				zero = m.At
			}
		}
	}
	out.Events = heads(all)
	if len(all) > 0 {
		out.Other.Start = strconv.FormatInt(zero.UnixNano(), 10)
	}
	number := 0 // of an asynchronous event
	for _, s := range steps {
		head := fileStep{Program: s.Program, Step: s.Number, Predicted: s.Predicted, Overhead: micros(s.Overhead), Fetched: micros(s.Fetched)}
		if s.Pipeline != (Pipeline{}) {
			head.Pipeline = &s.Pipeline
		}
		out.Other.fileStep = head
		if len(steps) > 1 {
			head.Begin = micros(s.begin().Sub(zero))
			out.Other.Steps = append(out.Other.Steps, head)
		}
		for _, p := range s.Peaks() {
			out.Peaks = append(out.Peaks, filePeak{s.Number, p})
		}
		out.Events = append(out.Events, s.chrome(zero, &number)...)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(out)
}

// begin is when the first thing of the step happened.
func (s *Step) begin() time.Time {
	begin, _ := bounds(s.Events())
	if m := s.Memory(); len(m) > 0 && (begin.IsZero() || m[0].At.Before(begin)) {
		begin = m[0].At
	}
	return begin
}

// chrome are the events of a step in the format.
func (s *Step) chrome(zero time.Time, number *int) (out []chromeEvent) {
	events := s.Events()
	for _, e := range events {
		c := chromeEvent{Name: e.Name, Cat: string(e.Kind), Phase: completePhase, Pid: e.Device, Tid: e.Lane,
			Ts: micros(e.Start.Sub(zero)), Dur: micros(e.End.Sub(e.Start))}
		args := chromeArgs{Op: e.Op, Bytes: e.Bytes, Flops: e.Flops, Speed: math.Round(e.gflops()*1e3) / 1e3, Flow: e.Flow}
		if r := e.rate(); r > 0 {
			args.Rate = math.Round(r*1e3) / 1e3
		}
		if e.Task != (Task{}) {
			args.Task, args.Stage, args.Micro, args.Replica = e.Task.Kind, &e.Task.Stage, &e.Task.Micro, &e.Task.Replica
		}
		if e.Lane > 0 {
			*number++
			c.Phase, c.Dur, c.ID2 = asyncBegin, 0, &localID{strconv.Itoa(*number)}
			if e.Op != "" { // rows are named after the kind of communication, or of kernel
				c.Name, args.What = e.Op, e.Name
			}
		}
		for _, s := range e.Sites {
			s.Share = math.Round(s.Share*1e4) / 1e4
			args.Sites = append(args.Sites, s)
		}
		if !reflect.ValueOf(args).IsZero() {
			c.Args = args
		}
		out = append(out, c)
		if e.Lane > 0 {
			c.Phase, c.Ts, c.Args = asyncEnd, micros(e.End.Sub(zero)), nil
			out = append(out, c)
		}
	}
	out = append(out, s.flows(events, zero)...)
	for i, all := range [][]Memory{s.Memory(), s.Sites()} {
		for _, m := range all {
			out = append(out, chromeEvent{Name: memoryCounters[i], Cat: memoryCategory, Phase: counterPhase, Pid: m.Device, Ts: micros(m.At.Sub(zero)), Args: m.Bytes})
		}
	}
	return out
}

// flows are arrows from sends to receives. There is none where one of them is another worker's, or where the clocks of two
// machines differ by so much that it would lead back in time.
func (s *Step) flows(events []Event, zero time.Time) (out []chromeEvent) {
	launches, receives := map[string]Event{}, map[string]Event{}
	var order []string
	for _, e := range events {
		switch {
		case e.Flow == "":
		case e.Kind == Launch:
			launches[e.Flow] = e
			order = append(order, e.Flow)
		case e.Kind == Receive:
			receives[e.Flow] = e
		}
	}
	for _, flow := range order {
		from := launches[flow]
		to, ok := receives[flow]
		if !ok || to.End.Before(from.Start) {
			continue
		}
		h := fnv.New64a()
		fmt.Fprintf(h, "%s/%d/%s", s.Program, s.Number, flow)
		// The value is there when the receive ends; a flow belongs to the slice around it.
		arrived := to.End.Add(-time.Nanosecond)
		for _, earliest := range []time.Time{to.Start, from.Start} {
			if arrived.Before(earliest) {
				arrived = earliest
			}
		}
		c := chromeEvent{Name: from.Name, Cat: flowCategory, Phase: flowStart, Pid: from.Device, Ts: micros(from.Start.Sub(zero)), ID: fmt.Sprintf("0x%x", h.Sum64())}
		out = append(out, c)
		c.Phase, c.Pid, c.Ts, c.Bind = flowFinish, to.Device, micros(arrived.Sub(zero)), bindEnclosing
		out = append(out, c)
	}
	return out
}

// heads name the rows: in Chrome's words, devices are processes and their lanes threads.
func heads(events []Event) []chromeEvent {
	type row struct{ device, lane int }
	rows := map[row]Kind{}
	for _, e := range events {
		rows[row{e.Device, e.Lane}] = e.Kind
	}
	heads := []chromeEvent{}
	for r, kind := range rows {
		name := "device"
		switch {
		case kind == Kernel:
			name = "kernels"
		case r.lane > 0:
			name = "communicator"
		}
		heads = append(heads,
			chromeEvent{Name: "process_name", Phase: metadataPhase, Pid: r.device, Tid: r.lane, Args: chromeArgs{Name: deviceName(r.device)}},
			chromeEvent{Name: "thread_name", Phase: metadataPhase, Pid: r.device, Tid: r.lane, Args: chromeArgs{Name: name}})
	}
	slices.SortFunc(heads, func(a, b chromeEvent) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid), cmp.Compare(a.Name, b.Name))
	})
	return heads
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func deviceName(d int) string { return fmt.Sprintf("device %d", d) }
