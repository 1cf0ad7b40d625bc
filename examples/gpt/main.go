// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command gpt trains a GPT, evaluates it, saves and resumes, and writes text. It reads and writes the files of GPT-2 on the Hugging Face Hub.
//
//	go run ./examples/gpt                                             a small GPT on Shakespeare: a minute on a CPU
//	go run ./examples/gpt -output_dir out -prompt "ROMEO:"            with checkpoints; the same command continues
//	go run ./examples/gpt -devices 4 -split 2 -zero v2                the same training, parallel
//	go run ./examples/gpt -model_dir openai-community/gpt2 -steps 0 -prompt "Hello, my name is"
//
// docs/gpt.md is the guide. It is a GoMLX program for one device. Lines that it would not have without EPL are marked "+ epl".
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	_ "github.com/easyparallel/epl/xla" // + epl: -backend xla:cuda runs it on GPUs
)

func main() {
	f, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		_, err = run(f, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, message(err))
		os.Exit(1)
	}
}

// message is an error with its cause first: GoMLX says in front of what EPL refuses where in its own work that was.
func message(err error) string {
	if way, cause, found := strings.Cut(err.Error(), "epl: "); found && way != "" {
		return "epl: " + cause + "\n(" + strings.TrimSuffix(way, ": ") + ")"
	}
	return err.Error()
}

// result is what a run ends with.
type result struct {
	loss  float64 // of the last training step; NaN: there was none
	valid float64 // the mean loss on text that was not trained with
	text  string  // that was written after the prompt
}

func run(f flags, out io.Writer) (r result, err error) {
	network, tokenizer, err := f.network()
	if err != nil {
		return r, err
	}
	if f.pack != "" {
		return r, f.writeTokens(tokenizer, out)
	}
	c, err := f.corpus(tokenizer)
	if err != nil {
		return r, err
	}
	defer c.close()
	env, err := f.init() // + epl
	if err != nil {
		return r, err
	}
	defer env.Close()  // + epl
	if !env.IsMain() { // + epl
		out = io.Discard
	}
	fmt.Fprintf(out, "%s of %.1f million parameters; %d tokens to train with, %d to evaluate\n", network.style(), float64(network.parameters())/1e6, c.train.Len()*f.length, c.valid.Len()*f.length)
	if f.export != "" && env.IsMain() { // + epl
		if err := os.MkdirAll(f.export, 0o755); err != nil { // before the training, which would be lost
			return r, fmt.Errorf("gpt: -export: %w", err)
		}
	}
	t, err := newTraining(env, network, tokenizer, f)
	if err != nil {
		return r, err
	}
	if r.loss, r.valid, err = t.fit(c, out); err != nil {
		return r, err
	}
	if f.export != "" && env.IsMain() { // + epl
		if err := network.export(t.store, tokenizer, f.export); err != nil {
			return r, err
		}
	}
	if f.tokens > 0 {
		if r.text, err = t.write(f.prompt, f.tokens); err != nil {
			return r, err
		}
		fmt.Fprintf(out, "\n%s%s\n", f.prompt, r.text)
	}
	if f.explain {
		err = env.Explain(out)
	}
	return r, err
}
