// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/easyparallel/epl/ir"
)

// plan is what the devices of every stage do, all of a stage together: ops, and the steps between them that change
// placements.
type plan struct {
	steps    []*step
	first    []*held  // by value: the first placement in which it was there
	leaving  []*held  // by result; nil: of a leaf that stays as it is
	gathered []*ir.Op // ops that are computed on whole values though they are sharded
}

// held is a value as the devices of a stage have it. They may have it in several placements at once.
type held struct {
	Placement
	value  int // its number in the problem
	g      *group
	phase  ir.Phase  // of the step that makes it: earlier phases cannot use it
	brief  bool      // later phases cannot, either: they make it again
	by     *step     // nil: it is given
	result bool      // it leaves the program
	next   *held     // another one of the same value
	uses   int       // how often live steps read it
	cut    *step     // one of them that cuts rows
	offer  bool      // it is there to be used, and not because somebody needed it
	v      *ir.Value // if it is given, or once it is written down
}

// isCut tells whether it was cut out of a whole value, because somebody needed it so.
func (h *held) isCut() bool { return h.by != nil && h.by.kind == rowsStep && !h.offer }

// step is something that the devices of a stage do together.
type step struct {
	kind  stepKind
	task  *task    // of an op
	s     strategy // of an op
	in    []*held  // what it reads; of an op, inputs and then what functions capture, with nil where there is none
	out   []*held
	g     *group
	op    *ir.Op // the op that it belongs to: it has its TaskGraph and line
	phase ir.Phase
	index int // in the order in which the steps were found
	dead  bool
}

// stepKind is what a step does.
type stepKind uint8

// The kinds of steps. All but opStep make a placement of a value from another.
const (
	noStep      stepKind = iota // it is there
	opStep                      // an op
	rowsStep                    // whole → sharded
	maskStep                    // whole → partial: zeros but on the first device
	reduceStep                  // partial → whole
	scatterStep                 // partial → sharded
	gatherStep                  // sharded → whole
	turnStep                    // sharded → sharded along another dim
	fetchStep                   // from the devices of another stage
	twoSteps                    // by way of the whole value
)

// collectives are the exchanges that steps are, 0 if they are none.
var collectives = [twoSteps + 1]ir.Collective{reduceStep: ir.AllReduceOf, scatterStep: ir.ReduceScatterOf, gatherStep: ir.AllGatherOf, turnStep: ir.AllToAllOf}

// prune drops the steps that no result needs, and counts the uses of what the others make.
func (x *plan) prune() {
	for _, s := range x.steps {
		for _, h := range s.out {
			h.uses = 0
		}
	}
	for _, s := range slices.Backward(x.steps) {
		needed := slices.ContainsFunc(s.out, func(h *held) bool { return h.result || h.uses > 0 })
		if s.dead = s.dead || !needed; !s.dead {
			s.use(1)
		}
	}
	x.steps = slices.DeleteFunc(x.steps, func(s *step) bool { return s.dead })
}

// use counts the uses that a step makes of what it reads; or takes them back.
func (s *step) use(n int) {
	for _, h := range s.in {
		if h == nil {
			continue
		}
		h.uses += n
		if s.kind == rowsStep {
			h.cut = s
		}
	}
}

// arena is memory for one round of propagation after the other: choices are compared by the hundred.
type arena struct {
	held       slab[held]
	steps      slab[step]
	inputs     slab[*held]
	placements slab[Placement]
	wishes     slab[wish]
	bills      slab[bill]
	marks      slab[bool]
	list       []*step
}

func (a *arena) reset() {
	a.held.reset()
	a.steps.reset()
	a.inputs.reset()
	a.placements.reset()
	a.wishes.reset()
	a.bills.reset()
	a.marks.reset()
}

// slab hands out memory in pieces, and takes all of it back at once.
type slab[T any] struct {
	chunks [][]T
	chunk  int // that is being handed out
	used   int // of it
}

const chunkSize = 4096

// take returns n zero elements.
func (s *slab[T]) take(n int) []T {
	for s.chunk < len(s.chunks) && s.used+n > len(s.chunks[s.chunk]) {
		s.chunk, s.used = s.chunk+1, 0
	}
	if s.chunk == len(s.chunks) {
		s.chunks = append(s.chunks, make([]T, max(n, chunkSize)))
	}
	r := s.chunks[s.chunk][s.used : s.used+n : s.used+n]
	s.used += n
	clear(r)
	return r
}

func (s *slab[T]) one() *T { return &s.take(1)[0] }

func (s *slab[T]) reset() { s.chunk, s.used = 0, 0 }
