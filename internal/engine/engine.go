// Package engine turns recorded programs into running ones: place, improve, emit. It is what stands between the
// recorder, which GoMLX talks to, and the runtime.
package engine

import (
	"sync"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/record"
	"github.com/easyparallel/epl/runtime"
)

// Engine implements record.Engine on one device.
type Engine struct {
	*runtime.Data
	opts  Options
	inner compute.Backend

	mu       sync.Mutex
	programs []*Compiled
}

var _ record.Engine = (*Engine)(nil)

// Options of an engine.
type Options struct {
	Config  *config.Config
	Cluster *cluster.Cluster
	Passes  passes.Set
	// Dump is a directory for what every program looks like after every pass; "": none.
	Dump string
}

// Compiled is what became of one program.
type Compiled struct {
	Recorded  *ir.Program // as GoMLX built it
	Final     *ir.Program // as it runs
	Placement *cluster.Placement
	Steps     []passes.Step
	Err       error // why it was refused, if it was
}

// New makes an engine that runs programs on the inner backend.
func New(inner compute.Backend, opts Options) *Engine {
	return &Engine{Data: runtime.NewData(inner), opts: opts, inner: inner}
}

// Programs lists what was compiled so far, in order.
func (e *Engine) Programs() []*Compiled {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*Compiled(nil), e.programs...)
}

// Finalize implements record.Engine.
func (e *Engine) Finalize() { e.inner.Finalize() }

// Compile implements record.Engine.
func (e *Engine) Compile(p *ir.Program) (compute.Executable, error) {
	c := &Compiled{Recorded: p}
	e.mu.Lock()
	e.programs = append(e.programs, c)
	number := len(e.programs)
	e.mu.Unlock()
	exec, err := e.compile(c, number)
	c.Err = err
	return exec, err
}

func (e *Engine) compile(c *Compiled, number int) (compute.Executable, error) {
	var err error
	if c.Placement, err = e.place(c.Recorded); err != nil {
		return nil, errors.WithMessagef(err, "program %q", c.Recorded.Name)
	}
	final := c.Recorded.Clone()
	d := newDump(e.opts.Dump, number, c.Recorded)
	d.add("recorded", "what GoMLX built", final)
	c.Steps, err = passes.Run(final, e.opts.Passes, func(pass passes.Pass, p *ir.Program) { d.add(pass.Name, pass.Why, p) })
	if err != nil {
		return nil, err
	}
	if err := d.write(); err != nil {
		return nil, err
	}
	inner, err := emit.Program(e.inner, final)
	if err != nil {
		return nil, err
	}
	c.Final = final
	return runtime.NewExecutable(c.Recorded.Name, e.Data, inner), nil
}

// place finds the virtual devices of the program's TaskGraphs.
func (e *Engine) place(p *ir.Program) (*cluster.Placement, error) {
	var requests []cluster.TaskGraph
	for _, t := range p.TaskGraphs {
		requests = append(requests, cluster.TaskGraph{Name: t.Name, Devices: t.Devices})
	}
	cfg := e.opts.Config
	return cluster.Place(e.opts.Cluster, requests, cluster.Options{
		PreferIntraNode: cfg.Cluster.DevicePlacePreferIntraNode,
		Colocate:        cfg.Cluster.ColocateSplitAndReplicate,
		StagesPerDevice: cfg.Pipeline.StagesPerDevice,
	})
}
