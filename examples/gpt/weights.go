// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/hf"
)

// hubConfig is the config.json of a GPT-2 on the Hugging Face Hub.
type hubConfig struct {
	Architectures []string `json:"architectures,omitempty"`
	ModelType     string   `json:"model_type"`
	Vocabulary    int      `json:"vocab_size"`
	Positions     int      `json:"n_positions"`
	Context       int      `json:"n_ctx,omitempty"` // the same, in older files
	Width         int      `json:"n_embd"`
	Layers        int      `json:"n_layer"`
	Heads         int      `json:"n_head"`
	Hidden        *int     `json:"n_inner,omitempty"`
	Activation    string   `json:"activation_function"`
	Epsilon       float64  `json:"layer_norm_epsilon"`
	TorchType     string   `json:"torch_dtype,omitempty"`
}

// readConfig returns the network of a folder.
func readConfig(folder string) (m gpt, err error) {
	file := filepath.Join(folder, "config.json")
	text, err := os.ReadFile(file)
	if err != nil {
		return m, fmt.Errorf("gpt: -model_dir is a folder with config.json, model.safetensors and tokenizer.json: %w", err)
	}
	var c hubConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return m, fmt.Errorf("gpt: %s: %w", file, err)
	}
	if c.Positions == 0 {
		c.Positions = c.Context
	}
	switch {
	case c.ModelType != "gpt2":
		return m, fmt.Errorf("gpt: %s: the model is a %q; those of model_type gpt2 can be read", file, c.ModelType)
	case c.Activation != "gelu_new":
		return m, fmt.Errorf("gpt: %s: the activation is %q; GPT-2 has gelu_new", file, c.Activation)
	case c.Hidden != nil && *c.Hidden != 4*c.Width:
		return m, fmt.Errorf("gpt: %s: n_inner is %d; GPT-2 has 4 times n_embd, which is %d", file, *c.Hidden, 4*c.Width)
	case c.Layers < 1 || c.Width < 1 || c.Heads < 1 || c.Width%c.Heads != 0 || c.Vocabulary < 1 || c.Positions < 1 || !(c.Epsilon > 0):
		return m, fmt.Errorf("gpt: %s describes no network: %d layers of width %d with %d heads, %d tokens, %d positions, epsilon %v",
			file, c.Layers, c.Width, c.Heads, c.Vocabulary, c.Positions, c.Epsilon)
	}
	return gpt{layers: c.Layers, width: c.Width, heads: c.Heads, vocabulary: c.Vocabulary, positions: c.Positions, epsilon: c.Epsilon}, nil
}

// weights says where the variables are in the files of GPT-2. Its matrices are [in, out], as here.
func (m gpt) weights() (all hf.Weights) {
	add := func(name, path string, stored []int, shape ...int) {
		all = append(all, hf.Weight{Path: path, Shape: shape, Stored: stored, Names: []string{name}})
	}
	norm := func(name, path string) {
		add(name+".weight", path+"/layer_normalization/gain", nil, m.width)
		add(name+".bias", path+"/layer_normalization/offset", nil, m.width)
	}
	size := m.width / m.heads
	add("wte.weight", "/"+inTokens+"/embeddings", nil, m.vocabulary, m.width)
	add("wpe.weight", "/"+inPositions+"/embeddings", nil, m.positions, m.width)
	for i := range m.layers {
		from, to := fmt.Sprintf("h.%d", i), fmt.Sprintf("/"+inBlock, i)
		norm(from+".ln_1", to+"/ln_1")
		add(from+".attn.c_attn.weight", to+"/attn/c_attn/weights", []int{m.width, 3 * m.width}, m.width, 3, m.heads, size)
		add(from+".attn.c_attn.bias", to+"/attn/c_attn/biases", []int{3 * m.width}, 3, m.heads, size)
		add(from+".attn.c_proj.weight", to+"/attn/c_proj/weights", []int{m.width, m.width}, m.heads, size, m.width)
		add(from+".attn.c_proj.bias", to+"/attn/c_proj/biases", nil, m.width)
		norm(from+".ln_2", to+"/ln_2")
		add(from+".mlp.c_fc.weight", to+"/mlp/c_fc/weights", nil, m.width, 4*m.width)
		add(from+".mlp.c_fc.bias", to+"/mlp/c_fc/biases", nil, 4*m.width)
		add(from+".mlp.c_proj.weight", to+"/mlp/c_proj/weights", nil, 4*m.width, m.width)
		add(from+".mlp.c_proj.bias", to+"/mlp/c_proj/biases", nil, m.width)
	}
	norm("ln_f", "/"+inLast)
	return all
}

// notUsed are the causal masks, which files of GPT-2 have as tensors, and its head, which is the table of tokens once more.
var notUsed = regexp.MustCompile(`^(h\.\d+\.attn\.(bias|masked_bias)|lm_head\.weight)$`)

// load gives the variables the values of a folder, which are read when they are used.
func (m gpt) load(env *epl.Env, store *model.Store, folder string) error {
	err := m.weights().Load(store, folder, hf.Options{Lazy: env.Lazy, Prefix: "transformer.", Ignore: notUsed.MatchString}) // + epl
	if err != nil {
		return fmt.Errorf("gpt: -model_dir: %w", err)
	}
	return nil
}

// export writes what load reads.
func (m gpt) export(store *model.Store, tokenizer *hf.BPE, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("gpt: -export: %w", err)
	}
	text, err := json.MarshalIndent(hubConfig{Architectures: []string{"GPT2LMHeadModel"}, ModelType: "gpt2", Vocabulary: m.vocabulary, Positions: m.positions, Context: m.positions,
		Width: m.width, Layers: m.layers, Heads: m.heads, Activation: "gelu_new", Epsilon: m.epsilon, TorchType: "float32"}, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "config.json"), append(text, '\n'), 0o644)
	}
	if err == nil {
		err = tokenizer.WriteFile(filepath.Join(folder, "tokenizer.json"))
	}
	if err == nil {
		err = m.weights().Save(store, filepath.Join(folder, "model.safetensors"))
	}
	if err != nil {
		return fmt.Errorf("gpt: -export: %w", err)
	}
	return nil
}
