// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/cores"
	"github.com/easyparallel/epl/internal/version"
	"github.com/easyparallel/epl/rendezvous"
	"github.com/easyparallel/epl/wire"
)

const (
	// strayGrace is how long a process may take to end that outlived its worker.
	strayGrace = time.Second
	// drainTime is how long to wait for the end of a worker's output once all of its processes are gone: one that
	// emptied its environment may still hold it open.
	drainTime = 2 * time.Second
)

// local is the crew of this machine.
type local struct {
	spec    spec
	report  func(report)
	mark    string
	command []string // as it can be started
	cleanup func()   // removes what was built
	guard   *guard
	hub     *rendezvous.Server
	failed  func() // reports, once, that the rendezvous has failed
	url     string
	environ []string // of the machine

	processes []*process
	over      chan struct{} // closed when all are gone
}

// prepare does all that can fail before a worker is started: it finds or builds the command, and begins to serve the
// rendezvous. environ is the environment of the machine, self is as in [Options].
func prepare(ctx context.Context, s spec, environ, self []string, say func(report)) (_ *local, err error) {
	l := &local{spec: s, report: say, environ: environ, over: make(chan struct{}), cleanup: func() {},
		mark: wire.NewToken()[:16]}
	defer func() {
		if err != nil {
			l.finish()
		}
	}()
	if l.guard, err = startGuard(self, l.mark); err != nil {
		return nil, err
	}
	building := slices.Concat(environ, s.Environ, []string{envMark + "=" + l.mark})
	if l.command, l.cleanup, err = buildOnce(ctx, s.Command, s.Directory, building, l.guard.removes); err != nil {
		return nil, err
	}
	if l.command, err = resolve(l.command, s.Directory, environ); err != nil {
		return nil, err
	}
	l.url = s.Meet
	security, err := l.security()
	if err != nil {
		return nil, err
	}
	if s.Serve != "" {
		if err := l.serve(security); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// serve begins to serve the rendezvous.
func (l *local) serve(security wire.Security) error {
	var err error
	l.hub, err = rendezvous.NewServer(l.spec.Serve, rendezvous.ServerOptions{
		Workers: l.spec.Workers, Security: security, Version: version.Version,
		Grace: 300 * time.Millisecond, // for the exit of the process, which says more than its closed connection
		Logf:  func(format string, args ...any) { l.note(strings.TrimPrefix(format, "epl: "), args...) },
	})
	if err != nil {
		return errors.Errorf("%v; is another job running here? Choose another --port", err)
	}
	if l.url == "" {
		l.url = "tcp://" + l.hub.Addr().String()
	}
	l.failed = sync.OnceFunc(func() { l.report(report{Failed: l.hub.Err().Error(), Blamed: l.hub.Culprits()}) })
	go func() {
		select {
		case <-l.over:
		case <-l.hub.Failed():
			l.failed()
		}
	}()
	return nil
}

// security is what the workers will read from their environment, so that what is wrong with it is found before they start.
func (l *local) security() (wire.Security, error) {
	environ := l.workerEnviron(l.spec.First, nil, 0)
	job, _, err := rendezvous.FromEnvironment(func(name string) (string, bool) {
		if name == rendezvous.EnvURL && l.url == "" {
			return fmt.Sprintf("tcp://127.0.0.1:%d", DefaultPort), true // any will do: the port is not known yet
		}
		return lookup(environ, name)
	})
	return job.Security, err
}

func (l *local) workerEnviron(worker int, slots []string, procs int) []string {
	return l.spec.environ(l.environ, worker, l.url, l.mark, slots, procs)
}

func (l *local) start() (err error) {
	slots, note := dealGPUs(gpus(l.environ, "/dev"), l.spec.LocalWorkers, l.spec.Devices)
	if note != "" && l.spec.Count == l.spec.LocalWorkers { // else whoever started the others has dealt them
		l.note("%s", note)
	}
	ownThread(l.over, func() {
		all, shares := cores.Mine(), l.shares()
		for i := range l.spec.Count {
			at := l.spec.seat(i)
			if err = l.startWorker(l.spec.First+i, slots[at], shares[(l.spec.LocalIndex+i)%len(shares)]); err != nil {
				break
			}
		}
		_ = cores.Bind(all) // it did so before
	})
	for _, p := range l.processes {
		go func() {
			e := p.wait()
			l.report(report{Exit: &e})
		}()
	}
	return err
}

// startWorker starts a worker on its share of the cores, to which it binds the calling thread: the process inherits that,
// and all that it starts.
func (l *local) startWorker(worker int, slots []string, s share) error {
	environ := l.workerEnviron(worker, slots, s.procs)
	if s.pin != nil {
		if err := cores.Bind(s.pin); err != nil {
			return errors.Errorf("epl: cannot bind worker %d to cores %s: %v; --no_pin does without", worker, cores.Text(s.pin), err)
		}
	}
	if l.spec.Debug {
		l.note("worker %d on %s: %s", worker, l.spec.Host, strings.Join(l.command, " "))
		if s.pin != nil {
			l.note("worker %d runs on cores %s", worker, cores.Text(s.pin))
		}
		l.note("worker %d has %s", worker, strings.Join(without(environ, l.environ), " "))
	}
	p := &process{worker: worker, cmd: exec.Command(l.command[0], l.command[1:]...)}
	p.cmd.Dir, p.cmd.Env = l.spec.Directory, environ
	if l.spec.Events {
		p.events = func(r io.Reader) { l.readEvents(worker, r) }
	}
	if err := p.start(func(stream int, r io.Reader) { l.read(worker, stream, r) }); err != nil {
		return err
	}
	l.processes = append(l.processes, p)
	return nil
}

// read reports a worker's output.
func (l *local) read(worker, stream int, r io.Reader) {
	cutLines(r, func(text string, update bool) {
		if l.hub != nil && l.hub.Err() != nil {
			l.failed() // before the line, which may repeat why
		}
		if !update || l.spec.Updates && worker == 0 {
			l.report(report{Line: &line{Worker: worker, Stream: stream, Text: text, Update: update}})
		}
	})
}

// without returns the variables that are not in the base, with the token hidden.
func without(environ, base []string) (vars []string) {
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if was, _ := lookup(base, name); was == value {
			continue
		}
		if name == rendezvous.EnvToken {
			variable = name + "=(hidden)"
		}
		vars = append(vars, variable)
	}
	return vars
}

func (l *local) note(format string, args ...any) {
	l.report(report{Note: fmt.Sprintf(format, args...)})
}

func (l *local) signal(s syscall.Signal) {
	for _, p := range l.processes {
		p.signal(s)
	}
}

func (l *local) kill() {
	l.signal(syscall.SIGKILL)
	sweep(l.mark, 0)
}

func (l *local) serves() bool { return l.hub != nil }

func (l *local) exited(worker int, how string) {
	switch {
	case l.hub == nil:
	case how == "":
		l.hub.WorkerEnded(worker)
	default:
		l.hub.WorkerExited(worker, how)
	}
}

func (l *local) status() []rendezvous.WorkerStatus {
	if l.hub == nil {
		return nil
	}
	return l.hub.Status()
}

func (l *local) finish() {
	sweep(l.mark, strayGrace)
	timer := time.AfterFunc(drainTime, func() {
		for _, p := range l.processes {
			p.closeOutputs()
		}
	})
	for _, p := range l.processes {
		p.readers.Wait()
	}
	timer.Stop()
	for _, p := range l.processes {
		p.closeOutputs()
	}
	close(l.over)
	if l.hub != nil {
		l.hub.Close()
	}
	l.cleanup()
	l.guard.dismiss()
}
