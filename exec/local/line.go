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
	uses         []schedule.Use  // by output of Run
	dies         []schedule.Slot
	// ins, donate and others are memory for the inputs of Run.
	ins    []compute.Buffer
	donate []bool
	others []readers
	// keeps is which inputs the segment could keep when it ran last, and need what it needed then.
	keeps []bool
	need  schedule.Need
}

// linesOf are the instructions of a place.
func linesOf(s *schedule.Program, l *schedule.Ledger, place int) []line {
	all := make([]line, len(s.Places[place]))
	for i, in := range s.Places[place] {
		x := line{Instr: in, dies: in.Dies()}
		if in.Kind == schedule.Run {
			x.takes, x.gives = s.Takes(in), s.Gives(in)
			for _, at := range x.takes {
				x.frees = append(x.frees, slices.Contains(in.Frees, at))
			}
			for _, at := range x.gives {
				x.uses = append(x.uses, l.Use(at.Value))
			}
			n := len(x.takes)
			x.ins, x.donate, x.others = make([]compute.Buffer, n), make([]bool, n), make([]readers, n)
		}
		all[i] = x
	}
	return all
}

// needs is what the segment needs if it may keep some of its inputs. That is mostly the same in every step.
func (x *line) needs(p *schedule.Profile, keeps func(i int) bool) schedule.Need {
	same := x.keeps != nil
	for i := 0; same && i < len(x.keeps); i++ {
		same = keeps(i) == x.keeps[i]
	}
	if !same {
		x.keeps = make([]bool, len(x.takes))
		for i := range x.keeps {
			x.keeps[i] = keeps(i)
		}
		x.need = p.Need(keeps)
	}
	return x.need
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
	used   int     // of held
	spare  []*held // of these: nobody uses them any more
}

// reset makes the memory free for another step.
func (m *memory) reset() {
	clear(m.values)
	for _, h := range m.held[:m.used] {
		*h = held{sends: h.sends[:0]}
	}
	m.used, m.spare = 0, m.spare[:0]
}

// newHeld is one that nobody uses.
func (m *memory) newHeld() *held {
	if last := len(m.spare) - 1; last >= 0 { // the last one is still in a cache
		h := m.spare[last]
		m.spare = m.spare[:last]
		*h = held{sends: h.sends[:0]}
		return h
	}
	if m.used == len(m.held) {
		m.held = append(m.held, &held{})
	}
	m.used++
	return m.held[m.used-1]
}

// recycle lets another value have what was one's.
func (m *memory) recycle(h *held) {
	if len(h.handed) == 0 { // else somebody waits for these
		m.spare = append(m.spare, h)
	}
}
