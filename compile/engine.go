// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package compile connects the recorder, which GoMLX talks to, with plan and the runner.
//
// What goes in is a recorded program. What comes out is an executable of the runner, and a [Compiled], for explain. In between compile has
// the plan decided or a pinned one applied, lets all workers agree on it, and refuses a plan that does not fit into memory. A program
// without gradients is planned again when its variables move. It may assume that recorded programs are verified.
package compile

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/exec"
	"github.com/easyparallel/epl/explain"
	"github.com/easyparallel/epl/faults"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/record"
	"github.com/easyparallel/epl/simulate"
	"github.com/easyparallel/epl/trace"
	"github.com/easyparallel/epl/worker"
)

// Engine implements record.Engine on the devices of one worker.
type Engine struct {
	exec.Runner
	// Differ is called when devices hold different bits of what they hold together; nil: nobody cares. It is to be set before programs run.
	Differ func()

	opts  Options
	trace timeline

	mu       sync.Mutex
	batches  int         // that a training step takes, whatever its plan; 0: as the configuration says
	steppers int         // training programs so far
	programs []*Compiled // nil while one is being compiled
	verdict  *verdict    // of the training program beside whose compilation first values are computed; nil: there is none
	guards   []*guarded  // training programs that are not to use what is not finite
	checked  []exec.Checked
}

var _ record.Engine = (*Engine)(nil)

// Options of an engine.
type Options struct {
	Config *config.Config
	// Target is what plans are made for: its cluster, passes and inner backend. The rest of it is the engine's.
	plan.Target
	// Dump is a directory for what every program looks like after every pass; "": none.
	Dump string
	// Trace is a file for the timeline of training steps; "": none. TraceSteps are which.
	Trace      string
	TraceSteps trace.Range
	// Waits is how long training has waited for batches, in nanoseconds; nil: nobody measures it.
	Waits *atomic.Int64
	// Pinned is the plan of training programs; nil: it is decided. PinnedFile is where it was read.
	Pinned     *plan.Plan
	PinnedFile string
	// Plan is a file for the plan of the first training program, which then does not run; "": all run.
	Plan string
	// Simulate: a step by that plan is simulated, too, on Hardware. Changes are what else it is simulated with.
	Simulate bool
	Changes  []simulate.WhatIf
	// TF32: devices round float32 products to TF32 if amp.tf32 says so.
	TF32 bool
	// Job is nil if this worker is alone.
	Job *worker.Job
	// Faults happen in steps, for drills; nil: none do.
	Faults *faults.Injector
	// Observer follows training steps; nil: nobody does.
	Observer Observer

	// Host is the memory of this machine, where devices are its cores; 0: they are not, or it is not known.
	Host int64

	own int64 // what a device says that it has of memory; 0: it says nothing
}

// Compiled is what became of one program.
type Compiled struct {
	explain.Program
	source  *ir.Program     // as GoMLX built it, without the stages of a cut
	trained []*plan.Trained // training programs that were there before it
	apart   bool            // this worker calls it alone
	// fingerprint is that of what it became, for workers that run it together.
	fingerprint func() string
	stepper     int                // which training program of a job it is, from 1
	changes     []simulate.Changed // what else was simulated
	verdict     *verdict           // nil: nobody waits for it
}

func newCompiled(p *ir.Program, number int, cfg *config.Config) *Compiled {
	c := &Compiled{Program: explain.Program{Result: plan.Result{Recorded: p}, Number: number, Config: cfg}, source: p}
	c.fingerprint = sync.OnceValue(func() string { return c.Final.Fingerprint() })
	return c
}

// New makes an engine whose programs the runner runs, on the devices of the cluster's local worker.
func New(opts Options, runner exec.Runner) *Engine {
	collectLate()
	e := &Engine{Runner: runner, opts: opts, trace: timeline{file: opts.Trace, which: opts.TraceSteps, waits: opts.Waits}}
	e.opts.Slicing, e.opts.Timeline, e.opts.Planner = opts.Config.IO.Slicing, opts.Trace != "" || opts.Simulate, runner.Planner()
	if opts.Plan != "" && opts.Hardware.Processors() {
		e.opts.Planner = nil // this machine's engine knows nothing of them
	}
	e.opts.own = runner.Memory()
	if j := opts.Job; j != nil && j.Worker > 0 {
		e.trace.file = ofWorker(opts.Trace, j.Worker)
		e.opts.Dump = "" // the first worker has the same programs
	}
	return e
}

