// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/hf"
)

// weights lists the variables of the network.
func (b bert) weights() (all hf.Weights) {
	table := func(name, path string, rows int) {
		all = append(all, hf.Weight{Names: []string{name + ".weight"}, Path: path + "/embeddings", Shape: []int{rows, b.hidden}})
	}
	linear := func(name, path string, in, out int) {
		all = append(all,
			hf.Weight{Names: []string{name + ".weight"}, Path: path + "/weights", Shape: []int{in, out}, Transpose: true},
			hf.Weight{Names: []string{name + ".bias"}, Path: path + "/biases", Shape: []int{out}})
	}
	normalisation := func(name, path string) {
		all = append(all,
			hf.Weight{Names: []string{name + ".weight", name + ".gamma"}, Path: path + "/layer_normalization/gain", Shape: []int{b.hidden}},
			hf.Weight{Names: []string{name + ".bias", name + ".beta"}, Path: path + "/layer_normalization/offset", Shape: []int{b.hidden}})
	}
	table("embeddings.word_embeddings", "/"+inEmbeddings+"/word", b.vocabulary)
	table("embeddings.position_embeddings", "/"+inEmbeddings+"/position", b.positions)
	table("embeddings.token_type_embeddings", "/"+inEmbeddings+"/segment", 2)
	normalisation("embeddings.LayerNorm", "/"+inEmbeddings)
	for i := range b.layers {
		from, to := fmt.Sprintf("encoder.layer.%d.", i), fmt.Sprintf("/"+inLayer, i)
		for _, name := range []string{"query", "key", "value"} {
			linear(from+"attention.self."+name, to+"/attention/"+name, b.hidden, b.hidden)
		}
		linear(from+"attention.output.dense", to+"/attention/output", b.hidden, b.hidden)
		normalisation(from+"attention.output.LayerNorm", to+"/attention")
		linear(from+"intermediate.dense", to+"/intermediate", b.hidden, 4*b.hidden)
		linear(from+"output.dense", to+"/output", 4*b.hidden, b.hidden)
		normalisation(from+"output.LayerNorm", to)
	}
	head := len(all)
	linear("qa_outputs", "/"+inHead, b.hidden, 2)
	for i := head; i < len(all); i++ {
		all[i].Optional = true
	}
	return all
}

// writeNames writes the names that the weights have on the Hub, as a BertForQuestionAnswering of PyTorch has them.
func (b bert) writeNames(file string) error {
	names, err := b.weights().ForConvert(func(w hf.Weight) string { // + epl
		if w.Optional {
			return "" // the head
		}
		return "bert."
	})
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(names, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("bert: the names cannot be written: %w", err)
	}
	return nil
}

// notUsed are parts of stored models that have no place in the network: heads for other tasks, and a table of numbers.
func notUsed(name string) bool {
	return strings.HasPrefix(name, "cls.") || strings.HasPrefix(name, "pooler.") || name == "embeddings.position_ids"
}

// load gives the variables of the network the values of a folder, which are read when they are used. All must be there, but
// for the head, which is for the training to find, and nothing else may be.
func (b bert) load(env *epl.Env, store *model.Store, folder string) error {
	err := b.weights().Load(store, folder, hf.Options{Lazy: env.Lazy, Prefix: "bert.", Ignore: notUsed}) // + epl
	if err != nil {
		return fmt.Errorf("bert: a BERT of %d layers: %w; see -size, -layers, -hidden and -heads, and whether vocab.txt is that of the model", b.layers, err)
	}
	return nil
}
