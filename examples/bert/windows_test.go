// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/hf"
)

// newTokenizer makes a tokenizer that knows some pieces.
func newTokenizer(t *testing.T, pieces string) *hf.WordPiece {
	t.Helper()
	tok, err := hf.NewWordPiece(strings.NewReader(strings.Join(strings.Fields("[PAD] [UNK] [CLS] [SEP] [MASK] "+pieces), "\n")), "test")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestLongContextsAreCutIntoOverlappingParts(t *testing.T) {
	for _, c := range []struct {
		n, length, stride int
		want              string
	}{
		{0, 5, 2, "[]"},
		{3, 5, 2, "[{0 3}]"},
		{5, 5, 2, "[{0 5}]"},
		{6, 5, 2, "[{0 5} {2 6}]"},
		{9, 5, 2, "[{0 5} {2 7} {4 9}]"},
		{10, 5, 2, "[{0 5} {2 7} {4 9} {6 10}]"},
		{10, 5, 9, "[{0 5} {5 10}]"}, // no stride skips text
		{2, 1, 1, "[{0 1} {1 2}]"},
	} {
		if got := fmt.Sprint(cut(c.n, c.length, c.stride)); got != c.want {
			t.Errorf("%d in %d by %d: got %s, want %s", c.n, c.length, c.stride, got, c.want)
		}
	}
}

func TestAWordBelongsToThePartThatHasMostAroundIt(t *testing.T) {
	// The example of run_squad.py: "bought" has most context in the second part.
	text := strings.Fields("the man went to the store and bought a gallon of milk")
	parts := []part{{0, 5}, {3, 8}, {6, 11}}
	if at := slices.Index(text, "and"); mostCentral(parts, at) != 1 {
		t.Errorf("%q is in part %d", text[at], mostCentral(parts, at))
	}
	for at, want := range []int{0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2} {
		if got := mostCentral(parts, at); got != want {
			t.Errorf("word %d is in part %d, want %d", at, got, want)
		}
	}
	if got := mostCentral([]part{{0, 3}, {2, 9}}, 2); got != 1 {
		t.Errorf("of parts with as much around a word, the longer one should have it, not %d", got)
	}
}

func ask(t *testing.T, context, text, answer string) question {
	t.Helper()
	at := strings.Index(context, answer)
	if at < 0 {
		t.Fatalf("%q is not in %q", answer, context)
	}
	return question{id: text, text: text, context: context, answers: []string{answer}, at: span{at, at + len(answer)}}
}

func TestAWindowHasTheQuestionAndTheContext(t *testing.T) {
	tok := newTokenizer(t, "who is ann ##a here ? .")
	all := windows(tok, []question{ask(t, "Anna is here.", "Who is here?", "Anna")}, windowing{14, 4, 10})
	if len(all) != 1 {
		t.Fatalf("%d windows", len(all))
	}
	w := all[0]
	var pieces []string
	for _, id := range w.ids {
		pieces = append(pieces, tok.Piece(id))
	}
	if got, want := strings.Join(pieces, " "), "[CLS] who is here ? [SEP] ann ##a is here . [SEP] [PAD] [PAD]"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got, want := fmt.Sprint(w.segments), "[0 0 0 0 0 0 1 1 1 1 1 1 0 0]"; got != want {
		t.Errorf("segments: got %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(w.mask), "[1 1 1 1 1 1 1 1 1 1 1 1 0 0]"; got != want {
		t.Errorf("mask: got %s, want %s", got, want)
	}
	if w.start != 6 || w.end != 7 || w.first != 6 {
		t.Errorf("the answer is from %d to %d, the context from %d", w.start, w.end, w.first)
	}
}

func TestAnswersInsideOfWordsTakeTheirPieces(t *testing.T) {
	tok := newTokenizer(t, "( 18 ##95 - 19 ##43 ) $ 5 m ##illion")
	context := tok.Encode("(1895-1943) $5 million")
	for answer, want := range map[span]string{
		{1, 5}:   "1 2", // 1895
		{6, 10}:  "4 5", // 1943
		{1, 10}:  "1 5",
		{0, 11}:  "0 6",
		{12, 14}: "7 8",
		{13, 22}: "8 10",
		{3, 5}:   "2 2", // 95
		{4, 5}:   "2 2", // 5, of 95
	} {
		first, last := covered(context, answer)
		if got := fmt.Sprint(first, " ", last); got != want {
			t.Errorf("%v: got %s, want %s", answer, got, want)
		}
	}
}

func TestWindowsWithoutTheAnswerPointAtTheirStart(t *testing.T) {
	tok := newTokenizer(t, "a b c d e f g h who")
	q := ask(t, "a b c d e f g h", "who", "d e")
	var got []string
	for _, w := range windows(tok, []question{q}, windowing{8, 2, 4}) { // 4 words of the context each
		got = append(got, fmt.Sprintf("%s:%d-%d", q.context[w.context[0].Start:w.context[len(w.context)-1].End], w.start, w.end))
	}
	if got, want := strings.Join(got, ", "), "a b c d:0-0, c d e f:4-5, e f g h:0-0"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestLongQuestionsAreCutOff(t *testing.T) {
	tok := newTokenizer(t, "a b c d")
	w := windows(tok, []question{ask(t, "d", "a b c", "d")}, windowing{8, 2, 2})[0]
	if w.first != 4 || tok.Piece(w.ids[2]) != "b" || w.ids[3] != tok.Separator {
		t.Errorf("got %v", w.ids)
	}
}

func TestEveryAnswerCanBeCutOutOfItsWindows(t *testing.T) {
	tok := newTokenizer(t, "a b c ##a ##b ##c . who ?")
	r := rand.New(rand.NewPCG(3, 4))
	letters := []rune("aabbcAÁ  .")
	for range 500 {
		var s strings.Builder
		for range 1 + r.IntN(60) {
			s.WriteRune(letters[r.IntN(len(letters))])
		}
		q := question{id: "q", text: "who?", context: s.String()}
		pieces := tok.Encode(q.context)
		if len(pieces) == 0 {
			continue
		}
		from := r.IntN(len(pieces))
		to := from + r.IntN(min(3, len(pieces)-from))
		q.at = span{pieces[from].Start, pieces[to].End}
		q.answers = []string{q.context[q.at.start:q.at.end]}
		all := windows(tok, []question{q}, windowing{7 + r.IntN(20), 1 + r.IntN(8), 4})
		owners := make([]int, len(pieces))
		for _, w := range all {
			if len(w.ids) != len(w.mask) || len(w.central) != len(w.context) {
				t.Fatalf("%+v", w)
			}
			offset := slices.Index(pieces, w.context[0])
			for i, central := range w.central {
				if central {
					owners[offset+i]++
				}
			}
			if w.start == 0 {
				continue
			}
			first, last := w.context[int(w.start)-w.first], w.context[int(w.end)-w.first]
			if got := q.context[first.Start:last.End]; got != q.answers[0] {
				t.Fatalf("%q: the window has %q, the answer is %q", q.context, got, q.answers[0])
			}
		}
		if slices.ContainsFunc(owners, func(n int) bool { return n != 1 }) {
			t.Fatalf("%q: each word piece should be central in one window: %v", q.context, owners)
		}
	}
}
