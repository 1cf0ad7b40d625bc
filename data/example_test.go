// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package data_test

import (
	"bufio"
	"fmt"
	"iter"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/easyparallel/epl/data"
)

// numbers reads a text file with a number in each line: those are its samples.
func numbers(path string, _ *rand.Rand) iter.Seq2[data.Sample, error] {
	return func(yield func(data.Sample, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(data.Sample{}, err)
			return
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			n, err := strconv.ParseFloat(lines.Text(), 32)
			if !yield(data.Sample{Inputs: []*tensors.Tensor{tensors.FromScalar(float32(n))}}, err) || err != nil {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(data.Sample{}, err)
		}
	}
}

// A dataset of the samples in text files.
func ExampleFromFiles() {
	folder, err := os.MkdirTemp("", "numbers")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	var files []string
	for name, text := range map[string]string{"a.txt": "1\n2\n3\n", "b.txt": "4\n5\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	if files, err = filepath.Glob(filepath.Join(folder, "*.txt")); err != nil {
		log.Fatal(err)
	}

	ds, err := data.FromFiles("numbers", data.Slice{Files: files}, numbers, data.FileOptions{Batch: 2, Readers: 1})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range ds.Iter() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(batch.Inputs[0].Value())
	}
	// Output:
	// [1 2]
	// [3 4]
	// [5]
}

// Three files cannot be dealt evenly to two workers: so both read all of them, and their samples are dealt.
func ExampleDeal() {
	for _, files := range [][]string{{"f0", "f1"}, {"f0", "f1", "f2"}} {
		for worker := range 2 {
			s, err := data.Deal(files, []int{1, 1}, worker, data.DealOptions{})
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("worker %d: %v, sample 0 is its own: %t\n", worker, s.Files, s.Part.Has(0))
		}
	}
	// Output:
	// worker 0: [f0], sample 0 is its own: true
	// worker 1: [f1], sample 0 is its own: true
	// worker 0: [f0 f1 f2], sample 0 is its own: true
	// worker 1: [f0 f1 f2], sample 0 is its own: false
}
