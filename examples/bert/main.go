// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command bert trains BERT to answer questions about a text, as a pipeline of stages on several devices.
//
//	go run ./examples/bert                                    a tiny BERT on the sample: minutes on a CPU
//	go run ./examples/bert -stages 2 -devices 2 -micro_batches 4   the same in two stages
//	go run ./examples/bert -model_dir bert-base-uncased -train train-v1.1.json -dev dev-v1.1.json -output_dir out
//
// Questions and their evaluation are those of SQuAD v1.1. It is a GoMLX program for one device. Lines that it would not
// have without EPL are marked "+ epl".
package main

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/easyparallel/epl/hf"
	_ "github.com/easyparallel/epl/xla" // + epl: -backend xla:cuda runs it on GPUs
)

// sample has questions about people, to train and to answer, and a vocabulary for them.
//
//go:embed sample
var sample embed.FS

func main() {
	f, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		f.bar = isTerminal(os.Stdout)
		err = run(f, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(f flags, out io.Writer) error {
	if f.names != "" {
		return f.network(0).writeNames(f.names)
	}
	if f.modelDir != "" {
		folder, err := hf.Find(f.modelDir)
		if err != nil {
			return fmt.Errorf("bert: -model_dir: %w", err)
		}
		f.modelDir = folder
	}
	t, err := f.vocabulary()
	if err != nil {
		return err
	}
	data, err := f.questions(t)
	if err != nil {
		return err
	}
	env, err := f.init() // + epl
	if err != nil {
		return err
	}
	defer env.Close()  // + epl
	if !env.IsMain() { // + epl
		out, f.bar = io.Discard, false
	}
	data.describe(out)
	if _, err := fit(env, f.network(t.Size()), data, f, out); err != nil {
		return err
	}
	if f.explain {
		return env.Explain(out)
	}
	return nil
}

// vocabulary is that of the model, or of the sample.
func (f flags) vocabulary() (*hf.WordPiece, error) {
	if f.modelDir == "" {
		file, err := sample.Open("sample/vocab.txt")
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return hf.NewWordPiece(file, "of the sample")
	}
	t, err := hf.ReadTokenizer(f.modelDir)
	if err != nil {
		return nil, fmt.Errorf("bert: -model_dir: %w", err)
	}
	pieces, ok := t.(*hf.WordPiece)
	if !ok {
		return nil, fmt.Errorf("bert: the tokenizer in -model_dir %s is none of BERT's", f.modelDir)
	}
	return pieces, nil
}

// questions reads those to train with and those to answer, and makes their windows.
func (f flags) questions(t *hf.WordPiece) (d questions, err error) {
	if f.train == "" {
		d, err = sampleQuestions()
	} else {
		d, err = readQuestions(f.train, f.dev)
	}
	if err == nil {
		d.prepare(t, f.window)
	}
	return d, err
}

// isTerminal tells whether someone looks at the file: a progress bar in a log is only noise.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
