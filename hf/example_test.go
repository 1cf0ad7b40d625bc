// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hf_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl/hf"
)

// A tokenizer is trained on a text. Its file is one that the libraries of Hugging Face read.
func ExampleTrainBPE() {
	t, err := hf.TrainBPE("low lower lowest low lower low", 262)
	if err != nil {
		log.Fatal(err)
	}
	ids := hf.IDs(t, "lower slow")
	for _, id := range ids {
		fmt.Printf("%q ", t.Decode([]int32{id}))
	}
	fmt.Println(len(ids), "tokens:", t.Decode(ids))
	// Output: "low" "e" "r" " " "s" "low" 6 tokens: lower slow
}

// A store is written with the names of PyTorch, and read again.
func ExampleWeights() {
	folder, err := os.MkdirTemp("", "model")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	weights := hf.Weights{
		{Path: "/out/weights", Shape: []int{3, 2}, Names: []string{"classifier.weight"}, Transpose: true},
		{Path: "/out/biases", Shape: []int{2}, Names: []string{"classifier.bias"}},
	}
	store := model.NewStore()
	for path, value := range map[string]any{"/out/weights": [][]float32{{1, 2}, {3, 4}, {5, 6}}, "/out/biases": []float32{7, 8}} {
		if _, err := store.CreateVariable(path, tensors.MustFromAnyValue(value)); err != nil {
			log.Fatal(err)
		}
	}
	if err := weights.Save(store, filepath.Join(folder, "model.safetensors")); err != nil {
		log.Fatal(err)
	}

	loaded := model.NewStore()
	if err := weights.Load(loaded, folder, hf.Options{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(loaded.GetVariable("/out/weights").MustValue().Value())
	// Output: [[1 2] [3 4] [5 6]]
}
