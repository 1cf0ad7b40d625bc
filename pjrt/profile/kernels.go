// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package profile reads what XLA's profiler collects ([pjrt.Profiler]) and what XLA made of a program ([pjrt.Executable.OptimizedProgram]), so that the time of a
// kernel can be told of the operations that it computes.
//
// What goes in are an XSpace and HloModuleProtos, messages of protocol buffers, of which it reads the few fields that it needs. What comes out are kernels, with
// the names of modules and instructions, and instructions, with the locations of operations. It may assume nothing: what is damaged is an error.
package profile

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Kernel is something that a GPU ran, once.
type Kernel struct {
	Device int    // the number of the GPU, of those that the process sees
	Name   string // "loop_add_fusion_3"
	// Module and Op are what it ran for: a module and one of its instructions; "": that is not known.
	Module, Op string
	Start      time.Time
	Took       time.Duration
}

// Kernels are those of an XSpace, by device and time.
func Kernels(space []byte) ([]Kernel, error) {
	all, err := kernels(space)
	if n := len(space); err != nil && space[n-1] == 0 {
		all, err = kernels(space[:n-1]) // plugins write a byte behind the end
	}
	slices.SortStableFunc(all, func(a, b Kernel) int { return cmp.Or(cmp.Compare(a.Device, b.Device), a.Start.Compare(b.Start)) })
	return all, err
}

func kernels(space []byte) (all []Kernel, err error) {
	err = message(space, func(field protowire.Number, _ uint64, text []byte) error {
		if field != 1 { // planes
			return nil
		}
		p := plane{names: map[int64]string{}, stats: map[int64]string{}}
		if err := p.read(text); err != nil {
			return err
		}
		found, err := p.kernels()
		all = append(all, found...)
		return err
	})
	return all, err
}

// plane is what one device did, an XPlane.
type plane struct {
	name  string
	lines [][]byte
	names map[int64]string // of events
	stats map[int64]string // names and texts
}

func (p *plane) read(text []byte) error {
	return message(text, func(field protowire.Number, _ uint64, text []byte) error {
		switch field {
		case 2:
			p.name = string(text)
		case 3:
			p.lines = append(p.lines, text)
		case 4:
			return entry(text, p.names)
		case 5:
			return entry(text, p.stats)
		}
		return nil
	})
}

// entry reads one of a map from numbers to messages that have a name.
func entry(text []byte, to map[int64]string) error {
	var key int64
	var name string
	err := message(text, func(field protowire.Number, number uint64, text []byte) error {
		switch field {
		case 1:
			key = int64(number)
		case 2:
			return message(text, func(field protowire.Number, _ uint64, text []byte) error {
				if field == 2 {
					name = string(text)
				}
				return nil
			})
		}
		return nil
	})
	to[key] = name
	return err
}

// kernels are those of the plane, if it is that of a GPU.
func (p *plane) kernels() (all []Kernel, err error) {
	number, ok := strings.CutPrefix(p.name, "/device:GPU:")
	device, fails := strconv.Atoi(number)
	if !ok || fails != nil {
		return nil, nil
	}
	for _, line := range p.lines {
		var start int64
		var events [][]byte
		if err := message(line, func(field protowire.Number, number uint64, text []byte) error {
			switch field {
			case 3:
				start = int64(number) // nanoseconds since 1970
			case 4:
				events = append(events, text)
			}
			return nil
		}); err != nil {
			return nil, err
		}
		for _, e := range events {
			k := Kernel{Device: device}
			if err := p.event(&k, start, e); err != nil {
				return nil, err
			}
			all = append(all, k)
		}
	}
	return all, nil
}

// event reads an XEvent, which begins after the start of its line.
func (p *plane) event(k *Kernel, line int64, text []byte) error {
	return message(text, func(field protowire.Number, number uint64, text []byte) error {
		switch field {
		case 1:
			k.Name = p.names[int64(number)]
		case 2: // picoseconds
			k.Start = time.Unix(0, line+int64(number)/1000)
		case 3:
			k.Took = time.Duration(number / 1000)
		case 4:
			return p.stat(k, text)
		}
		return nil
	})
}

// stat reads an XStat.
func (p *plane) stat(k *Kernel, text []byte) error {
	var name, value string
	err := message(text, func(field protowire.Number, number uint64, text []byte) error {
		switch field {
		case 1:
			name = p.stats[int64(number)]
		case 5:
			value = string(text)
		case 7: // a name that is a text
			value = p.stats[int64(number)]
		}
		return nil
	})
	switch name {
	case "hlo_module":
		k.Module = value
	case "hlo_op":
		k.Op = value
	}
	return err
}
