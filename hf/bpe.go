// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hf

import (
	"container/heap"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/pkg/errors"
)

// BPE is byte-level byte-pair encoding, as GPT-2 has it: text is cut into words, words into bytes, and pairs of neighbours are merged in the order in
// which training found them. Every text can be encoded, and decodes to the same bytes.
type BPE struct {
	tokens []string         // by ID, as bytes; "": there is none
	names  []string         // by ID, as in the file
	ids    map[string]int32 // by name
	merges map[[2]int32]merge
	order  []mergeText // all merges
	added  []addedToken
	bytes  [256]int32 // the tokens of single bytes

	mu    sync.Mutex
	cache map[string][]int32 // of words
}

type merge struct{ rank, to int32 }

// byteNames are the letters that files have for bytes, as GPT-2's encoder chose them: bytes that print stand for themselves.
var byteNames, nameBytes = func() (names [256]rune, back map[rune]byte) {
	back = map[rune]byte{}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if prints := b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE; !prints {
			r = next
			next++
		}
		names[b], back[r] = r, byte(b)
	}
	return names, back
}()

// newBPE reads what a file says.
func newBPE(f *tokenizerFile) (*BPE, error) {
	m := f.Model
	notEmpty := func(s *string) bool { return s != nil && *s != "" }
	switch {
	case f.Normalizer != nil:
		return nil, errors.Errorf("it has a normalizer, %s; a byte-level tokenizer as GPT-2 has it is without", f.Normalizer.Type)
	case f.PreTokenizer == nil || f.PreTokenizer.Type != "ByteLevel":
		return nil, errors.New("its pre_tokenizer is not ByteLevel, as that of GPT-2 is")
	case is(f.PreTokenizer.AddPrefixSpace) || f.PreTokenizer.UseRegex != nil && !*f.PreTokenizer.UseRegex:
		return nil, errors.New("its pre_tokenizer has add_prefix_space, or is without the words of GPT-2 (use_regex)")
	case m.Dropout != nil && *m.Dropout != 0, notEmpty(m.ContinuingPrefix), notEmpty(m.EndOfWordSuffix), m.ByteFallback, m.IgnoreMerges:
		return nil, errors.New("its model has dropout, continuing_subword_prefix, end_of_word_suffix, byte_fallback or ignore_merges, none of which GPT-2 has")
	}
	for _, a := range f.AddedTokens {
		if a.Content == "" || a.SingleWord || a.LeftStrip || a.RightStrip {
			return nil, errors.Errorf("its added token %q is empty, or has single_word, lstrip or rstrip, which are not supported", a.Content)
		}
	}
	return makeBPE(m.Vocab, m.Merges, f.AddedTokens)
}

// parseVocabAndMerges reads the two files that GPT-2 was published as. The end of a text is a token of its own.
func parseVocabAndMerges(vocab, merges []byte, folder string) (*BPE, error) {
	var f tokenizerFile
	if err := json.Unmarshal(vocab, &f.Model.Vocab); err != nil {
		return nil, errors.Wrapf(err, "epl: vocab.json of %s", folder)
	}
	for i, line := range strings.Split(string(merges), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" || i == 0 && strings.HasPrefix(line, "#version") {
			continue
		}
		var m mergeText
		if err := m.parse(line); err != nil {
			return nil, errors.WithMessagef(err, "epl: merges.txt of %s, line %d", folder, i+1)
		}
		f.Model.Merges = append(f.Model.Merges, m)
	}
	var added []addedToken
	if id, ok := f.Model.Vocab[EndOfText]; ok {
		added = append(added, addedToken{ID: id, Content: EndOfText, Special: true})
	}
	b, err := makeBPE(f.Model.Vocab, f.Model.Merges, added)
	return b, errors.WithMessagef(err, "epl: the tokenizer in %s cannot be used", folder)
}

// EndOfText is the token that GPT-2 has between texts.
const EndOfText = "<|endoftext|>"

