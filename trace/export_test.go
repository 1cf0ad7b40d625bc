// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

// Note adds an event with times that a test chose.
func (s *Step) Note(e Event) { s.events = append(s.events, e) }

// NoteMemory adds a state of memory at a time that a test chose.
func (s *Step) NoteMemory(m Memory) { s.memory = append(s.memory, m) }

// Change changes one of the events.
func (s *Step) Change(i int, f func(*Event)) { f(&s.events[i]) }

// NoteSites adds where memory comes from at a time that a test chose.
func (s *Step) NoteSites(m Memory) { s.sites = append(s.sites, m) }
