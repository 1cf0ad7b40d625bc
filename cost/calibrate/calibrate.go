// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package calibrate measures what the machine that it runs on can do, as a profile for package cost.
//
// What goes in is the engine that devices run programs on, and which transports to measure. What comes out is a [cost.Profile] of one core, with teams of
// more cores, and the links between devices of a worker, workers of a host, and hosts: of the last it knows only what the loopback of TCP can do.
//
// Small programs are compiled and run as segments of a job would be, on as many devices at the same time as the machine has cores for: devices of a job
// share its memory, too. Products, convolutions and what is bound by memory find their operands in no cache, as in a training step. Of many runs the median counts: steps
// are disturbed as often. And a machine is not always equally fast: its clock changes, and other machines may share its processor. So all is measured again and again.
package calibrate

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/cores"
)

// Options of [Machine]. The zero value is good.
type Options struct {
	// Inner is what devices run programs on: "cpu" (or ""), or a backend of GoMLX.
	Inner string
	// Transports are those to measure, of [Transports]; nil: all.
	Transports []string
	// Each is how long each program runs in all; 0: [Usual].
	Each time.Duration
	// Progress is told what is measured next.
	Progress func(what string)

	sweeps int // how often all is measured; 0: [sweeps]
}

// Usual is how long each program runs in all.
const Usual = 200 * time.Millisecond

// Machine measures this machine.
func Machine(o Options) (*cost.Profile, error) {
	if o.Each == 0 {
		o.Each = Usual
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	o.sweeps = min(cmp.Or(o.sweeps, sweeps), int(o.Each)) // each has some time
	o.Each /= time.Duration(o.sweeps)
	var all []*cost.Profile
	for n := range o.sweeps {
		said := o
		said.Progress = func(what string) { o.Progress(fmt.Sprintf("%d of %d: %s", n+1, o.sweeps, what)) }
		p, err := sweep(said)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return typical(all), nil
}

// sweeps is how often all is measured.
const sweeps = 5

// sweep measures everything once.
func sweep(o Options) (*cost.Profile, error) {
	all := usable()
	p := &cost.Profile{Name: cost.This, Cores: all, Memory: memory(), Teams: map[int]*cost.Profile{},
		Source: fmt.Sprintf("measured by epl calibrate on %s, %d cores, %s", time.Now().UTC().Format("2006-01-02 15:04 UTC"), all, processor())}
	for threads := 1; ; threads = min(2*threads, all) {
		q := p
		if threads > 1 {
			q = &cost.Profile{Name: cost.This, Memory: p.Memory, Cores: all}
			p.Teams[threads] = q
		}
		e, err := newEngines(o, threads, all/threads)
		if err != nil {
			return nil, err
		}
		err = e.measure(q)
		e.close()
		if err != nil {
			return nil, err
		}
		if threads == all {
			break
		}
	}
	return p, connections(p, o)
}

// typical has the medians of profiles that were measured alike.
func typical(all []*cost.Profile) *cost.Profile {
	p := all[0]
	p.Bandwidth = median(all, func(p *cost.Profile) float64 { return p.Bandwidth })
	p.Launch = median(all, func(p *cost.Profile) time.Duration { return p.Launch })
	p.Segment = median(all, func(p *cost.Profile) time.Duration { return p.Segment })
	for key, r := range p.Rates {
		typical := slices.Clone(r)
		for i := range r {
			typical[i].PerSecond = median(all, func(p *cost.Profile) float64 { return p.Rates[key][i].PerSecond })
		}
		p.Rates[key] = typical
	}
	for threads := range p.Teams {
		var teams []*cost.Profile
		for _, q := range all {
			teams = append(teams, q.Teams[threads])
		}
		p.Teams[threads] = typical(teams)
	}
	for _, link := range []func(*cost.Profile) *cost.Link{
		func(p *cost.Profile) *cost.Link { return p.Within }, func(p *cost.Profile) *cost.Link { return p.Inside }, func(p *cost.Profile) *cost.Link { return p.Between },
	} {
		if l := link(p); l != nil {
			latency := median(all, func(p *cost.Profile) time.Duration { return link(p).Latency })
			l.Bandwidth = median(all, func(p *cost.Profile) float64 { return link(p).Bandwidth })
			l.Latency = latency
		}
	}
	return p
}

// median is that of something that profiles have.
func median[T cmp.Ordered](all []*cost.Profile, of func(*cost.Profile) T) T {
	var values []T
	for _, p := range all {
		values = append(values, of(p))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// usable are the cores that this process may use.
func usable() int {
	n := runtime.GOMAXPROCS(0)
	if mine := cores.Mine(); mine != nil {
		n = min(n, len(mine))
	}
	return max(n, 1)
}

// measure fills in what devices can do.
func (e *engines) measure(p *cost.Profile) error {
	p.Fuses, p.Rates, p.Tile = e.fuses, map[string]cost.Rate{}, e.tile()
	e.o.Progress(fmt.Sprintf("%d devices with %d cores: what it takes to start", len(e.devices), e.threads))
	chain := func(n int) (float64, error) {
		w := newProgram()
		a := w.parameter("float32[8,8]")
		b := a
		for range n {
			b = w.op("DotGeneral(%s, %s) {LHSContractingAxes: [1], RHSContractingAxes: [0]}", "float32[8,8]", b, a)
		}
		return e.time(program{text: w.text(b)})
	}
	one, err := chain(1)
	if err != nil {
		return err
	}
	many, err := chain(33)
	if err != nil {
		return err
	}
	launch := max((many-one)/32, resolution.Seconds()) // noise can hide it
	p.Launch, p.Segment = duration(launch), duration(max(one-launch, 0))
	for _, m := range measurements() {
		e.o.Progress(fmt.Sprintf("%d devices with %d cores: %s", len(e.devices), e.threads, m.what))
		var took []float64
		for _, x := range m.programs {
			s, err := e.time(x)
			if err != nil {
				return err
			}
			// What is faster than the clock can tell would have no rate.
			took = append(took, max(s-float64(max(x.kernels, 1))*p.Launch.Seconds()-p.Segment.Seconds(), s/4, 1e-9))
		}
		p.Rates[m.what] = m.rate(p, took)
	}
	r := p.Rates[cost.Memory]
	p.Bandwidth = r[len(r)-1].PerSecond
	return nil
}

// significant leaves as many digits as mean something.
func significant(x float64) float64 { return cost.Significant(x, 3) }

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * 1e9).Round(resolution)
}

// resolution is that of durations in profiles.
const resolution = 10 * time.Nanosecond
