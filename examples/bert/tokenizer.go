package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// tokenizer cuts text into word pieces, as BERT's uncased models have it: text is cleaned, lower case and without
// accents; words end at white space, and around punctuation and Chinese characters; a word is made of the longest
// pieces that the vocabulary has.
type tokenizer struct {
	pieces             []string
	ids                map[string]int32
	pad, unk, cls, sep int32
}

// token is a piece of a text: text[start:end] is what it was made of, accents and capitals included.
type token struct {
	id         int32
	start, end int
}

// longestWord is how many characters a word may have to be looked for in the vocabulary.
const longestWord = 200

// readVocabulary reads a vocab.txt: a piece a line, numbered from 0. Pieces inside a word begin with "##".
func readVocabulary(r io.Reader, name string) (*tokenizer, error) {
	t := &tokenizer{ids: map[string]int32{}}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		piece := strings.TrimSpace(lines.Text())
		t.ids[piece] = int32(len(t.pieces)) // of two equal lines the last counts, as elsewhere
		t.pieces = append(t.pieces, piece)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("bert: the vocabulary %s cannot be read: %w", name, err)
	}
	for piece, id := range map[string]*int32{"[PAD]": &t.pad, "[UNK]": &t.unk, "[CLS]": &t.cls, "[SEP]": &t.sep} {
		var ok bool
		if *id, ok = t.ids[piece]; !ok {
			return nil, fmt.Errorf("bert: the vocabulary %s has no line %s; use the vocab.txt of an uncased BERT model", name, piece)
		}
	}
	return t, nil
}

// tokenize returns the word pieces of a text.
func (t *tokenizer) tokenize(text string) (tokens []token) {
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
func (t *tokenizer) wordPieces(word []char) []token {
	unknown := []token{{t.unk, word[0].start, word[len(word)-1].end}}
	if len(word) > longestWord {
		return unknown
	}
	var tokens []token
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
		tokens = append(tokens, token{id, word[from].start, word[to-1].end})
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
