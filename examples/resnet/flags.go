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

	"github.com/easyparallel/epl/examples/internal/pictures"
	"github.com/easyparallel/epl/examples/internal/residual"
)

// flags is the command line.
type flags struct {
	model, data, backend        string
	batch, steps, classes, eval int
	rate                        float64
	explain                     bool
}

// parseFlags reads the command line. What -help prints goes to help.
func parseFlags(args []string, help io.Writer) (flags, error) {
	var f flags
	names := strings.Join(slices.Sorted(maps.Keys(residual.Networks)), " or ")
	set := flag.NewFlagSet("resnet", flag.ContinueOnError)
	set.SetOutput(io.Discard) // an error is one line, which the caller prints
	set.StringVar(&f.model, "model", "small", "the `network` to train: "+names)
	set.StringVar(&f.data, "data", "", "`folder` with images, as train/CLASS/*.jpg and val/CLASS/*.jpg (default: generated images)")
	set.IntVar(&f.batch, "batch", 0, "`images` of a batch, on each device (default: 16 for small, 32 for resnet50)")
	set.IntVar(&f.steps, "steps", 120, "train for this many `steps`")
	set.IntVar(&f.classes, "classes", 8, fmt.Sprintf("classes of generated images, from 2 to %d", pictures.MaxGenerated))
	set.IntVar(&f.eval, "eval", 20, "evaluate every so many `steps`, and at the end")
	set.Float64Var(&f.rate, "lr", 0.003, "learning `rate` of Adam")
	set.StringVar(&f.backend, "backend", "", "GoMLX `backend` that runs the program (default $GOMLX_BACKEND, else cpu)")
	set.BoolVar(&f.explain, "explain", false, "print how EPL understood the program")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		set.SetOutput(help)
		set.Usage()
		return f, err
	} else if err != nil {
		return f, fmt.Errorf("resnet: %w; see -help", err)
	}
	if f.batch == 0 {
		f.batch = residual.Networks[f.model].Batch
	}
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch _, known := residual.Networks[f.model]; {
	case set.NArg() > 0:
		return f, fmt.Errorf("resnet: there are no arguments, only flags: remove %q, or see -help", set.Arg(0))
	case !known:
		return f, fmt.Errorf("resnet: -model is %q; it can be %s", f.model, names)
	case f.batch < 1:
		return f, fmt.Errorf("resnet: -batch is %d; a batch has at least 1 image", f.batch)
	case f.steps < 1:
		return f, fmt.Errorf("resnet: -steps is %d; train for at least 1 step", f.steps)
	case f.eval < 1:
		return f, fmt.Errorf("resnet: -eval is %d; evaluate every 1 step or more", f.eval)
	case !(f.rate > 0):
		return f, fmt.Errorf("resnet: -lr is %v; a learning rate is above 0", f.rate)
	case f.classes < 2 || f.classes > pictures.MaxGenerated:
		return f, fmt.Errorf("resnet: -classes is %d; there can be from 2 to %d classes of generated images", f.classes, pictures.MaxGenerated)
	case given["classes"] && f.data != "":
		return f, fmt.Errorf("resnet: -classes is for generated images; with -data the folders are the classes; choose one")
	}
	return f, nil
}

// pictures are those to train on: of the folder, or generated.
func (f flags) pictures(size int) (*pictures.Set, error) {
	if f.data == "" {
		return pictures.Generated(2048, 160, f.classes, size), nil
	}
	p, err := pictures.FromFolder(f.data, size)
	if err != nil {
		return nil, fmt.Errorf("resnet: %w", err)
	}
	return p, nil
}
