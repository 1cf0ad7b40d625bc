// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"compress/gzip"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// WritePprof writes the profile for "go tool pprof", as profile.proto has it: a stack is an op, its line, the scopes of the model around it, its TaskGraph,
// task and stage, or another part of the devices' time. So "go tool pprof -http" draws flame graphs of training steps. The kind of an op is a tag.
func (p *Profile) WritePprof(w io.Writer) error {
	b := newPprof("time", "nanoseconds", "calls", "count", "flops", "count")
	p.stacks(func(names []string, o OpTime) {
		slices.Reverse(names)
		b.sample(names, o.Kind, int64(o.Time), int64(math.Round(o.Calls)), int64(o.Flops))
	})
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

// sample adds one of a kind, with its stack from the innermost name on. The fields of messages have these numbers in profile.proto.
func (b *pprof) sample(stack []string, kind string, values ...int64) {
	var locations, packed []byte
	for _, name := range stack {
		id, known := b.known[name]
		if !known {
			id = uint64(len(b.known) + 1)
			b.known[name] = id
			text := b.string(name)
			file, line := lineOf(name)
			b.functions = message(b.functions, 4, message(numbers(nil, 1, id), 4, numbers(nil, 1, id, 2, line)))
			b.functions = message(b.functions, 5, numbers(nil, 1, id, 2, text, 3, text, 4, b.string(file)))
		}
		locations = protowire.AppendVarint(locations, id)
	}
	for _, v := range values {
		packed = protowire.AppendVarint(packed, uint64(v))
	}
	sample := message(message(nil, 1, locations), 2, packed)
	if kind != "" {
		sample = message(sample, 3, numbers(nil, 1, b.string("kind"), 2, b.string(kind)))
	}
	b.samples = message(b.samples, 2, sample)
}

// lineOf takes a line of Go apart, "gpt/model.go:42"; other names have none.
func lineOf(name string) (file string, line uint64) {
	file, number, found := strings.Cut(name, ".go:")
	line, err := strconv.ParseUint(number, 10, 32)
	if !found || err != nil {
		return "", 0
	}
	return file + ".go", line
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
