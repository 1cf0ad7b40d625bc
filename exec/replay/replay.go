// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package replay computes a recorded program again, op by op on the host, to find where numbers stop being finite.
//
// What goes in is a training program as it was recorded, and its inputs for one batch. What comes out is a [Finding]: the first op on the way to the loss or to a gradient
// whose result is not finite, though what it reads is. Values that are not finite and that nothing comes of, as the -Inf of a mask, are not blamed.
package replay

import (
	"fmt"
	"math"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
)

// Finding says where numbers stop being finite.
type Finding struct {
	Op    *ir.Op
	Value *ir.Value // its result, or the input of the program
	What  string    // that is not finite: the loss, or the gradient of a variable
	facts map[*ir.Value]fact
}

// fact is what is known of a value.
type fact struct {
	nan, inf  bool
	at        int // the first element that is not finite
	bad       int // how many are not
	low, high float64
}

// player computes all that forward and backward need, and notes what it learns of the values.
type player struct {
	p       *ir.Program
	backend compute.Backend
	buffers map[*ir.Value]compute.Buffer
	facts   map[*ir.Value]fact
	uses    map[*ir.Value]int
}

// Find computes the loss and the gradients of a program on a backend that runs op by op. input gives the elements of a parameter of main, by its index. It returns nil if all are finite.
func Find(p *ir.Program, backend compute.Backend, input func(i int) (flat any, err error)) (*Finding, error) {
	p = p.Clone()
	if _, err := passes.Run(p, passes.Set{passes.WriteOut: true}, passes.Options{}, nil); err != nil {
		return nil, err
	}
	x := &player{p: p, backend: backend, buffers: map[*ir.Value]compute.Buffer{}, facts: map[*ir.Value]fact{}, uses: map[*ir.Value]int{}}
	targets := []*ir.Value{p.Loss}
	names := []string{"the loss"}
	for _, g := range p.Gradients {
		targets, names = append(targets, g.Value), append(names, fmt.Sprintf("the gradient of variable %q", g.Variable.Path))
	}
	if err := x.play(targets, input); err != nil {
		return nil, err
	}
	for i, v := range targets {
		if f := x.facts[v]; f.nan || f.inf {
			first := x.first(v)
			return &Finding{Op: first.Op, Value: first, What: names[i], facts: x.facts}, nil
		}
	}
	return nil, nil
}

// play computes all that the targets need.
func (x *player) play(targets []*ir.Value, input func(i int) (any, error)) error {
	needed := map[*ir.Op]bool{}
	var need func(v *ir.Value)
	need = func(v *ir.Value) {
		if x.uses[v]++; needed[v.Op] || v.Op.Func != x.p.Main {
			return
		}
		needed[v.Op] = true
		v.Op.Uses(need)
	}
	for _, v := range targets {
		need(v)
	}
	position := map[*ir.Op]int{}
	for i, op := range x.p.Main.Ops {
		position[op] = i
	}
	for i, v := range x.p.Main.Params {
		if !needed[v.Op] {
			continue
		}
		flat, err := input(i)
		if err != nil {
			return err
		}
		if x.buffers[v], err = x.backend.BufferFromFlatData(0, flat, v.Shape); err != nil {
			return err
		}
		x.facts[v] = look(flat)
	}
	for _, op := range x.p.Main.Ops {
		if needed[op] && !op.IsLeaf() {
			if err := x.op(op, func(o *ir.Op) int { return position[o] }); err != nil {
				return errors.WithMessage(err, op.String())
			}
		}
	}
	return nil
}

// op computes one op, and lets go of what nobody needs any more.
func (x *player) op(op *ir.Op, position func(*ir.Op) int) error {
	s := ir.CutBy(position, x.p.Main, op.String(), func(o *ir.Op) bool { return o == op }, op.Outputs)
	e, err := emit.Segment(x.backend, s)
	if err != nil {
		return err
	}
	defer e.Finalize()
	ins := make([]compute.Buffer, len(s.Inputs))
	for i, v := range s.Inputs {
		ins[i] = x.buffers[v]
	}
	outs, err := e.Execute(ins, nil, 0)
	if err != nil {
		return err
	}
	for i, v := range op.Outputs {
		flat, err := outs[i].Data()
		if err != nil {
			return err
		}
		x.buffers[v], x.facts[v] = outs[i], look(flat)
	}
	op.Uses(func(v *ir.Value) {
		if x.uses[v]--; x.uses[v] == 0 {
			delete(x.buffers, v) // which may be shared with others: the collector knows
		}
	})
	return nil
}

