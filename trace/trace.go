// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/easyparallel/epl/internal/words"
)

// Kind says what a device was doing.
type Kind string

// The kinds of events.
const (
	Run     Kind = "run"
	Wait    Kind = "wait" // for communication
	Data    Kind = "data"
	Launch  Kind = "launch"  // packing something, and handing it over to a communicator
	Receive Kind = "receive" // waiting for a value of another device, and taking it
	// Communicate goes on beside the others, in a lane of its own.
	Communicate Kind = "communicate"
	// Kernel is a part of a Run, in a lane of its own.
	Kernel Kind = "kernel"
)

var kinds = []Kind{Run, Wait, Data, Launch, Receive, Communicate, Kernel}

// The kinds of tasks.
const (
	Forward    = "forward"
	Backward   = "backward"
	Weights    = "weights"  // the gradients of weights, where ZeroBubble computes them apart
	Instance   = "instance" // forward and backward in one
	Accumulate = "accumulate"
	Apply      = "apply"
)

var taskKinds = []string{Forward, Backward, Weights, Instance, Accumulate, Apply}

// Task is the part of a pipeline that an event works on. Micro is -1 for what is done once in a step.
type Task struct {
	Kind                  string
	Stage, Micro, Replica int
}

// inPipeline tells whether the task is work on a micro-batch, which is what a pipeline keeps devices busy with. Adding its
// gradients to those of the micro-batches before is.
func (t Task) inPipeline() bool { return t.Kind == Accumulate || t.passes() }

// passes tells whether the task is a pass of a micro-batch through a stage.
func (t Task) passes() bool {
	return t.Kind == Forward || t.Kind == Backward || t.Kind == Weights || t.Kind == Instance
}

// Pipeline describes what ran in a step.
type Pipeline struct {
	// Strategy is the value of pipeline.strategy.
	Strategy string `json:"strategy"`
	// Stages of a model replica, and how many groups of devices they are on: fewer only if a group has several stages.
	Stages       int `json:"stages"`
	Groups       int `json:"groups"`
	MicroBatches int `json:"microBatches"`
	Replicas     int `json:"replicas"`
}

// String names the pipeline in a title.
func (p Pipeline) String() string {
	if p.Stages <= 1 {
		return fmt.Sprintf("1 stage, %s", words.Count(p.MicroBatches, "micro-batch"))
	}
	text := fmt.Sprintf("%s, %d stages", p.Strategy, p.Stages)
	if p.Groups > 0 && p.Groups < p.Stages {
		text += fmt.Sprintf(" on %s of devices", words.Count(p.Groups, "group"))
	}
	return text + ", " + words.Count(p.MicroBatches, "micro-batch")
}

// Event is something that took time on a device.
type Event struct {
	Device int
	// Lane is 0 for the device itself, which does one thing after the other, and 1 and up for its communicators, which may do
	// several at a time.
	Lane int
	Kind Kind
	// Op is how something is communicated, or was waited for: "all-reduce", "send", "load"; or what kind of kernel it is: "product".
	Op    string
	Name  string
	Start time.Time
	End   time.Time
	Bytes int64 // that were communicated: the larger of what a device gives and gets; or that a kernel reads and writes
	Flops int64 // of a kernel
	// Sites are the places in the model that a kernel comes from.
	Sites []Site
	Task  Task // what it was part of; the zero Task: nothing that has a name in a pipeline
	// Flow is the same for the Launch of a send and the Receive of what it sends, and for nothing else in the step.
	Flow string
}

// Site is a place in the model, and the share of a kernel that is its own.
type Site struct {
	Line      string  `json:"line,omitempty"`
	TaskGraph string  `json:"taskGraph,omitempty"`
	Scope     string  `json:"scope,omitempty"`
	Share     float64 `json:"share"`
}

// Memory is what lived on a device from some time on: bytes by use, or by place in the model.
type Memory struct {
	Device int
	At     time.Time
	Bytes  map[string]int64
}

// Step collects the events of one step. Adding is safe for concurrent use. A nil Step collects nothing.
type Step struct {
	Program  string
	Number   int
	Pipeline Pipeline
	// Workers is how many workers' steps [Join] put together, each with the clock of its machine; 0: it is one's own.
	Workers int
	// Predicted: nothing ran; it was simulated.
	Predicted bool
	// Overhead is what it took to write the timeline of the step before, after that one had ended. It is no time of the program's.
	Overhead time.Duration
	// Late is what it took to collect what devices tell after the step. It is no time of the program's, either.
	Late time.Duration
	// Fetched is how long the program waited for the dataset since the step before; 0: that is not known.
	Fetched time.Duration
	// Coarse: kernels and memory are not asked for, which take time to collect.
	Coarse bool

	// compared is what it shows two of, side by side; nil: it is one.
	compared *Comparison
	names    map[int]string // of devices, if their numbers do not say it
	mu       sync.Mutex
	events   []Event
	memory   []Memory
	sites    []Memory // by where it comes from
	peaks    []Peak
}

// Add notes an event. It ends now, unless it says when it ended.
func (s *Step) Add(e Event) {
	if s == nil {
		return
	}
	if e.End.IsZero() {
		e.End = time.Now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// AddMemory notes what lives on a device from now on.
func (s *Step) AddMemory(m Memory) {
	if s == nil {
		return
	}
	if m.At.IsZero() {
		m.At = time.Now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory = append(s.memory, m)
}

// Events returns what was collected, by start.
func (s *Step) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(s.events), func(a, b Event) int { return a.Start.Compare(b.Start) })
}

// Memory returns what lived on the devices, by time.
func (s *Step) Memory() []Memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	return byTime(s.memory)
}
