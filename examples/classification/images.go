// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/data"
	"github.com/easyparallel/epl/examples/internal/pictures"
)

// kinds is how many classes there are generated images of: few enough to be learnt in minutes.
const kinds = 16

// pictures are those to train on: of the folder, or generated. What is generated is of some of the classes of the head,
// from the first to the last.
func (f *flags) pictures() (*pictures.Set, error) {
	if f.images == "" {
		return pictures.Generated(2048, 0, min(f.classes, kinds), f.trunk.Size), nil
	}
	p, err := pictures.ForTraining(f.images, f.trunk.Size)
	if err != nil {
		return nil, fmt.Errorf("classification: %w", err)
	}
	if f.classes = len(p.Classes); f.classes < 2 {
		return nil, fmt.Errorf("classification: there is 1 folder in %s/train; there must be one for each class, of at least 2", f.images)
	}
	return p, nil
}

// dataset deals batches of the images. It has the same images in the same order whatever the batch is.
func (f flags) dataset(env *epl.Env, p *pictures.Set, batch int) (train.Dataset, error) {
	own, err := env.Files(p.Train) // + epl
	if err != nil {
		return nil, err
	}
	images, err := data.FromFiles("train", own, spread(p.Reader(true), f.classes, len(p.Classes)),
		data.FileOptions{Batch: batch, Epochs: data.Endless, Shuffle: 1, Seed: uint64(f.seed)})
	if err != nil {
		return nil, err
	}
	return env.Dataset(images), nil // + epl
}

// spread gives images of the first few classes labels that are spread over all of them.
func spread(read data.Reader, classes, few int) data.Reader {
	return func(path string, random *rand.Rand) iter.Seq2[data.Sample, error] {
		return func(yield func(data.Sample, error) bool) {
			for s, err := range read(path, random) {
				if err == nil {
					class := tensors.MustCopyFlatData[int64](s.Labels[0])[0]
					s.Labels[0] = tensors.FromFlatDataAndDimensions([]int64{class * int64(classes-1) / int64(few-1)}, 1)
				}
				if !yield(s, err) {
					return
				}
			}
		}
	}
}
