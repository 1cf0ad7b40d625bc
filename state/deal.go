// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"slices"
)

// least is how many bytes a share of a region has at least: less is not worth a piece of its own.
const least = 1 << 20

// Deal gives every region of the variables to one of the ranks that hold it, so that writers have about as much to write as is possible. Large
// regions are cut into shares for the writers that hold them. writer is who writes for a rank, such as its worker. It is the same for all who
// call it with the same variables, in whatever order. Empty regions are nobody's, but for one of a variable that has no elements.
func Deal(variables []Variable, writer func(rank int) int) (pieces []Piece) {
	type share struct {
		Piece
		ranks []int // one for each writer
	}
	var all []share
	variables = slices.Clone(variables)
	slices.SortFunc(variables, func(a, b Variable) int { return cmp.Compare(a.Path, b.Path) })
	for _, v := range variables {
		for _, h := range v.Held {
			if h.Size() == 0 && v.Shape.Size() > 0 {
				continue
			}
			s := share{Piece{v.Path, v.Shape.DType, v.Shape.Dimensions, h.Region, 0}, nil}
			for _, rank := range h.Ranks {
				if !slices.ContainsFunc(s.ranks, func(o int) bool { return writer(o) == writer(rank) }) {
					s.ranks = append(s.ranks, rank)
				}
			}
			n := max(min(len(s.ranks), s.Bytes()/least), 1)
			if v.Shape.DType.IsPacked() {
				n = 1
			}
			for i := range n {
				part := s
				part.Region.From = h.From + i*h.Size()/n
				part.Region.To = h.From + (i+1)*h.Size()/n
				all = append(all, part)
			}
		}
	}
	// The largest first, each to the writer that has least: those with a choice come after those without.
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(min(len(all[i].ranks), 2), min(len(all[j].ranks), 2)), cmp.Compare(all[j].Bytes(), all[i].Bytes()))
	})
	load := map[int]int{}
	for _, i := range order {
		s := &all[i]
		s.Owner = slices.MinFunc(s.ranks, func(a, b int) int { return cmp.Compare(load[writer(a)], load[writer(b)]) })
		load[writer(s.Owner)] += s.Bytes()
	}
	for _, s := range all {
		pieces = append(pieces, s.Piece)
	}
	return pieces
}
