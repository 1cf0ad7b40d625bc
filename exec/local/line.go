// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/schedule"
)

// line is an instruction of a device with what is the same in every step: between tasks other stages wait for the device.
type line struct {
	schedule.Instr
	takes, gives []schedule.Slot // of Run
	frees        []bool          // by input of Run: nobody needs it afterwards
	dies         []schedule.Slot
	// ins, donate and others are memory for the inputs of Run.
	ins    []compute.Buffer
	donate []bool
	others []readers
}

// linesOf are the instructions of a place.
func linesOf(s *schedule.Program, place int) []line {
	all := make([]line, len(s.Places[place]))
	for i, in := range s.Places[place] {
		x := line{Instr: in, dies: in.Dies()}
		if in.Kind == schedule.Run {
			x.takes, x.gives = s.Takes(in), s.Gives(in)
			for _, at := range x.takes {
				x.frees = append(x.frees, slices.Contains(in.Frees, at))
			}
			n := len(x.takes)
			x.ins, x.donate, x.others = make([]compute.Buffer, n), make([]bool, n), make([]readers, n)
		}
		all[i] = x
	}
	return all
}

// clear lets go of the inputs.
func (x *line) clear() {
	clear(x.ins)
	clear(x.others)
}

// memory is what a device needs in every step for its books.
type memory struct {
	values map[schedule.Slot]*held
	held   []*held
	used   int // of held
}

// reset makes the memory free for another step.
func (m *memory) reset() {
	clear(m.values)
	for _, h := range m.held[:m.used] {
		*h = held{sends: h.sends[:0]}
	}
	m.used = 0
}

// newHeld is one that nobody uses.
func (m *memory) newHeld() *held {
	if m.used == len(m.held) {
		m.held = append(m.held, &held{})
	}
	m.used++
	return m.held[m.used-1]
}
