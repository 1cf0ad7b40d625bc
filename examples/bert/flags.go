// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/easyparallel/epl"
)

// flags is the command line.
type flags struct {
	size                            string
	layers, hidden, heads           int
	train, dev, modelDir, outputDir string
	names                           string
	window                          windowing
	search                          search
	epochs                          float64
	steps, batch, microBatches      int
	rate, warmup, dropout, clip     float64
	seed                            int64
	eval                            int
	devices, stages, autoStages     int
	strategy, backend               string
	explain                         bool
	bar                             bool // not a flag: show a progress bar
}

// size is a network with what it is usually trained by.
type size struct {
	layers, hidden, heads, positions int
	dropout                          float64
	window                           windowing
	batch                            int
	epochs, rate                     float64
}

// sizes are those of the flag -size.
var sizes = map[string]size{
	"tiny":  {4, 64, 4, 128, 0, windowing{64, 32, 16}, 16, 4, 1e-3},
	"base":  {12, 768, 12, 512, 0.1, windowing{384, 128, 64}, 12, 2, 3e-5},
	"large": {24, 1024, 16, 512, 0.1, windowing{384, 128, 64}, 24, 2, 3e-5},
}

// parseFlags reads the command line. What -help prints goes to help.
func parseFlags(args []string, help io.Writer) (flags, error) {
	var f flags
	names := strings.Join(slices.Sorted(maps.Keys(sizes)), ", ")
	set := flag.NewFlagSet("bert", flag.ContinueOnError)
	set.SetOutput(io.Discard) // an error is one line, which the caller prints
	set.StringVar(&f.size, "size", "", "the `network`: "+names+" (default: tiny, and base with -model_dir)")
	set.IntVar(&f.layers, "layers", 0, "`layers` of the network (default: of its size)")
	set.IntVar(&f.hidden, "hidden", 0, "`width` of the network (default: of its size)")
	set.IntVar(&f.heads, "heads", 0, "attention `heads` of a layer (default: of the size)")
	set.StringVar(&f.train, "train", "", "questions to train with, a `file` of SQuAD v1.1 (default: the sample)")
	set.StringVar(&f.dev, "dev", "", "questions to answer, a `file` of SQuAD v1.1 (default: the sample)")
	set.StringVar(&f.modelDir, "model_dir", "", "`folder` with model.safetensors and vocab.txt or tokenizer.json, or the name of a model that \"hf download\" has fetched, such as google-bert/bert-base-uncased (default: from scratch)")
	set.StringVar(&f.outputDir, "output_dir", "", "`folder` for predictions.json and checkpoints; a checkpoint that it has is continued")
	set.StringVar(&f.names, "names", "", "write the names that weights have on the Hugging Face Hub to a `file`, for \"epl checkpoint export\" and \"import\", and end")
	set.IntVar(&f.window.length, "max_seq_length", 0, "word `pieces` that the network sees at once (default: of the size)")
	set.IntVar(&f.window.stride, "doc_stride", 0, "word `pieces` between windows of a long context (default: of the size)")
	set.IntVar(&f.window.question, "max_query_length", 0, "word `pieces` of a question (default: of the size)")
	set.IntVar(&f.search.best, "n_best_size", 20, "so many starts and ends of answers are considered")
	set.IntVar(&f.search.length, "max_answer_length", 30, "word `pieces` of an answer")
	set.Float64Var(&f.epochs, "epochs", -1, "go through the training questions so many `times`; 0 only answers (default: of the size)")
	set.IntVar(&f.steps, "steps", 0, "train for this many `steps`, instead of -epochs")
	set.IntVar(&f.batch, "batch", 0, "`windows` of a micro-batch (default: of the size)")
	set.IntVar(&f.microBatches, "micro_batches", 1, "micro-batches of a step, on each model replica")
	set.Float64Var(&f.rate, "learning_rate", 0, "highest learning `rate` of Adam (default: of the size)")
	set.Float64Var(&f.warmup, "warmup", 0.1, "`share` of the steps in which the learning rate rises")
	set.Float64Var(&f.dropout, "dropout", -1, "`share` of values that training leaves out (default: of the size)")
	set.Float64Var(&f.clip, "clip", 1, "largest `norm` of the gradients; 0 does not clip them")
	set.Int64Var(&f.seed, "seed", 1, "`seed` of weights, order and dropout")
	set.IntVar(&f.eval, "eval", 0, "answer the questions of -dev every so many `steps`, and at the end (default: 8 times)")
	set.IntVar(&f.devices, "devices", 0, "`devices` of this worker (default: those of the launcher, else 1)")
	set.IntVar(&f.stages, "stages", 0, "`stages` of the pipeline, annotated; 0: no annotation")
	set.IntVar(&f.autoStages, "auto_stages", 0, "`stages` of the pipeline, cut by EPL")
	set.StringVar(&f.strategy, "strategy", "", "`schedule` of the pipeline, as pipeline.strategy has it: PreferBackward, PreferForward, …")
	set.StringVar(&f.backend, "backend", "", "GoMLX `backend` that runs the program (default $GOMLX_BACKEND, else cpu)")
	set.BoolVar(&f.explain, "explain", false, "print how EPL understood the program")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		set.SetOutput(help)
		set.Usage()
		return f, err
	} else if err != nil {
		return f, fmt.Errorf("bert: %w; see -help", err)
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("bert: there are no arguments, only flags: remove %q, or see -help", set.Arg(0))
	}
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if f.size == "" {
		f.size = "tiny"
		if f.modelDir != "" {
			f.size = "base"
		}
	}
	s, known := sizes[f.size]
	if !known {
		return f, fmt.Errorf("bert: -size is %q; it can be %s", f.size, names)
	}
	f.fill(s, given)
	return f, f.check(given)
}

