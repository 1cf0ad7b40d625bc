// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package pjrttest

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Kernel is something that the profiler of a fake saw on a device.
type Kernel struct {
	Device           int
	Name, Module, Op string
	Start            time.Time
	Took             time.Duration
}

// Space is what the profiler of a plugin writes: an XSpace.
func Space(kernels ...Kernel) (space []byte) {
	for _, k := range kernels { // each in a plane of its own
		var plane []byte
		plane = text(plane, 2, "/device:GPU:"+string(rune('0'+k.Device)))
		for i, name := range []string{"hlo_module", "hlo_op", k.Module, k.Op} {
			key := uint64(i + 1)
			plane = field(plane, 5, text(number(nil, 1, key), 2, string(text(number(nil, 1, key), 2, name))))
		}
		plane = field(plane, 4, text(number(nil, 1, 7), 2, string(text(nil, 2, k.Name))))
		event := number(number(number(nil, 1, 7), 2, 5000), 3, uint64(k.Took)*1000)
		event = field(event, 4, number(number(nil, 1, 1), 7, 3))
		event = field(event, 4, number(number(nil, 1, 2), 7, 4))
		plane = field(plane, 3, field(number(nil, 3, uint64(k.Start.UnixNano()-5)), 4, event))
		space = field(space, 1, plane)
	}
	return space
}

// Instruction is one of a compiled module, of float32.
type Instruction struct {
	Name, Opcode, Location, Target string
	Dims                           []uint64
	Operands                       []int // instructions of the module before it
	Parts                          []Instruction
}

// Module is what a compiler makes of a program: an HloModuleProto.
func Module(instructions ...Instruction) (module []byte) {
	next, computations := uint64(1), uint64(1)
	var computation func(all []Instruction) (id uint64)
	computation = func(all []Instruction) uint64 {
		var body []byte
		var ids []uint64
		for _, x := range all {
			var shape []byte
			shape = number(shape, 2, 11)
			for _, d := range x.Dims {
				shape = number(shape, 3, d)
			}
			i := field(text(text(nil, 1, x.Name), 2, x.Opcode), 3, shape)
			i = text(field(i, 7, text(nil, 2, x.Location)), 28, x.Target)
			i = number(i, 35, next)
			ids = append(ids, next)
			next++
			for _, o := range x.Operands {
				i = number(i, 36, ids[o])
			}
			if len(x.Parts) > 0 {
				i = number(i, 38, computation(x.Parts))
			}
			body = field(body, 2, i)
		}
		id := computations
		computations++
		module = field(module, 3, number(body, 5, id))
		return id
	}
	computation(instructions)
	return module
}

func field(to []byte, number protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), message)
}

func text(to []byte, number protowire.Number, s string) []byte { return field(to, number, []byte(s)) }

func number(to []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, field, protowire.VarintType), n)
}
