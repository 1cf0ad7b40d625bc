// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"runtime/debug"
	"slices"
	"sync"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
)

// ahead runs a program without gradients on several model replicas, a batch of env.Dataset on each. What depends on no variable that
// the program updates is started before its turn, for batches that have been read; the rest is computed at the call, so that every
// call gives what one device gives. It implements compute.Executable.
type ahead struct {
	compute.Executable // of the whole program, for its inputs and outputs; also runs it on what is no batch of env.Dataset
	name               string
	runner             *Runner
	halves             []halves // by model replica
	span               *span    // if these have devices of several workers, and Forward: there is one half, for its Rest; nil: they are this worker's
	args, restArgs     []int

	mu    sync.Mutex // one call at a time
	count int        // batches that were started
}

// halves are a program in two, for a model replica: see [ahead]. Rest first takes the results of Forward; it is nil if they are all.
type halves struct {
	Forward, Rest compute.Executable
	// busy is held while Forward runs.
	busy *sync.Mutex
}

// started is a batch of which something is computed before its turn.
type started struct {
	by        *ahead
	halves    halves
	variables []*Buffer // that it is computed from
	done      chan struct{}
	outs      []compute.Buffer
	err       error
}

// Computed implements exec.Ahead.
func (a *ahead) Computed(inputs []compute.Buffer) bool {
	buffers, feed, err := a.taken(inputs)
	return err == nil && feed != nil && feed.round.holds(a, a.variables(buffers))
}

// Fed implements exec.Runner.
func (d *Runner) Fed(inputs []compute.Buffer) bool {
	return slices.ContainsFunc(inputs, func(x compute.Buffer) bool { b, ok := x.(*Buffer); return ok && b.feed != nil })
}

// Finalize implements compute.Executable.
func (a *ahead) Finalize() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.halves {
		h.busy.Lock()
		for _, x := range []compute.Executable{h.Forward, h.Rest} {
			if x != nil {
				x.Finalize()
			}
		}
		h.busy.Unlock()
	}
	if a.span != nil {
		a.span.finalize()
	}
	a.Executable.Finalize()
}

// Inputs implements compute.Executable.
func (a *ahead) Inputs() ([]string, []shapes.Shape) { return a.Executable.Inputs() }

