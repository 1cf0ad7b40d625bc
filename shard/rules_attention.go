// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/ir"
)

func attentionForward(op *ir.Op) *Rule {
	a := op.Attrs.(*ir.FusedScaledDotProductAttention)
	out := slices.Repeat([]role{ofState}, len(op.Outputs))
	out[0] = ofQueries
	return attention(op, a.AxesLayout, a.Options, out)
}

func attentionVJP(op *ir.Op) *Rule {
	a := op.Attrs.(*ir.FusedScaledDotProductAttentionVJP)
	options := 0
	if a.Options != nil {
		options = 4
	}
	more := slices.Repeat([]role{ofState}, len(op.Inputs)-3-options) // of forward: the result, what it kept, the gradient
	more[0], more[len(more)-1] = ofQueries, ofQueries
	return attention(op, a.AxesLayout, a.Options, append(more, ofQueries, ofKeyGradients, ofKeyGradients))
}

// role is what an operand of attention has rows for.
type role uint8

const (
	ofQueries role = iota
	ofKeys
	ofKeyGradients
	ofSamples // one number for each sample
	ofScores  // it is added to the scores: a bias
	ofMask    // it masks scores, or is added to them
	ofState   // what forward keeps for backward: as scores, as far as anybody knows
)

// attention: samples, heads together with those that share keys and values, and queries if it does not matter which one it is.
// The first operands are queries, keys, values, and what options need.
func attention(op *ir.Op, layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig, more []role) *Rule {
	roles := []role{ofQueries, ofKeys, ofKeys}
	if o != nil {
		roles = append(roles, ofSamples, ofSamples, ofScores, ofMask)
	}
	roles = append(roles, more...)
	queries, keys := dims(op.Inputs[0]), dims(op.Inputs[1])
	r := &Rule{}
	for dim, d := range []int{0, layout.HeadsAxis(), layout.SeqAxis()} { // dims of queries: samples, heads, positions
		size, ok := queries[d], true
		switch dim {
		case 1:
			size = keys[d] // heads are counted in groups, one for each head of keys
		case 2:
			ok = o == nil || !o.Causal && !o.QuantizedMatmuls && op.Inputs[3] == nil
		}
		var refs []int
		for i, v := range slices.Concat(op.Inputs, op.Outputs) {
			to := whole
			switch is := roles[i]; {
			case v == nil:
			case is == ofQueries, is <= ofKeyGradients && dim < 2:
				to = d
			case is == ofKeyGradients:
				to = term
			case is == ofSamples && dim == 0:
				to = 0
			case is == ofScores || is == ofMask:
				rank := v.Shape.Rank()
				to = dim + rank - 4
				ok = ok && (rank != 3 || dim == 2) // its first dim may be that of samples or that of heads
				if rank == 4 && is == ofMask {
					to = d // a mask is laid out as queries are
				}
				if to < 0 || dims(v)[to] == 1 {
					to = whole
				}
				if rank == 4 && is == ofScores && dim > 0 && layout != compute.AttentionAxesLayoutBHSD {
					// GoMLX says that heads come first, and its backend that a bias is laid out as queries are.
					ok = ok && dims(v)[1] == 1 && dims(v)[2] == 1
				}
			case is == ofState:
				if to = dim; v.Shape.Rank() <= dim || dims(v)[dim] != queries[d] {
					ok, to = false, whole
				}
			}
			refs = append(refs, to)
		}
		if ok {
			r.factor(op, size, 0, refs...)
		}
	}
	return r
}
