// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/dashboard"
	"github.com/easyparallel/epl/internal/hostmem"
	"github.com/easyparallel/epl/internal/words"
	"github.com/easyparallel/epl/rendezvous"
	"github.com/easyparallel/epl/wire"
)

// elastic runs a job whose workers are started anew when some are lost. All of them are: what the others have in memory cannot be
// rewound to before the loss.
type elastic struct {
	Options
	job     spec // what all generations have in common
	display *display
	guard   *guard
	cleanup func()
	memory  *hostmem.Pool // for copies of training state; nil: there is none

	sites    []*site
	meet     int            // port where the workers of several sites do
	listener *wire.Listener // for launchers of other sites; nil: none call
	came     chan struct{}  // one has called
	settled  time.Time      // until then the job waits for launchers although there are enough

	out      []time.Time // until when each seat, which is a place for a worker, stays empty
	past     []generation
	end      int64 // the step that training ends at
	saved    int64 // global step of the newest checkpoint
	copied   int64 // the newest step that is known to be in memory
	failures int   // without a new checkpoint in between
}

// checkElastic refuses what makes no sense of an elastic job.
func (o *Options) checkElastic() error {
	switch {
	case o.MinWorkers < 0 || o.MinWorkers > max(o.Workers, 1):
		return errors.Errorf("epl: --num_workers %d:%d: expected MIN:MAX, with MIN from 1 to MAX", o.MinWorkers, o.Workers)
	case o.MaxRestarts < 0:
		return errors.Errorf("epl: --max_restarts %d: expected a number of at least 0", o.MaxRestarts)
	case o.Spares < 0:
		return errors.Errorf("epl: --spares %d: expected a number of at least 0", o.Spares)
	case o.RestartDelay < 0:
		return errors.Errorf("epl: --restart_delay %v: expected a time such as 30s", o.RestartDelay)
	case o.MinWorkers == 0 && (o.MaxRestarts > 0 || o.RestartDelay > 0 || o.Spares > 0):
		return errors.New("epl: --max_restarts, --restart_delay and --spares are of an elastic job; give --num_workers, as N or MIN:MAX")
	case o.MinWorkers > 0 && o.Rendezvous != "":
		return errors.New("epl: --rdzv is not for elastic jobs (--num_workers MIN:MAX, --max_restarts): at an etcd machines are numbered in the order in which they come, and one launcher, on a machine that " +
			"all others know beforehand, has to look after the job and be called again when it is back; name the machines by --hosts or --machine_list")
	}
	return nil
}

// runElastic is [Run] for an elastic job.
func runElastic(ctx context.Context, o Options) (status int, err error) {
	o.Workers = max(o.Workers, 1)
	e := &elastic{Options: o, cleanup: func() {}, came: make(chan struct{}, 1)}
	defer func() { e.close(status, err) }()
	if e.job, err = newJob(&e.Options); err != nil {
		return badInput, err
	}
	rank, address, err := e.layout()
	if err != nil {
		return badInput, err
	}
	by, err := interruptible(ctx, o.Signals, func(ctx context.Context) error { return e.prepare(ctx, rank, address) })
	switch {
	case by != 0:
		return 128 + int(by), nil
	case err != nil:
		return badInput, err
	case rank > 0:
		return e.answer(ctx, address, rank)
	}
	defer func() { e.dismiss(status) }()
	for {
		if by := e.gather(ctx); by != 0 {
			return 128 + int(by), nil
		}
		status, again, err := e.generation(ctx)
		if !again || err != nil {
			return status, err
		}
	}
}

// prepare does once what all generations need.
func (e *elastic) prepare(ctx context.Context, rank int, address string) (err error) {
	e.display = newDisplay(e.Options)
	e.display.unused(e.Options)
	if err := e.display.show(e.Options, rank); err != nil {
		return err
	}
	if n := len(e.out); rank == 0 {
		if err := e.display.openLogs(e.Options, 0, n, n); err != nil {
			return err
		}
	}
	if address != "" && rank == 0 {
		host, port, _ := net.SplitHostPort(address)
		number, _ := strconv.Atoi(port)
		if err := e.listen(listenAt(host, number)); err != nil {
			return err
		}
		e.settled = time.Now().Add(gatherTime)
	}
	if e.Hosts != "" {
		return nil // the agents build it
	}
	if e.memory, err = hostmem.New(wire.NewToken()[:16], 4*e.sites[rank].seats); err != nil { // two of a worker, and two of the one before it
		return err
	}
	if e.memory != nil {
		e.job.Memory = e.memory.Name
	}
	mark := wire.NewToken()[:16]
	if e.guard, err = startGuard(e.Self, mark); err != nil {
		return err
	}
	building := append(slices.Clone(e.Environ), envMark+"="+mark)
	if e.job.Command, e.cleanup, err = buildOnce(ctx, e.Command, e.job.Directory, building, e.guard.removes); err != nil {
		return err
	}
	_, err = resolve(e.job.Command, e.job.Directory, e.Environ) // a spelling mistake
	return err
}

func (e *elastic) close(status int, err error) {
	if e.display != nil {
		e.display.close()
		e.display.over(status, err)
	}
	e.cleanup()
	e.guard.dismiss()
	e.memory.Close()
}

// ready are the seats that workers may be started for.
func (e *elastic) ready() (seats []int) {
	now := time.Now()
	for _, s := range e.sites {
		for seat := s.first; seat < s.first+s.seats; seat++ {
			if s.ready(now) && !e.out[seat].After(now) {
				seats = append(seats, seat)
			}
		}
	}
	return seats
}