// first follows what is not finite to where it comes from.
func (x *player) first(v *ir.Value) *ir.Value {
	for {
		var from *ir.Value
		v.Op.Uses(func(in *ir.Value) {
			switch f, g := x.facts[in], x.facts[v]; {
			case from != nil && x.facts[from].nan:
			case f.nan:
				from = in
			case f.inf && !g.nan && from == nil:
				from = in
			}
		})
		if from == nil {
			return v
		}
		v = from
	}
}

// look finds out what is known of elements.
func look(flat any) fact {
	switch x := flat.(type) {
	case []float32:
		return scan(x, func(v float32) float64 { return float64(v) })
	case []float64:
		return scan(x, func(v float64) float64 { return v })
	case []float16.Float16:
		return scan(x, func(v float16.Float16) float64 { return float64(v.Float32()) })
	case []bfloat16.BFloat16:
		return scan(x, func(v bfloat16.BFloat16) float64 { return float64(v.Float32()) })
	case []complex64:
		return scan(x, func(v complex64) float64 { return float64(real(v)) + float64(imag(v)) })
	case []complex128:
		return scan(x, func(v complex128) float64 { return real(v) + imag(v) })
	case []int32:
		return scan(x, func(v int32) float64 { return float64(v) })
	case []int64:
		return scan(x, func(v int64) float64 { return float64(v) })
	}
	return fact{}
}

func scan[T any](all []T, number func(T) float64) fact {
	f := fact{low: math.Inf(1), high: math.Inf(-1)}
	for i, x := range all {
		v := number(x)
		if isNaN, isInf := math.IsNaN(v), math.IsInf(v, 0); isNaN || isInf {
			if f.bad == 0 {
				f.at = i
			}
			f.bad++
			f.nan, f.inf = f.nan || isNaN, f.inf || isInf
			continue
		}
		f.low, f.high = min(f.low, v), max(f.high, v)
	}
	return f
}

// String says it in a sentence.
func (f *Finding) String() string {
	v := f.Value
	what := "NaN"
	if !f.facts[v].nan {
		what = "infinite"
	}
	amount := fmt.Sprintf("%d of %d elements, from element %d on, are %s", f.facts[v].bad, v.Shape.Size(), f.facts[v].at, what)
	if v.Shape.Size() == 1 {
		amount = "it is " + what
	}
	if a, ok := f.Op.Attrs.(*ir.Parameter); ok {
		if strings.HasPrefix(a.Name, "/") {
			return fmt.Sprintf("%s is not finite, because variable %q was not before the step: %s", f.What, a.Name, amount)
		}
		return fmt.Sprintf("%s is not finite, because input %q, %s, of the batch is not: %s", f.What, a.Name, ir.ShapeText(v.Shape), amount)
	}
	var reads []string
	f.Op.Uses(func(in *ir.Value) {
		g := f.facts[in]
		if _, known := f.facts[in]; !known {
			return
		}
		switch {
		case g.inf:
			reads = append(reads, fmt.Sprintf("%s, with infinite elements, of %s", in, in.Op))
		case g.low <= g.high:
			reads = append(reads, fmt.Sprintf("%s, from %.4g to %.4g", in, g.low, g.high))
		}
	})
	s := fmt.Sprintf("%s is not finite. It begins with %s, %s in %s", f.What, f.Op, ir.ShapeText(v.Shape), f.Op.Phase)
	if t := f.Op.TaskGraph; t != nil && t.Name != "" {
		s += fmt.Sprintf(" of TaskGraph %q", t.Name)
	}
	if s += ": " + amount; len(reads) > 0 {
		s += "; it reads " + strings.Join(reads, " and ")
	}
	return s
}
