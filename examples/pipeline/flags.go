// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/easyparallel/epl"
)

// flags is the command line.
type flags struct {
	stages, perStage, microBatches, devices, steps int
	strategy                                       string
	auto, explain                                  bool
}

// interleaved is the strategy in which two stages share a device here.
const interleaved = "Interleaved"

// parseFlags reads the command line. What -help prints goes to help.
func parseFlags(args []string, help io.Writer) (flags, error) {
	var f flags
	set := flag.NewFlagSet("pipeline", flag.ContinueOnError)
	set.SetOutput(io.Discard) // an error is one line, which the caller prints
	set.IntVar(&f.stages, "stages", 2, fmt.Sprintf("`stages` of the network, up to its %d blocks", blocks))
	set.IntVar(&f.perStage, "devices_per_stage", 1, "`devices` of each stage")
	set.IntVar(&f.microBatches, "micro_batches", 4, "micro-batches of a step, on each model replica")
	set.StringVar(&f.strategy, "strategy", "", "order in which stages work, as pipeline.strategy has it: PreferBackward, PreferForward, …")
	set.IntVar(&f.devices, "devices", 0, "`devices` of this worker (default: those of the launcher, else what one model replica needs)")
	set.IntVar(&f.steps, "steps", 50, "train for this many `steps`")
	set.BoolVar(&f.auto, "auto", false, "leave out the annotations, and let EPL find the stages")
	set.BoolVar(&f.explain, "explain", false, "print all that EPL has to say of the program")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		set.SetOutput(help)
		set.Usage()
		return f, err
	} else if err != nil {
		return f, fmt.Errorf("pipeline: %w; see -help", err)
	}
	switch {
	case set.NArg() > 0:
		return f, fmt.Errorf("pipeline: there are no arguments, only flags: remove %q, or see -help", set.Arg(0))
	case f.stages < 1 || f.stages > blocks:
		return f, fmt.Errorf("pipeline: -stages is %d; the network has %d blocks, so it can be from 1 to %d", f.stages, blocks, blocks)
	case f.perStage < 1 || f.auto && f.perStage > 1:
		return f, fmt.Errorf("pipeline: -devices_per_stage is %d; it is at least 1, and 1 with -auto", f.perStage)
	case f.devices < 0:
		return f, fmt.Errorf("pipeline: -devices is %d; a worker has at least 1", f.devices)
	case f.steps < 1:
		return f, fmt.Errorf("pipeline: -steps is %d; train for at least 1 step", f.steps)
	}
	return f, nil
}

// init sets EPL up.
func (f flags) init() (*epl.Env, error) {
	params := map[string]any{"pipeline.num_micro_batch": f.microBatches}
	if f.auto {
		params["auto.auto_parallel"] = true
		params["pipeline.num_stages"] = f.stages
	}
	if f.strategy != "" {
		params["pipeline.strategy"] = f.strategy
	}
	needed := f.stages * f.perStage
	if f.strategy == interleaved {
		params["pipeline.stages_per_device"] = 2
		needed /= 2
	}
	config, err := epl.NewConfig(params)
	if err != nil {
		return nil, err
	}
	if _, launched := os.LookupEnv("EPL_NUM_WORKERS"); f.devices == 0 && launched {
		return epl.Init(config)
	} else if f.devices == 0 {
		f.devices = max(needed, 1)
	}
	return epl.Init(config, epl.WithLocalDevices(f.devices))
}