// beyond tells that an ID is so large for a vocabulary of n tokens that the file is damaged. IDs may have gaps.
func beyond(id int32, n int) bool { return id < 0 || int64(id) >= 4*int64(n)+4096 }

func makeBPE(vocab map[string]int32, merges []mergeText, added []addedToken) (*BPE, error) {
	b := &BPE{ids: map[string]int32{}, merges: map[[2]int32]merge{}, order: merges, added: added, cache: map[string][]int32{}}
	put := func(name string, id int32, bytes string) error {
		if beyond(id, len(vocab)+len(added)) {
			return errors.Errorf("the token %q has the ID %d", name, id)
		}
		for int(id) >= len(b.tokens) {
			b.tokens, b.names = append(b.tokens, ""), append(b.names, "")
		}
		if b.names[id] != "" && b.names[id] != name {
			return errors.Errorf("the ID %d is that of %q and of %q", id, min(b.names[id], name), max(b.names[id], name))
		}
		b.tokens[id], b.names[id], b.ids[name] = bytes, name, id
		return nil
	}
	isAdded := map[string]bool{}
	for _, a := range added {
		isAdded[a.Content] = true
		if err := put(a.Content, a.ID, a.Content); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(vocab)) {
		if isAdded[name] {
			if b.ids[name] != vocab[name] {
				return nil, errors.Errorf("%q has the IDs %d and %d", name, vocab[name], b.ids[name])
			}
			continue
		}
		bytes, err := unnamed(name)
		if err == nil {
			err = put(name, vocab[name], bytes)
		}
		if err != nil {
			return nil, err
		}
	}
	for i, r := range byteNames {
		id, ok := vocab[string(r)]
		if !ok {
			return nil, errors.Errorf("its vocabulary has no token for the byte %d, %q", i, string(r))
		}
		b.bytes[i] = id
	}
	for rank, m := range merges {
		left, ok1 := vocab[m[0]]
		right, ok2 := vocab[m[1]]
		to, ok3 := vocab[m[0]+m[1]]
		if !ok1 || !ok2 || !ok3 {
			return nil, errors.Errorf("the merge of %q and %q is of tokens that its vocabulary does not have", m[0], m[1])
		}
		if _, twice := b.merges[[2]int32{left, right}]; !twice {
			b.merges[[2]int32{left, right}] = merge{int32(rank), to}
		}
	}
	slices.SortStableFunc(b.added, func(x, y addedToken) int { return len(y.Content) - len(x.Content) }) // of two that begin here the longer counts
	return b, nil
}

// unnamed are the bytes of a token.
func unnamed(name string) (string, error) {
	var s strings.Builder
	for _, r := range name {
		c, ok := nameBytes[r]
		if !ok {
			return "", errors.Errorf("the token %q has %q, which stands for no byte", name, r)
		}
		s.WriteByte(c)
	}
	return s.String(), nil
}

// Size implements Tokenizer.
func (b *BPE) Size() int { return len(b.tokens) }

// ID implements Tokenizer.
func (b *BPE) ID(name string) (int32, bool) {
	id, ok := b.ids[name]
	return id, ok
}

// Decode implements Tokenizer. A token may be a part of a letter: what was cut there is no UTF-8.
func (b *BPE) Decode(ids []int32) string {
	var s strings.Builder
	for _, id := range ids {
		if id >= 0 && int(id) < len(b.tokens) {
			s.WriteString(b.tokens[id])
		}
	}
	return s.String()
}

// Encode implements Tokenizer.
func (b *BPE) Encode(text string) (tokens []Token) {
	for start := 0; start < len(text); {
		at, found := b.nextAdded(text, start)
		for start < at {
			end := start + word(text[start:at])
			for _, id := range b.merged(text[start:end]) {
				n := len(b.tokens[id])
				tokens = append(tokens, Token{id, start, start + n})
				start += n
			}
		}
		if found != nil {
			start = at + len(found.Content)
			tokens = append(tokens, Token{found.ID, at, start})
		}
	}
	return tokens
}

