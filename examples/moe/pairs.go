// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
)

// marks come before the words of the vocabulary: padding, the end of a sentence, a word that is not in the vocabulary, and
// what is before the first word of a translation.
var marks = []string{"<pad>", "<end>", "<unknown>", "<start>"}

const (
	end     = 1
	unknown = 2
	start   = 3
)

// pair is a sentence and its translation, as indices of words; each has its end at the end.
type pair struct{ source, target []int32 }

// before returns what a decoder is given for each word of the translation: the word before it.
func (p pair) before(length int) []int32 {
	return padded(append([]int32{start}, p.target[:len(p.target)-1]...), length)
}

// padded returns words with padding after them.
func padded(words []int32, length int) []int32 {
	all := make([]int32, length)
	copy(all, words)
	return all
}

// corpus is what there is to learn from.
type corpus struct {
	pairs, held []pair   // held are held back, to see what was learned
	words       []string // the vocabulary, of both languages
	length      int      // of the longest sentence, with its end
	tooLong     int      // pairs that are left out
}

// corpus reads the pairs of the file, or makes some up.
func (f flags) corpus() (*corpus, error) {
	if f.data == "" {
		return f.newCorpus(numbers(4000))
	}
	file, err := os.Open(f.data)
	if err != nil {
		return nil, fmt.Errorf("moe: -data: %w", err)
	}
	defer file.Close()
	texts, err := readPairs(file, f.data)
	if err != nil {
		return nil, err
	}
	return f.newCorpus(texts)
}

// readPairs reads lines of a sentence, a tab and its translation. Empty lines do not count.
func readPairs(r io.Reader, name string) (texts [][2]string, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		columns := strings.Split(lines.Text(), "\t")
		if len(columns) != 2 || strings.TrimSpace(columns[0]) == "" || strings.TrimSpace(columns[1]) == "" {
			return nil, fmt.Errorf("moe: %s:%d: a line is a sentence, one tab and its translation, not %q", name, number, lines.Text())
		}
		texts = append(texts, [2]string{columns[0], columns[1]})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("moe: %s cannot be read: %w", name, err)
	}
	return texts, nil
}

// newCorpus makes words of texts. Every fortieth pair is held back.
func (f flags) newCorpus(texts [][2]string) (*corpus, error) {
	c := &corpus{}
	var fits [][2][]string
	for _, text := range texts {
		words := [2][]string{strings.Fields(text[0]), strings.Fields(text[1])}
		length := 1 + max(len(words[0]), len(words[1]))
		if f.length > 0 && length > f.length {
			c.tooLong++
			continue
		}
		c.length = max(c.length, length)
		fits = append(fits, words)
	}
	if len(fits) < 2 {
		return nil, fmt.Errorf("moe: there are %d pairs to learn from, and %d that -length leaves out; at least 2 are needed", len(fits), c.tooLong)
	}
	const every = 40
	isHeld := func(i int) bool { return i%every == every-1 }
	count := map[string]int{}
	for i, words := range fits {
		if !isHeld(i) {
			for _, w := range append(words[0], words[1]...) {
				count[w]++
			}
		}
	}
	c.words = append(c.words, marks...)
	known := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(count[b]-count[a], strings.Compare(a, b))
	})
	c.words = append(c.words, known[:min(len(known), f.vocabulary-len(marks))]...)

	index := map[string]int32{}
	for i := len(marks); i < len(c.words); i++ {
		index[c.words[i]] = int32(i)
	}
	ids := func(words []string) (all []int32) {
		for _, w := range words {
			id, ok := index[w]
			if !ok {
				id = unknown
			}
			all = append(all, id)
		}
		return append(all, end)
	}
	for i, words := range fits {
		p := pair{ids(words[0]), ids(words[1])}
		if isHeld(i) {
			c.held = append(c.held, p)
		} else {
			c.pairs = append(c.pairs, p)
		}
	}
	return c, nil
}

func (c *corpus) describe(out io.Writer) {
	fmt.Fprintf(out, "%d pairs to learn from, %d held back; %d words, %d in the longest sentence\n",
		len(c.pairs), len(c.held), len(c.words), c.length)
	if c.tooLong > 0 {
		fmt.Fprintf(out, "left out %d pairs, which are longer than -length\n", c.tooLong)
	}
}

// text returns what a person reads.
func (c *corpus) text(ids []int32) string {
	var words []string
	for _, id := range ids {
		if id != end {
			words = append(words, c.words[id])
		}
	}
	return strings.Join(words, " ")
}

// batches is an endless dataset: all pairs in random order, then again in another one.
type batches struct {
	corpus *corpus
	size   int
	seed   uint64
}

// Name implements train.Dataset.
func (b batches) Name() string { return "train" }

// Iter implements train.Dataset.
func (b batches) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		random := rand.New(rand.NewPCG(b.seed, 0))
		var batch []pair
		for {
			for _, i := range random.Perm(len(b.corpus.pairs)) {
				if batch = append(batch, b.corpus.pairs[i]); len(batch) < b.size {
					continue
				}
				if !yield(b.corpus.batch(batch), nil) {
					return
				}
				batch = nil
			}
		}
	}
}

// batch has the sentences and the words before those of the translations, and as labels the translations.
func (c *corpus) batch(pairs []pair) train.Batch {
	var source, before, target []int32
	for _, p := range pairs {
		source = append(source, padded(p.source, c.length)...)
		before = append(before, p.before(c.length)...)
		target = append(target, padded(p.target, c.length)...)
	}
	return train.Batch{
		Inputs: []*tensors.Tensor{
			tensors.FromFlatDataAndDimensions(source, len(pairs), c.length),
			tensors.FromFlatDataAndDimensions(before, len(pairs), c.length),
		},
		Labels: []*tensors.Tensor{tensors.FromFlatDataAndDimensions(target, len(pairs), c.length, 1)},
	}
}
