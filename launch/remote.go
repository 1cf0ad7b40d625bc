// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/rendezvous"
)

// order is what an agent is told, after its spec; one of the fields is set.
type order struct {
	Start  bool           `json:",omitempty"`
	Signal syscall.Signal `json:",omitempty"`
	Kill   bool           `json:",omitempty"`
	Finish bool           `json:",omitempty"` // where the connection stays: there are no more orders
	Exited *told          `json:",omitempty"`
}

// told is what a crew is told about another one's worker.
type told struct {
	Worker int
	How    string
}

// agentEnd is how long an agent that should be finished may take to say so.
const agentEnd = 10 * time.Second

// remote is the crew of another machine, reached by ssh or by a connection. Its agent there ends the workers when the connection ends, so
// that nothing is left if this process or the network dies.
type remote struct {
	spec   spec
	report func(report)
	input  io.WriteCloser
	cut    func() // ends the connection at once
	ready  chan error
	over   chan struct{} // closed when the connection has ended

	mu      sync.Mutex
	running map[int]bool // workers that have been started, and whose exit has not been reported
	known   []rendezvous.WorkerStatus
	ended   bool // the agent said that it has finished
}

// connect prepares the crew of another machine.
func connect(ctx context.Context, s spec, ssh, self []string, say func(report)) (*remote, error) {
	far, err := overShell(s.Host, s.Directory, ssh, self, func(text string) { say(report{Note: s.Host + ": " + text}) })
	if err != nil {
		return nil, err
	}
	r := newRemote(s, say)
	r.input, r.cut = far.input, far.cut
	go func() {
		r.listen(json.NewDecoder(far.output))
		r.lost(far.wait())
	}()
	r.send(s)
	return r.await(ctx)
}

func newRemote(s spec, say func(report)) *remote {
	return &remote{spec: s, report: say, ready: make(chan error, 1), over: make(chan struct{}), running: map[int]bool{}}
}

// await returns when the agent is ready.
func (r *remote) await(ctx context.Context) (*remote, error) {
	select {
	case err := <-r.ready:
		if err != nil {
			r.finish()
			return nil, err
		}
		return r, nil
	case <-ctx.Done():
		r.finish()
		return nil, ctx.Err()
	}
}

// listen takes the agent's reports until its end.
func (r *remote) listen(in *json.Decoder) {
	for {
		var rep report
		if err := in.Decode(&rep); err != nil {
			return
		}
		switch {
		case rep.Ready:
			r.ready <- nil
		case rep.Error != "":
			r.ready <- errors.Errorf("epl: on %s: %s", r.spec.Host, strings.TrimPrefix(rep.Error, "epl: "))
		case rep.End:
			r.mu.Lock()
			r.ended = true
			r.mu.Unlock()
			return
		case rep.Status != nil:
			r.mu.Lock()
			r.known = rep.Status
			r.mu.Unlock()
		default:
			if rep.Exit != nil {
				r.mu.Lock()
				delete(r.running, rep.Exit.Worker)
				r.mu.Unlock()
			}
			r.report(rep)
		}
	}
}

// lost reports the end of the connection, and of the workers that were behind it.
func (r *remote) lost(err error) {
	how := "the connection ended"
	if err != nil {
		how = "the connection ended with " + err.Error()
	}
	select {
	case r.ready <- errors.Errorf("epl: cannot run epl-launch on %s: %s; try: ssh %s epl-launch --version", r.spec.Host, how, r.spec.Host):
	default:
	}
	r.mu.Lock()
	lost := r.running
	r.running = map[int]bool{}
	r.mu.Unlock()
	for worker := range lost {
		r.report(report{Exit: &exit{Worker: worker, Lost: "was lost with its machine: " + how}})
	}
	close(r.over)
}

// alive tells whether the agent said that it has finished, and so may be told again.
func (r *remote) alive() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// send tells the agent something. That it does not arrive is noticed by listen.
func (r *remote) send(what any) { _ = tell(r.input, what) }

// tell says something to another launcher: a line of JSON, in one write.
func tell(w io.Writer, what any) error { return json.NewEncoder(w).Encode(what) }

