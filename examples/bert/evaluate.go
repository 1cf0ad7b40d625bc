// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// scores is what the official evaluation of SQuAD v1.1 says of answers, in percent: how many are exactly right, and how
// much of them overlaps with what is right (F1).
type scores struct{ exact, f1 float64 }

// evaluate compares answers, by the id of their question, with those of people. It does what evaluate-v1.1.py does: the
// best of a question's right answers counts, and a question without an answer is wrong.
func evaluate(questions []question, answers map[string]string) (s scores) {
	for _, q := range questions {
		given, ok := answers[q.id]
		if !ok {
			continue
		}
		var exact, best float64
		for _, right := range q.answers {
			if normalizeAnswer(given) == normalizeAnswer(right) {
				exact = 1
			}
			best = max(best, f1(given, right))
		}
		s.exact += exact
		s.f1 += best
	}
	percent := 100 / float64(len(questions))
	return scores{s.exact * percent, s.f1 * percent}
}

// f1 is the harmonic mean of how many words of an answer are right, and how many of the right ones it has.
func f1(given, right string) float64 {
	givenWords, rightWords := fields(normalizeAnswer(given)), fields(normalizeAnswer(right))
	left := map[string]int{}
	for _, w := range rightWords {
		left[w]++
	}
	same := 0
	for _, w := range givenWords {
		if left[w] > 0 {
			left[w]--
			same++
		}
	}
	if same == 0 {
		return 0
	}
	precision, recall := float64(same)/float64(len(givenWords)), float64(same)/float64(len(rightWords))
	return 2 * precision * recall / (precision + recall)
}

// normalizeAnswer makes an answer lower case, and removes punctuation, articles and superfluous white space.
func normalizeAnswer(text string) string {
	text = cases.Lower(language.Und).String(text)
	text = strings.Map(func(r rune) rune {
		if strings.ContainsRune("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", r) {
			return -1
		}
		return r
	}, text)
	return strings.Join(fields(withoutArticles(text)), " ")
}

// withoutArticles replaces "a", "an" and "the" by a space where they are whole words. Letters and digits of all languages
// make words: "éa" has no article.
func withoutArticles(text string) string {
	var out, word strings.Builder
	end := func() {
		switch word.String() {
		case "a", "an", "the":
			out.WriteByte(' ')
		default:
			out.WriteString(word.String())
		}
		word.Reset()
	}
	for _, r := range text {
		if unicode.IsLetter(r) || unicode.IsNumber(r) {
			word.WriteRune(r)
			continue
		}
		end()
		out.WriteRune(r)
	}
	end()
	return out.String()
}

// fields splits at white space, as Python understands it: with the four separators of ASCII.
func fields(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f })
}
