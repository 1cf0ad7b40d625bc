// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/easyparallel/epl/internal/version"
)

// What is kept of things that go on for ever.
const (
	mostLines   = 200 // of each worker
	mostNotices = 200
	mostSeries  = 96
	// Updates that a browser may have missed are kept for it.
	mostUpdates     = 256
	mostUpdateBytes = 4 << 20
	// mostAtOnce bounds what an update has of a kind: a worker may print faster than anybody reads.
	mostAtOnce = 100
)

// flushEvery is how often browsers are told.
const flushEvery = 200 * time.Millisecond

// update is what browsers are told: what has changed, or, if Reset is set, all that is known.
type update struct {
	Reset    bool              `json:"reset,omitempty"`
	Title    string            `json:"title,omitempty"`
	Version  string            `json:"version,omitempty"`
	Began    int64             `json:"began,omitempty"` // by the server's clock, in milliseconds
	Now      int64             `json:"now"`
	Logs     bool              `json:"logs,omitempty"` // what workers print is known
	Curves   map[string]curve  `json:"curves,omitempty"`
	Points   []added           `json:"points,omitempty"`
	Steps    []workerStep      `json:"steps,omitempty"` // the last of each worker
	Plan     *Plan             `json:"plan,omitempty"`
	HasPage  bool              `json:"hasPage,omitempty"` // the plan is a page, too
	Lines    map[int][]string  `json:"lines,omitempty"`
	Workers  []Worker          `json:"workers,omitempty"`
	Notices  []Notice          `json:"notices,omitempty"`
	Timeline map[int]*Timeline `json:"timeline,omitempty"`
	Restarts int               `json:"restarts,omitempty"`
	Ended    bool              `json:"ended,omitempty"`
}

// added is a record of a curve.
type added struct {
	Name  string `json:"name"`
	Step  int64  `json:"step"`
	Time  int64  `json:"time"`
	Value Number `json:"value"`
}

type workerStep struct {
	Worker int `json:"worker"`
	*Step
}

// store is all that is known of a job.
type store struct {
	title string
	began time.Time
	logs  bool
	epoch string // of this server: numbers of updates of another one mean nothing here

	mu        sync.Mutex
	series    map[string]*series
	steps     map[int]*Step
	plan      *Plan
	page      string
	lines     map[int][]string
	workers   []Worker
	notices   []Notice
	timelines map[int]*Timeline
	restarts  int
	ended     bool

	next    update // what has changed since browsers were told
	timer   *time.Timer
	readers int
	number  int64 // of the last update
	updates [][]byte
	first   int64 // number of the first of these
	size    int
	newer   chan struct{} // closed when there is a newer update
	closed  bool
	too     bool // much has changed to be told one by one
}

func newStore(title string, logs bool, epoch string) *store {
	return &store{title: title, began: time.Now(), logs: logs, epoch: epoch, series: map[string]*series{}, steps: map[int]*Step{}, lines: map[int][]string{}, timelines: map[int]*Timeline{},
		first: 1, newer: make(chan struct{})}
}

// put takes an event.
func (s *store) put(e *Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	switch {
	case e.Step != nil:
		s.steps[e.Worker] = e.Step
		if e.Worker == 0 {
			s.record(e.Step)
		}
		s.next.Steps = slices.DeleteFunc(s.next.Steps, func(x workerStep) bool { return x.Worker == e.Worker })
		s.next.Steps = append(s.next.Steps, workerStep{e.Worker, e.Step})
	case e.Plan != nil:
		p := *e.Plan
		s.page, p.Page = p.Page, ""
		s.plan, s.next.Plan, s.next.HasPage = &p, &p, s.page != ""
	case e.Timeline != nil:
		s.timelines[e.Worker] = e.Timeline
		if s.next.Timeline == nil {
			s.next.Timeline = map[int]*Timeline{}
		}
		s.next.Timeline[e.Worker] = e.Timeline
	case e.Workers != nil:
		if slices.Equal(s.workers, e.Workers) {
			return
		}
		s.workers, s.next.Workers = e.Workers, e.Workers
		for w := range s.steps { // those of a generation before that had more
			if w >= len(e.Workers) {
				delete(s.steps, w)
				delete(s.timelines, w)
			}
		}
	case e.Notice != nil:
		n := *e.Notice
		n.Text = cut(n.Text, mostLine)
		s.notices = last(append(s.notices, n), mostNotices)
		s.next.Notices = last(append(s.next.Notices, n), mostAtOnce)
		if n.Kind == End {
			s.ended, s.next.Ended = true, true
		}
	case e.Generation > 0:
		s.restarts = e.Generation - 1
		s.next.Restarts = s.restarts
	default:
		if s.next.Lines == nil {
			s.next.Lines = map[int][]string{}
		}
		text := cut(e.Log, mostLine)
		s.lines[e.Worker] = last(append(s.lines[e.Worker], text), mostLines)
		s.next.Lines[e.Worker] = last(append(s.next.Lines[e.Worker], text), mostAtOnce)
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(flushEvery, s.flush)
	}
}