// fill sets what the command line does not say, as is usual for the size of the network.
func (f *flags) fill(s size, given map[string]bool) {
	for name, set := range map[string]func(){
		"layers":           func() { f.layers = s.layers },
		"hidden":           func() { f.hidden = s.hidden },
		"heads":            func() { f.heads = s.heads },
		"max_seq_length":   func() { f.window.length = s.window.length },
		"doc_stride":       func() { f.window.stride = s.window.stride },
		"max_query_length": func() { f.window.question = s.window.question },
		"epochs":           func() { f.epochs = s.epochs },
		"batch":            func() { f.batch = s.batch },
		"learning_rate":    func() { f.rate = s.rate },
		"dropout":          func() { f.dropout = s.dropout },
	} {
		if !given[name] {
			set()
		}
	}
}

// check finds what cannot be, before any work starts.
func (f flags) check(given map[string]bool) error {
	positions := sizes[f.size].positions
	switch {
	case f.layers < 1:
		return fmt.Errorf("bert: -layers is %d; a network has at least 1", f.layers)
	case f.hidden < 1 || f.heads < 1 || f.hidden%f.heads != 0:
		return fmt.Errorf("bert: -hidden is %d and -heads is %d; the width must divide into the heads", f.hidden, f.heads)
	case f.window.question < 1:
		return fmt.Errorf("bert: -max_query_length is %d; a question has at least 1 word piece", f.window.question)
	case f.window.length < f.window.question+4 || f.window.length > positions:
		return fmt.Errorf("bert: -max_seq_length is %d; it can be from %d, the longest question (-max_query_length) with 3 marks "+
			"and a word, to %d, what the network has positions for", f.window.length, f.window.question+4, positions)
	case f.window.stride < 1:
		return fmt.Errorf("bert: -doc_stride is %d; windows are at least 1 word piece apart", f.window.stride)
	case f.search.best < 1:
		return fmt.Errorf("bert: -n_best_size is %d; consider at least 1", f.search.best)
	case f.search.length < 1:
		return fmt.Errorf("bert: -max_answer_length is %d; an answer has at least 1 word piece", f.search.length)
	case (f.train == "") != (f.dev == ""):
		return fmt.Errorf("bert: -train and -dev go together: without both the sample is used")
	case f.modelDir != "" && f.train == "":
		return fmt.Errorf("bert: -model_dir needs -train and -dev: the sample has a vocabulary of its own, and a trained model has another")
	case f.modelDir == "" && f.train != "":
		return fmt.Errorf("bert: -train needs -model_dir, for the vocabulary: the sample has one of its own")
	case given["epochs"] && given["steps"]:
		return fmt.Errorf("bert: -epochs and -steps both say how long to train; choose one")
	case given["epochs"] && !(f.epochs >= 0):
		return fmt.Errorf("bert: -epochs is %v; it is 0 or more", f.epochs)
	case given["steps"] && f.steps < 1:
		return fmt.Errorf("bert: -steps is %d; train for at least 1 step, or answer only with -epochs 0", f.steps)
	case f.batch < 1:
		return fmt.Errorf("bert: -batch is %d; a micro-batch has at least 1 window", f.batch)
	case f.microBatches < 1:
		return fmt.Errorf("bert: -micro_batches is %d; a step has at least 1", f.microBatches)
	case !(f.rate > 0):
		return fmt.Errorf("bert: -learning_rate is %v; a learning rate is above 0", f.rate)
	case !(f.warmup >= 0 && f.warmup <= 1):
		return fmt.Errorf("bert: -warmup is %v; it is a share of the steps, from 0 to 1", f.warmup)
	case !(f.dropout >= 0 && f.dropout < 1):
		return fmt.Errorf("bert: -dropout is %v; it is a share, from 0 to below 1", f.dropout)
	case !(f.clip >= 0):
		return fmt.Errorf("bert: -clip is %v; it is a norm above 0, or 0", f.clip)
	case f.eval < 0:
		return fmt.Errorf("bert: -eval is %d; evaluate every 1 step or more", f.eval)
	case f.devices < 0 || given["devices"] && f.devices == 0:
		return fmt.Errorf("bert: -devices is %d; a worker has at least 1", f.devices)
	case f.stages < 0 || f.stages > f.layers:
		return fmt.Errorf("bert: -stages is %d; it can be 0, and up to the number of layers, %d", f.stages, f.layers)
	case f.autoStages < 0 || f.autoStages > f.layers:
		return fmt.Errorf("bert: -auto_stages is %d; it can be up to the number of layers, %d", f.autoStages, f.layers)
	case f.stages > 0 && f.autoStages > 0:
		return fmt.Errorf("bert: -stages annotates the stages, and with -auto_stages EPL finds them; choose one")
	}
	return nil
}

// network returns what the flags describe.
func (f flags) network(vocabulary int) bert {
	return bert{layers: f.layers, hidden: f.hidden, heads: f.heads, vocabulary: vocabulary,
		positions: sizes[f.size].positions, dropout: f.dropout, stages: f.stages}
}

// init sets EPL up.
func (f flags) init() (*epl.Env, error) {
	params := map[string]any{
		"pipeline.num_micro_batch": f.microBatches,
		// The norm of the whole gradient is clipped, whatever number of micro-batches and replicas it comes from.
		"communication.clip_after_allreduce": true,
	}
	if f.autoStages > 0 {
		params["auto.auto_parallel"] = true
		params["pipeline.num_stages"] = f.autoStages
	}
	if f.strategy != "" {
		params["pipeline.strategy"] = f.strategy
	}
	config, err := epl.NewConfig(params)
	if err != nil {
		return nil, err
	}
	options := []epl.Option{epl.WithInner(f.backend)}
	if f.devices > 0 {
		options = append(options, epl.WithLocalDevices(f.devices))
	}
	return epl.Init(config, options...)
}