// Programs lists what was compiled so far, in order.
func (e *Engine) Programs() []*Compiled {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.programs), func(c *Compiled) bool { return c == nil })
}

// Explain prints how every program was understood, and what was done with it.
func (e *Engine) Explain(w io.Writer) error {
	var s strings.Builder
	for i, c := range e.Programs() {
		if i > 0 {
			s.WriteString("\n")
		}
		c.Write(&s)
	}
	if s.Len() == 0 {
		s.WriteString("no program was compiled yet\n")
	}
	_, err := io.WriteString(w, s.String())
	return err
}

// Deals tells whether a training step may take several batches of a dataset.
func (e *Engine) Deals() bool {
	cfg := e.opts.Config
	return e.opts.Cluster.TotalDevices() > 1 || cfg.Pipeline.NumMicroBatch > 1 || cfg.Auto.GlobalBatch > 0 || e.kept() > 1
}

// Keep lets training programs that are compiled from now on take so many batches in a step, whatever the number of model replicas.
func (e *Engine) Keep(batches int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches = batches
}

func (e *Engine) kept() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.batches
}

// Batches are those that a step of the training programs takes; 0: there is none, or they differ.
func (e *Engine) Batches() (n int) {
	for _, c := range e.Programs() {
		if !c.source.IsTraining() || c.Err != nil {
			continue
		}
		if b := c.Plan.Batches(); n == 0 {
			n = b
		} else if n != b {
			return 0
		}
	}
	return n
}

// Finalize implements record.Engine.
func (e *Engine) Finalize() {
	e.Runner.Finalize()
	e.trace.close(os.Stderr)
}

// Compile implements record.Engine.
func (e *Engine) Compile(p *ir.Program) (compute.Executable, error) { return e.CompileBeside(p, nil) }

