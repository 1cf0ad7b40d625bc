// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package dashboard shows a training while it runs: one page in a browser, which is brought up to date by server-sent events.
//
// What goes in is a stream of [Event]s: what workers tell of their steps, plan and devices, and what a launcher knows of its workers and what they print. What comes
// out is a [Server]: a page that needs nothing from outside, and the data for it. Workers of a launcher tell it through a pipe ([Sender], [Receive]); a program
// without one serves its own page.
//
// Memory is bounded however long a training runs: curves are thinned out, and of lines and notices the last ones are kept. A browser that is too slow is
// disconnected, and goes on where it was when it comes back, or begins anew.
//
// It may assume that who sends events is the user's own program, but not that its texts are harmless: the page makes text of them, and runs no script but its own.
package dashboard

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// Event is something that is to be shown; one of the fields is set, besides the worker.
type Event struct {
	Worker   int       `json:"worker"` // who it is about
	Step     *Step     `json:"step,omitempty"`
	Plan     *Plan     `json:"plan,omitempty"`
	Timeline *Timeline `json:"timeline,omitempty"`
	Log      string    `json:"log,omitempty"` // a line that the worker has printed
	Workers  []Worker  `json:"workers,omitempty"`
	Notice   *Notice   `json:"notice,omitempty"`
	// Generation is that of an elastic job that begins: its workers were started anew.
	Generation int `json:"generation,omitempty"`
}

// Step is what a worker knows of its steps since it last told.
type Step struct {
	Number  int64   `json:"number"`            // the global step
	Time    int64   `json:"time"`              // when it ended, in milliseconds since 1970
	Seconds float64 `json:"seconds"`           // that a step took, the mean since the last record
	Samples float64 `json:"samples,omitempty"` // a second, of all workers
	Tokens  float64 `json:"tokens,omitempty"`  // the same; 0: not known
	Flops   float64 `json:"flops,omitempty"`   // the same, of the model; 0: not known
	MFU     float64 `json:"mfu,omitempty"`     // the part of what all devices could do; 0: that is not known
	// Values are the loss and metrics, by name. The first worker tells them.
	Values  map[string]Number `json:"values,omitempty"`
	Devices []Device          `json:"devices,omitempty"` // of the worker
}

// Device is what a device did.
type Device struct {
	Rank  int              `json:"rank"`
	Parts *Parts           `json:"parts,omitempty"` // of the last step; nil: not known
	Peak  int64            `json:"peak,omitempty"`  // the most bytes that lived on it
	Uses  map[string]int64 `json:"uses,omitempty"`  // the same by what they are for
	Sent  int64            `json:"sent,omitempty"`  // bytes in a step, through the host
}

// Parts are what the time of a step consists of, for a device, in seconds.
type Parts struct {
	Compute float64 `json:"compute"`
	Exposed float64 `json:"exposed"` // communication, while it computed nothing
	Waiting float64 `json:"waiting"` // for other devices
	Data    float64 `json:"data"`    // for batches, and copying them
	Other   float64 `json:"other"`   // between steps: hooks, saving, evaluation
}

// partNames are in the order of the page.
var partNames = []string{"compute", "exposed", "waiting", "data", "other"}

func (p *Parts) list() []float64 {
	return []float64{p.Compute, p.Exposed, p.Waiting, p.Data, p.Other}
}

// Plan is what was decided before the first step.
type Plan struct {
	Program string       `json:"program"`
	Summary [][2]string  `json:"summary"` // names and texts
	Devices []PlanDevice `json:"devices"` // of all workers, by rank
	Seconds float64      `json:"seconds,omitempty"`
	Samples int          `json:"samples,omitempty"` // in a step
	// Page is the plan as a page of its own. It is not part of what is streamed.
	Page string `json:"page,omitempty"`
}

// PlanDevice is what a device is for.
type PlanDevice struct {
	Rank    int    `json:"rank"`
	Worker  int    `json:"worker"`
	Replica int    `json:"replica"` // -1: the plan does not use it
	Works   []Work `json:"works,omitempty"`
	Peak    int64  `json:"peak,omitempty"`  // bytes that it needs
	Limit   int64  `json:"limit,omitempty"` // bytes that it has; 0: not known
}