// Execute implements compute.Executable.
func (a *ahead) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) ([]compute.Buffer, error) {
	if !a.runner.Fed(inputs) && a.span == nil {
		return a.Executable.Execute(inputs, donate, device)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(donate) == 0 {
		donate = make([]bool, len(inputs))
	}
	buffers, feed, err := a.taken(inputs)
	if err != nil {
		return nil, err
	}
	var s *started
	switch j := a.runner.Job; {
	case a.span != nil:
		s, err = a.together(feed, buffers)
	case j != nil && j.Sliced:
		s, err = a.inTurn(feed, buffers)
	default:
		s = a.start(feed, buffers)
		a.look(feed, buffers, len(a.halves)-1)
		<-s.done
		feed.forget()
		err = s.err
		if err != nil {
			return nil, err
		}
	}
	if err != nil {
		a.runner.Job.World.Abort(err) // no worker waits for one that has given up
		return nil, err
	}
	args, give := slices.Clone(s.outs), slices.Repeat([]bool{true}, len(s.outs))
	for _, i := range a.restArgs {
		args, give = append(args, inputs[i]), append(give, donate[i])
	}
	outs := args
	if s.halves.Rest != nil {
		if outs, err = s.halves.Rest.Execute(args, give, 0); err != nil {
			s.drop()
			return nil, err
		}
	}
	if a.span == nil {
		a.look(feed, buffers, len(a.halves))
	}
	for i, x := range inputs {
		if donate[i] && !slices.Contains(a.restArgs, i) {
			if err := x.Finalize(); err != nil {
				return nil, err
			}
		}
	}
	return outs, nil
}

// taken checks what the program is called with. feed is nil if it is no batch of env.Dataset.
func (a *ahead) taken(inputs []compute.Buffer) (buffers []*Buffer, feed *Feed, err error) {
	for i, x := range inputs {
		b, err := a.runner.own(a.name, i, x)
		if err != nil {
			return nil, nil, err
		}
		if buffers = append(buffers, b); b.feed == nil {
			continue
		}
		if feed != nil && feed != b.feed {
			return nil, nil, errors.Errorf("epl: program %q: input %d comes from another batch of env.Dataset than those before it", a.name, i)
		}
		feed = b.feed
	}
	return buffers, feed, nil
}

// variables are those that the first half reads.
func (a *ahead) variables(buffers []*Buffer) (variables []*Buffer) {
	for _, at := range a.args {
		if buffers[at].feed == nil {
			variables = append(variables, buffers[at])
		}
	}
	return variables
}

// round is what was computed of several batches at once, on the host. Where workers have data of their own, it is of the batches that each
// has next: those of the first worker come first.
type round struct {
	by        *ahead
	variables []*Buffer // that it was computed from
	results   [][]any   // by batch
}

// holds tells whether a program finds its results in the round.
func (r *round) holds(a *ahead, variables []*Buffer) bool {
	return r != nil && r.by == a && slices.Equal(r.variables, variables)
}

// given are the results of a batch of a round.
func (a *ahead) given(r *round, number int) *started {
	s := &started{halves: a.halves[0], done: make(chan struct{})}
	close(s.done)
	between := a.between()
	for i, flat := range r.results[number] {
		s.outs = append(s.outs, &Buffer{runner: a.runner, shape: between[i], flat: flat})
	}
	return s
}

// between are the shapes of what one half gives the other.
func (a *ahead) between() []shapes.Shape {
	if a.halves[0].Rest == nil {
		return a.Outputs()
	}
	_, all := a.halves[0].Rest.Inputs()
	return all[:len(all)-len(a.restArgs)]
}

// inTurn returns what is computed of the batch whose turn it is, where workers have data of their own: all of them compute something of
// the batches that they have, on a model replica each, and tell the others.
func (a *ahead) inTurn(feed *Feed, buffers []*Buffer) (*started, error) {
	variables := a.variables(buffers)
	if feed.round == nil {
		r := &round{by: a, variables: variables}
		var err error
		if r.results, err = a.round(feed, buffers, a.between()); err != nil {
			return nil, errors.WithMessagef(err, "program %q", a.name)
		}
		feed.round = r
		for i := 1; i < len(r.results); i++ {
			feed.others = append(feed.others, &Feed{spec: feed.spec, inputs: feed.inputs, shapes: feed.shapes, round: r, number: i})
		}
	}
	if !feed.round.holds(a, variables) {
		return nil, errors.Errorf("epl: program %q: under io.slicing workers compute the next batches of all of them at once, and then take them one by one: "+
			"another program, or other values of variables, cannot take a batch in between", a.name)
	}
	return a.given(feed.round, feed.number), nil
}

// round computes what can be computed of the next batches of all workers.
func (a *ahead) round(feed *Feed, buffers []*Buffer, between []shapes.Shape) (all [][]any, err error) {
	batches, err := feed.take(len(a.halves))
	if err != nil {
		return nil, err
	}
	var running []*started
	a.count = 0 // a model replica each
	for _, b := range batches {
		running = append(running, a.start(NewFeed(b, nil, nil), buffers))
	}
	var mine [][]any
	for _, s := range running {
		<-s.done
		var values []any
		for i, b := range s.outs {
			flat := newFlat(between[i])
			if e := b.ToFlatData(flat); e != nil && err == nil {
				err = e
			}
			values = append(values, flat)
		}
		s.drop()
		mine = append(mine, values)
		if err == nil {
			err = s.err
		}
	}
	if err != nil {
		return nil, err
	}
	j := a.runner.Job
	counts, err := gather(j.Leaders, a.name, int64(len(mine)))
	if err != nil {
		return nil, err
	}
	for w, n := range counts {
		for i := range n[0] {
			var values []any
			for k, shape := range between {
				flat := newFlat(shape)
				if w == j.Worker {
					flat = mine[i][k]
				}
				if err := j.Leaders.Do(comm.Call{Op: comm.Broadcast, Buf: flat, Root: w, Program: a.name}); err != nil {
					return nil, err
				}
				values = append(values, flat)
			}
			all = append(all, values)
		}
	}
	return all, nil
}

// look starts what can be computed of the next batches.
func (a *ahead) look(feed *Feed, buffers []*Buffer, n int) {
	if feed.next == nil {
		return
	}
	for _, f := range feed.next(n) {
		if sameShapes(*feed.head, *f.head) != nil {
			return // it is for another program
		}
		a.start(f, buffers)
	}
}

// start computes what can be computed of a batch before its turn, on the next model replica, unless that was begun.
func (a *ahead) start(f *Feed, buffers []*Buffer) *started {
	f.mu.Lock()
	defer f.mu.Unlock()
	var variables, tensors []*Buffer
	args := make([]compute.Buffer, len(a.args))
	for i, at := range a.args {
		b := buffers[at]
		if b.feed != nil {
			b = &Buffer{runner: a.runner, shape: b.shape, feed: f, index: b.index}
			tensors = append(tensors, b)
		} else {
			variables = append(variables, b)
		}
		args[i] = b
	}
	if s := f.started; s != nil {
		if s.by == a && slices.Equal(s.variables, variables) {
			return s
		}
		s.drop()
	}
	s := &started{by: a, halves: a.halves[a.count%len(a.halves)], variables: variables, done: make(chan struct{})}
	a.count++
	f.started = s
	for _, b := range variables {
		b.use.RLock()
	}
	a.runner.ahead.Go(func() {
		defer close(s.done)
		s.halves.busy.Lock()
		defer s.halves.busy.Unlock()
		s.outs, s.err = caught(func() ([]compute.Buffer, error) { return s.halves.Forward.Execute(args, nil, 0) })
		for _, b := range tensors {
			if err := b.unload(); err != nil && s.err == nil {
				s.err = err
			}
		}
		for _, b := range variables {
			b.use.RUnlock()
		}
	})
	return s
}

// caught makes an error of a panic, which nobody could catch.
func caught(f func() ([]compute.Buffer, error)) (outs []compute.Buffer, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// drop lets go of what was computed.
func (s *started) drop() {
	<-s.done
	for _, b := range s.outs {
		_ = b.Finalize()
	}
	s.outs = nil
}

// drop lets go of what was computed of the batch before its turn.
func (f *Feed) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.started != nil {
		f.started.drop()
		f.started = nil
	}
}

// forget leaves what was computed of the batch to who called for it.
func (f *Feed) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started = nil
}

// unload takes a tensor of a batch off the devices; the batch has it still.
func (b *Buffer) unload() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.shards {
		if x == nil {
			continue
		}
		if err := x.Finalize(); err != nil {
			return err
		}
	}
	b.shards = nil
	return nil
}