// reporter says to another launcher what happens here.
func reporter(w io.Writer) func(report) {
	var mu sync.Mutex
	return func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = tell(w, r)
	}
}

func (r *remote) start() error {
	r.mu.Lock()
	for i := range r.spec.Count {
		r.running[r.spec.First+i] = true
	}
	r.mu.Unlock()
	select {
	case <-r.over:
		return errors.Errorf("epl: the connection to %s ended before its workers were started", r.spec.Host)
	default:
	}
	r.send(order{Start: true})
	return nil
}

func (r *remote) signal(s syscall.Signal) { r.send(order{Signal: s}) }
func (r *remote) kill()                   { r.send(order{Kill: true}) }
func (r *remote) serves() bool            { return r.spec.Serve != "" }

func (r *remote) exited(worker int, how string) { r.send(order{Exited: &told{worker, how}}) }

func (r *remote) status() []rendezvous.WorkerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

func (r *remote) finish() {
	r.input.Close()
	timer := time.AfterFunc(agentEnd, r.cut)
	<-r.over
	timer.Stop()
}

// Agent runs the crew of this machine for a launcher on another one, whose orders come on the input and whose reports go
// to the output. When the input ends, the launcher is finished or lost, and so are the workers. It returns the exit status.
func Agent(input io.Reader, output io.Writer, signals <-chan os.Signal, self []string) int {
	say := reporter(output)
	in := json.NewDecoder(bufio.NewReader(input))
	var first struct {
		summons
		spec
	}
	if err := in.Decode(&first); err != nil {
		say(report{Error: "this is for epl-launch on another machine, not for people"})
		return 2
	}
	if first.Spec == nil {
		return serve(first.spec, os.Environ(), self, in, say, signals)
	}
	return stay(first.summons, self, in, say, signals)
}

// serve runs a crew by the orders that follow its spec, and returns the exit status of the agent.
func serve(s spec, environ, self []string, in *json.Decoder, say func(report), signals <-chan os.Signal) int {
	running := make(chan exit)
	l, err := prepare(context.Background(), s, environ, self, func(r report) {
		say(r)
		if r.Exit != nil {
			running <- *r.Exit
		}
	})
	if err != nil {
		say(report{Error: err.Error()})
		return 1
	}
	say(report{Ready: true})

	orders := make(chan order)
	go func() {
		defer close(orders)
		for {
			var o order
			if in.Decode(&o) != nil || o.Finish {
				return
			}
			orders <- o
		}
	}()
	agent{l, say}.obey(orders, running, signals)
	if l.serves() {
		say(report{Status: l.status()})
	}
	l.finish()
	say(report{End: true})
	return 0
}

// agent is a local crew that obeys.
type agent struct {
	*local
	say func(report)
}

// obey carries out orders until there are no more, and then sees to it that the workers end.
func (a agent) obey(orders <-chan order, exits <-chan exit, signals <-chan os.Signal) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	left := 0
	var deadline <-chan time.Time
	end := func(grace time.Duration) {
		if orders = nil; deadline == nil {
			a.signal(syscall.SIGTERM)
			deadline = time.After(grace)
		}
	}
	for orders != nil || left > 0 {
		select {
		case o, more := <-orders:
			switch {
			case !more:
				end(killAfter - termAfter)
			case o.Start:
				if err := a.start(); err != nil {
					a.say(report{Note: err.Error()})
				}
				left = len(a.processes)
				for i := left; i < a.spec.Count; i++ {
					a.say(report{Exit: &exit{Worker: a.spec.First + i, Lost: "could not be started"}})
				}
			case o.Signal != 0:
				a.signal(o.Signal)
			case o.Kill:
				a.kill()
			case o.Exited != nil:
				a.exited(o.Exited.Worker, o.Exited.How)
			}
		case <-exits:
			left--
		case <-signals:
			end(max(a.spec.Grace, killAfter) - termAfter)
		case <-deadline:
			a.kill()
		case <-tick.C:
			if a.serves() {
				a.say(report{Status: a.status()})
			}
		}
	}
}
