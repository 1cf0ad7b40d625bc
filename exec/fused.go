// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package exec

import (
	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// Attention tells which attentions a device has as one op; nil: none. EPL's own devices say so; a backend of GoMLX is tried.
func Attention(d compute.Backend) func(*ir.Op) bool {
	if x, ok := d.(interface{ Attention(*ir.Op) bool }); ok {
		if !x.Attention(nil) {
			return nil
		}
		return x.Attention
	}
	if !d.Capabilities().Operations[compute.OpTypeFusedScaledDotProductAttention] {
		return nil
	}
	return func(op *ir.Op) bool { return emit.Has(d, op) }
}

// Fused tells which other fused ops a device has; nil: all. EPL's own devices and GoMLX's pure-Go backend have them; XLA of GoMLX has none.
func Fused(d compute.Backend) func(*ir.Op) bool {
	if _, own := d.(emit.Compiler); own || d.Capabilities().Operations[compute.OpTypeFusedSoftmax] {
		return nil
	}
	return func(op *ir.Op) bool { return emit.Has(d, op) }
}
