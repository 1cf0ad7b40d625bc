// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/easyparallel/epl/dashboard"
	"github.com/easyparallel/epl/rendezvous"
)

// event is what a worker tells the dashboard, as it wrote it.
type event struct {
	Worker int
	Text   json.RawMessage
}

// eventsFile is the number of the file that a worker writes its events to.
const eventsFile = 3

// show serves the dashboard, if there is to be one, and says where it is. What is said from then on is on it.
func (d *display) show(o Options, first int) error {
	if !o.Dashboard {
		return nil
	}
	if first > 0 {
		if !o.allocated { // then each worker has a launcher
			d.note("--dashboard: the launcher of the first worker shows the page")
		}
		return nil
	}
	s, err := dashboard.New(dashboard.Options{Address: o.DashboardAddress, Title: jobTitle(o.Command), Logs: true})
	if err != nil {
		return err
	}
	d.note("dashboard: %s", s.URL()) // before it has a dashboard: the URL may have a token
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dashboard = s
	return nil
}

// jobTitle names what is run.
func jobTitle(command []string) string {
	name := command[0]
	if _, packages, _, ok := splitGoRun(command); ok {
		name = packages[0]
	}
	return filepath.Base(name)
}

// over says how the job ended, and ends the dashboard.
func (d *display) over(status int, err error) {
	d.mu.Lock()
	s := d.dashboard
	d.dashboard = nil
	d.mu.Unlock()
	if s == nil {
		return
	}
	text := "all workers ended well"
	switch {
	case err != nil:
		text = err.Error()
	case status != 0:
		text = fmt.Sprintf("the job ended with status %d", status)
	}
	s.Put(dashboard.Event{Notice: &dashboard.Notice{Time: dashboard.At(time.Now()), Kind: dashboard.End, Text: text}})
	s.Close()
}

// told shows an event of a worker. What is none is skipped: a program may write whatever it likes to a pipe that it has.
func (d *display) told(x event) {
	e, err := dashboard.Decode(x.Text)
	if err != nil || e.Step == nil && e.Plan == nil && e.Timeline == nil {
		return
	}
	e.Worker = x.Worker
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.heard == nil {
		d.heard = map[int]bool{}
	}
	d.heard[x.Worker] = true
	d.dashboard.Put(*e)
}

// notice is for the dashboard.
func (d *display) notice(kind, text string) {
	d.dashboard.Put(dashboard.Event{Notice: &dashboard.Notice{Time: dashboard.At(time.Now()), Kind: kind, Text: text}})
}

// states shows how the workers are; over: none of them runs any more.
func (d *director) states(known []rendezvous.WorkerStatus, over bool) {
	d.display.mu.Lock()
	defer d.display.mu.Unlock()
	if d.display.dashboard == nil {
		return
	}
	n := len(known)
	for w := range d.hosts {
		n = max(n, w+1)
	}
	all := make([]dashboard.Worker, n)
	for i := range all {
		w := &all[i]
		w.Index, w.Host, w.State = i, d.hosts[i], dashboard.Starting
		if d.display.heard[i] {
			w.State = dashboard.Running
		}
		if i < len(known) {
			d.state(w, known[i])
		}
		if e, ended := d.exits[i]; ended {
			w.Doing, w.Since = "", 0
			if w.State = dashboard.Finished; e.failed() {
				w.State, w.Reason = dashboard.Failed, "it "+e.how()
			}
		} else if over && w.State != dashboard.Failed && w.State != dashboard.Finished {
			w.State, w.Doing, w.Since, w.Reason = dashboard.Finished, "", 0, "it was ended"
		}
	}
	d.display.dashboard.Put(dashboard.Event{Workers: all})
}

// state is what the rendezvous knows of a worker.
func (d *director) state(w *dashboard.Worker, s rendezvous.WorkerStatus) {
	if s.Host != "" {
		w.Host = s.Host
	}
	w.Step = s.Step
	switch {
	case s.Failed != "":
		w.State, w.Reason = dashboard.Failed, strings.TrimPrefix(s.Failed, "epl: ")
	case s.Left:
		w.State = dashboard.Finished
	case !s.Joined:
	case s.Silent:
		w.State, w.Since = dashboard.Silent, dashboard.At(s.Seen)
	case s.Busy != "":
		w.State, w.Doing, w.Since = dashboard.Busy, s.Busy, dashboard.At(s.Since)
	default:
		w.State = dashboard.Running
	}
}

// readEvents reports the events of a worker.
func (l *local) readEvents(worker int, r io.Reader) {
	dashboard.Receive(r, func(text []byte) { l.report(report{Event: &event{worker, text}}) })
}

// eventsPipe makes a pipe for the events of a worker, and what it is told of it.
func eventsPipe() (ours, theirs *os.File, variable string, err error) {
	if ours, theirs, err = os.Pipe(); err != nil {
		return nil, nil, "", err
	}
	value, err := dashboard.Pipe(eventsFile, theirs)
	if err != nil {
		ours.Close()
		theirs.Close()
	}
	return ours, theirs, dashboard.Env + "=" + value, err
}
