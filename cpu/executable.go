// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cpu/gemm"
	"github.com/easyparallel/epl/cpu/pool"
	"github.com/easyparallel/epl/ir"
)

// Compile makes an executable of a segment: it takes the segment's inputs and returns its outputs, both in order.
func (b *Backend) Compile(s *ir.Segment, other func(*ir.Segment) (compute.Executable, error)) (compute.Executable, error) {
	if isDynamic(s) {
		exec, err := other(s)
		if err != nil {
			return nil, err
		}
		return &opByOp{b, exec}, nil
	}
	p, err := b.planOf(s, other)
	if err != nil {
		return nil, errors.WithMessagef(err, "epl: segment %q", s.Name)
	}
	if len(s.Inputs) > 0 { // else it computes first values, once, and what runs often is still to come
		b.arena.expect(p.arena)
	}
	return b.ready(p)
}

// ready makes an executable of a plan.
func (b *Backend) ready(p *plan) (*executable, error) {
	x := &executable{backend: b, plan: p, memory: make([]unsafe.Pointer, len(p.tensors)), results: make([]compute.Buffer, len(p.tensors)),
		shared: make([]compute.Buffer, len(p.tensors))}
	if err := x.prepare(); err != nil {
		x.Finalize()
		return nil, errors.WithMessagef(err, "epl: segment %q", p.segment.Name)
	}
	return x, nil
}

// executable is a segment that can run.
type executable struct {
	backend *Backend
	plan    *plan
	// While it runs: where tensors lie, and the buffers that GoMLX's backend returned.
	memory  []unsafe.Pointer
	results []compute.Buffer
	inputs  []*Buffer
	arena   []byte           // of a function: for its intermediate tensors
	shared  []compute.Buffer // memory of GoMLX's backend that its ops read, by tensor
	jobs    [][]job          // by step; the last of each counts the tasks of its groups
}

// job is a range of the tasks of a group in the tasks of a step.
type job struct {
	t     *task
	mem   []unsafe.Pointer
	first int
}

var _ compute.Executable = (*executable)(nil)

// Finalize implements compute.Executable.
func (x *executable) Finalize() {
	for _, step := range x.plan.steps {
		for _, t := range step {
			if t.other != nil {
				t.other.exec.Finalize()
			}
			if t.control != nil {
				for _, f := range t.control.funcs {
					if f.exec != nil {
						f.exec.Finalize()
					}
				}
			}
		}
	}
	for n, s := range x.shared {
		if s != nil {
			_ = s.Finalize()
			x.shared[n] = nil
		}
	}
}

// Inputs implements compute.Executable.
func (x *executable) Inputs() (names []string, list []shapes.Shape) {
	for i, v := range x.plan.segment.Inputs {
		name := fmt.Sprintf("in%d", i)
		if p, ok := v.Op.Attrs.(*ir.Parameter); ok {
			name = p.Name
		}
		names, list = append(names, name), append(list, v.Shape)
	}
	return names, list
}

// Outputs implements compute.Executable.
func (x *executable) Outputs() (list []shapes.Shape) {
	for _, v := range x.plan.segment.Outputs {
		list = append(list, v.Shape)
	}
	return list
}

// prepare finds what does not change from run to run.
func (x *executable) prepare() error {
	for n := range x.plan.tensors {
		t := &x.plan.tensors[n]
		if t.shared.Ok() {
			if err := x.share(n); err != nil {
				return err
			}
			continue
		}
		if t.place == isConst {
			c := aligned(len(t.constant))
			copy(c, t.constant)
			x.memory[n] = unsafe.Pointer(unsafe.SliceData(c))
		}
	}
	for _, step := range x.plan.steps {
		var jobs []job
		first := 0
		for _, t := range step {
			mem := make([]unsafe.Pointer, len(t.mems))
			if t.control != nil {
				for _, f := range t.control.funcs {
					var err error
					if f.exec, err = x.backend.ready(f.plan); err != nil {
						return err
					}
					f.exec.arena = aligned(f.plan.arena)
				}
			}
			if t.code != nil {
				jobs = append(jobs, job{t, mem, first})
				first += t.code.tasks()
			} else {
				jobs = append(jobs, job{t, mem, 0})
			}
		}
		x.jobs = append(x.jobs, append(jobs, job{first: first}))
	}
	return nil
}

