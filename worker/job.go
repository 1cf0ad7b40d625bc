// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package worker is the control plane of one worker: it joins the other workers of its job, makes their world, and keeps them in step.
//
// What goes in is the cluster, and the facts that must be equal on all workers. What comes out is a [Job]: the world that programs
// communicate in, and the means to agree on programs, to read each other's variables, to say what takes long, and to leave.
// Packages rendezvous, wire and serve are behind it; only this package and the launcher know them. It assumes that workers with the same
// token belong to the same job and do not try to harm it.
package worker

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/faults"
	"github.com/easyparallel/epl/internal/version"
	"github.com/easyparallel/epl/rendezvous"
	"github.com/easyparallel/epl/serve"
)

// EnvURL is the variable that says where the workers meet.
const EnvURL = rendezvous.EnvURL

// Fact is something that must be equal on all workers.
type Fact = rendezvous.Fact

// Options of a job.
type Options struct {
	Cluster *cluster.Cluster
	Config  *config.Config
	// Facts must be equal on all workers, besides EPL's version, the configuration and the cluster.
	Facts []Fact
	// HandOut lets the rendezvous choose this worker's index; the cluster's means nothing.
	HandOut bool
	// Faults are to happen, for drills.
	Faults []faults.Fault
	// Lookup reads the environment.
	Lookup func(string) (string, bool)
}

// Job is this worker's part in a job of several.
type Job struct {
	World   *comm.World
	Worker  int   // this one
	Devices []int // of each worker; ranks count through them
	// Sliced: every worker has a stream of batches of its own. Else all read the same one.
	Sliced bool
	// Leaders is this worker's end among the first ranks of all workers; Dealing is another such, for datasets.
	Leaders, Dealing *comm.Communicator

	// Faults are those of this worker; nil: the job has none.
	Faults *faults.Injector

	copying *comm.Communicator // as Leaders, for copies of training state, which are made while programs run
	member  *rendezvous.Member
	timeout time.Duration
	server  *serve.Server
	lines   lines
	checks  bool // what travels over connections is checked
	logf    func(format string, args ...any)
	offered atomic.Bool // something, ever

	mu   sync.Mutex
	busy []string // what this worker is busy with: the last counts
	need []need   // what this worker waits for, outside the world: the last counts

	checkpoints rendezvous.Checkpoints
	endBefore   int64 // the step that training ended at in the generation before; 0: not known

	trouble   error                // an error of the user's program
	troubleAt int64                // how many steps it had taken then
	seen      map[int]busyInterval // what others were busy with

	activity activity
	joint    joint
	meeting  sync.Mutex // held by Meet
	visits   int        // calls of Meet
	meetings meetings
	joints   atomic.Int32 // Peers that were made
	values   values
	life     context.Context // ends with the reason when the job fails
	steps    atomic.Int64
	samples  atomic.Int64
	waited   atomic.Int64 // nanoseconds, for the data of others
	stop     chan struct{}
	stopped  sync.WaitGroup
	leave    func() error // once
}

type busyInterval struct {
	what string
	at   time.Time // when it was last seen so
}

// Join meets the other workers of the cluster, and returns when all have come and agree.
func Join(o Options) (*Job, error) {
	r, found, err := rendezvous.FromEnvironment(o.Lookup)
	if err != nil {
		return nil, err
	}
	workers := o.Cluster.Workers()
	if !found {
		return nil, errors.Errorf("epl: %s is %d, but %s does not say where the workers meet; start them with epl-launch, "+
			"or set it to first://HOST:PORT, a port of the first worker's host, and %s to a secret, in all of them",
			cluster.EnvNumWorkers, len(workers), rendezvous.EnvURL, rendezvous.EnvToken)
	}
	me := o.Cluster.WorkerIndex()
	r.Version, r.Workers, r.Index = version.Version, len(workers), me
	if o.HandOut {
		r.Index = -1
	}
	if r.Host = workers[me].Host; r.Host == "" {
		r.Host, _ = os.Hostname()
	}
	if !o.HandOut {
		r.Ranks = theRanks(workers, me)
	}
	r.Timeout = o.Config.Communication.Timeout
	r.Logf = log.New(os.Stderr, "", 0).Printf
	r.Facts = append(facts(o), o.Facts...)
	member, err := rendezvous.Join(context.Background(), r)
	if err != nil {
		return nil, err
	}
	j := &Job{member: member, timeout: r.Timeout, logf: r.Logf, checks: o.Config.Communication.Checksum && r.Security.TLS == nil, server: serve.NewServer(r.Timeout), seen: map[int]busyInterval{}, stop: make(chan struct{})}
	if err := j.connect(o, r.Security.TLS != nil); err != nil {
		member.Fail(err)
		j.server.Close()
		_ = member.Leave()
		return nil, err
	}
	var end context.CancelCauseFunc
	j.life, end = context.WithCancelCause(context.Background())
	j.stopped.Go(func() {
		select {
		case <-member.Done():
			end(member.Err())
		case <-j.stop:
		}
	})
	j.stopped.Go(j.report)
	j.leave = sync.OnceValue(j.goAway)
	if text, set := o.Lookup(cluster.EnvGenerationEnd); set {
		j.endBefore, _ = strconv.ParseInt(text, 10, 64)
	}
	return j, nil
}

