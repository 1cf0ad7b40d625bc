// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cpu/gemm"
	"github.com/easyparallel/epl/cpu/isa"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

var (
	_ emit.Compiler = (*Backend)(nil)
	_ emit.Planner  = (*Backend)(nil)
	_ emit.Watched  = (*executable)(nil)
)

// Plan tells what Compile makes of a segment. Nothing has to be released.
func (b *Backend) Plan(s *ir.Segment) (*emit.Listing, error) {
	if isDynamic(s) {
		return &emit.Listing{Segment: s.Name, Ops: len(s.Ops), Level: isa.Current().String(), Over: noneOf(s.Outputs), Steps: []emit.Step{
			{Kind: emit.Fallback, What: "all of it", Ops: len(s.Ops), Why: "its shapes are known only when it runs"}}}, nil
	}
	p, err := b.planOf(s, func(*ir.Segment) (compute.Executable, error) { return nil, nil })
	if err != nil {
		return nil, errors.WithMessagef(err, "epl: segment %q", s.Name)
	}
	return p.listing(), nil
}

func noneOf(outputs []*ir.Value) []int {
	over := make([]int, len(outputs))
	for i := range over {
		over[i] = -1
	}
	return over
}

// listing describes the plan.
func (p *plan) listing() *emit.Listing {
	l := &emit.Listing{Segment: p.segment.Name, Ops: len(p.segment.Ops), Level: isa.Current().String(), Arena: int64(p.arena), Lives: p.ownLives(), Over: noneOf(p.segment.Outputs)}
	for i, n := range p.outputs {
		if t := &p.tensors[n]; t.place == isOutput && t.over >= 0 && p.tensors[t.over].place == isInput {
			l.Over[i] = p.tensors[t.over].index
		}
	}
	most := int64(0) // copies of one step
	for number, step := range p.steps {
		for _, t := range step {
			s := p.step(t)
			s.Number = number
			l.Steps = append(l.Steps, s)
			most = max(most, s.Copied)
		}
	}
	for n := range p.tensors {
		if t := &p.tensors[n]; t.place == isResult || t.place == isShared {
			l.Outside += int64(t.bytes)
		}
	}
	for _, n := range p.outputs { // the runtime counts them with the other outputs
		if t := &p.tensors[n]; t.place == isResult {
			l.Outside -= int64(t.bytes)
		}
	}
	l.Outside += most
	return l
}

// step describes a task.
func (p *plan) step(t *task) emit.Step {
	s := emit.Step{Ops: len(t.node.ops), What: emit.OpNames(t.node.ops), Together: 1}
	for i, n := range t.mems {
		if x := &p.tensors[n]; t.writes(i, x) {
			s.Written += int64(x.bytes)
		} else {
			s.Read += int64(x.bytes)
		}
	}
	op := t.node.ops[0]
	switch {
	case t.code != nil:
		s.Kind = emit.Group
		s.Size = fmt.Sprintf("%d×%d", t.code.rows, t.code.cols)
		s.Kernel = t.code.loopsText()
	case t.dot != nil:
		s.Kind, s.Flops, s.Kernel = emit.Product, t.dot.Flops(), gemm.Kernel(t.dot.DType)
		s.Size = fmt.Sprintf("%d×%d×%d", t.dot.M, t.dot.N, t.dot.K)
		if n := t.dot.Entries(); n > 1 {
			s.Size = fmt.Sprintf("%d of %s", n, s.Size)
		}
	case t.native != nil:
		s.Kind = emit.Native
		s.Size = emit.Times(dimsOf(op.Outputs[0]))
		if a, ok := op.Attrs.(*ir.ConvGeneral); ok {
			kernel := dimsOf(op.Inputs[1])
			s.Kind, s.Kernel = emit.Convolution, gemm.Kernel(op.Outputs[0].Shape.DType)
			s.Flops = 2 * int64(op.Outputs[0].Shape.Size()) * int64(product(kernel)/kernel[a.Axes.KernelOutputChannels])
		}
	case t.control != nil:
		s.Kind, s.Size = emit.Native, "-"
	default:
		s.Kind, s.Copied = emit.Fallback, p.copied(t)
		s.Size = "-"
		if plain(op.Outputs[0]) {
			s.Size = emit.Times(dimsOf(op.Outputs[0]))
		}
		s.Why = "the engine does not have it"
		if natives[op.Type()] != nil || op.Type() == ir.OpDotGeneral {
			s.Why = "the engine has it for other types or attributes"
		}
	}
	return s
}

// ExecuteWatched implements emit.Watched.
func (x *executable) ExecuteWatched(inputs []compute.Buffer, donate []bool, _ compute.DeviceNum, did func(s emit.Step, start, end time.Time)) ([]compute.Buffer, error) {
	return x.execute(inputs, donate, hooks{did: func(number int, start time.Time) {
		end := time.Now()
		did(x.plan.described()[number], start, end)
	}})
}

// described are the steps, each as one. A plan is run again and again.
func (p *plan) described() []emit.Step {
	p.once.Do(func() {
		for number, tasks := range p.steps {
			s := p.together(number)
			s.Sites = p.sites(tasks)
			p.watched = append(p.watched, s)
		}
	})
	return p.watched
}

// sites divides a step among the places in the model that its ops come from, by their arithmetic: that of products, and one operation per element of others.
func (p *plan) sites(tasks []*task) []emit.Site {
	var all emit.Division
	for _, t := range tasks {
		for _, op := range t.node.ops {
			work := elements(op)
			if op == t.node.ops[0] {
				work = max(work, float64(p.step(t).Flops))
			}
			all.Add(p.own(origin(op)).Attribution, work)
		}
	}
	return all.Sites()
}

// origin is the op itself, or if it is the engine's own, such as a copy, the one whose result it works on.
func origin(op *ir.Op) *ir.Op {
	of := op
	for of.TaskGraph == nil && of.Source == "" {
		if len(of.Inputs) == 0 || of.Inputs[0] == nil {
			return op
		}
		of = of.Inputs[0].Op
	}
	return of
}

// elements is the size of the largest tensor that an op reads or writes.
func elements(op *ir.Op) float64 {
	most := 1
	for _, v := range slices.Concat(op.Inputs, op.Outputs) {
		if v != nil && plain(v) {
			most = max(most, v.Shape.Size())
		}
	}
	return float64(most)
}

// together describes the tasks of a step as one.
func (p *plan) together(number int) (all emit.Step) {
	for i, t := range p.steps[number] {
		s := p.step(t)
		if i == 0 {
			all = s
			continue
		}
		if all.Kind == emit.Group {
			all.Together++
		} else {
			all.Then = s.What
		}
		all.Ops += s.Ops
		all.Flops += s.Flops
		all.Read += s.Read
		all.Written += s.Written
	}
	all.Number = number
	return all
}
