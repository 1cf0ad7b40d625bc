// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package moe is the network of the example moe, which translates: words travel to experts on several devices.
package moe

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
)

// Gate sends words to experts, as in "GShard: Scaling Giant Models with Conditional Computation" (Lepikhin et al. 2020).
// The words of a sentence are a group, and each expert has room for some words of each group.
type Gate struct {
	Experts        int
	TopK           int     // experts that a word goes to: 1 or 2
	CapacityFactor float64 // room of all experts together, as a multiple of what the words need
}

// Capacity is how many words of a group an expert has room for.
func (g Gate) Capacity(words int) int {
	return max(1, int(math.Ceil(g.CapacityFactor*float64(g.TopK*words)/float64(g.Experts))))
}

// route decides where words go. probabilities are those of the experts, [groups, words, experts]; real is 1 for words and 0
// for padding, [groups, words].
//
// dispatch is 1 where a word of a group goes to a place of an expert; combine has what the answer of the expert counts for.
// Both are [groups, words, experts, capacity]. Words that an expert has no more room for are 0 throughout. Nothing is left
// to chance: of equally likely experts a word goes to the first, and it gets its place after the words before it. So what
// becomes of a word does not depend on those after it, which a decoder may not know.
//
// balance, of each group, is small if experts are equally busy: 1 at best.
func (g Gate) route(probabilities, real *Node) (dispatch, combine, balance *Node) {
	real = InsertAxes(real, -1)
	var chosen, weights []*Node // one for each choice: [groups, words, experts] and [groups, words, 1]
	left, total := probabilities, ScalarZero(real.Graph(), real.DType())
	for range g.TopK {
		choice := OneHot(ArgMax(left, -1, dtypes.Int32), g.Experts, probabilities.DType())
		weight := ReduceAndKeep(Mul(probabilities, choice), ReduceSum, -1)
		left = Sub(left, MulScalar(choice, 2)) // not again
		total = Add(total, weight)
		chosen, weights = append(chosen, Mul(choice, real)), append(weights, weight)
	}
	if g.TopK == 1 {
		total = ScalarOne(real.Graph(), real.DType()) // else the gate would learn nothing
	}
	balance = g.balance(probabilities, chosen[0], real)

	taken := chosen[0]
	for _, choice := range chosen[1:] {
		taken = Add(taken, choice)
	}
	before := ConvertDType(Sub(CumSum(taken, 1), taken), dtypes.Int32)     // how many are at each expert when a word comes
	place := OneHot(before, g.Capacity(real.Shape().Dim(1)), real.DType()) // nowhere, if there is no room
	for i, choice := range chosen {
		goes := Mul(place, InsertAxes(choice, -1))
		counts := Mul(goes, InsertAxes(Div(weights[i], total), -1))
		if i == 0 {
			dispatch, combine = goes, counts
		} else {
			dispatch, combine = Add(dispatch, goes), Add(combine, counts)
		}
	}
	return dispatch, combine, balance
}

// balance is the number of experts times the sum, over experts, of the share of words whose first choice it is and its
// mean probability.
func (g Gate) balance(probabilities, first, real *Node) *Node {
	words := MaxScalar(ReduceSum(real, 1), 1) // [groups, 1]
	share := Div(ReduceSum(first, 1), words)
	mean := Div(ReduceSum(Mul(probabilities, real), 1), words)
	return MulScalar(ReduceSum(Mul(share, mean), -1), float64(g.Experts))
}
