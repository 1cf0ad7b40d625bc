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
	size, style                  string
	layers, width, heads, length int
	text, data, pack             string
	modelDir, outputDir          string
	export, prompt               string
	tokens, topK                 int
	temperature                  float64
	steps, eval                  int
	batch, microBatches          int
	optimizer                    string
	rate, decay, clip, dropout   float64
	seed                         int64
	devices, stages, autoStages  int
	split                        int
	strategy, zero, amp          string
	recompute, auto              bool
	profile, backend             string
	explain                      bool
}

// size is a network with what it is usually trained by.
type size struct {
	layers, width, heads, length, batch, steps int
	rate                                       float64
}

// sizes are those of the flag -size.
var sizes = map[string]size{
	"nano":   {4, 128, 4, 64, 16, 300, 1e-3},
	"small":  {12, 768, 12, 1024, 8, 1000, 6e-4},
	"medium": {24, 1024, 16, 1024, 8, 1000, 3e-4},
	"large":  {36, 1280, 20, 1024, 4, 1000, 2.5e-4},
	"xl":     {48, 1600, 25, 1024, 4, 1000, 2e-4},
}

// parseFlags reads the command line. What -help prints goes to help.
func parseFlags(args []string, help io.Writer) (flags, error) {
	var f flags
	names := strings.Join(slices.Sorted(maps.Keys(sizes)), ", ")
	set := flag.NewFlagSet("gpt", flag.ContinueOnError)
	set.SetOutput(io.Discard) // an error is one line, which the caller prints
	set.StringVar(&f.size, "size", "nano", "the `network`: "+names+"; all but nano are those of GPT-2")
	set.StringVar(&f.style, "style", "gpt2", "`gpt2`, or llama: RMSNorm, rotary positions and SwiGLU, without biases")
	set.IntVar(&f.layers, "layers", 0, "`layers` of the network (default: of its size)")
	set.IntVar(&f.width, "width", 0, "`width` of the network (default: of its size)")
	set.IntVar(&f.heads, "heads", 0, "attention `heads` of a layer (default: of the size)")
	set.IntVar(&f.length, "length", 0, "`tokens` of a sample (default: of the size, or of the network of -model_dir)")
	set.StringVar(&f.text, "text", "", "`file` with a text to learn: nine tenths to train, the last to evaluate; a .jsonl file has a text in \"text\" of each line (default: Shakespeare)")
	set.StringVar(&f.pack, "pack", "", "write the text to a `folder` as tokens, train.tokens and valid.tokens, for -data, and end")
	set.StringVar(&f.data, "data", "", "learn from train*.tokens of a `folder`, which need not fit into memory, and evaluate by valid*.tokens, in place of -text")
	set.StringVar(&f.modelDir, "model_dir", "", "`folder` with config.json, model.safetensors and tokenizer.json of a GPT-2, or the name of a model that \"hf download\" has fetched (default: from scratch)")
	set.StringVar(&f.outputDir, "output_dir", "", "`folder` for checkpoints; one that it has is continued")
	set.StringVar(&f.export, "export", "", "write config.json, model.safetensors and tokenizer.json to a `folder`, as GPT-2 has them")
	set.StringVar(&f.prompt, "prompt", "GLOUCESTER:", "`text` to continue at the end")
	set.IntVar(&f.tokens, "tokens", 80, "continue it by so many `tokens`; 0: not at all")
	set.Float64Var(&f.temperature, "temperature", 0.8, "0 takes the likeliest token; 1 draws as the network says; higher is wilder")
	set.IntVar(&f.topK, "top_k", 40, "draw from the `k` likeliest tokens; 0: from all")
	set.IntVar(&f.steps, "steps", 0, "train up to this `step`; 0 only evaluates and writes (default: of the size)")
	set.IntVar(&f.eval, "eval", 50, "evaluate, and save with -output_dir, every so many `steps`, and at the end")
	set.IntVar(&f.batch, "batch", 0, "`samples` of a micro-batch (default: of the size)")
	set.IntVar(&f.microBatches, "micro_batches", 1, "micro-batches of a step, on each model replica")
	set.StringVar(&f.optimizer, "optimizer", "adam", "`adam`, with weight decay, or sgd")
	set.Float64Var(&f.rate, "learning_rate", 0, "learning `rate` (default: of the size)")
	set.Float64Var(&f.decay, "weight_decay", 0.01, "`rate` by which Adam makes weights smaller")
	set.Float64Var(&f.clip, "clip", 1, "largest `norm` of the gradients; 0 does not clip them")
	set.Float64Var(&f.dropout, "dropout", 0, "`share` of values that training leaves out")
	set.Int64Var(&f.seed, "seed", 1, "`seed` of weights, order, dropout and what is written")
	set.IntVar(&f.devices, "devices", 0, "`devices` of this worker (default: those of the launcher, else 1)")
	set.IntVar(&f.stages, "stages", 0, "pipeline parallelism: `stages`, annotated; 0: no annotation")
	set.IntVar(&f.autoStages, "auto_stages", 0, "pipeline parallelism: `stages`, cut by EPL")
	set.IntVar(&f.split, "split", 0, "tensor parallelism: `devices` that share each layer; 0: no annotation")
	set.StringVar(&f.strategy, "strategy", "", "`schedule` of the pipeline, as pipeline.strategy has it: PreferBackward, ZeroBubble, …")
	set.StringVar(&f.zero, "zero", "", "shard over model replicas: `v0` optimizer state, v1 also gradients, v2 also weights (FSDP)")
	set.BoolVar(&f.recompute, "recompute", false, "compute activations again in the backward pass (activation checkpointing)")
	set.StringVar(&f.amp, "amp", "", "mixed precision: `float16` or bfloat16")
	set.BoolVar(&f.auto, "auto", false, "EPL chooses replicas, stages and splits")
	set.StringVar(&f.profile, "profile", "", "print MFU, by the `profile` of the devices: H100, A100-80, …, or this, which \"epl calibrate\" measured")
	set.StringVar(&f.backend, "backend", "", "GoMLX `backend` that runs the program (default $GOMLX_BACKEND, else cpu)")
	set.BoolVar(&f.explain, "explain", false, "print how EPL understood the program")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		set.SetOutput(help)
		set.Usage()
		return f, err
	} else if err != nil {
		return f, fmt.Errorf("gpt: %w; see -help", err)
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("gpt: there are no arguments, only flags: remove %q, or see -help", set.Arg(0))
	}
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	s, known := sizes[f.size]
	if !known {
		return f, fmt.Errorf("gpt: -size is %q; it can be %s", f.size, names)
	}
	if f.modelDir != "" && !given["size"] {
		s = sizes["small"]
	}
	f.fill(s, given)
	if f.modelDir != "" && !given["length"] {
		f.length = 0 // of the network
	}
	return f, f.check(given)
}

