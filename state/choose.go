// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pkg/errors"
)

// Choose returns which of the regions to take, the first ones before others, so that together they have all elements of a tensor, or what is missing. Several may have the
// same elements, but then they are of the same box.
func Choose(dims []int, regions []Region) (chosen []int, err error) {
	type span struct{ from, to int }
	boxes := map[string][]span{} // that are chosen already: sorted, and apart from each other
	for i, r := range regions {
		if err := r.Check(dims); err != nil {
			return nil, err
		}
		box := fmt.Sprint(r.Start, r.Limit)
		all := boxes[box]
		if r.Size() == 0 || slices.ContainsFunc(all, func(s span) bool { return s.from <= r.From && r.To <= s.to }) {
			continue
		}
		chosen = append(chosen, i)
		all = append(all, span{r.From, r.To})
		slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		apart := all[:1]
		for _, s := range all[1:] {
			if last := &apart[len(apart)-1]; s.from <= last.to {
				last.to = max(last.to, s.to)
			} else {
				apart = append(apart, s)
			}
		}
		boxes[box] = apart
	}
	total := 0
	for _, all := range boxes {
		for _, s := range all {
			total += s.to - s.from
		}
	}
	if whole := Whole(dims); total != whole.Size() {
		return nil, errors.Errorf("epl: %d of the %d elements are there", total, whole.Size())
	}
	return chosen, nil
}