// theRanks are those of a worker, for people.
func theRanks(workers []cluster.Worker, me int) string {
	first := 0
	for _, w := range workers[:me] {
		first += len(w.Devices)
	}
	text := fmt.Sprint("rank ", first)
	if n := len(workers[me].Devices); n > 1 {
		text = fmt.Sprintf("ranks %d to %d", first, first+n-1)
	}
	return text
}

// Elastic tells whether a launcher starts the workers anew when some are lost. Then a worker joins although it is alone, so that the launcher knows how far it is.
func Elastic(lookup func(string) (string, bool)) bool {
	generation, _ := lookup(cluster.EnvGeneration)
	return generation != ""
}

// facts are what all workers must agree in.
func facts(o Options) (all []Fact) {
	all = append(all, Fact{Name: "cluster", Value: o.Cluster.String()})
	for _, e := range o.Config.Entries() {
		if e.Key == "cluster.run_visible_devices" { // which devices is a worker's own business; how many is the cluster's
			continue
		}
		all = append(all, Fact{Name: "configuration " + e.Key, Value: fmt.Sprint(e.Value)})
	}
	return all
}

// connect makes the world of all devices.
func (j *Job) connect(o Options, tls bool) error {
	layout := comm.Layout{Worker: j.member.Index()}
	for i, w := range j.member.Workers() {
		n := len(o.Cluster.Workers()[i].Devices)
		j.Devices = append(j.Devices, n)
		layout.Workers = append(layout.Workers, comm.Place{Ranks: n, Host: w.HostID})
	}
	j.Worker, j.Sliced = layout.Worker, o.Config.IO.Slicing
	j.Faults = faults.New(o.Faults, faults.Job{Worker: j.Worker, WorkerOf: j.WorkerOf})
	if tls && slices.ContainsFunc(o.Faults, func(f faults.Fault) bool { return f.Kind == faults.Corrupt }) {
		return errors.Errorf("epl: %s: corrupt: the connections of this job are encrypted, and what is changed above the encryption nobody notices; leave it out, or TLS", faults.Env)
	}
	if j.Faults.Links() { // shared memory would bypass them
		for i := range layout.Workers {
			layout.Workers[i].Host += fmt.Sprint(" worker ", i)
		}
	}
	var err error
	j.World, err = comm.New(layout, mesh{j.member, j}, comm.Options{
		Timeout: j.timeout, MPI: o.Config.Communication.Backend == config.BackendMPI, Unchecked: !j.checks, Streams: o.Config.Communication.Streams})
	if err != nil {
		return err
	}
	leaders, err := j.World.Group(j.Firsts())
	if err != nil {
		return err
	}
	for channel, end := range []**comm.Communicator{&j.Leaders, &j.Dealing, &j.copying} {
		if *end, err = leaders.Communicator(j.First(), channel); err != nil {
			return err
		}
	}
	if err := j.Agree("the start", ""); err != nil { // from here on all answer questions
		return err
	}
	j.openLines()
	return nil
}

// Firsts are the ranks of the workers' first devices.
func (j *Job) Firsts() (ranks []int) {
	at := 0
	for _, n := range j.Devices {
		ranks = append(ranks, at)
		at += n
	}
	return ranks
}

// Name says which worker it is, and where.
func (j *Job) Name(worker int) string { return j.member.Workers()[worker].String() }

// First is the rank of this worker's first device.
func (j *Job) First() int { return j.Firsts()[j.Worker] }

// WorkerOf is the worker of a rank.
func (j *Job) WorkerOf(rank int) int {
	w := 0
	for rank >= j.Devices[w] {
		rank -= j.Devices[w]
		w++
	}
	return w
}

// others are all workers but this one.
func (j *Job) others() (all []int) {
	for w := range j.Devices {
		if w != j.Worker {
			all = append(all, w)
		}
	}
	return all
}

// Here counts the workers and the devices of the job on this worker's machine, its own included.
func (j *Job) Here(c *cluster.Cluster) (workers, devices int) {
	all := j.member.Workers()
	for i, w := range all {
		if w.HostID == all[j.member.Index()].HostID {
			workers, devices = workers+1, devices+len(c.Workers()[i].Devices)
		}
	}
	return workers, devices
}

// report tells the others now and then what can be told late: progress, and what happens too often to be told each time.
func (j *Job) report() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var evaluating, saving func()
	defer j.note(&evaluating, "", false)
	defer j.note(&saving, "", false)
	for {
		select {
		case <-j.stop:
			return
		case <-tick.C:
		}
		j.member.Progress(j.steps.Load(), j.samples.Load())
		evaluates, saves := j.activity.busy(time.Now(), min(lately, j.timeout/4))
		j.note(&evaluating, "evaluating", evaluates)
		j.note(&saving, "saving", saves)
	}
}

