// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package near finds the name that was meant by one that does not exist.
package near

import "unicode"

// comparedLetters bounds the work on absurdly long names; it is more than the longest key or flag has.
const comparedLetters = 64

// Letters keeps what people do not get wrong: num_micro_batch, NumMicroBatch and num-microbatch are the same.
func Letters(name string) []rune {
	var kept []rune
	for _, r := range name {
		if len(kept) == comparedLetters {
			break
		}
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			kept = append(kept, unicode.ToLower(r))
		}
	}
	return kept
}

// Distance is the edit distance of Levenshtein: letters inserted, removed or replaced.
func Distance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// Closest returns the first of names that is most like name; "" if none is close enough to be what was meant.
func Closest(name string, names []string) string {
	best, least := "", 0
	letters := Letters(name)
	for _, n := range names {
		if d := Distance(letters, Letters(n)); best == "" || d < least {
			best, least = n, d
		}
	}
	if 2*least > len(letters) {
		return ""
	}
	return best
}
