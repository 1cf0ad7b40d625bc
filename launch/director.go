// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/easyparallel/epl/dashboard"
	"github.com/easyparallel/epl/rendezvous"
)

const (
	// termAfter and killAfter are when workers that were interrupted, and have not ended, are asked again and killed: all
	// must be gone within 5 seconds.
	termAfter = 2 * time.Second
	killAfter = 3 * time.Second
	// failGrace is how long the other workers may take to end by themselves, and to say why, when one has failed.
	failGrace = 3 * time.Second
	// statusEvery is how often the live row about the job is drawn.
	statusEvery = 500 * time.Millisecond
)

// director runs the crews of a job as one.
type director struct {
	display *display
	hosts   map[int]string // the machine of each worker that is ours
	events  chan report
	over    chan struct{} // closed when nobody takes events any more
	crews   []crew
	hub     crew // that of the crews where the workers meet; nil: elsewhere

	running int          // workers
	exits   map[int]exit // how those that have ended did, but for those that were ended
	first   *exit        // the first of them that failed
	failure string       // why the job stops, as the rendezvous says
	blamed  []int        // the workers whose fault that is, as the rendezvous says
	ending  bool         // workers are being ended: how they end no longer matters
	signal  syscall.Signal
	grace   time.Duration // that workers have after it
	term    <-chan time.Time
	kill    <-chan time.Time
	rates   map[int]*rate // by worker

	// done, if not nil, is asked now and then why the workers are to be ended although they are well; "": they are not.
	done    func(known []rendezvous.WorkerStatus) string
	retired string    // why they were ended so
	died    time.Time // when the first failure was heard of
}

func newDirector(o Options) *director {
	return &director{grace: o.grace(), events: make(chan report), over: make(chan struct{})}
}

// take is what crews report to. Lines are shown at once, so that a terminal that stands still slows the workers down but
// not the director.
func (d *director) take(r report) {
	switch {
	case r.Line != nil:
		d.display.line(*r.Line)
	case r.Event != nil:
		d.display.told(*r.Event)
	case r.Note != "":
		d.display.note("%s", r.Note)
	default:
		if r.Failed != "" {
			d.display.failed(r.Blamed, r.Failed) // before lines that only repeat it
		}
		select {
		case d.events <- r:
		case <-d.over:
		}
	}
}

// run starts the workers, waits for all of them, and returns what is known of each.
func (d *director) run(ctx context.Context, signals <-chan os.Signal) (known []rendezvous.WorkerStatus, err error) {
	for _, c := range d.crews {
		if c.serves() {
			d.hub = c
		}
	}
	for _, c := range d.crews {
		if err := c.start(); err != nil {
			d.finish(true)
			return nil, err
		}
	}
	d.running, d.exits, d.rates = len(d.hosts), map[int]exit{}, map[int]*rate{}
	ticker := time.NewTicker(statusEvery)
	defer ticker.Stop()
	cancelled, unread := ctx.Done(), d.display.unread
	for d.running > 0 || d.needed() {
		select {
		case r := <-d.events:
			d.happened(r)
		case s := <-signals:
			if s == syscall.SIGUSR1 {
				d.passOn(syscall.SIGUSR1)
			} else {
				d.interrupt(s)
			}
		case <-unread:
			if unread = nil; d.signal == 0 { // an interrupt at the terminal ends the reader too, and is no second one
				d.interrupt(syscall.SIGPIPE)
			}
		case <-cancelled:
			d.interrupt(syscall.SIGTERM)
			cancelled = nil
		case <-d.term:
			d.end(syscall.SIGTERM)
		case <-d.kill:
			d.end(syscall.SIGKILL)
		case <-ticker.C:
			d.display.setStatus(d.line())
			d.states(d.status(), false)
			if d.done != nil && d.died.IsZero() && !d.ending {
				d.retire(d.done(d.status()))
			}
		}
	}
	d.hear()
	known = d.status()
	d.finish(false)
	if r, far := d.hub.(*remote); far {
		known = r.status() // the last that its agent has said
	}
	d.states(known, true)
	return known, nil
}

// hear waits for what the rendezvous has to say of a failure: the last worker may have ended before.
func (d *director) hear() {
	if d.first == nil || d.failure != "" || d.ending || d.hub == nil || len(d.hosts) < 2 {
		return
	}
	for late := time.After(hearFor); d.failure == ""; {
		select {
		case r := <-d.events:
			d.happened(r)
		case <-late:
			return
		}
	}
}

// hearFor is longer than a rendezvous that knows of a failure takes to say so.
const hearFor = time.Second

// retire ends the workers although they are well, if there is a reason to.
func (d *director) retire(why string) {
	if why != "" {
		d.retired = why
		d.end(syscall.SIGTERM)
		d.kill = time.After(killAfter - termAfter)
	}
}

// needed tells whether workers that other launchers started still meet here, although ours have ended well.
func (d *director) needed() bool {
	if d.ending || d.first != nil || d.failure != "" {
		return false
	}
	return slices.ContainsFunc(d.status(), func(w rendezvous.WorkerStatus) bool {
		_, ours := d.hosts[w.Index]
		return !ours && w.Joined && !w.Left && w.Failed == ""
	})
}

// finish ends the crews, all at the same time.
func (d *director) finish(kill bool) {
	done := make(chan struct{})
	for _, c := range d.crews {
		go func() {
			if kill {
				c.kill()
			}
			c.finish()
			done <- struct{}{}
		}()
	}
	for left := len(d.crews); left > 0; {
		select {
		case <-done:
			left--
		case <-d.events: // of no more interest
		}
	}
	close(d.over)
	d.display.setStatus("")
}

