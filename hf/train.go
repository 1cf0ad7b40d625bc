// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hf

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// TrainBPE makes a byte-level tokenizer of size tokens for a text: [EndOfText], the 256 bytes, and pairs that it merges, the most frequent first. A text with
// too few pairs gives fewer tokens.
//
//	t, err := hf.TrainBPE(text, 1024)
//	…
//	err = t.WriteFile(filepath.Join(folder, "tokenizer.json"))
func TrainBPE(text string, size int) (*BPE, error) {
	const first = 1 + 256
	if size < first {
		return nil, errors.Errorf("epl: a byte-level tokenizer has at least %d tokens, not %d: the end of a text and the bytes", first, size)
	}
	vocab := map[string]int32{EndOfText: 0}
	tokens := []string{EndOfText}
	for i := range 256 {
		name := string(byteNames[i])
		vocab[name] = int32(len(tokens))
		tokens = append(tokens, name)
	}
	counts := map[string]int{}
	for at := 0; at < len(text); {
		n := word(text[at:])
		counts[text[at:at+n]]++
		at += n
	}
	type counted struct {
		ids   []int32
		count int
	}
	var words []counted
	for _, w := range slices.Sorted(maps.Keys(counts)) {
		ids := make([]int32, len(w))
		for i := range len(w) {
			ids[i] = 1 + int32(w[i])
		}
		words = append(words, counted{ids, counts[w]})
	}
	type pair = [2]int32
	pairs := map[pair]int{}
	where := map[pair]map[int]bool{} // words that have it, or had it
	add := func(i, sign int) {
		w := words[i]
		for k := range len(w.ids) - 1 {
			p := pair{w.ids[k], w.ids[k+1]}
			pairs[p] += sign * w.count
			if sign > 0 {
				if where[p] == nil {
					where[p] = map[int]bool{}
				}
				where[p][i] = true
			}
		}
	}
	for i := range words {
		add(i, 1)
	}
	var merges []mergeText
	for len(tokens) < size {
		var best pair
		most := 1 // a pair that is there once saves nothing
		for p, n := range pairs {
			if n > most || n == most && most > 1 && (p[0] < best[0] || p[0] == best[0] && p[1] < best[1]) {
				best, most = p, n
			}
		}
		if most == 1 {
			break
		}
		name := tokens[best[0]] + tokens[best[1]]
		to, known := vocab[name]
		if !known {
			to = int32(len(tokens))
			vocab[name], tokens = to, append(tokens, name)
		}
		merges = append(merges, mergeText{tokens[best[0]], tokens[best[1]]})
		for i := range where[best] {
			add(i, -1)
			words[i].ids = replaced(words[i].ids, best, to)
			add(i, 1)
		}
		delete(pairs, best)
		delete(where, best)
	}
	return makeBPE(vocab, merges, []addedToken{{ID: 0, Content: EndOfText, Special: true}})
}

// replaced merges a pair everywhere in a word.
func replaced(ids []int32, p [2]int32, to int32) []int32 {
	out := ids[:0]
	for i := 0; i < len(ids); i++ {
		if i+1 < len(ids) && ids[i] == p[0] && ids[i+1] == p[1] {
			out = append(out, to)
			i++
			continue
		}
		out = append(out, ids[i])
	}
	return out
}

// MarshalJSON makes a tokenizer.json, which other libraries read, too.
func (b *BPE) MarshalJSON() ([]byte, error) {
	no, yes, empty := false, true, ""
	level := func() *component {
		return &component{Type: "ByteLevel", AddPrefixSpace: &no, TrimOffsets: &yes, UseRegex: &yes}
	}
	post, err := json.Marshal(level())
	if err != nil {
		return nil, err
	}
	f := tokenizerFile{Version: "1.0", AddedTokens: b.added, PreTokenizer: level(), PostProcess: (*json.RawMessage)(&post), Decoder: level()}
	f.Model = modelFile{Type: "BPE", ContinuingPrefix: &empty, EndOfWordSuffix: &empty, Vocab: b.ids, Merges: b.order}
	var s strings.Builder
	e := json.NewEncoder(&s)
	e.SetEscapeHTML(false)
	err = e.Encode(f)
	return []byte(s.String()), err
}

// WriteFile writes a tokenizer.json.
func (b *BPE) WriteFile(file string) error {
	text, err := b.MarshalJSON()
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	return errors.Wrap(err, "epl: the tokenizer cannot be written")
}
