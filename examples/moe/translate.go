// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:all // the way GoMLX models are written
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl/examples/internal/moe"
)

// translator translates with the network as it is.
type translator struct {
	exec  *model.Exec
	batch int
}

func newTranslator(backend compute.Backend, store *model.Store, network moe.T5, batch int) (*translator, error) {
	exec, err := model.NewExec(backend, store, func(scope *model.Scope, inputs []*Node) *Node {
		return ArgMax(network.Logits(scope, inputs)[0], -1, dtypes.Int32)
	})
	return &translator{exec, batch}, err
}

// next returns the likeliest word at each position of the translations, given those before it.
func (t *translator) next(pairs []pair, before [][]int32, length int) ([][]int32, error) {
	real := len(pairs)
	pairs, before = slices.Clone(pairs), slices.Clone(before)
	for len(pairs) < t.batch { // so that all batches have the same shape
		pairs, before = append(pairs, pairs[0]), append(before, before[0])
	}
	var sources [][]int32
	for _, p := range pairs {
		sources = append(sources, padded(p.source, length))
	}
	words, err := t.exec.Call(tensors.FromValue(sources), tensors.FromValue(before))
	if err != nil {
		return nil, err
	}
	rows := slices.Collect(slices.Chunk(tensors.MustCopyFlatData[int32](words[0]), length))[:real]
	return rows, words[0].FinalizeAll()
}

// translate writes translations word by word, each time the likeliest one, until all have ended.
func (t *translator) translate(pairs []pair, length int) (all [][]int32, err error) {
	before := make([][]int32, len(pairs))
	ended := make([]bool, len(pairs))
	for i := range before {
		before[i] = padded([]int32{start}, length)
	}
	all = make([][]int32, len(pairs))
	for at := 0; at < length && slices.Contains(ended, false); at++ {
		rows, err := t.next(pairs, before, length)
		if err != nil {
			return nil, err
		}
		for i, row := range rows {
			if ended[i] {
				continue
			}
			all[i] = append(all[i], row[at])
			if ended[i] = row[at] == end; !ended[i] && at+1 < length {
				before[i][at+1] = row[at]
			}
		}
	}
	return all, nil
}

// scores are shares of what is right: words, if those before them are right, and sentences, of which only the source is
// known.
type scores struct{ words, sentences float64 }

func (t *translator) score(pairs []pair, length int) (s scores, err error) {
	words, right := 0, 0
	for batch := range slices.Chunk(pairs, t.batch) {
		before := make([][]int32, len(batch))
		for i, p := range batch {
			before[i] = p.before(length)
		}
		rows, err := t.next(batch, before, length)
		if err != nil {
			return s, err
		}
		all, err := t.translate(batch, length)
		if err != nil {
			return s, err
		}
		for i, p := range batch {
			for at, word := range p.target {
				words++
				if rows[i][at] == word {
					right++
				}
			}
			if slices.Equal(all[i], p.target) {
				s.sentences++
			}
		}
	}
	s.words, s.sentences = float64(right)/float64(words), s.sentences/float64(len(pairs))
	return s, nil
}

// show prints a translation.
func (t *translator) show(c *corpus, out io.Writer) error {
	all, err := t.translate(c.held[:1], c.length)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%q is %q\n", c.text(c.held[0].source), c.text(all[0]))
	return nil
}
