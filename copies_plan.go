// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"slices"

	"github.com/easyparallel/epl/state"
)

// copyPlan is who copies what, as long as variables stay where they are.
type copyPlan struct {
	layout uint64
	mine   []state.Piece // of this worker: those that other machines have not, then the others
	lent   int           // so many of them another worker keeps, too
	kept   []keptPiece   // of others
}

// keptPiece is a piece of another worker, on another machine, that this one keeps a copy of.
type keptPiece struct {
	state.Piece
	from  int // worker
	index int // of its pieces
}

// planCopies deals the variables: every launcher holds all that its workers have, and what the workers of only one launcher have is kept by a worker of another one, too,
// on another machine if there is one.
func planCopies(variables []state.Variable, places []copyPlace, workerOf func(rank int) int, me int) (p copyPlan) {
	var memories []string
	for _, x := range places {
		if !slices.Contains(memories, x.Memory) {
			memories = append(memories, x.Memory)
		}
	}
	load := make([]int, len(places)) // that workers keep for others
	for _, memory := range memories {
		var alone, shared []state.Variable
		for _, v := range variables {
			a, s := v, v
			a.Held, s.Held = nil, nil
			for _, h := range v.Held {
				here := slices.DeleteFunc(slices.Clone(h.Ranks), func(rank int) bool { return places[workerOf(rank)].Memory != memory })
				switch {
				case len(here) == 0:
				case len(here) < len(h.Ranks):
					s.Held = append(s.Held, state.Held{Region: h.Region, Ranks: here})
				default:
					a.Held = append(a.Held, h)
				}
			}
			if len(a.Held) > 0 {
				alone = append(alone, a)
			}
			if len(s.Held) > 0 {
				shared = append(shared, s)
			}
		}
		index := make([]int, len(places)) // of pieces that only this launcher's workers have
		var others []state.Piece
		for _, piece := range state.Deal(alone, workerOf) {
			owner := workerOf(piece.Owner)
			if keeper := keeperOf(owner, places, load); keeper >= 0 {
				load[keeper] += piece.Bytes()
				if keeper == me {
					p.kept = append(p.kept, keptPiece{piece, owner, index[owner]})
				}
				if owner == me {
					p.lent++
				}
			}
			index[owner]++
			if owner == me {
				p.mine = append(p.mine, piece)
			}
		}
		for _, piece := range state.Deal(shared, workerOf) {
			if workerOf(piece.Owner) == me {
				others = append(others, piece)
			}
		}
		p.mine = append(p.mine, others...)
	}
	return p
}

// keeperOf is the worker that keeps a piece of another one, too: of those on other machines, else of other launchers, the one that has least; -1: there is none.
func keeperOf(owner int, places []copyPlace, load []int) (keeper int) {
	keeper = -1
	for _, far := range []bool{true, false} {
		for w, x := range places {
			if x.Memory != places[owner].Memory && (!far || x.Host != places[owner].Host) && (keeper < 0 || load[w] < load[keeper]) {
				keeper = w
			}
		}
		if keeper >= 0 {
			return keeper
		}
	}
	return -1
}
