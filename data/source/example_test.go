// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/easyparallel/epl/data"
	"github.com/easyparallel/epl/data/source"
	"github.com/easyparallel/epl/hf"
)

// Texts become a file of tokens, with a token between them, and a dataset of it.
func Example() {
	folder, err := os.MkdirTemp("", "tokens")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	texts := []string{"to be, or not to be", "that is the question"}
	tokenizer, err := hf.TrainBPE(texts[0]+" "+texts[1], 260)
	if err != nil {
		log.Fatal(err)
	}
	end, _ := tokenizer.ID(hf.EndOfText)

	file := filepath.Join(folder, "train-00000.tokens")
	w, err := source.NewTokenWriter(file, tokenizer.Size())
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range texts {
		if err := w.Write(append(hf.IDs(tokenizer, text), end)...); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	tokens, err := source.OpenTokens([]string{file}, 8)
	if err != nil {
		log.Fatal(err)
	}
	defer tokens.Close()
	ds, err := data.FromIndex("text", tokens, data.IndexOptions{Batch: 2, Shuffle: true, Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range ds.Iter() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(batch.Inputs[0].Shape(), batch.Labels[0].Shape())
	}
	// Output:
	// (Int32)[2, 8] (Int32)[2, 8, 1]
	// (Int32)[2, 8] (Int32)[2, 8, 1]
}

// Lines of JSON, read in any order.
func ExampleOpenLines() {
	folder, err := os.MkdirTemp("", "lines")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "houses.jsonl")
	text := `{"rooms": 3, "price": 1.5}
{"rooms": 5, "price": 2.5}
{"rooms": 2, "price": 1.25}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}

	lines, err := source.OpenLines([]string{file}, func(line source.Record) (data.Sample, error) {
		var house struct{ Rooms, Price float32 }
		if err := line.JSON(&house); err != nil {
			return data.Sample{}, err
		}
		return data.Sample{
			Inputs: []*tensors.Tensor{tensors.FromValue([]float32{house.Rooms})},
			Labels: []*tensors.Tensor{tensors.FromValue([]float32{house.Price})},
		}, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	defer lines.Close()
	ds, err := data.FromIndex("houses", lines, data.IndexOptions{Batch: 2})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range ds.Iter() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(batch.Inputs[0].Value(), batch.Labels[0].Value())
	}
	// Output:
	// [[3] [5]] [[1.5] [2.5]]
	// [[2]] [[1.25]]
}