// nextAdded finds the next of the added tokens; nil: there is none, and at is the end.
func (b *BPE) nextAdded(text string, start int) (at int, found *addedToken) {
	at = len(text)
	for i, a := range b.added {
		if n := strings.Index(text[start:], a.Content); n >= 0 && start+n < at {
			at, found = start+n, &b.added[i]
		}
	}
	return at, found
}

// longestCached is how many bytes a word may have to be remembered.
const longestCached, mostCached = 64, 1 << 16

// merged are the tokens of a word.
func (b *BPE) merged(word string) []int32 {
	if len(word) > longestCached {
		return b.merge(word)
	}
	b.mu.Lock()
	ids, ok := b.cache[word]
	b.mu.Unlock()
	if ok {
		return ids
	}
	ids = b.merge(word)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.cache) < mostCached {
		b.cache[strings.Clone(word)] = ids
	}
	return ids
}

// candidate is a pair of neighbours that can be merged.
type candidate struct {
	merge
	at          int
	left, right int32
}

type candidates []candidate

func (c candidates) Len() int      { return len(c) }
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c candidates) Less(i, j int) bool {
	return c[i].rank < c[j].rank || c[i].rank == c[j].rank && c[i].at < c[j].at
}
func (c *candidates) Push(x any) { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// merge merges the bytes of a word, the earliest rule first, and of equal ones the left. A heap keeps long words, such as a line of dashes, from taking quadratic time.
func (b *BPE) merge(word string) []int32 {
	const gone = -1
	ids := make([]int32, len(word))
	next, before := make([]int, len(word)), make([]int, len(word))
	for i := range len(word) {
		ids[i], next[i], before[i] = b.bytes[word[i]], i+1, i-1
	}
	var queue candidates
	offer := func(i int) {
		if i < 0 || next[i] >= len(ids) {
			return
		}
		left, right := ids[i], ids[next[i]]
		if m, ok := b.merges[[2]int32{left, right}]; ok {
			heap.Push(&queue, candidate{m, i, left, right})
		}
	}
	for i := range ids {
		offer(i)
	}
	for len(queue) > 0 {
		c := heap.Pop(&queue).(candidate)
		if n := next[c.at]; ids[c.at] != c.left || n >= len(ids) || ids[n] != c.right {
			continue // one of them was merged meanwhile
		}
		n := next[c.at]
		ids[c.at], ids[n], next[c.at] = c.to, gone, next[n]
		if next[n] < len(ids) {
			before[next[n]] = c.at
		}
		offer(before[c.at])
		offer(c.at)
	}
	return slices.DeleteFunc(ids, func(id int32) bool { return id == gone })
}

// word is how many bytes the first word of a text has. It is GPT-2's expression, which needs a look ahead that package regexp does not have:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func word(text string) int {
	for _, s := range []string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"} {
		if strings.HasPrefix(text, s) {
			return len(s)
		}
	}
	start := 0
	if text[0] == ' ' && len(text) > 1 {
		start = 1
	}
	r, size := utf8.DecodeRuneInString(text[start:])
	if kind := kindOf(r); kind != space {
		at := start + size
		for at < len(text) {
			r, size := utf8.DecodeRuneInString(text[at:])
			if kindOf(r) != kind {
				break
			}
			at += size
		}
		return at
	}
	at, last := 0, 0
	for at < len(text) {
		r, size := utf8.DecodeRuneInString(text[at:])
		if kindOf(r) != space {
			if last > 0 {
				return last // the last white space may belong to the next word
			}
			return at
		}
		last = at
		at += size
	}
	return at
}

const (
	space = iota
	letter
	number
	other
)

func kindOf(r rune) int {
	switch {
	case unicode.IsSpace(r):
		return space
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	}
	return other
}
