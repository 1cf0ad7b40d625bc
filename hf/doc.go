// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package hf reads and writes the files of models of the Hugging Face Hub: weights (*.safetensors) and tokenizers (tokenizer.json, vocab.txt).
//
// What goes in is the folder of a model, and a list that says which variable of a store is which tensor: [Weights]. What comes out is a store with
// these values, and the way back, bit for bit. [ReadTokenizer] gives the tokenizer of a folder: byte-level BPE, as GPT-2 has it, or the word pieces of
// BERT's uncased models. [Find] finds the folder in the cache that all programs of Hugging Face share. Nothing here needs a network, and one tensor at a
// time is in memory.
//
// The library go-huggingface v0.3.1 is not used. Its tokenizers are those of Gemma only, it reads no safetensors, and its download takes a file that broke
// off for a complete one. Fetch models with "hf download", or with any program for files.
package hf
