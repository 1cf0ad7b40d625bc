// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package equiv

import (
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
)

// Route sends each word of a group to the expert that its gate prefers, as long as that has room for words of the group. words are [groups, words, width] and the gate
// [width, experts]. dispatch is 1 for the word of a group that has a place with an expert, [groups, words, experts, room]; combine is its gate there.
func Route(words, gate *Node, room int) (dispatch, combine *Node) {
	g, experts := words.Graph(), gate.Shape().Dimensions[1]
	gates := Softmax(Einsum("gsd,de->gse", words, gate), -1)
	mask := OneHot(ArgMax(gates, -1, dtypes.Int32), experts, dtypes.Float32)
	position := Sub(CumSum(mask, 1), mask)
	mask = Mul(mask, ConvertDType(LessThan(position, Scalar(g, dtypes.Float32, room)), dtypes.Float32))
	slot := OneHot(ConvertDType(ReduceSum(Mul(position, mask), -1), dtypes.Int32), room, dtypes.Float32)
	dispatch = Einsum("gse,gsc->gsec", mask, slot)
	return dispatch, Mul(dispatch, InsertAxes(ReduceSum(Mul(gates, mask), -1), -1, -1))
}
