// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Instruction is one of a compiled module: what a kernel runs for.
type Instruction struct {
	Opcode string // "fusion"
	Target string // of a custom call
	// Location is that of the operation it was written for; "": none has it.
	Location string
	// Parts are what a fusion computes, and all that it calls.
	Parts []*Instruction
	// Dims is the shape of its result, or of the first of them.
	Dims []int64
	// Read and Written are bytes of tensors, and Elements is the size of the largest.
	Read, Written, Elements int64

	operands, called []int64
	id               int64
	bytes            int64 // of all results
}

// Module reads what the compiler made of a program: its instructions by name. The format is "hlo" or "hlo_with_config".
func Module(program []byte, format string) (map[string]*Instruction, error) {
	m := &module{all: map[string]*Instruction{}, byID: map[int64]*Instruction{}, bodies: map[int64][]*Instruction{}}
	read := m.read
	if format == "hlo_with_config" {
		read = func(field protowire.Number, _ uint64, text []byte) error {
			if field == 1 {
				return message(text, m.read)
			}
			return nil
		}
	}
	if err := message(program, read); err != nil {
		return nil, err
	}
	m.link()
	return m.all, nil
}

type module struct {
	all    map[string]*Instruction
	byID   map[int64]*Instruction
	bodies map[int64][]*Instruction // of computations
}

// read reads a field of an HloModuleProto.
func (m *module) read(field protowire.Number, _ uint64, text []byte) error {
	if field != 3 {
		return nil
	}
	var id int64
	var body []*Instruction
	err := message(text, func(field protowire.Number, number uint64, text []byte) error {
		switch field {
		case 2:
			x, name := &Instruction{}, ""
			if err := message(text, x.reader(&name)); err != nil {
				return err
			}
			m.all[name], m.byID[x.id] = x, x
			body = append(body, x)
		case 5:
			id = int64(number)
		}
		return nil
	})
	m.bodies[id] = body
	return err
}

// reader reads the fields of an HloInstructionProto.
func (x *Instruction) reader(name *string) func(field protowire.Number, number uint64, text []byte) error {
	return func(field protowire.Number, number uint64, text []byte) (err error) {
		switch field {
		case 1:
			*name = string(text)
		case 2:
			x.Opcode = string(text)
		case 3:
			s := shape{custom: x.Opcode == "custom-call"} // opcodes come first
			err = s.read(text)
			x.Dims, x.Elements, x.bytes = s.dims, s.elements, s.bytes
		case 7:
			err = message(text, func(field protowire.Number, _ uint64, text []byte) error {
				if field == 2 {
					x.Location = string(text)
				}
				return nil
			})
		case 28:
			x.Target = string(text)
		case 35:
			x.id = int64(number)
		case 36:
			x.operands, err = numbers(x.operands, number, text)
		case 38:
			x.called, err = numbers(x.called, number, text)
		}
		return err
	}
}

// shape is a ShapeProto.
type shape struct {
	custom          bool // of a custom call: the last result may be room to work in, which is no tensor
	of              uint64
	dims            []int64
	elements, bytes int64 // of the largest tensor; of all
}

func (s *shape) read(text []byte) error {
	var tuple []shape
	err := message(text, func(field protowire.Number, number uint64, text []byte) (err error) {
		switch field {
		case 2:
			s.of = number
		case 3:
			s.dims, err = numbers(s.dims, number, text)
		case 4:
			var x shape
			err = x.read(text)
			tuple = append(tuple, x)
		}
		return err
	})
	if last := len(tuple) - 1; s.custom && last > 0 && tuple[last].of == s8 && len(tuple[last].dims) == 1 {
		tuple = tuple[:last]
	}
	if tuple != nil {
		s.dims = tuple[0].dims
		for _, x := range tuple {
			s.elements, s.bytes = max(s.elements, x.elements), s.bytes+x.bytes
		}
		return err
	}
	s.elements = 1
	for _, n := range s.dims {
		s.elements *= n
	}
	s.bytes = s.elements * cmp.Or(sizes[s.of], 1)
	return err
}

const s8 = 2 // of XLA's PrimitiveType

// sizes are the bytes of an element, by type; others have one, or less.
var sizes = map[uint64]int64{3: 2, 4: 4, 5: 8, 7: 2, 8: 4, 9: 8, 10: 2, 11: 4, 12: 8, 15: 8, 16: 2, 18: 16}

// link finds what instructions read and call.
func (m *module) link() {
	for _, x := range m.all {
		x.Written = x.bytes
		for _, id := range x.operands {
			if from := m.byID[id]; from != nil {
				x.Read += from.bytes
				x.Elements = max(x.Elements, from.Elements)
			}
		}
	}
	for _, x := range m.all {
		if x.holds() {
			x.Parts = m.parts(x, nil)
		}
	}
}

// holds tells whether an instruction is what its computations compute.
func (x *Instruction) holds() bool { return x.Opcode == "fusion" || x.Opcode == "call" }

// parts are what an instruction's computations compute, and those that they call.
func (m *module) parts(x *Instruction, within []int64) (all []*Instruction) {
	for _, id := range x.called {
		if slices.Contains(within, id) {
			continue
		}
		for _, y := range m.bodies[id] {
			if y.Opcode == "parameter" || y.Opcode == "constant" {
				continue
			}
			all = append(all, y)
			if y.holds() {
				all = append(all, m.parts(y, append(within, id))...)
			}
		}
	}
	return all
}
