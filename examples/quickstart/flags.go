// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/gomlx/compute"
)

// flags is the command line.
type flags struct {
	steps, batch   int
	explain, plain bool
	backend, dir   string
}

// parseFlags reads the command line. What -help prints goes to help.
func parseFlags(args []string, help io.Writer) (flags, error) {
	var f flags
	set := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	set.SetOutput(io.Discard) // an error is one line, which the caller prints
	set.IntVar(&f.steps, "steps", 1000, "train up to this `step`")
	set.IntVar(&f.batch, "batch", 30, fmt.Sprintf("`samples` of a batch, from 1 to %d", samples))
	set.StringVar(&f.dir, "dir", "", "save checkpoints to this `folder`, and go on from the newest")
	set.BoolVar(&f.explain, "explain", false, "print how EPL understood the program")
	set.StringVar(&f.backend, "backend", "", "GoMLX `backend` that runs the program (default $GOMLX_BACKEND, else cpu)")
	set.BoolVar(&f.plain, "plain", false, "train without EPL, on the backend itself")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		set.SetOutput(help)
		set.Usage()
		return f, err
	} else if err != nil {
		return f, fmt.Errorf("quickstart: %w; see -help", err)
	}
	switch {
	case set.NArg() > 0:
		return f, fmt.Errorf("quickstart: there are no arguments, only flags: remove %q, or see -help", set.Arg(0))
	case f.steps < 1:
		return f, fmt.Errorf("quickstart: -steps is %d; train for at least 1 step", f.steps)
	case f.batch < 1 || f.batch > samples:
		return f, fmt.Errorf("quickstart: -batch is %d; a batch has from 1 to %d samples", f.batch, samples)
	case f.plain && f.dir != "":
		return f, fmt.Errorf("quickstart: -dir is for EPL's checkpoints, but with -plain there is no EPL; choose one")
	case f.plain && f.explain:
		return f, fmt.Errorf("quickstart: -explain prints what EPL understood, but with -plain there is no EPL; choose one")
	}
	return f, nil
}

// plainBackend is the backend for -plain: as EPL chooses it, and with the same settings.
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