// Execute implements compute.Executable.
func (x *executable) Execute(inputs []compute.Buffer, donate []bool, _ compute.DeviceNum) ([]compute.Buffer, error) {
	return x.execute(inputs, donate, hooks{})
}

// ExecuteYielding implements emit.Yielding.
func (x *executable) ExecuteYielding(inputs []compute.Buffer, donate []bool, _ compute.DeviceNum, yours func(input int) bool) ([]compute.Buffer, error) {
	return x.execute(inputs, donate, hooks{yours: yours})
}

// hooks are called in a run; nil: nobody wants that.
type hooks struct {
	did   func(step int, start time.Time) // after every step, with the time when it began
	yours func(input int) bool            // before an input is overwritten or freed: it is not, if somebody else needs it
}

// yield gives outputs that a step writes memory of their own, if somebody else needs the inputs that they were to overwrite: given are these.
func (x *executable) yield(step []*task, given []bool, outs []*Buffer, h hooks) {
	if h.yours == nil {
		return
	}
	for _, task := range step {
		for _, n := range task.mems {
			t := &x.plan.tensors[n]
			if t.place != isOutput || t.over < 0 {
				continue
			}
			if i := x.plan.tensors[t.over].index; given[i] && !h.yours(i) {
				given[i] = false
				outs[t.index] = x.backend.newBuffer(t.value.Shape)
				x.memory[n] = unsafe.Pointer(unsafe.SliceData(outs[t.index].bytes))
			}
		}
	}
}

