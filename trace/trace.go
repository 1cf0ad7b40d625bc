// Package trace records what the devices do in a step and writes it as a timeline that Chrome's tracing page and
// Perfetto show: devices as rows, running, waiting and communicating as bars.
package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Kind says what a device was doing.
type Kind string

// The kinds of events.
const (
	Run         Kind = "run"
	Wait        Kind = "wait"
	Communicate Kind = "communicate"
	Data        Kind = "data"
)

// Event is something that took time on a device.
type Event struct {
	Device int
	// Lane is 0 for the device itself, 1 and up for its communicators.
	Lane  int
	Kind  Kind
	Name  string
	Start time.Time
	End   time.Time
	Bytes int64 // that were communicated
}

// Step collects the events of one step. It is safe for concurrent use. A nil Step collects nothing.
type Step struct {
	Program string
	Number  int

	mu     sync.Mutex
	events []Event
}

// Add notes an event that ends now.
func (s *Step) Add(device, lane int, kind Kind, name string, start time.Time, bytes int64) {
	if s == nil {
		return
	}
	e := Event{device, lane, kind, name, start, time.Now(), bytes}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// Events returns what was collected, by start.
func (s *Step) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(s.events), func(a, b Event) int { return a.Start.Compare(b.Start) })
}

// chromeEvent is an event of Chrome's trace event format.
type chromeEvent struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	Ts    float64        `json:"ts"`
	Dur   float64        `json:"dur,omitempty"`
	Pid   int            `json:"pid"`
	Tid   int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// WriteChrome writes the step in Chrome's trace event format, which Perfetto reads, too.
func (s *Step) WriteChrome(w io.Writer) error {
	events := s.Events()
	type row struct{ device, lane int }
	rows := map[row]bool{}
	var out []chromeEvent
	for _, e := range events {
		rows[row{e.Device, e.Lane}] = true
		c := chromeEvent{Name: e.Name, Cat: string(e.Kind), Phase: "X", Pid: e.Device, Tid: e.Lane,
			Ts: micros(e.Start.Sub(events[0].Start)), Dur: micros(e.End.Sub(e.Start))}
		if e.Bytes > 0 {
			c.Args = map[string]any{"bytes": e.Bytes}
		}
		out = append(out, c)
	}
	var heads []chromeEvent
	for r := range rows {
		name := "device"
		if r.lane > 0 {
			name = "communicator"
		}
		heads = append(heads,
			chromeEvent{Name: "process_name", Phase: "M", Pid: r.device, Tid: r.lane, Args: map[string]any{"name": deviceName(r.device)}},
			chromeEvent{Name: "thread_name", Phase: "M", Pid: r.device, Tid: r.lane, Args: map[string]any{"name": name}})
	}
	slices.SortFunc(heads, func(a, b chromeEvent) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid), cmp.Compare(a.Name, b.Name))
	})
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(map[string]any{
		"traceEvents":     append(heads, out...),
		"displayTimeUnit": "ms",
		"otherData":       map[string]any{"program": s.Program, "step": s.Number},
	})
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func deviceName(d int) string { return fmt.Sprintf("device %d", d) }
