// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"
)

// Expected values of these tests are those of evaluate-v1.1.py.

func TestAnswersAreNormalisedAsTheOfficialScriptDoes(t *testing.T) {
	for text, want := range map[string]string{
		"The Cat":          "cat",
		"a-b":              "ab",
		"an  apple, a day": "apple day",
		"the the THE":      "",
		"éa a":             "éa",
		"a\u00a0b":         "b",
		"a\x1cb":           "b",
		"Σίσυφος ΟΔΟΣ":     "σίσυφος οδος",
		"İstanbul":         "i\u0307stanbul",
		"$1,000.50":        "100050",
		"don't":            "dont",
		"“the” end":        "“ ” end",
		"the_a":            "thea",
		"—a—":              "— —",
		"1 a2 a":           "1 a2",
		"b\u200ba":         "b\u200b",
		"①a":               "①a",
		"a\u0301 a":        "\u0301",
		" \t\n":            "",
	} {
		if got := normalizeAnswer(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestF1IsTheOverlapOfWords(t *testing.T) {
	for pair, want := range map[[2]string]float64{
		{"the red kite", "red kite"}:   1,
		{"a red kite", "red boat"}:     0.5,
		{"kite red", "red kite"}:       1,
		{"red red kite", "red kite"}:   0.8,
		{"", "red"}:                    0,
		{"the", "a"}:                   0, // exactly equal, but without a word in common
		{"in 1999", "1999"}:            2. / 3,
		{"New York City", "new york"}:  0.8,
		{"one two", "three"}:           0,
		{"b b c", "b c c"}:             2. / 3,
		{"Zürich.", "\"zürich\""}:      1,
		{"one two three", "two three"}: 0.8,
	} {
		if got := f1(pair[0], pair[1]); math.Abs(got-want) > 1e-12 {
			t.Errorf("%q and %q: got %v, want %v", pair[0], pair[1], got, want)
		}
	}
}

func TestScoresAreThoseOfTheBestAnswerInPercent(t *testing.T) {
	questions := []question{
		{id: "exact", answers: []string{"blue hat", "The red kite!", "kite"}},
		{id: "part", answers: []string{"New York", "New York City Hall"}},
		{id: "wrong", answers: []string{"1999"}},
		{id: "not answered", answers: []string{"a"}},
		{id: "article", answers: []string{"the"}},
	}
	got := evaluate(questions, map[string]string{"exact": "red kite", "part": "new york city", "wrong": "2000", "article": "a", "other": "x"})
	// exact: 1 + 0 + 0 + 0 + 1 of 5; F1: 1 + 6/7 + 0 + 0 + 0 of 5
	if want := (scores{40, 100 * (1 + 6./7) / 5}); math.Abs(got.exact-want.exact) > 1e-9 || math.Abs(got.f1-want.f1) > 1e-9 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
