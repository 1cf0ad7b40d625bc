// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"
	"sync"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// readying makes executables ready that would be compiled in the first step: all at the same time.
type readying struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

// add begins with an executable, for runs that keep some inputs in one of several ways.
func (a *readying) add(x compute.Executable, ways ...[]bool) {
	late, ok := x.(emit.Late)
	if !ok {
		return
	}
	a.wg.Go(func() {
		for _, donate := range ways {
			if err := late.Ready(donate); err != nil {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.errs = append(a.errs, err)
				return
			}
		}
	})
}

func (a *readying) wait() error {
	a.wg.Wait()
	return firstCause(a.errs)
}

// ready compiles what devices would compile late: donation is known from the lists, but for variables that the caller keeps.
func (x *stepper) ready() error {
	var all readying
	for d, dev := range x.devices {
		place := x.seat(x.first + d).place
		if place < 0 {
			continue
		}
		ways := make([][][]bool, len(dev.segments))
		for _, in := range x.schedule.Places[place] {
			if in.Kind != schedule.Run {
				continue
			}
			way := x.donates(in)
			if !slices.ContainsFunc(ways[in.Segment], func(w []bool) bool { return slices.Equal(w, way) }) {
				ways[in.Segment] = append(ways[in.Segment], way)
			}
		}
		for i, e := range dev.segments {
			if len(ways[i]) > 0 {
				all.add(e, ways[i]...)
			}
		}
		for i, e := range dev.adders {
			if e != nil {
				all.add(e, slices.Repeat([]bool{true}, 2*len(x.schedule.Buckets[i].Merges)))
			}
		}
	}
	return all.wait()
}

// donates tells which inputs a segment is given to keep, if nobody else still reads them.
func (x *stepper) donates(in schedule.Instr) (all []bool) {
	takes := x.schedule.Takes(in)
	for i, v := range x.schedule.Segments[in.Segment].Inputs {
		give := false
		switch v.Op.Attrs.(type) {
		case *ir.Instance, *ir.Position:
			give = true
		case *ir.InstanceCount, *ir.Present:
		default:
			_, isParam := x.param[v]
			give = slices.Contains(in.Frees, takes[i]) && !(x.opts.Forward && isParam && !x.isInput[v])
		}
		all = append(all, give)
	}
	return all
}

// ready compiles a training step that runs as a whole: it is given its data to keep, and the variables that it changes.
func (e *whole) ready(p *ir.Program) error {
	if !p.IsTraining() {
		return nil // who calls it decides
	}
	donate := make([]bool, len(p.Main.Params))
	for i, v := range p.Main.Params {
		donate[i] = slices.Contains(p.Inputs, v) || slices.ContainsFunc(p.Variables, func(x *ir.Variable) bool { return x.Param == v && x.Update != nil })
	}
	var one readying
	one.add(e.inner, donate)
	return one.wait()
}

// Measured implements exec.Measured.
func (x *stepper) Measured() (*schedule.Program, []*emit.Listing) {
	all := make([]*emit.Listing, len(x.schedule.Segments))
	known := false
	for i := range all {
		for _, d := range x.devices {
			if all[i] == nil {
				all[i] = listing(d.segments[i])
			}
		}
		known = known || all[i] != nil
	}
	if !known {
		return nil, nil
	}
	return x.schedule, all
}

// Measured implements exec.Measured.
func (e *whole) Measured() (*schedule.Program, []*emit.Listing) {
	if l := listing(e.inner); l != nil {
		return nil, []*emit.Listing{l}
	}
	return nil, nil
}

// listing is what a device says that an executable needs; nil: it does not tell.
func listing(x compute.Executable) *emit.Listing {
	if late, ok := x.(emit.Late); ok {
		return late.Memory()
	}
	return nil
}
