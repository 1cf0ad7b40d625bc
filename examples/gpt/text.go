package main

import (
	_ "embed"
	"fmt"
	"os"

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

// corpus is a text as tokens: the first part to train with, the last to evaluate.
type corpus struct {
	name         string
	train, valid []int32
}

// corpus reads the text.
func (f flags) corpus(tokenizer *hf.BPE) (c corpus, err error) {
	c.name = "shakespeare.txt"
	text := shakespeare
	if f.text != "" {
		b, err := os.ReadFile(f.text)
		if err != nil {
			return c, fmt.Errorf("gpt: -text: %w", err)
		}
		c.name, text = f.text, string(b)
	}
	cut := len(text) / 10 * 9
	c.train, c.valid = hf.IDs(tokenizer, text[:cut]), hf.IDs(tokenizer, text[cut:])
	if min(len(c.train), len(c.valid)) <= f.length {
		return c, fmt.Errorf("gpt: -text %s has %d tokens to train with and %d to evaluate, and -length is %d; use a longer text, or a smaller -length",
			c.name, len(c.train), len(c.valid), f.length)
	}
	return c, nil
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