// Work is a TaskGraph on a device, or a part of it.
type Work struct {
	TaskGraph int    `json:"taskgraph"`
	Text      string `json:"text"`
	Share     string `json:"share,omitempty"`
}

// Timeline is what the devices of a worker did in a step.
type Timeline struct {
	Step  int64    `json:"step"`
	Micro int64    `json:"us"`    // how long it took, in microseconds
	Names []string `json:"names"` // of what they did
	Rows  []Row    `json:"rows"`
	Lost  int      `json:"lost,omitempty"` // bars that there is no room for: the shortest
}

// Row is a device of a timeline.
type Row struct {
	Rank int   `json:"rank"`
	Bars []Bar `json:"bars"`
}

// Bar is something that a device did: its kind ([Kinds]), when it began and how long it took, in microseconds, its name's index, and the micro-batch, or -1.
type Bar [5]int64

// Kinds of bars.
const (
	KindForward = iota
	KindBackward
	KindApply
	KindWait
	KindData
	KindLaunch
	KindCommunicate
)

// Worker is how a worker is.
type Worker struct {
	Index  int    `json:"index"`
	Host   string `json:"host,omitempty"`
	State  string `json:"state"`            // one of the constants below
	Doing  string `json:"doing,omitempty"`  // if it is busy: what with
	Since  int64  `json:"since,omitempty"`  // when that began, in milliseconds since 1970
	Step   int64  `json:"step,omitempty"`   // that it has taken since it was started
	Reason string `json:"reason,omitempty"` // how it ended
}

// States of workers.
const (
	Starting = "starting"
	Running  = "running"
	Busy     = "busy"
	Silent   = "silent"
	Finished = "finished"
	Failed   = "failed"
)

// Notice is something that happened to the job.
type Notice struct {
	Time int64  `json:"time"` // in milliseconds since 1970
	Kind string `json:"kind"` // one of the constants below
	Text string `json:"text"`
}

// Kinds of notices.
const (
	Note    = "note"
	Failure = "failure"
	Restart = "restart"
	End     = "end" // of the job
)

// At is a time as events have it, by the wall clock: to be shown, not to be waited for.
func At(t time.Time) int64 { return t.UnixMilli() }

// Number is a float64 that may be not finite, which JSON has no number for: "NaN", "Infinity", "-Infinity".
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	x := float64(n)
	switch {
	case math.IsNaN(x):
		return []byte(`"NaN"`), nil
	case math.IsInf(x, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(x, -1):
		return []byte(`"-Infinity"`), nil
	}
	return strconv.AppendFloat(nil, x, 'g', 7, 64), nil // more digits than a curve shows
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *Number) UnmarshalJSON(text []byte) error {
	x, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	*n = Number(x)
	return err
}

// What an event may have at most: who sends more has gone mad, and the rest is cut off.
const (
	mostValues  = 64
	mostName    = 100
	mostLine    = 1000
	mostRanks   = 4096
	mostWorkers = 1024
	mostPage    = 4 << 20
)

// Decode reads an event that another process wrote, and refuses what cannot be meant.
func Decode(text []byte) (*Event, error) {
	var e Event
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, errors.Errorf("epl: the dashboard got an event that is none: %v", err)
	}
	return &e, e.check()
}

// check refuses what would make the server grow without bound.
func (e *Event) check() error {
	if e.Worker < 0 || e.Worker >= mostWorkers || len(e.Workers) > mostWorkers {
		return errors.Errorf("epl: the dashboard shows at most %d workers", mostWorkers)
	}
	if s := e.Step; s != nil {
		for _, d := range s.Devices {
			if d.Rank < 0 || d.Rank >= mostRanks {
				return errors.Errorf("epl: the dashboard shows at most %d devices", mostRanks)
			}
		}
	}
	if p := e.Plan; p != nil {
		if len(p.Devices) > mostRanks {
			return errors.Errorf("epl: the dashboard shows at most %d devices", mostRanks)
		}
		if len(p.Page) > mostPage {
			p.Page = ""
		}
	}
	return nil
}

// cut shortens a text to so many bytes, at the end of a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