// note begins or ends being busy; over is nil while it is not.
func (j *Job) note(over *func(), what string, is bool) {
	switch {
	case is && *over == nil:
		*over = j.Busy(what)
	case !is && *over != nil:
		(*over)()
		*over = nil
	}
}

// Running notes that a program runs that is no training step, until the returned function is called.
func (j *Job) Running() (over func()) { return j.activity.run() }

// Training notes that a training step runs, until the returned function is called.
func (j *Job) Training() (over func()) {
	trained, together := j.activity.train(), j.joint.begin()
	return func() {
		together()
		trained()
	}
}

// Busy tells the other workers that this one does something that they have to wait for, until the returned function is
// called: their patience does not end meanwhile.
func (j *Job) Busy(what string) (over func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.busy = append(j.busy, what)
	j.member.SetBusy(what)
	return sync.OnceFunc(func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		at := slices.Index(j.busy, what)
		j.busy = slices.Delete(j.busy, at, at+1)
		if n := len(j.busy); n > 0 {
			j.member.SetBusy(j.busy[n-1])
		} else {
			j.member.SetBusy("")
		}
	})
}

// Stepped counts a training step.
func (j *Job) Stepped(samples int64) {
	j.member.Progress(j.steps.Add(1), j.samples.Add(samples))
}

// WaitForData counts how long this worker has waited for the data of others.
func (j *Job) WaitForData(d time.Duration) { j.waited.Add(int64(d)) }

// WaitedForData is how long that was, since the start.
func (j *Job) WaitedForData() time.Duration { return time.Duration(j.waited.Load()) }

// Consumed says how many batches of the data complete steps have consumed, those of earlier runs included.
func (j *Job) Consumed(batches int64) { j.member.Consumed(batches) }

// Loaded says which checkpoint this worker goes on from, by its global step.
func (j *Job) Loaded(step int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.checkpoints.Loaded = step
	j.member.SetCheckpoints(j.checkpoints)
}

// End says at which step training ends, by the loop's count. The first time it is an error, in an elastic job, if the generation before meant to end
// earlier, and had not come there.
func (j *Job) End(step int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if before := j.endBefore; before > 0 && j.checkpoints.Loaded < before && step > before {
		return errors.Errorf("epl: the training loop ends at step %d, and before the workers were started anew it ended at step %d: a program of an elastic job "+
			"must end at a global step, whatever it goes on from; use loop.RunToGlobalStep instead of RunSteps", step, before)
	}
	j.endBefore, j.checkpoints.End = 0, step
	j.member.SetCheckpoints(j.checkpoints)
	return nil
}

// Saved says that a checkpoint is there, by its global step.
func (j *Job) Saved(step int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.checkpoints.Saved = step
	j.member.SetCheckpoints(j.checkpoints)
}

// Agree returns when all workers have given the same text for a subject. Who does not come in time, and is not busy, is
// named.
func (j *Job) Agree(subject, text string) error {
	ctx, cancel := j.patiently(context.Background(), j.others(), "agree on "+subject, &moment{})
	defer cancel()
	err := j.member.Agree(ctx, subject, text)
	if stall := new(comm.StallError); errors.As(context.Cause(ctx), &stall) && err != nil && j.member.Err() == nil {
		err = stall
		j.Fail(err)
	}
	return err
}

// HandOut gives all workers the text of the first one. All call it at the same point of the same program.
func (j *Job) HandOut(program, text string) (string, error) {
	buf, size := []byte(text), []int64{int64(len(text))}
	send := func(buf any) error {
		return j.Leaders.Do(comm.Call{Op: comm.Broadcast, Buf: buf, Program: program})
	}
	if err := send(size); err != nil {
		return "", err
	}
	if j.Worker > 0 {
		buf = make([]byte, size[0])
	}
	err := send(buf)
	return string(buf), err
}

// lastBusy returns what a worker is or was busy with, and when it was last known to be.
func (j *Job) lastBusy(worker int) (string, time.Time) {
	s := j.member.State(worker)
	j.mu.Lock()
	defer j.mu.Unlock()
	if s.Busy != "" {
		j.seen[worker] = busyInterval{s.Busy, s.Seen}
	}
	return j.seen[worker].what, j.seen[worker].at
}

// mesh is the member as a world sees it.
type mesh struct {
	*rendezvous.Member
	job *Job
}

// Connect implements comm.Mesh.
func (m mesh) Connect(ctx context.Context, worker int, name string) (net.Conn, error) {
	c, err := m.Member.Connect(ctx, worker, name)
	if err != nil {
		return nil, err
	}
	return m.job.Faults.Conn(c, worker), nil
}

// Busy implements comm.Mesh.
func (m mesh) Busy(worker int) (string, time.Time) { return m.job.lastBusy(worker) }

// Answer implements comm.Mesh: what is no question of ours is the world's.
func (m mesh) Answer(f func(question string) string) {
	m.Member.Answer(func(question string) string {
		for _, known := range []func(string) (string, bool){m.job.answer, m.job.answerMeeting, m.job.answerValue} {
			if answer, ours := known(question); ours {
				return answer
			}
		}
		return f(question)
	})
}
