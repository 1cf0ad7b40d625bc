// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/compute/gobackend" // the engine runs on it what it does not know
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cost/links"
	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// engines are devices that compute at the same time.
type engines struct {
	o       Options
	threads int
	devices []compute.Backend
	fuses   bool
}

func newEngines(o Options, threads, devices int) (*engines, error) {
	e := &engines{o: o, threads: threads, fuses: o.Inner == "" || o.Inner == "cpu"}
	for range devices {
		inner := o.Inner
		if e.fuses {
			inner = "go:ops_sequential"
		}
		b, err := compute.NewWithConfig(inner)
		if err != nil {
			e.close()
			return nil, errors.WithMessagef(err, "epl: a device of %q", o.Inner)
		}
		if e.fuses {
			b = cpu.New(b, threads)
		}
		e.devices = append(e.devices, b)
	}
	return e, nil
}

func (e *engines) close() {
	for _, b := range e.devices {
		b.Finalize()
	}
}

// time is how many seconds a program usually takes while all devices run it.
func (e *engines) time(x program) (float64, error) {
	l, err := e.load(x)
	if err != nil {
		return 0, err
	}
	defer l.free()
	return l.time(e.o.Each)
}

// loaded is a program that is ready to run on devices.
type loaded struct {
	runs  []func() (time.Duration, error) // of each
	frees []func()
}

func (e *engines) load(x program) (*loaded, error) {
	l := &loaded{runs: make([]func() (time.Duration, error), len(e.devices)), frees: make([]func(), len(e.devices))}
	failed := make([]error, len(e.devices))
	var done sync.WaitGroup
	for i, b := range e.devices {
		done.Go(func() { l.runs[i], l.frees[i], failed[i] = load(b, x) })
	}
	done.Wait()
	for _, err := range failed {
		if err != nil {
			l.free()
			return nil, err
		}
	}
	return l, nil
}

func (l *loaded) free() {
	for _, free := range l.frees {
		if free != nil {
			free()
		}
	}
}

// time is how many seconds the program usually takes: devices begin together, and the slowest counts.
func (l *loaded) time(each time.Duration) (float64, error) {
	took, failed := make([][]time.Duration, len(l.runs)), make([]error, len(l.runs))
	var done sync.WaitGroup
	together := &rounds{devices: int32(len(l.runs))}
	for i, run := range l.runs {
		done.Go(func() {
			if took[i], failed[i] = repeat(run, each, together); failed[i] != nil {
				together.over.Store(true)
			}
		})
	}
	done.Wait()
	for _, err := range failed {
		if err != nil {
			return 0, err
		}
	}
	all := took[0]
	for _, times := range took[1:] {
		for n := range min(len(all), len(times)) {
			all[n] = max(all[n], times[n])
		}
	}
	return links.Median(all).Seconds(), nil
}

// rounds let devices begin together, again and again.
type rounds struct {
	devices int32
	arrived atomic.Int32
	number  atomic.Int32
	over    atomic.Bool // there is no other
}

// next waits until all devices are there. It tells whether there is another round; more tells whether one is wanted, if this device comes last.
func (r *rounds) next(more func() bool) bool {
	now := r.number.Load()
	if r.arrived.Add(1) == r.devices {
		if !more() {
			r.over.Store(true)
		}
		r.arrived.Store(0)
		r.number.Add(1)
		return !r.over.Load()
	}
	for looks := 1; r.number.Load() == now && !r.over.Load(); looks++ {
		if looks%1000 == 0 { // it keeps its core, so that it begins at once
			runtime.Gosched()
		}
	}
	return !r.over.Load()
}