// last are the last n of a list. Its array does not grow for ever.
func last[T any](list []T, n int) []T {
	if len(list) <= n {
		return list
	}
	if cap(list) > 4*n {
		return slices.Clone(list[len(list)-n:])
	}
	return list[len(list)-n:]
}

// record adds to the curves what the first worker tells of a step; the parts of a step are the means over the devices of all workers.
func (s *store) record(x *Step) {
	add := func(name string, value float64) {
		name = cut(name, mostName)
		c := s.series[name]
		if c == nil {
			if len(s.series) >= mostSeries {
				return
			}
			c = &series{stride: 1}
			s.series[name] = c
		}
		c.add(x.Number, x.Time, value)
		if len(s.next.Points) < mostAtOnce*mostSeries {
			s.next.Points = append(s.next.Points, added{name, x.Number, x.Time, Number(value)})
		} else {
			s.too = true
		}
	}
	if x.Seconds > 0 {
		add("epl/step seconds", x.Seconds)
	}
	for name, value := range map[string]float64{"epl/samples per second": x.Samples, "epl/tokens per second": x.Tokens, "epl/flops per second": x.Flops, "epl/mfu": x.MFU} {
		if value > 0 {
			add(name, value)
		}
	}
	for i, name := range slices.Sorted(maps.Keys(x.Values)) {
		if i < mostValues {
			add("value/"+name, float64(x.Values[name]))
		}
	}
	sums, n := make([]float64, len(partNames)), 0
	for _, step := range s.steps {
		for _, d := range step.Devices {
			if d.Parts != nil {
				n++
				for i, v := range d.Parts.list() {
					sums[i] += v
				}
			}
		}
	}
	for i, name := range partNames {
		if n > 0 {
			add("part/"+name, sums[i]/float64(n))
		}
	}
}

// flush tells browsers what has changed. If there are none, those that come are told all.
func (s *store) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushLocked()
}

func (s *store) flushLocked() {
	s.timer = nil
	next := s.next
	s.next = update{}
	s.number++
	if s.readers == 0 || s.too {
		s.updates, s.size, s.first, s.too = nil, 0, s.number+1, false
		s.tell()
		return
	}
	next.Now = time.Now().UnixMilli()
	text := encode(next)
	s.updates, s.size = append(s.updates, text), s.size+len(text)
	for len(s.updates) > mostUpdates || s.size > mostUpdateBytes && len(s.updates) > 1 {
		s.size -= len(s.updates[0])
		s.updates, s.first = s.updates[1:], s.first+1
	}
	s.tell()
}

// tell wakes those that wait for more.
func (s *store) tell() {
	close(s.newer)
	s.newer = make(chan struct{})
}

// encode never fails: all numbers that may be not finite are Numbers.
func encode(u update) []byte {
	text, err := json.Marshal(u)
	if err != nil {
		text, _ = json.Marshal(update{Now: u.Now, Notices: []Notice{{Time: u.Now, Kind: Note, Text: "epl: internal error: the dashboard: " + err.Error()}}})
	}
	return text
}

// all is all that is known.
func (s *store) all() []byte {
	u := update{Reset: true, Title: s.title, Version: version.Version, Began: s.began.UnixMilli(), Now: time.Now().UnixMilli(), Logs: s.logs, Curves: map[string]curve{}, Plan: s.plan, HasPage: s.page != "",
		Lines: s.lines, Workers: s.workers, Notices: s.notices, Timeline: s.timelines, Restarts: s.restarts, Ended: s.ended}
	for name, c := range s.series {
		u.Curves[name] = c.curve()
	}
	for _, w := range slices.Sorted(maps.Keys(s.steps)) {
		u.Steps = append(u.Steps, workerStep{w, s.steps[w]})
	}
	return encode(u)
}

// snapshot is all that is known now.
func (s *store) snapshot() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all()
}

// since returns what a browser has to be told that has had the update of an ID, as server-sent events; newer is closed when there is more. Whoever has had none, or
// one that is too old or of another server, is told all.
func (s *store) since(id string) (events []byte, newID string, newer <-chan struct{}, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch, number, _ := strings.Cut(id, "-")
	had, err := strconv.ParseInt(number, 10, 64)
	var b bytes.Buffer
	if epoch != s.epoch || err != nil || had+1 < s.first || had > s.number {
		if s.timer != nil { // what is told as a whole is not told again
			s.timer.Stop()
			s.flushLocked()
		}
		newID = fmt.Sprintf("%s-%d", s.epoch, s.number)
		writeEvent(&b, newID, s.all())
	} else {
		newID = fmt.Sprintf("%s-%d", s.epoch, s.number)
		for n := had + 1; n <= s.number; n++ {
			writeEvent(&b, fmt.Sprintf("%s-%d", s.epoch, n), s.updates[n-s.first])
		}
	}
	return b.Bytes(), newID, s.newer, s.closed
}

func writeEvent(b *bytes.Buffer, id string, data []byte) {
	fmt.Fprintf(b, "id: %s\ndata: %s\n\n", id, data)
}

// reader counts a browser, until the returned function is called.
func (s *store) reader() (gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.readers--
	}
}

// close tells browsers the last that there is to tell. Nothing is taken any more.
func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.closed, s.ended, s.next.Ended = true, true, true
	s.flushLocked()
}