// members are the seats of the next generation: those that have not failed, or the longest ago, come before the others.
func (e *elastic) members() []int {
	seats := e.ready()
	slices.SortStableFunc(seats, func(a, b int) int { return e.out[a].Compare(e.out[b]) })
	seats = seats[:min(len(seats), e.Workers)]
	slices.Sort(seats)
	return seats
}

// gather waits until enough workers can run, and returns the signal that ended that.
func (e *elastic) gather(ctx context.Context) (by syscall.Signal) {
	for waited := false; ; {
		n := len(e.ready())
		if n >= e.Workers || n >= e.MinWorkers && !e.settled.After(time.Now()) {
			e.settled = time.Time{}
			return 0
		}
		if n < e.MinWorkers && !waited && e.settled.IsZero() {
			waited = true
			e.display.note("%d of at least %d workers can run now; the job waits for the others: until --restart_delay (%v) is over for those that failed, "+
				"and until their machines are reached", n, e.MinWorkers, e.RestartDelay)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-e.came:
		case s := <-e.Signals:
			if s, ok := s.(syscall.Signal); ok {
				return s
			}
			return syscall.SIGTERM
		case <-ctx.Done():
			return syscall.SIGTERM
		}
	}
}

// generation runs the workers once, and tells whether they are to be started again.
func (e *elastic) generation(ctx context.Context) (status int, again bool, err error) {
	g := generation{Number: len(e.past) + 1}
	g.Members = e.members()
	d := newDirector(e.Options)
	d.display = e.display
	e.display.begin(g.Number, len(g.Members))
	d.done = func(known []rendezvous.WorkerStatus) string { return e.watch(&g, known) }
	by, err := interruptible(ctx, e.Signals, func(ctx context.Context) error { return d.prepare(ctx, e.Options, e.places(&g)) })
	switch gone := e.absent(&g); {
	case by != 0:
		return 128 + int(by), false, nil
	case err != nil && len(gone) > 0 && len(e.sites) > 1:
		e.display.note("%s; the job goes on without %s", strings.TrimPrefix(err.Error(), "epl: "), strings.Join(gone, ", "))
		return 1, true, nil
	case err != nil:
		return badInput, false, err
	}
	known, err := d.run(ctx, e.Signals)
	if err != nil {
		return 1, false, err
	}
	g.observe(known)
	e.end = max(e.end, g.End)
	if d.retired == "" {
		status = d.conclude(known)
	}
	g.end(d)
	e.past = append(e.past, g)
	if d.signal != 0 || g.Reason == "" {
		return status, false, nil
	}
	return status, e.goOn(&g), nil
}

// watch looks at a generation that runs, and returns why it is to be ended; "": it is not.
func (e *elastic) watch(g *generation, known []rendezvous.WorkerStatus) (why string) {
	before := g.Stepped
	g.observe(known)
	if n := len(e.past); before.IsZero() && !g.Stepped.IsZero() && n > 0 && !e.past[n-1].Died.IsZero() {
		e.display.note("generation %d took its first step %.1f s after the failure", g.Number, g.Stepped.Sub(e.past[n-1].Died).Seconds())
	}
	return e.enlarge(g)
}

// enlarge returns why a generation is to be ended so that the next has more workers: one that was out is back, and a checkpoint has
// been saved since.
func (e *elastic) enlarge(g *generation) (why string) {
	more := slices.DeleteFunc(e.ready(), func(seat int) bool { return slices.Contains(g.Members, seat) })
	if more = more[:min(len(more), e.Workers-len(g.Members))]; len(more) == 0 {
		return ""
	}
	if g.back == nil {
		g.back = new(int64)
		*g.back = max(g.Saved, g.Copied)
		e.display.note("%d more can run: taken in after the next checkpoint, or failure", len(more))
		return ""
	}
	if max(g.Saved, g.Copied) <= *g.back {
		return ""
	}
	return fmt.Sprintf("%d workers can run", len(g.Members)+len(more))
}

// goOn tells whether the workers are to be started anew after a generation, and says so.
func (e *elastic) goOn(g *generation) bool {
	if g.Saved > e.saved || g.Copied > e.copied {
		e.saved, e.copied, e.failures = max(e.saved, g.Saved), max(e.copied, g.Copied), 0
	}
	why := fmt.Sprintf("generation %d, of %s, ended after step %d", g.Number, words.Count(len(g.Members), "worker"), g.Step)
	if g.Failed {
		e.failures++
		for _, seat := range g.Lost {
			e.out[seat] = g.Died.Add(e.RestartDelay)
		}
		if loop := loops(e.past); loop != "" {
			e.display.say(dashboard.Failure, "the job ends: %s", loop)
			return false
		}
		if e.failures > e.MaxRestarts {
			e.display.say(dashboard.Failure, "the job ends: the workers were started anew %d times without a new checkpoint (--max_restarts)", e.MaxRestarts)
			return false
		}
		why += fmt.Sprintf("; restart %d of %d without a new checkpoint", e.failures, e.MaxRestarts)
	} else {
		why += ": " + g.Reason
	}
	from := "the beginning: no checkpoint was saved by env.Checkpoints"
	if e.copied > 0 && e.copied >= e.saved {
		from = fmt.Sprintf("the copies in memory, of step %d or later", e.copied)
	} else if e.saved > 0 {
		from = fmt.Sprintf("the checkpoint of step %d", e.saved)
	}
	e.display.say(dashboard.Restart, "%s; the next one has %d, and goes on from %s", why, max(len(e.members()), e.MinWorkers), from)
	return true
}
