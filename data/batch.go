// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package data

import (
	"iter"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/pkg/errors"
)

// batches puts samples together.
func (d *fileDataset) batches(samples iter.Seq2[sampleOf, error]) iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		var group []sampleOf
		for s, err := range samples {
			if err != nil {
				yield(train.Batch{}, err)
				return
			}
			if group = append(group, s); len(group) < d.o.Batch {
				continue
			}
			batch, err := stack(group)
			if !yield(batch, err) || err != nil {
				return
			}
			group = group[:0]
		}
		if len(group) > 0 && !d.o.DropLast {
			yield(stack(group))
		}
	}
}

// stack makes a batch of samples: each of its tensors has a new first dim, with the samples along it.
func stack(samples []sampleOf) (batch train.Batch, err error) {
	if batch.Inputs, err = stackEach(samples, "input", func(s sampleOf) []*tensors.Tensor { return s.Inputs }); err != nil {
		return train.Batch{}, err
	}
	if batch.Labels, err = stackEach(samples, "label", func(s sampleOf) []*tensors.Tensor { return s.Labels }); err != nil {
		return train.Batch{}, err
	}
	return batch, nil
}

func stackEach(samples []sampleOf, kind string, of func(sampleOf) []*tensors.Tensor) ([]*tensors.Tensor, error) {
	stacked := make([]*tensors.Tensor, len(of(samples[0])))
	for _, s := range samples {
		if got := len(of(s)); got != len(stacked) {
			return nil, errors.Errorf("a sample of %s has %d %ss, one of %s has %d; samples of a batch must be alike",
				samples[0].path, len(stacked), kind, s.path, got)
		}
	}
	for i := range stacked {
		shape := of(samples[0])[i].Shape()
		stacked[i] = tensors.FromShape(shapes.Make(shape.DType, append([]int{len(samples)}, shape.Dimensions...)...))
		var failed error
		if err := stacked[i].MutableBytes(func(to []byte) {
			for n, s := range samples {
				t := of(s)[i]
				if !t.Shape().Equal(shape) {
					failed = errors.Errorf("%s %d of a sample of %s is %s, that of %s is %s; samples of a batch must be alike",
						kind, i, samples[0].path, shape, s.path, t.Shape())
				} else if len(to) > 0 {
					failed = copyBytes(to, n, len(samples), t)
				}
				if failed != nil {
					return
				}
			}
		}); err != nil {
			return nil, err
		}
		if failed != nil {
			return nil, failed
		}
	}
	return stacked, nil
}

// copyBytes writes the tensor of sample n into the bytes of a batch.
func copyBytes(to []byte, n, samples int, t *tensors.Tensor) (failed error) {
	err := t.ConstBytes(func(from []byte) {
		if len(from)*samples != len(to) { // types smaller than a byte
			failed = errors.Errorf("samples of %s do not end at whole bytes, and cannot be put together", t.Shape())
			return
		}
		copy(to[n*len(from):], from)
	})
	if err != nil {
		return err
	}
	return failed
}
