// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
)

// FusesAttention tells whether an attention is recorded as one op, beside what it is written out as: where some engine has it so, as XLA has by
// cuDNN. The shapes are those of its operands: query, key, value, and, where there are options, two lengths, bias and mask; that of an absent
// one is invalid. The gradient has the same answer.
//
// cuDNN takes half precision, heads of at most 128 features, a multiple of 8, and no mask but those of causality and of lengths.
func FusesAttention(layout compute.AttentionAxesLayout, o *compute.ScaledDotProductAttentionConfig, of []shapes.Shape) bool {
	q, k, v := of[0], of[1], of[2]
	if q.Rank() != 4 || k.Rank() != 4 || q.Size() == 0 || k.Size() == 0 || !q.DType.IsHalfPrecision() || k.DType != q.DType || !k.Equal(v) {
		return false
	}
	qd, kd := q.Dimensions, k.Dimensions
	h, s := layout.HeadsAxis(), layout.SeqAxis()
	if qd[0] != kd[0] || qd[h]%kd[h] != 0 || qd[3] != kd[3] || qd[3]%8 != 0 || qd[3] > 128 {
		return false
	}
	if o == nil {
		return true
	}
	lengths, bias, mask := of[3].Ok() || of[4].Ok(), of[5], of[6]
	switch {
	case mask.Ok(), o.Causal && qd[s] != kd[s]:
		return false
	case bias.Ok(): // its kernels take no lengths, and an even number of positions
		d := bias.Dimensions
		return !lengths && bias.DType == q.DType && len(d) == 4 && (d[0] == 1 || d[0] == qd[0]) && (d[1] == 1 || d[1] == qd[h]) &&
			d[2] == qd[s] && d[3] == kd[s] && d[2]%2 == 0 && d[3]%2 == 0
	}
	return true
}
