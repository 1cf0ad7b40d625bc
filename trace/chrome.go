package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// A file is a timeline in Chrome's trace event format: what [Step.WriteChrome] writes and [Read] reads.
type file struct {
	Events []chromeEvent `json:"traceEvents"`
	Unit   string        `json:"displayTimeUnit"`
	Other  *otherData    `json:"otherData"`
}

// otherData is what the format leaves to those who write it. Start is on the clock of the worker's machine, in
// nanoseconds since 1970; as a string, because JavaScript would round it.
type otherData struct {
	Program  string    `json:"program"`
	Step     int       `json:"step"`
	Start    string    `json:"startUnixNano,omitempty"`
	Workers  int       `json:"workers,omitempty"`
	Pipeline *Pipeline `json:"pipeline,omitempty"`
}

// chromeEvent is an event of the format. Times are microseconds, from the start of the first event.
type chromeEvent struct {
	Name  string      `json:"name"`
	Cat   string      `json:"cat,omitempty"`
	Phase string      `json:"ph"`
	Ts    float64     `json:"ts"`
	Dur   float64     `json:"dur,omitempty"`
	Pid   int         `json:"pid"`
	Tid   int         `json:"tid"`
	Args  *chromeArgs `json:"args,omitempty"`
}

// chromeArgs are shown when an event is clicked at.
type chromeArgs struct {
	Name  string `json:"name,omitempty"` // of a row
	Bytes int64  `json:"bytes,omitempty"`
	Task  string `json:"task,omitempty"`
	// Of a task only.
	Stage   *int `json:"stage,omitempty"`
	Micro   *int `json:"micro,omitempty"`
	Replica *int `json:"replica,omitempty"`
}

// The phases of the format that we use.
const (
	completePhase = "X" // an event with its duration
	metadataPhase = "M"
)

// WriteChrome writes the step in Chrome's trace event format, which Perfetto reads, too.
func (s *Step) WriteChrome(w io.Writer) error {
	events := s.Events()
	out := file{Unit: "ms", Other: &otherData{Program: s.Program, Step: s.Number, Workers: s.Workers}, Events: heads(events)}
	if s.Pipeline != (Pipeline{}) {
		out.Other.Pipeline = &s.Pipeline
	}
	if len(events) > 0 {
		out.Other.Start = strconv.FormatInt(events[0].Start.UnixNano(), 10)
	}
	for _, e := range events {
		c := chromeEvent{Name: e.Name, Cat: string(e.Kind), Phase: completePhase, Pid: e.Device, Tid: e.Lane,
			Ts: micros(e.Start.Sub(events[0].Start)), Dur: micros(e.End.Sub(e.Start))}
		args := chromeArgs{Bytes: e.Bytes}
		if e.Task != (Task{}) {
			args.Task, args.Stage, args.Micro, args.Replica = e.Task.Kind, &e.Task.Stage, &e.Task.Micro, &e.Task.Replica
		}
		if args != (chromeArgs{}) {
			c.Args = &args
		}
		out.Events = append(out.Events, c)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(out)
}

// heads name the rows: in Chrome's words, devices are processes and their lanes threads.
func heads(events []Event) []chromeEvent {
	type row struct{ device, lane int }
	rows := map[row]bool{}
	for _, e := range events {
		rows[row{e.Device, e.Lane}] = true
	}
	heads := []chromeEvent{}
	for r := range rows {
		name := "device"
		if r.lane > 0 {
			name = "communicator"
		}
		heads = append(heads,
			chromeEvent{Name: "process_name", Phase: metadataPhase, Pid: r.device, Tid: r.lane, Args: &chromeArgs{Name: deviceName(r.device)}},
			chromeEvent{Name: "thread_name", Phase: metadataPhase, Pid: r.device, Tid: r.lane, Args: &chromeArgs{Name: name}})
	}
	slices.SortFunc(heads, func(a, b chromeEvent) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid), cmp.Compare(a.Name, b.Name))
	})
	return heads
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func deviceName(d int) string { return fmt.Sprintf("device %d", d) }
