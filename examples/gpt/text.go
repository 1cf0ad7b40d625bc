// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/easyparallel/epl/data"
	"github.com/easyparallel/epl/data/source"
	"github.com/easyparallel/epl/hf"
)

// Shakespeare is the beginning of "tiny Shakespeare", plays in the public domain, as github.com/karpathy/char-rnn has them in data/tinyshakespeare/input.txt.
//
//go:embed text/shakespeare.txt
var shakespeare string

// shakespeareTokenizer is a byte-level BPE of 512 tokens that was trained on it, by "go test ./examples/gpt -update".
//
//go:embed text/tokenizer.json
var shakespeareTokenizer []byte

// corpus is a text as windows of tokens: those to train with, and those to evaluate.
type corpus struct {
	train, valid *source.Tokens
}

func (c corpus) close() {
	_ = c.train.Close()
	_ = c.valid.Close()
}

// corpus reads the text, or opens files of tokens.
func (f flags) corpus(tokenizer *hf.BPE) (c corpus, err error) {
	if f.data != "" {
		valid, err := filepath.Glob(filepath.Join(f.data, "valid*.tokens"))
		if err != nil {
			return c, err
		}
		train, err := filepath.Glob(filepath.Join(f.data, "train*.tokens"))
		if err != nil {
			return c, err
		}
		if min(len(train), len(valid)) == 0 {
			return c, fmt.Errorf("gpt: -data %s has no train*.tokens, or no valid*.tokens; -pack makes them", f.data)
		}
		if c.train, err = source.OpenTokens(train, f.length); err != nil {
			return c, err
		}
		if c.valid, err = source.OpenTokens(valid, f.length); err != nil {
			_ = c.train.Close()
		}
		return c, err
	}
	train, valid, err := f.tokenized(tokenizer)
	if err != nil {
		return c, err
	}
	if min(len(train), len(valid)) <= f.length {
		return c, fmt.Errorf("gpt: -text has %d tokens to train with and %d to evaluate, and -length is %d; use a longer text, or a smaller -length",
			len(train), len(valid), f.length)
	}
	if c.train, err = source.TokensOf(train, f.length); err == nil {
		c.valid, err = source.TokensOf(valid, f.length)
	}
	return c, err
}

// tokenized are the tokens of a text: the first nine tenths, and the last one. Texts of a .jsonl file have a token between them.
func (f flags) tokenized(tokenizer *hf.BPE) (train, valid []int32, err error) {
	text := shakespeare
	switch {
	case strings.HasSuffix(f.text, ".jsonl"):
		lines, err := source.OpenLines([]string{f.text}, func(source.Record) (data.Sample, error) { return data.Sample{}, nil })
		if err != nil {
			return nil, nil, fmt.Errorf("gpt: -text: %w", err)
		}
		defer lines.Close()
		end, hasEnd := tokenizer.ID(hf.EndOfText)
		for i := range lines.Len() {
			line, err := lines.Record(i)
			var value struct{ Text string }
			if err == nil {
				err = line.JSON(&value)
			}
			if err == nil && value.Text == "" {
				err = fmt.Errorf("%s: byte %d: the line has no \"text\"", line.File, line.At)
			}
			if err != nil {
				return nil, nil, fmt.Errorf("gpt: -text: %w", err)
			}
			ids := hf.IDs(tokenizer, value.Text)
			if hasEnd {
				ids = append(ids, end)
			}
			if i < (lines.Len()*9+9)/10 {
				train = append(train, ids...)
			} else {
				valid = append(valid, ids...)
			}
		}
		return train, valid, nil
	case f.text != "":
		b, err := os.ReadFile(f.text)
		if err != nil {
			return nil, nil, fmt.Errorf("gpt: -text: %w", err)
		}
		text = string(b)
	}
	cut := len(text) / 10 * 9
	return hf.IDs(tokenizer, text[:cut]), hf.IDs(tokenizer, text[cut:]), nil
}

// writeTokens writes the text as files for -data.
func (f flags) writeTokens(tokenizer *hf.BPE, out io.Writer) error {
	train, valid, err := f.tokenized(tokenizer)
	if err != nil {
		return err
	}
	if min(len(train), len(valid)) == 0 { // what -pack has written before is worth more
		return fmt.Errorf("gpt: -text has %d tokens to train with and %d to evaluate; use a longer text", len(train), len(valid))
	}
	if err := os.MkdirAll(f.pack, 0o755); err != nil {
		return fmt.Errorf("gpt: -pack: %w", err)
	}
	for name, ids := range map[string][]int32{"train.tokens": train, "valid.tokens": valid} {
		w, err := source.NewTokenWriter(filepath.Join(f.pack, name), tokenizer.Size())
		if err != nil {
			return fmt.Errorf("gpt: -pack: %w", err)
		}
		_ = w.Write(ids...) // Close says what went wrong
		if err := w.Close(); err != nil {
			return fmt.Errorf("gpt: -pack: %w", err)
		}
	}
	fmt.Fprintf(out, "%d tokens to train with, %d to evaluate, in %s\n", len(train), len(valid), f.pack)
	return nil
}

// network returns what the flags describe, with its tokenizer. Samples are as long as the network can see, if the flags do not say it.
func (f *flags) network() (m gpt, tokenizer *hf.BPE, err error) {
	var t hf.Tokenizer
	if f.modelDir != "" {
		if f.modelDir, err = hf.Find(f.modelDir); err != nil {
			return m, nil, fmt.Errorf("gpt: -model_dir: %w", err)
		}
		if m, err = readConfig(f.modelDir); err != nil {
			return m, nil, err
		}
		t, err = hf.ReadTokenizer(f.modelDir)
	} else {
		t, err = hf.ParseTokenizer(shakespeareTokenizer, "of the sample")
	}
	if err != nil {
		return m, nil, err
	}
	tokenizer, ok := t.(*hf.BPE)
	if !ok {
		return m, nil, fmt.Errorf("gpt: the tokenizer of -model_dir is no byte-level BPE, as that of GPT-2 is")
	}
	if f.modelDir == "" {
		m = gpt{llama: f.style == "llama", layers: f.layers, width: f.width, heads: f.heads, vocabulary: tokenizer.Size(), positions: f.length, epsilon: 1e-5}
	}
	if f.length == 0 {
		f.length = m.positions
	}
	m.dropout, m.stages, m.split = f.dropout, f.stages, f.split
	switch {
	case tokenizer.Size() > m.vocabulary:
		return m, nil, fmt.Errorf("gpt: the tokenizer has %d tokens, and the network of -model_dir %d", tokenizer.Size(), m.vocabulary)
	case f.length > m.positions:
		return m, nil, fmt.Errorf("gpt: -length is %d, and the network of -model_dir has %d positions", f.length, m.positions)
	case m.stages > m.layers || f.autoStages > m.layers:
		return m, nil, fmt.Errorf("gpt: %d stages are more than the %d layers of the network", max(m.stages, f.autoStages), m.layers)
	}
	return m, tokenizer, nil
}
