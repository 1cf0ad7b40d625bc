// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"fmt"
	"strconv"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/dataset"
	"github.com/gomlx/gomlx/ml/train"
)

const (
	pixels  = 64 // a picture has 8 rows of 8
	classes = 10

	samples = 1500 // of 1797, to learn from
	unseen  = 297  // and to be asked about
)

// digitsFile has a line for each digit: its pixels, from 0 to 16, and what it is. README.md says where it comes from.
//
//go:embed digits.csv.gz
var digitsFile []byte

// digits are batches of handwritten digits: those to learn from, again and again, and those that are kept back.
func digits(backend compute.Backend, batch int) (known, unknown train.Dataset, err error) {
	x, y, err := readDigits()
	if err != nil {
		return nil, nil, err
	}
	part := func(name string, from, to int) (*dataset.InMemoryDataset, error) {
		return dataset.InMemoryFromData(backend, name,
			[]any{tensors.FromFlatDataAndDimensions(x[from*pixels:to*pixels], to-from, pixels)},
			[]any{tensors.FromFlatDataAndDimensions(y[from:to], to-from, 1)})
	}
	first, err := part("digits", 0, samples)
	if err != nil {
		return nil, nil, err
	}
	rest, err := part("unseen digits", samples, samples+unseen)
	if err != nil {
		return nil, nil, err
	}
	return first.BatchSize(batch, true).Infinite(true), rest.BatchSize(unseen/3, false), nil
}

// readDigits reads all of them, with pixels from 0 to 1.
func readDigits() (x []float32, y []int64, err error) {
	z, err := gzip.NewReader(bytes.NewReader(digitsFile))
	if err != nil {
		return nil, nil, fmt.Errorf("quickstart: digits.csv.gz: %w", err)
	}
	lines, err := csv.NewReader(z).ReadAll()
	if err != nil {
		return nil, nil, fmt.Errorf("quickstart: digits.csv.gz: %w", err)
	}
	for _, line := range lines {
		for i, text := range line {
			n, err := strconv.Atoi(text)
			if err != nil {
				return nil, nil, fmt.Errorf("quickstart: digits.csv.gz: %w", err)
			}
			if i < pixels {
				x = append(x, float32(n)/16)
			} else {
				y = append(y, int64(n))
			}
		}
	}
	return x, y, nil
}
