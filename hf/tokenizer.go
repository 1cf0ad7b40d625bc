// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hf

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
)

// Token is a piece of a text: text[Start:End] is what it was made of.
type Token struct {
	ID         int32
	Start, End int
}

// Tokenizer cuts text into tokens, and makes text of them.
type Tokenizer interface {
	// Encode cuts a text. It adds no token that the text does not have.
	Encode(text string) []Token
	// Decode makes text of tokens. IDs that the tokenizer does not have are left out.
	Decode(ids []int32) string
	// Size is how many IDs there are: all are below it.
	Size() int
	// ID is that of a token by its name, such as "<|endoftext|>".
	ID(name string) (id int32, ok bool)
}

// IDs are those of the tokens of a text.
func IDs(t Tokenizer, text string) []int32 {
	tokens := t.Encode(text)
	ids := make([]int32, len(tokens))
	for i, token := range tokens {
		ids[i] = token.ID
	}
	return ids
}

// ReadTokenizer reads the tokenizer of a model's folder: tokenizer.json, or vocab.json and merges.txt (GPT-2), or vocab.txt (BERT).
//
//	t, err := hf.ReadTokenizer(folder)
//	…
//	fmt.Println(t.Decode(hf.IDs(t, "Hello world")))
func ReadTokenizer(folder string) (Tokenizer, error) {
	read := func(name string) ([]byte, bool, error) {
		b, err := os.ReadFile(filepath.Join(folder, name))
		if os.IsNotExist(err) {
			return nil, false, nil
		}
		return b, err == nil, errors.Wrap(err, "epl: the tokenizer cannot be read")
	}
	text, ok, err := read("tokenizer.json")
	if err != nil {
		return nil, err
	}
	if ok {
		return ParseTokenizer(text, filepath.Join(folder, "tokenizer.json"))
	}
	vocab, ok, err := read("vocab.json")
	if err != nil {
		return nil, err
	}
	merges, both, err := read("merges.txt")
	if err != nil {
		return nil, err
	}
	if ok && both {
		return parseVocabAndMerges(vocab, merges, folder)
	}
	words, ok, err := read("vocab.txt")
	if err != nil {
		return nil, err
	}
	if ok {
		return NewWordPiece(bytes.NewReader(words), filepath.Join(folder, "vocab.txt"))
	}
	return nil, errors.Errorf("epl: the folder %s has no tokenizer: neither tokenizer.json, nor vocab.json and merges.txt, nor vocab.txt", folder)
}

// tokenizerFile is a tokenizer.json.
type tokenizerFile struct {
	Version      string           `json:"version"`
	Truncation   any              `json:"truncation"`
	Padding      any              `json:"padding"`
	AddedTokens  []addedToken     `json:"added_tokens"`
	Normalizer   *component       `json:"normalizer"`
	PreTokenizer *component       `json:"pre_tokenizer"`
	PostProcess  *json.RawMessage `json:"post_processor"`
	Decoder      *component       `json:"decoder"`
	Model        modelFile        `json:"model"`
}

type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LeftStrip  bool   `json:"lstrip"`
	RightStrip bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// component is a normalizer, pre-tokenizer or decoder, with what matters of it.
type component struct {
	Type           string `json:"type"`
	AddPrefixSpace *bool  `json:"add_prefix_space,omitempty"`
	TrimOffsets    *bool  `json:"trim_offsets,omitempty"`
	UseRegex       *bool  `json:"use_regex,omitempty"`
	Lowercase      *bool  `json:"lowercase,omitempty"`
	StripAccents   *bool  `json:"strip_accents,omitempty"`
}

type modelFile struct {
	Type                string           `json:"type"`
	Dropout             *float64         `json:"dropout"`
	UnkToken            *string          `json:"unk_token"`
	ContinuingPrefix    *string          `json:"continuing_subword_prefix"`
	EndOfWordSuffix     *string          `json:"end_of_word_suffix"`
	FuseUnk             bool             `json:"fuse_unk"`
	ByteFallback        bool             `json:"byte_fallback"`
	IgnoreMerges        bool             `json:"ignore_merges"`
	MaxInputCharsOfWord int              `json:"max_input_chars_per_word,omitempty"`
	Vocab               map[string]int32 `json:"vocab"`
	Merges              []mergeText      `json:"merges,omitempty"`
}

// mergeText is a merge: "a b", or ["a", "b"] in newer files.
type mergeText [2]string

// UnmarshalJSON implements json.Unmarshaler.
func (m *mergeText) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		var pair []string
		if err := json.Unmarshal(b, &pair); err != nil {
			return err
		}
		if len(pair) != 2 {
			return errors.Errorf("a merge is of 2 tokens, not of %d", len(pair))
		}
		*m = mergeText(pair)
		return nil
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	return m.parse(text)
}

func (m *mergeText) parse(text string) error {
	left, right, ok := strings.Cut(text, " ")
	if !ok || left == "" || right == "" || strings.Contains(right, " ") {
		return errors.Errorf("the merge %q is not two tokens with a space between", text)
	}
	*m = mergeText{left, right}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (m mergeText) MarshalJSON() ([]byte, error) { return json.Marshal(m[0] + " " + m[1]) }

// ParseTokenizer reads a tokenizer.json. Errors call it name.
func ParseTokenizer(text []byte, name string) (Tokenizer, error) {
	var f tokenizerFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, errors.Wrapf(err, "epl: %s is no tokenizer.json", name)
	}
	var t Tokenizer
	var err error
	switch f.Model.Type {
	case "BPE":
		t, err = newBPE(&f)
	case "WordPiece":
		t, err = wordPieceOf(&f)
	default:
		err = errors.Errorf("its model is %q; BPE and WordPiece can be read", f.Model.Type)
	}
	return t, errors.WithMessagef(err, "epl: the tokenizer %s cannot be used", name)
}

// is tells whether a switch of a file is on.
func is(b *bool) bool { return b != nil && *b }
