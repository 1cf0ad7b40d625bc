// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// logits gives positions a score, and all others a low one.
func logits(length int, high map[int]float32) []float32 {
	all := make([]float32, length)
	for i := range all {
		all[i] = -10
	}
	for i, score := range high {
		all[i] = score
	}
	return all
}

func TestTheLikeliestAnswerOfAWindowIsFound(t *testing.T) {
	tok := newTokenizer(t, "a b c d e who")
	q := ask(t, "a b c d e", "who", "b")
	w := windows(tok, []question{q}, windowing{12, 4, 4})[0] // [CLS] who [SEP] a b c d e [SEP] [PAD]…: a is at 3
	for _, c := range []struct {
		name       string
		search     search
		start, end map[int]float32
		want       string
	}{
		{"one", search{20, 30}, map[int]float32{4: 5}, map[int]float32{4: 5}, "b"},
		{"several words", search{20, 30}, map[int]float32{4: 5}, map[int]float32{6: 5}, "b c d"},
		{"the best pair counts", search{20, 30}, map[int]float32{3: 5, 5: 4}, map[int]float32{4: 1, 6: 3}, "a b c d"},
		{"no end before the start", search{20, 30}, map[int]float32{5: 5, 3: 1}, map[int]float32{4: 5, 6: -8}, "a b"},
		{"not in the question", search{20, 30}, map[int]float32{0: 9, 1: 9, 6: 1}, map[int]float32{0: 9, 1: 9, 7: 1}, "d e"},
		{"not in the marks", search{20, 30}, map[int]float32{2: 9, 4: 1}, map[int]float32{8: 9, 9: 9, 5: 1}, "b c"},
		{"not too long", search{20, 2}, map[int]float32{3: 5, 6: 2}, map[int]float32{7: 5}, "d e"},
		{"only the best starts and ends", search{1, 30}, map[int]float32{5: 5, 3: 4}, map[int]float32{6: 5, 4: 4}, "c d"},
		{"nothing is possible", search{1, 30}, map[int]float32{1: 5}, map[int]float32{1: 5}, noAnswer},
		{"of equal ones the first", search{20, 30}, map[int]float32{3: 5, 5: 5}, map[int]float32{3: 5, 5: 5}, "a"},
	} {
		got := c.search.answers([]question{q}, []window{w}, [][]float32{logits(12, c.start)}, [][]float32{logits(12, c.end)})
		if got["who"] != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got["who"], c.want)
		}
	}
}

func TestTheBestWindowOfAQuestionAnswersIt(t *testing.T) {
	tok := newTokenizer(t, "a b c d e f g h who what")
	q := []question{ask(t, "a b c d e f g h", "who", "d e"), ask(t, "h g", "what", "h")}
	all := windows(tok, q, windowing{8, 2, 4}) // a b c d, c d e f, e f g h; h g
	start := [][]float32{logits(8, map[int]float32{3: 5}), logits(8, map[int]float32{4: 7}), logits(8, map[int]float32{5: 6}), logits(8, map[int]float32{3: 1})}
	end := [][]float32{logits(8, map[int]float32{3: 5}), logits(8, map[int]float32{5: 7}), logits(8, map[int]float32{6: 6}), logits(8, map[int]float32{3: 1})}
	want := map[string]string{"who": "d e", "what": "h"}
	if got := (search{20, 30}).answers(q, all, start, end); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// The first window sees "d" at its edge; the second sees what is around it, and decides.
	start[0] = logits(8, map[int]float32{6: 50})
	if got := (search{20, 30}).answers(q, all, start, end); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAnswersAreCutOutOfTheOriginalText(t *testing.T) {
	tok := newTokenizer(t, "zurich , cafe in who")
	q := ask(t, "In  Zürich,\u00a0CAFÉ", "who", "Zürich")
	w := windows(tok, []question{q}, windowing{10, 4, 4})[0]
	got := (search{20, 30}).answers([]question{q}, []window{w}, [][]float32{logits(10, map[int]float32{4: 5})}, [][]float32{logits(10, map[int]float32{6: 5})})
	if want := "Zürich,\u00a0CAFÉ"; got["who"] != want {
		t.Errorf("got %q, want %q", got["who"], want)
	}
}

func TestAnswersAreWrittenAsAnObjectByQuestion(t *testing.T) {
	path, want := filepath.Join(t.TempDir(), "predictions.json"), map[string]string{"1": "a \"b\" <c>", "2": "Zürich"}
	if err := writeAnswers(path, want); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(text, &got); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %s, %v", text, err)
	}
	if err := writeAnswers(filepath.Join(t.TempDir(), "none", "x"), want); err == nil {
		t.Error("a folder that is not there is no error")
	}
}
