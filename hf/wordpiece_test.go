// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hf

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// newWordPiece makes a tokenizer that knows some pieces.
func newWordPiece(t *testing.T, pieces string) *WordPiece {
	t.Helper()
	all := strings.Join(strings.Fields("[PAD] [UNK] [CLS] [SEP] [MASK] "+pieces), "\n")
	tok, err := NewWordPiece(strings.NewReader(all), "test")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// show writes pieces with the text that they were made of: piece=text.
func show(tok *WordPiece, text string) string {
	var all []string
	for _, p := range tok.Encode(text) {
		all = append(all, tok.pieces[p.ID]+"="+text[p.Start:p.End])
	}
	return strings.Join(all, "|")
}

func TestTextIsCutIntoTheLongestPiecesAndKnowsWhereTheyWere(t *testing.T) {
	tok := newWordPiece(t, "un ##aff ##able ##a ##ff the a e the ##s cafe caf ##e o ss ##ss naive . , - $ ' “ ” 中 国 人 ᄒ ##ᅡ ##ᆫ zoe ##x i ;")
	for text, want := range map[string]string{
		"":                    "",
		" \t\n\r\u00a0\u3000": "",
		"unaffable":           "un=un|##aff=aff|##able=able",
		"Unaffable":           "un=Un|##aff=aff|##able=able",
		"theses":              "the=the|##s=s|##e=e|##s=s",
		"the unaffables":      "the=the|un=un|##aff=aff|##able=able|##s=s",
		"unknown":             "[UNK]=unknown", // "un" is known, the rest is not
		"the xyz the":         "the=the|[UNK]=xyz|the=the",
		"Café":                "cafe=Café",
		"Cafe\u0301":          "cafe=Cafe\u0301", // the accent on its own
		"cafe\u0301s.":        "cafe=cafe\u0301|##s=s|.=.",
		"e\u0301\u0302":       "e=e\u0301\u0302",
		"\u0301the":           "the=the", // an accent on nothing
		".\u0301the":          ".=.\u0301|the=the",
		"naïve,the":           "naive=naïve|,=,|the=the",
		"the-the":             "the=the|-=-|the=the",
		"a$the's":             "a=a|$=$|the=the|'='|[UNK]=s",
		"“the”":               "“=“|the=the|”=”",
		"the中国人a":             "the=the|中=中|国=国|人=人|a=a",
		"한":                   "ᄒ=한|##ᅡ=한|##ᆫ=한",
		"the\x00a\u200bs":     "the=the|##a=a|##s=s", // what cannot be seen is not there
		"th\ufffde":           "the=th\ufffde",
		"th\xffe":             "the=th\xffe", // no UTF-8
		"[SEP] [UNK]":         "[UNK]=[|[UNK]=SEP|[UNK]=]|[UNK]=[|[UNK]=UNK|[UNK]=]",
		"İ":                   "i=İ",
		"a\u037e":             "a=a|;=\u037e", // Greek question mark
		"ZOË":                 "zoe=ZOË",
	} {
		if got := show(tok, text); got != want {
			t.Errorf("%q\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestWordsThatAreTooLongAreUnknown(t *testing.T) {
	tok := newWordPiece(t, "a ##a")
	if got := tok.Encode(strings.Repeat("a", 200)); len(got) != 200 {
		t.Errorf("a word of 200 letters has %d pieces", len(got))
	}
	if got := tok.Encode(strings.Repeat("a", 201)); len(got) != 1 || got[0] != (Token{tok.Unknown, 0, 201}) {
		t.Errorf("a word of 201 letters is %v", got)
	}
}

func TestPiecesFollowEachOtherInAnyText(t *testing.T) {
	tok := newWordPiece(t, "a b c ##a ##b ##c e ##e . 中")
	r := rand.New(rand.NewPCG(1, 2))
	letters := []rune("aabbccé .,中\u0301\u00a0\u200bÅ한\x00zİ\ufb01")
	for range 2000 {
		var s strings.Builder
		for range r.IntN(20) {
			s.WriteRune(letters[r.IntN(len(letters))])
		}
		text, end := s.String(), 0
		for _, p := range tok.Encode(text) {
			again := p.End == end && p.Start < end // a letter that makes two pieces
			if p.Start < end && !again || p.End <= p.Start || p.End > len(text) {
				t.Fatalf("%q: piece %q at %d to %d, after %d", text, tok.pieces[p.ID], p.Start, p.End, end)
			}
			if !utf8.ValidString(text[p.Start:p.End]) {
				t.Fatalf("%q: piece %q cuts a letter", text, tok.pieces[p.ID])
			}
			end = p.End
		}
	}
}

func TestVocabulariesWithoutTheMarksAreRefused(t *testing.T) {
	want := "epl: the vocabulary v.txt: has no piece [SEP]; use the vocabulary of an uncased BERT model"
	if _, err := NewWordPiece(strings.NewReader("[PAD]\n[UNK]\n[CLS]\na\n"), "v.txt"); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestVocabulariesMayHaveLinesOfWindows(t *testing.T) {
	tok, err := NewWordPiece(strings.NewReader("[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nthe\r\n"), "v.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := show(tok, "The"); got != "the=The" {
		t.Errorf("got %s", got)
	}
}
