// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/examples/internal/residual"
)

// flags is the command line.
type flags struct {
	trunk                                        residual.Network
	images, backend                              string
	classes, devices, batch, steps, microBatches int
	seed                                         int64
	rate                                         float64
	split, compare, explain                      bool
}

// maxClasses is what the example is for.
const maxClasses = 1_000_000

// parseFlags reads the command line. What -help prints goes to help.
func parseFlags(args []string, help io.Writer) (flags, error) {
	var f flags
	var trunk string
	names := strings.Join(slices.Sorted(maps.Keys(residual.Networks)), " or ")
	set := flag.NewFlagSet("classification", flag.ContinueOnError)
	set.SetOutput(io.Discard) // an error is one line, which the caller prints
	set.IntVar(&f.classes, "classes", 10_000, fmt.Sprintf("`classes` of the head, from 2 to %d", maxClasses))
	set.StringVar(&trunk, "trunk", "small", "the `network` below the head: "+names)
	set.StringVar(&f.images, "images", "", "`folder` with images, as train/CLASS/*.jpg (default: generated images)")
	set.IntVar(&f.devices, "devices", 0, "`devices` of this worker (default: those of the launcher, else 2)")
	set.IntVar(&f.batch, "batch", 0, "`images` of a micro-batch, for each device (default: 16 for small, 32 for resnet50)")
	set.IntVar(&f.microBatches, "micro_batches", 1, "`micro-batches` of a step")
	set.IntVar(&f.steps, "steps", 100, "train for this many `steps`")
	set.Float64Var(&f.rate, "learning_rate", 0.5, "learning `rate` of gradient descent")
	set.Int64Var(&f.seed, "seed", 1, "`number` from which initial weights and the order of images follow")
	set.BoolVar(&f.split, "split", true, "split the head over all devices; else every device has a model replica of its own")
	set.BoolVar(&f.compare, "compare", false, "also train on one device, on the same images, and compare the losses")
	set.StringVar(&f.backend, "backend", "", "GoMLX `backend` that runs the program (default $GOMLX_BACKEND, else cpu)")
	set.BoolVar(&f.explain, "explain", false, "print how EPL understood the program")
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		set.SetOutput(help)
		set.Usage()
		return f, err
	} else if err != nil {
		return f, fmt.Errorf("classification: %w; see -help", err)
	}
	f.trunk = residual.Networks[trunk]
	if f.batch == 0 {
		f.batch = f.trunk.Batch
	}
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch _, known := residual.Networks[trunk]; {
	case set.NArg() > 0:
		return f, fmt.Errorf("classification: there are no arguments, only flags: remove %q, or see -help", set.Arg(0))
	case !known:
		return f, fmt.Errorf("classification: -trunk is %q; it can be %s", trunk, names)
	case f.classes < 2 || f.classes > maxClasses:
		return f, fmt.Errorf("classification: -classes is %d; it can be from 2 to %d", f.classes, maxClasses)
	case given["classes"] && f.images != "":
		return f, errors.New("classification: -classes is for generated images; with -images the folders are the classes; choose one")
	case f.devices < 0:
		return f, fmt.Errorf("classification: -devices is %d; a worker has at least 1", f.devices)
	case f.batch < 1:
		return f, fmt.Errorf("classification: -batch is %d; a batch has at least 1 image", f.batch)
	case f.steps < 1:
		return f, fmt.Errorf("classification: -steps is %d; train for at least 1 step", f.steps)
	case !(f.rate > 0):
		return f, fmt.Errorf("classification: -learning_rate is %v; it is above 0", f.rate)
	case f.compare && launched():
		return f, errors.New("classification: -compare trains on one device as well, which is another job: start it without a launcher, and use -devices")
	}
	return f, nil
}

// launched tells whether the launcher says how many devices there are.
func launched() bool {
	_, found := os.LookupEnv("EPL_NUM_WORKERS")
	return found
}

// init sets EPL up.
func (f flags) init() (*epl.Env, error) {
	config, err := epl.NewConfig(map[string]any{
		"pipeline.num_micro_batch":             f.microBatches,
		"cluster.colocate_split_and_replicate": true, // the head is on the devices of the trunk
	})
	if err != nil {
		return nil, err
	}
	options := []epl.Option{epl.WithInner(f.backend)}
	if f.devices == 0 && !launched() {
		f.devices = 2
	}
	if f.devices > 0 {
		options = append(options, epl.WithLocalDevices(f.devices))
	}
	return epl.Init(config, options...)
}

// oneDevice makes one device train on what so many do in a step. A batch that they share becomes one as large; those that
// each has of its own become micro-batches.
func (f flags) oneDevice(devices int) flags {
	f.devices = 1
	if f.split {
		f.batch *= devices
	} else {
		f.microBatches *= devices
	}
	return f
}
