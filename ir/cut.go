// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"cmp"
	"slices"
)

// Segment is a piece of a function that can be compiled and run by itself: it takes Inputs and computes Outputs.
type Segment struct {
	Name string
	// Inputs are given to the function, or values that another segment computes.
	Inputs []*Value
	// Ops are what it computes, in order, constants included.
	Ops     []*Op
	Outputs []*Value
	// Of, of a segment that was lowered for a device, are the values of the SPMD program that values stand for; nil: they are the same.
	Of map[*Value]*Value
	// Mesh, if it is not nil, says that devices run the segment together: collectives and merges are inside. An op may be there twice, where it is
	// computed again.
	Mesh *Mesh
	// Barriers are where, among the ops, a piece begins of which XLA must not use what it computed before: see [OptimizationBarrier].
	Barriers []int
}

// Origin is the value of the SPMD program that a value of the segment stands for, or the value itself if it was made on the way.
func (s *Segment) Origin(v *Value) *Value {
	if w := s.Of[v]; w != nil {
		return w
	}
	return v
}

// Cut takes out of f the ops chosen by keep that are needed for outputs. What they use and keep does not choose
// becomes an input of the segment; constants are computed in every segment that uses them. An output may also be a
// value the segment does not compute: it is then an input that is handed through.
//
// Everything that runs a program in pieces (data parallelism, pipelines, recomputation, overlapped communication)
// comes down to cuts.
func Cut(f *Func, name string, keep func(*Op) bool, outputs []*Value) *Segment {
	at := make(map[*Op]int, len(f.Ops))
	for i, op := range f.Ops {
		at[op] = i
	}
	return CutBy(func(op *Op) int { return at[op] }, f, name, keep, outputs)
}

// CutBy is [Cut] for those who know where ops stand in f. It looks only at ops that it takes.
func CutBy(position func(*Op) int, f *Func, name string, keep func(*Op) bool, outputs []*Value) *Segment {
	s := &Segment{Name: name, Outputs: outputs}
	needed := map[*Op]bool{}
	var need func(*Value)
	need = func(v *Value) {
		if v.Op.Func != f || needed[v.Op] {
			return // the first: local to a closure that comes along whole
		}
		if _, isConst := v.Op.Attrs.(*Constant); isConst || !v.Op.isGiven() && keep(v.Op) {
			needed[v.Op] = true
			s.Ops = append(s.Ops, v.Op)
			v.Op.Uses(need)
		}
	}
	isInput := map[*Value]bool{}
	input := func(v *Value) {
		if v.Op.Func == f && !needed[v.Op] && !isInput[v] {
			isInput[v] = true
			s.Inputs = append(s.Inputs, v)
		}
	}
	for _, o := range outputs {
		need(o)
	}
	for _, o := range outputs {
		input(o)
	}
	slices.SortFunc(s.Ops, func(x, y *Op) int { return cmp.Compare(position(x), position(y)) })
	for _, op := range slices.Backward(s.Ops) {
		op.Uses(input)
	}
	return s
}

// Crossing lists the values that ops chosen by from compute and that others use, or that leave f, in order of
// computation. Parameters and constants do not cross: every segment has them.
func Crossing(f *Func, from func(*Op) bool) []*Value {
	crosses := map[*Value]bool{}
	see := func(v *Value) {
		if v.Op.Func == f && !v.Op.IsLeaf() && from(v.Op) {
			crosses[v] = true
		}
	}
	for _, op := range f.Ops {
		if !from(op) {
			op.Uses(see)
		}
	}
	for _, o := range f.Outputs {
		see(o)
	}
	var r []*Value
	for _, op := range f.Ops {
		for _, v := range op.Outputs {
			if crosses[v] {
				r = append(r, v)
			}
		}
	}
	return r
}