// happened takes note of how a worker ended, or that the workers have been told to stop.
func (d *director) happened(r report) {
	switch {
	case r.Failed != "":
		if d.failure == "" {
			d.failure, d.blamed = r.Failed, r.Blamed
			if !d.ending && len(d.hosts) > 1 {
				d.display.announce(d.blamed)
			}
		}
		d.stop()
	case r.Exit != nil:
		d.running--
		if d.ending {
			return
		}
		d.exits[r.Exit.Worker] = *r.Exit
		how := ""
		if r.Exit.failed() {
			how = "it " + r.Exit.how()
			if d.first == nil {
				d.first = r.Exit
			}
		}
		if d.hub != nil {
			d.hub.exited(r.Exit.Worker, how)
		}
		if how != "" {
			d.stop()
		}
	}
	if d.running > 0 && d.term != nil && !d.ending && d.onlyStopped() {
		d.end(syscall.SIGKILL) // nobody will end by himself
	}
}

// onlyStopped tells whether all workers that still run are to blame, and give no sign of life.
func (d *director) onlyStopped() bool {
	known := d.status()
	for worker := range d.hosts {
		if _, ended := d.exits[worker]; ended {
			continue
		}
		if worker >= len(known) || known[worker].Failed == "" || known[worker].Joined && !known[worker].Silent {
			return false
		}
	}
	return true
}

// stop gives the workers a moment to end by themselves.
func (d *director) stop() {
	if d.died.IsZero() {
		d.died = time.Now()
	}
	if d.term == nil && !d.ending {
		d.term, d.kill = time.After(failGrace), time.After(failGrace+killAfter-termAfter)
	}
}

// interrupt passes a signal on to the workers; the second one kills them.
func (d *director) interrupt(s os.Signal) {
	if d.signal != 0 {
		d.end(syscall.SIGKILL)
		return
	}
	d.signal = syscall.SIGTERM
	if s, ok := s.(syscall.Signal); ok {
		d.signal = s
	}
	pass := d.signal
	if pass != syscall.SIGINT {
		pass = syscall.SIGTERM // the others are about our terminal and our output, not theirs
	}
	why := d.signal.String()
	if d.signal == syscall.SIGPIPE {
		why = "nobody reads standard output any more"
	}
	d.display.note("%s: ending the workers; again to kill them", why)
	d.end(pass)
	d.term, d.kill = time.After(d.grace-(killAfter-termAfter)), time.After(d.grace)
}

// passOn sends a signal to the workers that is theirs to understand.
func (d *director) passOn(s syscall.Signal) {
	d.display.note("%s is passed on to the workers", s)
	for _, c := range d.crews {
		c.signal(s)
	}
}

// end sends a signal to all workers that still run.
func (d *director) end(s syscall.Signal) {
	d.ending = true
	for _, c := range d.crews {
		if s == syscall.SIGKILL {
			c.kill()
		} else {
			c.signal(s)
		}
	}
}

func (d *director) status() []rendezvous.WorkerStatus {
	if d.hub == nil {
		return nil
	}
	return d.hub.status()
}

// conclude returns the exit status of the job, and shows the end of the worker that is to blame, and why. The rendezvous
// knows best who that is: those who hear of it may be the first to end.
func (d *director) conclude(known []rendezvous.WorkerStatus) int {
	if d.signal != 0 {
		return 128 + int(d.signal)
	}
	for _, w := range known {
		if w.Failed != "" && !slices.Contains(d.blamed, w.Index) {
			d.failure, d.blamed = w.Failed, append(d.blamed, w.Index)
		}
	}
	if d.first == nil && d.failure == "" {
		return 0
	}
	culprit := d.culprit()
	if culprit == nil {
		d.display.say(dashboard.Failure, "the job failed: %s", d.reason())
		return 1
	}
	d.display.last(culprit.Worker, d.reason()+doing(culprit, known))
	return culprit.status()
}

// reason says who is to blame, how that worker ended, and why.
func (d *director) reason() string {
	culprit := d.culprit()
	why, _, _ := strings.Cut(strings.TrimPrefix(d.failure, "epl: "), "\n")
	if culprit == nil {
		return why
	}
	how := d.ended(culprit) + " " + culprit.how()
	if why != "" && !strings.Contains(why, culprit.how()) {
		how += ": " + why
	}
	return how
}

// ended names the worker that is to blame, and all that are if they ended alike: of a connection that broke, either end may be.
func (d *director) ended(culprit *exit) string {
	name := func(worker int) string { return "worker " + itoa(worker) + " on " + d.hosts[worker] }
	if len(d.blamed) == 2 {
		one, two := d.exits[d.blamed[0]], d.exits[d.blamed[1]]
		if one.failed() && two.failed() && one.how() == two.how() {
			return name(one.Worker) + " and " + name(two.Worker)
		}
	}
	return name(culprit.Worker)
}

// culprit returns the end of the worker that is to blame, nil if that is not one of ours, or not known.
func (d *director) culprit() *exit {
	var found *exit
	for _, worker := range d.blamed {
		e, ended := d.exits[worker]
		_, ours := d.hosts[worker]
		switch {
		case ended && e.failed():
			return &e
		case found != nil || !ours:
		case ended:
			found = &exit{Worker: worker, Lost: "ended with status 0 before its time"}
		default:
			found = &exit{Worker: worker, Lost: hadToBeEnded}
		}
	}
	if found == nil && d.blamed == nil {
		return d.first
	}
	return found
}
