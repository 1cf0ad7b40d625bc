// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"iter"
	"math/rand/v2"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl/hf"
)

// questions are those to train with and those to answer, with their windows.
type questions struct {
	train, dev, dropped      []question
	trainWindows, devWindows []window
	name                     string // of the file to train with
}

func sampleQuestions() (questions, error) {
	var both [2][]question
	for i, path := range []string{"sample/train.json", "sample/dev.json"} {
		text, err := sample.ReadFile(path)
		if err != nil {
			return questions{}, err
		}
		if both[i], err = parseSquad(text, path); err != nil {
			return questions{}, err
		}
	}
	return questions{train: both[0], dev: both[1], name: "the sample"}, nil
}

func readQuestions(train, dev string) (q questions, err error) {
	q.name = train
	if q.train, err = readSquad(train); err != nil {
		return q, err
	}
	q.dev, err = readSquad(dev)
	return q, err
}

// prepare leaves out what cannot be trained with, and makes the windows.
func (q *questions) prepare(t *hf.WordPiece, w windowing) {
	q.train, q.dropped = placed(q.train)
	q.trainWindows, q.devWindows = windows(t, q.train, w), windows(t, q.dev, w)
}

func (q questions) describe(out io.Writer) {
	fmt.Fprintf(out, "%d questions to train with, in %d windows; %d to answer, in %d windows\n",
		len(q.train), len(q.trainWindows), len(q.dev), len(q.devWindows))
	if len(q.dropped) > 0 {
		fmt.Fprintf(out, "left out %d questions, whose answers are not where the file says; the first is %s\n", len(q.dropped), q.dropped[0].id)
	}
}

// batches is an endless dataset: all windows in random order, then again in another one.
type batches struct {
	windows []window
	size    int
	seed    uint64
}

// Name implements train.Dataset.
func (b batches) Name() string { return "train" }

// Iter implements train.Dataset.
func (b batches) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		random := rand.New(rand.NewPCG(b.seed, 0))
		var batch []window
		for {
			for _, i := range random.Perm(len(b.windows)) {
				if batch = append(batch, b.windows[i]); len(batch) < b.size {
					continue
				}
				if !yield(train.Batch{Inputs: inputs(batch), Labels: labels(batch)}, nil) {
					return
				}
				batch = nil
			}
		}
	}
}

// inputs are what the network takes: word pieces, segments and mask, each [windows, positions].
func inputs(all []window) []*tensors.Tensor {
	stack := func(of func(window) []int32) *tensors.Tensor {
		var flat []int32
		for _, w := range all {
			flat = append(flat, of(w)...)
		}
		return tensors.FromFlatDataAndDimensions(flat, len(all), len(flat)/len(all))
	}
	return []*tensors.Tensor{
		stack(func(w window) []int32 { return w.ids }),
		stack(func(w window) []int32 { return w.segments }),
		stack(func(w window) []int32 { return w.mask }),
	}
}

// labels are where answers start and where they end, each [windows, 1].
func labels(all []window) []*tensors.Tensor {
	var start, end []int32
	for _, w := range all {
		start, end = append(start, w.start), append(end, w.end)
	}
	return []*tensors.Tensor{
		tensors.FromFlatDataAndDimensions(start, len(all), 1),
		tensors.FromFlatDataAndDimensions(end, len(all), 1),
	}
}