// execute runs the segment.
func (x *executable) execute(inputs []compute.Buffer, donate []bool, h hooks) ([]compute.Buffer, error) {
	b, p := x.backend, x.plan
	if len(inputs) != len(p.segment.Inputs) {
		return nil, errors.Errorf("epl: segment %q has %d inputs, %d were given", p.segment.Name, len(p.segment.Inputs), len(inputs))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	ins := make([]*Buffer, len(inputs))
	for i, in := range inputs {
		buf, ok := in.(*Buffer)
		if !ok || buf.backend != b {
			return nil, errors.Errorf("epl: segment %q: input %d is a %T of another device", p.segment.Name, i, in)
		}
		if buf.final {
			return nil, errors.Errorf("epl: segment %q: input %d was finalized", p.segment.Name, i)
		}
		if want := p.segment.Inputs[i].Shape; want.DType != buf.shape.DType || !want.EqualDimensions(buf.shape) {
			return nil, errors.Errorf("epl: segment %q: input %d is %s, not %s", p.segment.Name, i, buf.shape, want)
		}
		ins[i] = buf
	}
	b.arena.grow(p.arena)
	outs, err := x.run(ins, donate, unsafe.Pointer(unsafe.SliceData(b.arena.bytes)), h)
	if err != nil {
		return nil, err
	}
	all := make([]compute.Buffer, len(outs))
	for i, o := range outs {
		all[i] = o
	}
	return all, nil
}

// run runs the steps, with memory for intermediate tensors.
func (x *executable) run(ins []*Buffer, donate []bool, arena unsafe.Pointer, h hooks) ([]*Buffer, error) {
	b, p := x.backend, x.plan
	outs := make([]*Buffer, len(p.outputs))
	given := make([]bool, len(ins)) // donated and in use as an output
	for n := range p.tensors {
		t := &p.tensors[n]
		switch t.place {
		case inArena:
			x.memory[n] = unsafe.Add(arena, t.index)
		case isInput:
			x.memory[n] = unsafe.Pointer(unsafe.SliceData(ins[t.index].bytes))
		case isOutput:
			if t.over >= 0 {
				if i := p.tensors[t.over].index; len(donate) > i && donate[i] && ins[i].owner == nil && !given[i] && !ins[i].Shared() {
					given[i] = true
					outs[t.index] = &Buffer{backend: b, shape: t.value.Shape, bytes: ins[i].bytes, hold: ins[i].hold, adopted: ins[i].adopted, part: ins[i].part}
					outs[t.index].sharing.Store(ins[i].sharing.Load()) // whose memory it was
				}
			}
			if outs[t.index] == nil {
				outs[t.index] = b.newBuffer(t.value.Shape)
			}
			x.memory[n] = unsafe.Pointer(unsafe.SliceData(outs[t.index].bytes))
		}
	}
	x.inputs = ins
	defer x.release()
	for s, step := range p.steps {
		var start time.Time
		if h.did != nil {
			start = time.Now()
		}
		x.yield(step, given, outs, h)
		if err := x.step(step, x.jobs[s], arena); err != nil {
			return nil, errors.WithMessagef(err, "epl: segment %q: %s", p.segment.Name, p.own(step[0].node.ops[0]))
		}
		if h.did != nil {
			h.did(s, start)
		}
	}
	for i, n := range p.outputs {
		if p.tensors[n].place == isResult {
			r := x.results[n]
			x.results[n] = nil
			var err error
			if outs[i], err = b.adopt(r); err != nil {
				return nil, err
			}
		}
		outs[i].shape = p.segment.Outputs[i].Shape
	}
	for i, in := range ins {
		if i < len(donate) && donate[i] && (h.yours == nil || h.yours(i)) {
			if given[i] {
				in.final, in.bytes, in.hold = true, nil, nil
			} else if err := in.Finalize(); err != nil {
				return nil, err
			}
			in.donated = true
		}
	}
	return outs, nil
}

// release lets go of what a run used.
func (x *executable) release() {
	for n, r := range x.results {
		if r != nil {
			_ = r.Finalize()
			x.results[n] = nil
		}
	}
	for n := range x.memory {
		if p := x.plan.tensors[n].place; p != isConst && p != isShared {
			x.memory[n] = nil
		}
	}
	x.inputs = nil
	for _, jobs := range x.jobs {
		for _, j := range jobs {
			clear(j.mem)
		}
	}
}

// step runs the tasks of a step.
func (x *executable) step(step []*task, jobs []job, arena unsafe.Pointer) error {
	for i, t := range step {
		for k, n := range t.mems {
			jobs[i].mem[k] = x.memory[n]
		}
	}
	team := x.backend.team
	t, mem := step[0], jobs[0].mem
	switch {
	case t.code != nil:
		groups, total := jobs[:len(jobs)-1], jobs[len(jobs)-1].first
		err := team.Run(total, func(w *pool.Worker, number int) {
			i := find(groups, number)
			j := &groups[i]
			j.t.code.run(w, number-j.first, j.mem, unsafe.Add(arena, j.t.own))
		})
		if err != nil {
			return err
		}
		for i := range groups {
			j := &groups[i]
			if len(j.t.code.partials) > 0 {
				j.t.code.join(team.First(), j.mem, unsafe.Add(arena, j.t.own))
			}
		}
		return nil
	case t.dot != nil:
		var then gemm.Then
		if len(step) > 1 {
			then = step[1].code.then(t.dot.N, jobs[1].mem)
		}
		to := mem[t.reads]
		if from := mem[t.reads-1]; t.dot.Add && from != to { // what it is added to is the caller's
			n := x.plan.tensors[t.mems[t.reads]].bytes
			copy(unsafe.Slice((*byte)(to), n), unsafe.Slice((*byte)(from), n))
		}
		return t.dot.Run(team, unsafe.Add(mem[0], t.dotOffsets[0]), unsafe.Add(mem[1], t.dotOffsets[1]), to, then)
	case t.native != nil:
		return t.native(team, mem[:t.reads], mem[t.reads:])
	}
	if t.control != nil {
		return x.control(t, mem)
	}
	return x.fallback(t, mem)
}

// find is the group that has a task of a step.
func find(groups []job, number int) int {
	lo, hi := 0, len(groups)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; groups[mid].first <= number {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}