// CompileBeside implements record.Starter.
func (e *Engine) CompileBeside(p *ir.Program, first func()) (compute.Executable, error) {
	if err := e.Closed(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.programs = append(e.programs, nil)
	c := newCompiled(p, len(e.programs), e.opts.Config)
	besideOf := e.verdict
	if first != nil && e.opts.early(p) {
		c.verdict = &verdict{given: make(chan struct{})}
		e.verdict = c.verdict
	}
	e.mu.Unlock()
	if c.verdict != nil { // now that the program has its number
		defer e.forget(c.verdict)
		defer beside(first)()
		defer c.verdict.give(false) // unless it was given
	}
	if e.opts.Job != nil {
		defer e.opts.Job.Busy("compiling")()
	}
	c.trained = e.trained()
	w := &watch{}
	exec, err := e.compile(c, w)
	e.mu.Lock()
	e.programs[c.Number-1] = c
	e.mu.Unlock()
	if err == nil && !p.IsTraining() {
		exec = e.follow(exec, c)
	}
	if err == nil {
		exec = e.observed(exec, c, w)
	}
	if err == nil && besideOf != nil && len(p.Inputs) == 0 && !p.IsTraining() {
		exec = awaiting{exec, besideOf}
	}
	return exec, err
}

// compile makes c's program run. Whatever comes of it, what it looked like on the way is dumped.
func (e *Engine) compile(c *Compiled, w *watch) (x compute.Executable, err error) {
	d, err := newDump(e.opts, c)
	if err != nil {
		return nil, err
	}
	d.add("recorded", "what GoMLX built", c.Recorded)
	defer func() {
		c.Err = err
		if dumpErr := d.write(); dumpErr != nil && x != nil {
			x.Finalize()
			x, err = nil, dumpErr
		}
	}()
	collect := collectLess()
	defer func() {
		if err != nil || !c.Recorded.IsTraining() {
			collect() // else when its first step has run
		}
	}()
	if err := e.unmarked(c.source); err != nil {
		return nil, err
	}
	if err := e.plan(c, d.look()); err != nil {
		return nil, err
	}
	if d.keep {
		if err := e.opts.simulate(c); err != nil {
			return nil, err
		}
	}
	if e.opts.Config.AMP.DebugLog && (e.opts.Job == nil || e.opts.Job.Worker == 0) { // the others have the same programs
		for _, line := range c.AMP {
			fmt.Fprintln(os.Stderr, line)
		}
	}
	for _, w := range c.Warnings {
		e.Notice(w[0], "epl: "+w[1], true)
	}
	if e.opts.Plan != "" && c.Recorded.IsTraining() {
		return nil, e.opts.writePlan(c, d)
	}
	if e.opts.own == 0 { // else it is known better when it is compiled
		if err := e.opts.fits(c); err != nil {
			return nil, err
		}
	}
	if e.opts.Host > 0 && c.Recorded.IsTraining() {
		for _, device := range e.predicted(c) {
			collectLater(device.PeakBytes)
		}
	}
	c.verdict.give(true)
	defer func() {
		if err == nil && !c.Recorded.IsTraining() {
			c.together(x)
		} else if err == nil {
			if err = e.opts.measured(x, c); err != nil {
				x.Finalize()
				x = nil
				return
			}
			e.isChecked(x)
			x = e.watched(e.guarded(accounted{start(x, collect), e.opts, c}, c), c)
		}
	}()
	switch {
	case c.Schedule == nil:
		return e.Whole(c.Final, e.onDevice(&c.Result, e.noFeed(c)))
	case c.Together:
		return &exec.Signature{Program: c.source}, nil // what runs is made when it is called: see deal
	}
	o := e.forward(&c.Result)
	if o.NoFeed = e.noFeed(c); c.Recorded.IsTraining() {
		o.Forward, o.Alone, o.NoFeed = false, false, ""
		o.Trace, o.Traced = e.traced(w)
		if e.opts.Config.Communication.FP16 {
			o.FP16Scale = float64(e.opts.Config.Communication.FP16Scale)
		}
		e.checks(&o)
		if j := e.opts.Job; j != nil {
			o.Stepped, o.Number = j.Stepped, c.stepper
			if err := e.agree(c); err != nil {
				return nil, err
			}
		}
	}
	return e.Steps(c.Final, c.Schedule, o)
}

// plan makes of a recorded program what runs, by a plan that is decided, or that is pinned. look sees the program on its way.
func (o Options) plan(c *Compiled, look func(name, why string, p *ir.Program)) error {
	c.source = c.Recorded
	t := o.Target
	t.Look, t.Trained, t.Apart = look, c.trained, c.apart
	var r *plan.Result
	var err error
	if o.Pinned != nil && c.source.IsTraining() {
		c.Plan = o.Pinned
		r, err = c.Plan.Apply(c.source, t)
		err = plan.In(o.PinnedFile, err)
	} else {
		c.Plan, r, err = plan.Decide(c.source, o.Config, t)
	}
	c.Result = *r
	if err != nil {
		return err
	}
	if c.Config, err = c.Plan.Chosen(o.Config); err != nil {
		return err
	}
	note := func(line string) { c.Notes = append(c.Notes, plan.Note{Line: line}) }
	switch a := o.Config.AMP; {
	case a.Level == "" || !c.Recorded.IsTraining():
	case !a.LossScale.Dynamic:
		note(fmt.Sprintf("loss scale: %s; a step whose gradients are not finite is skipped, many in a row are warned of", a.LossScale))
	case a.DType == config.Float16:
		note("loss scale: dynamic; a step whose gradients are not finite is skipped and halves it, many good ones double it; " +
			"many skipped ones in a row are warned of")
	}
	switch {
	case !o.Config.AMP.TF32:
	case o.TF32:
		note("amp.tf32: float32 products and convolutions round their operands to TF32, 10 bits of mantissa")
	default:
		const idle = "amp.tf32 has no effect: only GPUs have TF32, by the inner backend xla, and this program keeps full float32"
		note(idle)
		c.Warnings = append(c.Warnings, [2]string{"tf32", idle})
	}
	if c.Schedule != nil && c.Config.Offload.Level != "" && c.source.IsTraining() {
		note(explain.Offloaded(c.Schedule))
	}
	if Decided != nil && c.source.IsTraining() {
		Decided(c.source, c.Plan, o.Target)
	}
	return nil
}

// Decided, if not nil, is called with every training program that was planned, and its plan. It is for tests.
var Decided func(p *ir.Program, pl *plan.Plan, t plan.Target)
