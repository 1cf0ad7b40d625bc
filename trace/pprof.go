// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// WritePprof writes the profile for "go tool pprof", as profile.proto has it: a stack is an op, its kind, its task and its stage, or another part of the devices' time. So
// "go tool pprof -http" draws flame graphs of training steps.
func (p *Profile) WritePprof(w io.Writer) error {
	b := newPprof("time", "nanoseconds", "calls", "count", "flops", "count")
	tasks := map[string]time.Duration{} // of kernels
	for _, o := range p.Ops {
		task := cmp.Or(o.Task, otherWork)
		tasks[task] += o.Time
		stack := []string{o.Name, o.Kind, task}
		if p.Pipeline.Stages > 1 {
			stack = append(stack, fmt.Sprintf("stage %d", o.Stage))
		}
		b.sample(slices.DeleteFunc(stack, func(s string) bool { return s == "" }), int64(o.Time), int64(o.Calls), o.Flops)
	}
	for _, part := range p.Parts { // of tasks, what is in no kernel
		if rest := part.Time - tasks[part.Name]; rest > 0 {
			b.sample([]string{part.Name}, int64(rest), 0, 0)
		}
	}
	z := gzip.NewWriter(w)
	if _, err := z.Write(b.bytes(p.Total)); err != nil {
		return err
	}
	return z.Close()
}

// pprof builds a message Profile of profile.proto. Every name is a function, and a location.
type pprof struct {
	types, samples, functions []byte
	strings                   map[string]uint64 // to their numbers; that of "" is 0
	table                     []string
	known                     map[string]uint64 // names that have a function
}

// newPprof is for samples with these types and units.
func newPprof(types ...string) *pprof {
	b := &pprof{strings: map[string]uint64{"": 0}, table: []string{""}, known: map[string]uint64{}}
	for i := 0; i < len(types); i += 2 {
		b.types = message(b.types, 1, numbers(nil, 1, b.string(types[i]), 2, b.string(types[i+1])))
	}
	return b
}

// sample adds one, with its stack from the innermost name on. The fields of messages have these numbers in profile.proto.
func (b *pprof) sample(stack []string, values ...int64) {
	var locations, packed []byte
	for _, name := range stack {
		id, known := b.known[name]
		if !known {
			id = uint64(len(b.known) + 1)
			b.known[name] = id
			text := b.string(name)
			b.functions = message(b.functions, 4, message(numbers(nil, 1, id), 4, numbers(nil, 1, id)))
			b.functions = message(b.functions, 5, numbers(nil, 1, id, 2, text, 3, text))
		}
		locations = protowire.AppendVarint(locations, id)
	}
	for _, v := range values {
		packed = protowire.AppendVarint(packed, uint64(v))
	}
	b.samples = message(b.samples, 2, message(message(nil, 1, locations), 2, packed))
}

func (b *pprof) string(text string) uint64 {
	n, known := b.strings[text]
	if !known {
		n = uint64(len(b.table))
		b.strings[text], b.table = n, append(b.table, text)
	}
	return n
}

func (b *pprof) bytes(total time.Duration) []byte {
	all := slices.Concat(b.types, b.samples, b.functions)
	for _, text := range b.table {
		all = message(all, 6, []byte(text))
	}
	return numbers(all, 10, uint64(total), 14, b.strings["time"])
}

// message appends a field of bytes.
func message(to []byte, field protowire.Number, text []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, field, protowire.BytesType), text)
}

// numbers appends fields that are numbers: field, value, field, value.
func numbers(to []byte, all ...uint64) []byte {
	for i := 0; i < len(all); i += 2 {
		to = protowire.AppendVarint(protowire.AppendTag(to, protowire.Number(all[i]), protowire.VarintType), all[i+1])
	}
	return to
}
