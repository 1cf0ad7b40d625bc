// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import "slices"

// search says which answers are looked for.
type search struct {
	best   int // so many of the likeliest starts and ends of each window are paired
	length int // an answer has at most so many word pieces
}

// noAnswer is what a question gets for which no answer is possible.
const noAnswer = "empty"

// answers returns the likeliest answer of each question, by its id, cut out of its context. start and end are what the
// network says of each window: how likely an answer starts and ends at each position.
func (s search) answers(questions []question, all []window, start, end [][]float32) map[string]string {
	texts := make(map[string]string, len(questions))
	for _, q := range questions {
		texts[q.id] = noAnswer
	}
	scores := map[int]float32{} // by question, of the best answer so far
	for i, win := range all {
		at, score, found := s.span(win, start[i], end[i])
		if before, any := scores[win.question]; !found || any && before >= score {
			continue
		}
		scores[win.question] = score
		q := questions[win.question]
		texts[q.id] = q.context[at.start:at.end]
	}
	return texts
}

// span returns the likeliest answer that a window has.
func (s search) span(win window, start, end []float32) (best span, score float32, found bool) {
	ends := likeliest(end, s.best)
	for _, from := range likeliest(start, s.best) {
		first := from - win.first // in the context
		if first < 0 || first >= len(win.context) || !win.central[first] {
			continue
		}
		for _, to := range ends {
			last := to - win.first
			if last < first || last >= len(win.context) || last-first+1 > s.length {
				continue
			}
			if sum := start[from] + end[to]; !found || sum > score {
				best, score, found = span{win.context[first].Start, win.context[last].End}, sum, true
			}
		}
	}
	return best, score, found
}

// likeliest returns the positions of the n largest scores, the largest first; of equal ones, the earlier first.
func likeliest(scores []float32, n int) []int {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	return order[:min(n, len(order))]
}
