// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
)

func TestNumbersAreSpelledAsPeopleDo(t *testing.T) {
	for n, want := range map[int][2]string{
		1:       {"one", "eins"},
		12:      {"twelve", "zwölf"},
		21:      {"twenty one", "ein und zwanzig"},
		70:      {"seventy", "siebzig"},
		101:     {"one hundred one", "ein hundert eins"},
		1000:    {"one thousand", "ein tausend"},
		1001:    {"one thousand one", "ein tausend eins"},
		101_000: {"one hundred one thousand", "ein hundert ein tausend"},
		342_617: {"three hundred forty two thousand six hundred seventeen", "drei hundert zwei und vierzig tausend sechs hundert siebzehn"},
		999_999: {"nine hundred ninety nine thousand nine hundred ninety nine",
			"neun hundert neun und neunzig tausend neun hundert neun und neunzig"},
	} {
		if got := [2]string{strings.Join(english(n), " "), strings.Join(german(n), " ")}; got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

func TestGeneratedPairsAreAlwaysTheSameAndAllDifferent(t *testing.T) {
	first := numbers(500)
	if fmt.Sprint(first) != fmt.Sprint(numbers(500)) {
		t.Error("they differ")
	}
	seen := map[string]bool{}
	for _, p := range first {
		if seen[p[0]] {
			t.Errorf("%q occurs twice", p[0])
		}
		seen[p[0]] = true
	}
}

func writePairs(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pairs.tsv")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPairsAreReadFromAFile(t *testing.T) {
	var text strings.Builder
	for i := range 40 {
		fmt.Fprintf(&text, "a word%d\tein wort%d <end>\n\n", i%3, i%3)
	}
	text.WriteString("a very very long sentence\tein satz\n")
	f := parse(t, "-length 4 -vocabulary 7 -data "+writePairs(t, text.String()))
	c, err := f.corpus()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.pairs) != 39 || len(c.held) != 1 || c.tooLong != 1 || c.length != 4 {
		t.Errorf("%d pairs, %d held, %d too long, length %d", len(c.pairs), len(c.held), c.tooLong, c.length)
	}
	if want := append(slices.Clone(marks), "<end>", "a", "ein"); !slices.Equal(c.words, want) {
		t.Errorf("words %q, want %q", c.words, want)
	}
	if got := c.pairs[0]; !slices.Equal(got.source, []int32{5, unknown, end}) || !slices.Equal(got.target, []int32{6, unknown, 4, end}) {
		t.Errorf("got %v", got)
	}
	if got := c.text(c.pairs[0].target); got != "ein <unknown> <end>" {
		t.Errorf("got %q", got)
	}
	var out bytes.Buffer
	c.describe(&out)
	if want := "39 pairs to learn from, 1 held back; 7 words, 4 in the longest sentence\nleft out 1 pairs, which are longer than -length\n"; out.String() != want {
		t.Errorf("got %s", &out)
	}
}

func TestWrongFilesAreOneClearSentence(t *testing.T) {
	for text, want := range map[string]string{
		"a b\tc\nno tab\n": `:2: a line is a sentence, one tab and its translation, not "no tab"`,
		"a\tb\tc\n":        `:1: a line is a sentence, one tab and its translation, not "a\tb\tc"`,
		"\tb\n":            `:1: a line is a sentence, one tab and its translation, not "\tb"`,
		"a\tb\n":           "moe: there are 1 pairs to learn from, and 0 that -length leaves out; at least 2 are needed",
		"":                 "moe: there are 0 pairs to learn from, and 0 that -length leaves out; at least 2 are needed",
	} {
		if _, err := parse(t, "-data "+writePairs(t, text)).corpus(); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: got %v\nwant …%s", text, err, want)
		}
	}
	if _, err := parse(t, "-data nowhere.tsv").corpus(); err == nil || !strings.HasPrefix(err.Error(), "moe: -data: open nowhere.tsv") {
		t.Errorf("got %v", err)
	}
}

func TestADecoderIsGivenTheWordsBefore(t *testing.T) {
	c := &corpus{length: 4}
	b := c.batch([]pair{{[]int32{5, end}, []int32{6, 7, end}}})
	for i, want := range [][]int32{{5, end, 0, 0}, {start, 6, 7, 0}, {6, 7, end, 0}} {
		if got := tensors.MustCopyFlatData[int32](append(b.Inputs, b.Labels...)[i]); !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
}

func TestLargerBatchesHaveTheSamePairsInTheSameOrder(t *testing.T) {
	c := &corpus{length: 1}
	for i := range 5 {
		c.pairs = append(c.pairs, pair{[]int32{int32(i)}, []int32{int32(i)}})
	}
	take := func(size, count int) (all []int32) {
		for b := range (batches{c, size, 1}).Iter() {
			all = append(all, tensors.MustCopyFlatData[int32](b.Inputs[0])...)
			if len(all) >= count {
				break
			}
		}
		return all
	}
	if small, large := take(2, 12), take(4, 12); !slices.Equal(small, large) {
		t.Errorf("%v and %v", small, large)
	}
}