// fill sets what the command line does not say, as is usual for the size of the network.
func (f *flags) fill(s size, given map[string]bool) {
	for name, set := range map[string]func(){
		"layers":        func() { f.layers = s.layers },
		"width":         func() { f.width = s.width },
		"heads":         func() { f.heads = s.heads },
		"length":        func() { f.length = s.length },
		"batch":         func() { f.batch = s.batch },
		"steps":         func() { f.steps = s.steps },
		"learning_rate": func() { f.rate = s.rate },
	} {
		if !given[name] {
			set()
		}
	}
}

// check finds what cannot be, before any work starts.
func (f flags) check(given map[string]bool) error {
	switch {
	case f.style != "gpt2" && f.style != "llama":
		return fmt.Errorf("gpt: -style is %q; it can be gpt2 or llama", f.style)
	case f.style == "llama" && (f.modelDir != "" || f.export != ""):
		return errors.New("gpt: -model_dir and -export are for the files of GPT-2, which have no place for -style llama")
	case f.modelDir != "" && (given["size"] || given["layers"] || given["width"] || given["heads"]):
		return errors.New("gpt: the network is that of -model_dir; leave out -size, -layers, -width and -heads")
	case f.data != "" && (f.text != "" || f.pack != ""):
		return errors.New("gpt: -data is in place of -text and -pack; choose one")
	case f.layers < 1:
		return fmt.Errorf("gpt: -layers is %d; a network has at least 1", f.layers)
	case f.width < 1 || f.heads < 1 || f.width%f.heads != 0:
		return fmt.Errorf("gpt: -width is %d and -heads is %d; the width must divide into the heads", f.width, f.heads)
	case f.style == "llama" && f.width/f.heads%2 != 0:
		return fmt.Errorf("gpt: -width is %d and -heads is %d; rotary positions need heads of an even width", f.width, f.heads)
	case f.length < 1 && (f.modelDir == "" || given["length"]):
		return fmt.Errorf("gpt: -length is %d; a sample has at least 1 token", f.length)
	case f.tokens < 0 || f.topK < 0 || !(f.temperature >= 0):
		return fmt.Errorf("gpt: -tokens is %d, -top_k is %d and -temperature is %v; none is below 0", f.tokens, f.topK, f.temperature)
	case f.tokens > 0 && f.prompt == "":
		return errors.New("gpt: -prompt is empty; begin with a word, or write nothing by -tokens 0")
	case f.steps < 0:
		return fmt.Errorf("gpt: -steps is %d; it is 0 or more", f.steps)
	case f.eval < 1:
		return fmt.Errorf("gpt: -eval is %d; evaluate every 1 step or more", f.eval)
	case f.batch < 1:
		return fmt.Errorf("gpt: -batch is %d; a micro-batch has at least 1 sample", f.batch)
	case f.microBatches < 1:
		return fmt.Errorf("gpt: -micro_batches is %d; a step has at least 1", f.microBatches)
	case f.optimizer != "adam" && f.optimizer != "sgd":
		return fmt.Errorf("gpt: -optimizer is %q; it can be adam or sgd", f.optimizer)
	case !(f.rate > 0):
		return fmt.Errorf("gpt: -learning_rate is %v; a learning rate is above 0", f.rate)
	case !(f.decay >= 0) || !(f.clip >= 0):
		return fmt.Errorf("gpt: -weight_decay is %v and -clip is %v; neither is below 0", f.decay, f.clip)
	case !(f.dropout >= 0 && f.dropout < 1):
		return fmt.Errorf("gpt: -dropout is %v; it is a share, from 0 to below 1", f.dropout)
	case f.devices < 0 || given["devices"] && f.devices == 0:
		return fmt.Errorf("gpt: -devices is %d; a worker has at least 1", f.devices)
	case f.stages < 0 || f.autoStages < 0 || f.split < 0:
		return fmt.Errorf("gpt: -stages is %d, -auto_stages is %d and -split is %d; none is below 0", f.stages, f.autoStages, f.split)
	case f.stages > 0 && f.autoStages > 0:
		return errors.New("gpt: -stages annotates the stages, and with -auto_stages EPL finds them; choose one")
	case f.autoStages > 0 && f.split > 0:
		return errors.New("gpt: -auto_stages is for a network without annotations, and -split annotates it; use -stages")
	case f.auto && (f.stages > 0 || f.autoStages > 0 || f.split > 0):
		return errors.New("gpt: with -auto EPL chooses; leave out -stages, -auto_stages and -split")
	case f.amp != "" && f.amp != "float16" && f.amp != "bfloat16":
		return fmt.Errorf("gpt: -amp is %q; it can be float16 or bfloat16", f.amp)
	}
	return nil
}

// init sets EPL up. A plan is settings and annotations; nothing else of the program knows it.
func (f flags) init() (*epl.Env, error) {
	params := map[string]any{
		"pipeline.num_micro_batch": f.microBatches,
		// The norm of the whole gradient is clipped, whatever number of micro-batches and replicas it comes from.
		"communication.clip_after_allreduce": true,
	}
	for key, value := range map[string]string{"pipeline.strategy": f.strategy, "zero.level": f.zero, "amp.dtype": f.amp} {
		if value != "" {
			params[key] = value
		}
	}
	if f.amp != "" {
		params["amp.level"] = "O1"
	}
	if f.recompute {
		params["gradient_checkpoint.type"] = "auto"
	}
	if f.auto || f.autoStages > 0 {
		params["auto.auto_parallel"] = true
	}
	if f.autoStages > 0 {
		params["pipeline.num_stages"] = f.autoStages
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
