// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/examples/internal/moe"
)

// flags is the command line.
type flags struct {
	layers, width, ff, heads int
	experts, topK            int
	capacityFactor, balance  float64
	form                     string
	data                     string
	length, vocabulary       int
	batch, microBatches      int
	steps, eval              int
	rate                     float64
	seed                     int64
	devices                  int
	backend                  string
	compare, explain         bool
	bar                      bool // not a flag: show a progress bar
}

// parseFlags reads the command line. What -help prints goes to help.
func parseFlags(args []string, help io.Writer) (flags, error) {
	var f flags
	set := flag.NewFlagSet("moe", flag.ContinueOnError)
	set.SetOutput(io.Discard) // an error is one line, which the caller prints
	set.IntVar(&f.layers, "layers", 2, "`layers` of the encoder, and of the decoder")
	set.IntVar(&f.width, "d_model", 64, "`width` of the network")
	set.IntVar(&f.ff, "ff", 128, "`width` of an expert, and of the dense layers between")
	set.IntVar(&f.heads, "heads", 4, "attention `heads` of a layer")
	set.IntVar(&f.experts, "experts", 8, "`experts` of a layer that has them")
	set.IntVar(&f.topK, "top_k", 2, "`experts` that a word goes to: 1 or 2")
	set.Float64Var(&f.capacityFactor, "capacity_factor", 1.5, "`room` of the experts for the words of a sentence; 1 is just enough if all get as many")
	set.Float64Var(&f.balance, "balance", 0.01, "`weight` of the loss that keeps experts equally busy")
	set.StringVar(&f.form, "form", moe.FormScope, "what is in the scope of Split: the variables and the calculation of the experts (scope), or only the variables (define)")
	set.StringVar(&f.data, "data", "", "`file` with a sentence, a tab and its translation in each line (default: generated numbers)")
	set.IntVar(&f.length, "length", 0, "`words` of the longest sentence to learn from (default: of the longest in the data)")
	set.IntVar(&f.vocabulary, "vocabulary", 8192, "`words` that the network knows at most, the most frequent ones")
	set.IntVar(&f.batch, "batch", 32, "`pairs` of a micro-batch, on all devices together")
	set.IntVar(&f.microBatches, "micro_batches", 1, "micro-batches of a step")
	set.IntVar(&f.steps, "steps", 300, "train for this many `steps`")
	set.IntVar(&f.eval, "eval", 50, "translate what was not learned from every so many `steps`, and at the end")
	set.Float64Var(&f.rate, "learning_rate", 0.003, "learning `rate` of Adam")
	set.Int64Var(&f.seed, "seed", 1, "`seed` of weights and order")
	set.IntVar(&f.devices, "devices", 0, "`devices` of this worker (default: those of the launcher, else 1)")
	set.StringVar(&f.backend, "backend", "", "GoMLX `backend` that runs the program (default $GOMLX_BACKEND, else cpu)")
	set.BoolVar(&f.compare, "compare", false, "train again on one device without EPL, and compare the losses")
	set.BoolVar(&f.explain, "explain", false, "print how EPL understood the program")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		set.SetOutput(help)
		set.Usage()
		return f, err
	} else if err != nil {
		return f, fmt.Errorf("moe: %w; see -help", err)
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("moe: there are no arguments, only flags: remove %q, or see -help", set.Arg(0))
	}
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	return f, f.check(given)
}

// check finds what cannot be, before any work starts.
func (f flags) check(given map[string]bool) error {
	switch {
	case f.layers < 1:
		return fmt.Errorf("moe: -layers is %d; an encoder has at least 1", f.layers)
	case f.width < 1 || f.heads < 1 || f.width%f.heads != 0:
		return fmt.Errorf("moe: -d_model is %d and -heads is %d; the width must divide into the heads", f.width, f.heads)
	case f.ff < 1:
		return fmt.Errorf("moe: -ff is %d; an expert has a width of at least 1", f.ff)
	case f.topK != 1 && f.topK != 2:
		return fmt.Errorf("moe: -top_k is %d; a word goes to 1 or 2 experts", f.topK)
	case f.experts < f.topK:
		return fmt.Errorf("moe: -experts is %d and -top_k is %d; there are at least as many experts as a word goes to", f.experts, f.topK)
	case !(f.capacityFactor > 0):
		return fmt.Errorf("moe: -capacity_factor is %v; it is above 0", f.capacityFactor)
	case !(f.balance >= 0):
		return fmt.Errorf("moe: -balance is %v; it is 0 or more", f.balance)
	case f.form != moe.FormScope && f.form != moe.FormDefine:
		return fmt.Errorf("moe: -form is %q; it can be %s or %s", f.form, moe.FormScope, moe.FormDefine)
	case f.length < 0 || given["length"] && f.length < 2:
		return fmt.Errorf("moe: -length is %d; the longest sentence has at least 2 words, of which one is its end", f.length)
	case f.vocabulary <= len(marks):
		return fmt.Errorf("moe: -vocabulary is %d; it has at least 1 word besides %d marks", f.vocabulary, len(marks))
	case f.batch < 1:
		return fmt.Errorf("moe: -batch is %d; a micro-batch has at least 1 pair", f.batch)
	case f.microBatches < 1:
		return fmt.Errorf("moe: -micro_batches is %d; a step has at least 1", f.microBatches)
	case f.steps < 1:
		return fmt.Errorf("moe: -steps is %d; train for at least 1 step", f.steps)
	case f.eval < 1:
		return fmt.Errorf("moe: -eval is %d; translate every 1 step or more", f.eval)
	case !(f.rate > 0):
		return fmt.Errorf("moe: -learning_rate is %v; a learning rate is above 0", f.rate)
	case f.devices < 0 || given["devices"] && f.devices == 0:
		return fmt.Errorf("moe: -devices is %d; a worker has at least 1", f.devices)
	}
	return nil
}

// network returns what the flags describe, for so many devices.
func (f flags) network(c *corpus, devices int) moe.T5 {
	return moe.T5{Layers: f.layers, Width: f.width, FF: f.ff, Heads: f.heads, Vocabulary: len(c.words), Devices: devices, Form: f.form,
		Gate: moe.Gate{Experts: f.experts, TopK: f.topK, CapacityFactor: f.capacityFactor}}
}

// init sets EPL up. The experts and everything else share the devices.
func (f flags) init() (*epl.Env, error) {
	config, err := epl.NewConfig(map[string]any{
		"cluster.colocate_split_and_replicate": true,
		"pipeline.num_micro_batch":             f.microBatches,
	})
	if err != nil {
		return nil, err
	}
	options := []epl.Option{epl.WithInner(f.backend)}
	if f.devices > 0 {
		options = append(options, epl.WithLocalDevices(f.devices))
	}
	return epl.Init(config, options...)
}

// plainBackend is the backend of a training without EPL: as EPL chooses it, and with the same settings.
func (f flags) plainBackend() string {
	name := f.backend
	if name == "" {
		name = os.Getenv(compute.ConfigEnvVar)
	}
	if name == "" || name == "go" {
		name = "go:ops_sequential"
	}
	return name
}

// newBackend makes a backend by its name. Where there is none of that name GoMLX panics, which becomes an error here.
func newBackend(name string) (backend compute.Backend, err error) {
	panicked := exceptions.TryCatch[error](func() { backend, err = compute.NewWithConfig(name) })
	if err = errors.Join(panicked, err); err != nil {
		return nil, fmt.Errorf("moe: the backend %q cannot be made: %w", name, err)
	}
	return backend, nil
}
