package config

import (
	"strings"
	"unicode"
)

// nearest returns the key whose name is most like the given one, the first in the table among equals, and whether it
// is close enough to be what was meant.
func nearest(name string) (best *key, likely bool) {
	whole, attribute := letters(name), letters(attributeOf(name))
	least := 0
	for i := range keys {
		k := &keys[i]
		// The right attribute under the wrong category, or under none, is a likely mistake: it counts as one letter.
		d := min(distance(whole, letters(k.name)), 1+distance(attribute, letters(attributeOf(k.name))))
		if len(whole) >= shortestStart && strings.HasPrefix(string(letters(k.name)), string(whole)) {
			d = 1 // the start of a key, which someone was too lazy to finish
		}
		if best == nil || d < least {
			best, least = k, d
		}
	}
	return best, 2*least <= len(whole)
}

// attributeOf returns the part of a key after its category, or all of it when it names none.
func attributeOf(name string) string {
	if _, attribute, ok := strings.Cut(name, "."); ok {
		return attribute
	}
	return name
}

// shortestStart is how many letters the start of a key must have to count for it: more than a category.
const shortestStart = 10

// comparedLetters bounds the work on absurdly long names; it is more than the longest key has.
const comparedLetters = 64

// letters keeps what people do not get wrong: num_micro_batch, NumMicroBatch and num-microbatch are the same.
func letters(name string) []rune {
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

// distance is the edit distance of Levenshtein: letters inserted, removed or replaced.
func distance(a, b []rune) int {
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
