// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// Traffic says what copies values travel in when they are merged.
type Traffic struct {
	Half   bool // gradients travel as float16
	Packed bool // small values travel together
	Shared bool // all model replicas have one memory, into which they gather weights: once, not once for each
}

// Counts are the bytes that a device answers for, of those that a value has: its share, if model replicas gathered it into one memory.
func (s *Program) Counts(v *ir.Value, bytes int64, t Traffic) int64 {
	if n := int64(len(s.Ranks)); t.Shared && s.gathered[v] {
		return (bytes + n - 1) / n
	}
	return bytes
}

// findGathered finds what model replicas gather of variables for a micro-batch. Nobody writes to it, so that they can share it.
func (s *Program) findGathered() {
	s.gathered = map[*ir.Value]bool{}
	for _, list := range s.Places {
		for _, in := range list {
			if in.Kind != Exchange || in.Micro == Once {
				continue
			}
			if axis, how := in.Op.Change(); axis == ir.Replicas && how == ir.AllGatherOf {
				for _, op := range in.Ops() {
					s.gathered[op.Outputs[0]] = true
				}
			}
		}
	}
}

// SmallBytes is how large a value may be that travels with others.
const SmallBytes = 64 << 10

// Lays tells whether a gradient of which each model replica gets a part is laid out by replica, and travels with others: a small one between
// workers, and one that becomes float16. Others are reduced where they are.
func (t Traffic) Lays(v *ir.Value) bool {
	return t.Half && v.Shape.DType == dtypes.Float32 || t.Packed && v.Bytes() <= SmallBytes
}

// Pending is what a bucket's values take while they are merged, besides copies.
func (s *Program) Pending(l *Ledger, bucket int, t Traffic) (n Bytes) {
	b := s.Buckets[bucket]
	in, out := b.Values()
	for i, v := range in {
		switch {
		case b.Parts && t.Lays(v):
		case b.Parts: // others read it, and this replica's part is on its way
			n[ForCommunication] += l.size(v) + l.size(out[i])
		case b.How.Adds() || b.How == ir.First:
			n[l.Use(v)] += l.size(v)
		}
	}
	return n
}

// MergeBuffers are the copies that a bucket's values travel in, until they are merged.
func (s *Program) MergeBuffers(bucket int, t Traffic) int64 {
	return s.mergeBuffers(bucket, t, (*ir.Value).Bytes)
}

func (s *Program) mergeBuffers(bucket int, t Traffic, size func(*ir.Value) int64) (bytes int64) {
	b := s.Buckets[bucket]
	in, out := b.Values()
	if b.Parts { // laid out by model replica, and what this one gets
		n := int64(s.Local.Replicas)
		for i, v := range out {
			if t.Lays(in[i]) {
				bytes += size(v) * (n + 1)
			}
		}
		if t.Half && in[0].Shape.DType == dtypes.Float32 { // half of that, and what it is made of when all know how large it is
			bytes = bytes/2 + bytes/(n+1)*n
		}
		return bytes
	}
	small, packed := 0, int64(0)
	for i, v := range in {
		n := size(v)
		switch {
		case b.How == ir.Concat:
			bytes += size(out[i])
		case b.How == ir.Agree:
			bytes += n * int64(s.Local.Instances())
		case b.How != ir.First:
			if t.Half && v.Shape.DType == dtypes.Float32 && b.Merges[i].Phase == ir.Backward && (s.Local.Replicas > 1 || b.Terms) {
				n /= 2
				bytes += n
			}
			if t.Packed && n <= SmallBytes {
				small++
				packed += n
			}
		}
	}
	if small > 1 {
		bytes += packed
	}
	return bytes
}

// ExchangeBuffers are the copies that a collective makes: parts along a dim that do not lie one after the other are put in
// order before they travel, or after.
func ExchangeBuffers(op *ir.Op) Need { return exchangeBuffers(op, (*ir.Value).Bytes) }

func exchangeBuffers(op *ir.Op, size func(*ir.Value) int64) (n Need) {
	in, out := op.Inputs[0], op.Outputs[0]
	axis, how := op.Change()
	if axis == ir.Replicas {
		return n
	}
	if dim := out.On(axis).Dim; (how == ir.ReduceScatterOf || how == ir.AllToAllOf) && !Leading(in.LocalShape(nil), dim) {
		n.Peak[ForCommunication] += size(in)
	}
	if dim := in.On(axis).Dim; (how == ir.AllGatherOf || how == ir.AllToAllOf) && !Leading(out.LocalShape(nil), dim) {
		n.Peak[ForCommunication] += size(out)
	}
	n.Most = n.Peak
	return n
}

// Leading tells whether the parts of a tensor along a dim lie one after the other.
func Leading(s shapes.Shape, dim int) bool {
	return !slices.ContainsFunc(s.Dimensions[:dim], func(n int) bool { return n != 1 })
}