// repeat runs a program again and again.
func repeat(run func() (time.Duration, error), each time.Duration, together *rounds) (took []time.Duration, err error) {
	var begin time.Time
	more := func() bool {
		if begin.IsZero() {
			begin = time.Now()
		}
		return len(took) < 3 || time.Since(begin) < each || len(took) < 30 && time.Since(begin) < 3*each
	}
	for together.next(more) {
		d, err := run()
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	return took, nil
}

// spread is over how much memory the operands of a program are that finds them in no cache.
const spread = 64 << 20

// load makes a program ready to run on a device. It ran once.
func load(b compute.Backend, x program) (run func() (time.Duration, error), free func(), err error) {
	p, err := ir.Parse(x.text)
	if err != nil {
		return nil, nil, errors.WithMessage(err, "epl: internal error: a program of calibrate")
	}
	s := emit.Whole(p)
	executable, err := emit.Segment(b, s)
	if err != nil {
		return nil, nil, err
	}
	sets, err := operands(b, s, x.far)
	if err != nil {
		return nil, nil, err
	}
	over, err := inPlace(b, s)
	if err != nil {
		return nil, nil, err
	}
	donate := make([]bool, len(s.Inputs))
	for _, i := range over {
		if i >= 0 {
			donate[i] = true
		}
	}
	next := 0
	run = func() (time.Duration, error) {
		inputs := sets[next]
		next = (next + 1) % len(sets)
		start := time.Now()
		outputs, err := executable.Execute(inputs, donate, 0)
		d := time.Since(start)
		for n, out := range outputs {
			if i := over[n]; i >= 0 {
				inputs[i] = out
			} else {
				_ = out.Finalize() // the next run takes its memory
			}
		}
		return d, err
	}
	free = func() {
		for _, inputs := range sets {
			for _, in := range inputs {
				_ = in.Finalize()
			}
		}
		executable.Finalize()
	}
	if _, err := run(); err != nil {
		free()
		return nil, nil, err
	}
	return run, free, nil
}

// operands are the inputs of a segment, once; far: so often that none is in a cache when its turn comes.
func operands(b compute.Backend, s *ir.Segment, far bool) (sets [][]compute.Buffer, err error) {
	bytes := int64(1)
	for _, v := range s.Inputs {
		bytes += v.Bytes()
	}
	count := int64(1)
	if far {
		count = max(spread/bytes, 1)
	}
	for range count {
		var inputs []compute.Buffer
		for _, v := range s.Inputs {
			in, flat, err := b.NewSharedBuffer(0, v.Shape)
			if err != nil {
				return nil, err
			}
			if x, ok := flat.([]float32); ok {
				for i := range x {
					x[i] = 1 + float32(i%31-15)/128 // what is multiplied often neither grows nor vanishes
				}
			}
			inputs = append(inputs, in)
		}
		sets = append(sets, inputs)
	}
	return sets, nil
}

// inPlace is, for every output, the input whose memory it can take, as a variable takes that of its old value; -1: none.
func inPlace(b compute.Backend, s *ir.Segment) ([]int, error) {
	if p, ok := b.(emit.Planner); ok {
		l, err := p.Plan(s)
		if err != nil {
			return nil, err
		}
		return l.Over, nil
	}
	over := make([]int, len(s.Outputs))
	for i := range over {
		over[i] = -1
	}
	return over, nil
}

// tile is what devices compute of a product at a time, if they tell.
func (e *engines) tile() (t [2]int64) {
	w := newProgram()
	a := w.parameter("float32[64,64]")
	p, err := ir.Parse(w.text(w.op("DotGeneral(%s, %s) {LHSContractingAxes: [1], RHSContractingAxes: [0]}", "float32[64,64]", a, a)))
	planner, ok := e.devices[0].(emit.Planner)
	if err != nil || !ok {
		return t
	}
	if l, err := planner.Plan(emit.Whole(p)); err == nil && len(l.Steps) > 0 {
		var rows, columns int64
		if n, _ := fmt.Sscanf(l.Steps[0].Kernel, "%dx%d", &rows, &columns); n == 2 {
			t = [2]int64{1, columns / 2} // it leaves out the vectors of a tile that have nothing
		}
	}
	return t
}
