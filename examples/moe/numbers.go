// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"strings"
)

var (
	englishUnits = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen " +
		"sixteen seventeen eighteen nineteen")
	englishTens = strings.Fields("- - twenty thirty forty fifty sixty seventy eighty ninety")
	germanUnits = strings.Fields("null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn " +
		"sechzehn siebzehn achtzehn neunzehn")
	germanTens = strings.Fields("- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
)

// numbers makes pairs up, so that there is something to learn without data: numbers below a million, as words of English
// and of German, where units come before tens. They are all different, and always the same.
func numbers(count int) (texts [][2]string) {
	random := rand.New(rand.NewPCG(1, 0))
	seen := map[int]bool{}
	for len(texts) < count {
		n := 1 + random.IntN([]int{99, 999, 999_999}[random.IntN(3)])
		if !seen[n] {
			seen[n] = true
			texts = append(texts, [2]string{strings.Join(english(n), " "), strings.Join(german(n), " ")})
		}
	}
	return texts
}

// english returns the words of a number from 1 to 999,999.
func english(n int) (words []string) {
	if n >= 1000 {
		words = append(english(n/1000), "thousand")
		n %= 1000
	}
	if n >= 100 {
		words = append(words, englishUnits[n/100], "hundred")
		n %= 100
	}
	if n >= 20 {
		words = append(words, englishTens[n/10])
		n %= 10
	}
	if n > 0 {
		words = append(words, englishUnits[n])
	}
	return words
}

// german returns the words of a number from 1 to 999,999, which it writes as one.
func german(n int) (words []string) {
	if n >= 1000 {
		words = append(german(n/1000), "tausend")
		if last := len(words) - 2; words[last] == "eins" {
			words[last] = "ein"
		}
		n %= 1000
	}
	if n >= 100 {
		words = append(words, germanUnits[n/100], "hundert")
		n %= 100
	}
	if n >= 20 {
		if n%10 > 0 {
			words = append(words, germanUnits[n%10], "und")
		}
		return append(words, germanTens[n/10])
	}
	if n == 1 {
		return append(words, "eins")
	}
	if n > 0 {
		words = append(words, germanUnits[n])
	}
	return words
}
