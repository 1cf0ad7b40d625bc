// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hf

import (
	"bufio"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pkg/errors"
	"golang.org/x/text/unicode/norm"
)

// WordPiece cuts text into word pieces, as BERT's uncased models have it: text is cleaned, lower case and without
// accents; words end at white space, and around punctuation and Chinese characters; a word is made of the longest
// pieces that the vocabulary has.
type WordPiece struct {
	// Pad, Unknown, Class and Separator are the IDs of [PAD], [UNK], [CLS] and [SEP].
	Pad, Unknown, Class, Separator int32

	pieces []string
	ids    map[string]int32
}

// longestWord is how many characters a word may have to be looked for in the vocabulary.
const longestWord = 200

// NewWordPiece reads a vocab.txt: a piece a line, numbered from 0. Pieces inside a word begin with "##". Errors call it name.
func NewWordPiece(r io.Reader, name string) (*WordPiece, error) {
	t := &WordPiece{ids: map[string]int32{}}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		piece := strings.TrimSpace(lines.Text())
		t.ids[piece] = int32(len(t.pieces)) // of two equal lines the last counts, as elsewhere
		t.pieces = append(t.pieces, piece)
	}
	if err := lines.Err(); err != nil {
		return nil, errors.Wrapf(err, "epl: the vocabulary %s cannot be read", name)
	}
	return t, errors.WithMessagef(t.marks(), "epl: the vocabulary %s", name)
}

// marks finds the pieces that are no words.
func (t *WordPiece) marks() error {
	for piece, id := range map[string]*int32{"[PAD]": &t.Pad, "[UNK]": &t.Unknown, "[CLS]": &t.Class, "[SEP]": &t.Separator} {
		var ok bool
		if *id, ok = t.ids[piece]; !ok {
			return errors.Errorf("has no piece %s; use the vocabulary of an uncased BERT model", piece)
		}
	}
	return nil
}

// wordPieceOf reads what a tokenizer.json says.
func wordPieceOf(f *tokenizerFile) (*WordPiece, error) {
	switch n := f.Normalizer; {
	case n == nil || n.Type != "BertNormalizer" || !is(n.Lowercase) || n.StripAccents != nil && !*n.StripAccents:
		return nil, errors.New("its normalizer is not that of an uncased BERT model")
	case f.PreTokenizer == nil || f.PreTokenizer.Type != "BertPreTokenizer":
		return nil, errors.New("its pre_tokenizer is not that of BERT")
	case f.Model.ContinuingPrefix != nil && *f.Model.ContinuingPrefix != "##":
		return nil, errors.Errorf("its pieces inside a word begin with %q; those of BERT do with ##", *f.Model.ContinuingPrefix)
	}
	t := &WordPiece{ids: f.Model.Vocab}
	for _, piece := range slices.Sorted(maps.Keys(t.ids)) {
		id := t.ids[piece]
		if beyond(id, len(t.ids)) {
			return nil, errors.Errorf("the piece %q has the ID %d", piece, id)
		}
		for int(id) >= len(t.pieces) {
			t.pieces = append(t.pieces, "")
		}
		if t.pieces[id] != "" {
			return nil, errors.Errorf("the ID %d is that of %q and of %q", id, t.pieces[id], piece)
		}
		t.pieces[id] = piece
	}
	return t, t.marks()
}

// Size implements Tokenizer.
func (t *WordPiece) Size() int { return len(t.pieces) }

// ID implements Tokenizer.
func (t *WordPiece) ID(name string) (int32, bool) {
	id, ok := t.ids[name]
	return id, ok
}

// Piece is the word piece of an ID.
func (t *WordPiece) Piece(id int32) string { return t.pieces[id] }

// Decode implements Tokenizer. Words are joined by spaces: which of them the text had is not known any more.
func (t *WordPiece) Decode(ids []int32) string {
	var s strings.Builder
	for _, id := range ids {
		if id < 0 || int(id) >= len(t.pieces) {
			continue
		}
		piece, inside := strings.CutPrefix(t.pieces[id], "##")
		if !inside && s.Len() > 0 {
			s.WriteByte(' ')
		}
		s.WriteString(piece)
	}
	return s.String()
}

// Encode implements Tokenizer. It adds no [CLS] and no [SEP].
func (t *WordPiece) Encode(text string) (tokens []Token) {
	for _, word := range words(text) {
		tokens = append(tokens, t.wordPieces(word)...)
	}
	return tokens
}

// char is a character of a word, normalised, with the bytes of the text that it stands for.
type char struct {
	r          rune
	start, end int
}

// words splits a text as BERT's basic tokenizer does.
func words(text string) (all [][]char) {
	var word []char
	end := func() {
		if len(word) > 0 {
			all, word = append(all, word), nil
		}
	}
	for start := 0; start < len(text); {
		r, size := utf8.DecodeRuneInString(text[start:])
		next := start + size
		switch {
		case r == 0 || r == unicode.ReplacementChar || isControl(r):
		case isSpace(r):
			end()
		default:
			for _, n := range norm.NFD.String(strings.ToLower(string(r))) {
				switch c := (char{n, start, next}); {
				case unicode.Is(unicode.Mn, n): // an accent: it goes, but stays a part of what is before it
					if len(word) > 0 {
						word[len(word)-1].end = next
					} else if len(all) > 0 && all[len(all)-1][0].end == start {
						all[len(all)-1][0].end = next
					}
				case isPunctuation(n) || isChinese(r):
					end()
					all = append(all, []char{c})
				default:
					word = append(word, c)
				}
			}
		}
		start = next
	}
	end()
	return all
}

// wordPieces cuts a word into the longest pieces from its start on. A word with a part that is not in the vocabulary is
// unknown as a whole.
func (t *WordPiece) wordPieces(word []char) []Token {
	unknown := []Token{{t.Unknown, word[0].start, word[len(word)-1].end}}
	if len(word) > longestWord {
		return unknown
	}
	var tokens []Token
	for from := 0; from < len(word); {
		to, id, found := len(word), int32(0), false
		for ; to > from; to-- {
			if id, found = t.ids[piece(word[from:to], from > 0)]; found {
				break
			}
		}
		if !found {
			return unknown
		}
		tokens = append(tokens, Token{id, word[from].start, word[to-1].end})
		from = to
	}
	return tokens
}

func piece(chars []char, inside bool) string {
	var s strings.Builder
	if inside {
		s.WriteString("##")
	}
	for _, c := range chars {
		s.WriteRune(c.r)
	}
	return s.String()
}

func isSpace(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || unicode.Is(unicode.Zs, r)
}

func isControl(r rune) bool {
	return !isSpace(r) && (unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r))
}

// isPunctuation counts all symbols of ASCII as punctuation, also those that Unicode does not, such as "$".
func isPunctuation(r rune) bool {
	switch {
	case r >= '!' && r <= '/', r >= ':' && r <= '@', r >= '[' && r <= '`', r >= '{' && r <= '~':
		return true
	}
	return unicode.Is(unicode.P, r)
}

// isChinese tells whether a character is in the blocks of Chinese characters, each of which is a word.
func isChinese(r rune) bool {
	switch {
	case r >= 0x4E00 && r <= 0x9FFF, r >= 0x3400 && r <= 0x4DBF, r >= 0x20000 && r <= 0x2A6DF,
		r >= 0x2A700 && r <= 0x2B73F, r >= 0x2B740 && r <= 0x2B81F, r >= 0x2B820 && r <= 0x2CEAF,
		r >= 0xF900 && r <= 0xFAFF, r >= 0x2F800 && r <= 0x2FA1F:
		return true
	}
	return false
}
