// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command moe trains a translator with a mixture of experts: the experts are split over the devices, and everything else
// is data parallel on the same devices.
//
//	go run ./examples/moe                         English numbers to German: minutes on a CPU
//	go run ./examples/moe -devices 2 -compare     on two devices, and then on one without EPL
//	go run ./examples/moe -data FILE              pairs of a file, with a tab between them
//
// It is a GoMLX program for one device. Lines that it would not have without EPL are marked "+ epl".
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/gomlx/gomlx/ml/train"

	_ "github.com/easyparallel/epl/xla" // + epl: -backend xla:cuda runs it on GPUs
)

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
	c, err := f.corpus()
	if err != nil {
		return err
	}
	first, losses, err := runEPL(f, c, out)
	if err != nil || !f.compare || !first {
		return err
	}
	return compare(f, c, losses, out)
}

// runEPL trains with EPL. It tells whether this is the first worker, and the loss of each step.
func runEPL(f flags, c *corpus, out io.Writer) (first bool, losses []float32, err error) {
	env, err := f.init() // + epl
	if err != nil {
		return false, nil, err
	}
	defer env.Close()                 // + epl
	if first = env.IsMain(); !first { // + epl
		out, f.bar = io.Discard, false
	}
	c.describe(out)
	network := f.network(c, env.Cluster().TotalDevices()) // + epl
	devices := fmt.Sprintf("%d devices", network.Devices)
	if network.Devices == 1 {
		devices = "1 device"
	}
	fmt.Fprintf(out, "%d experts of capacity %d for each sentence, on %s\n", network.Gate.Experts, network.Gate.Capacity(c.length), devices)
	losses, err = fit(env.Backend(), env.Dataset, network, c, f, f.batch, out)
	if err == nil && f.explain {
		err = env.Explain(out)
	}
	return first, losses, err
}

// compare trains once more, without EPL on a single device and on the same pairs, and shows both losses.
func compare(f flags, c *corpus, losses []float32, out io.Writer) error {
	backend, err := newBackend(f.plainBackend())
	if err != nil {
		return err
	}
	defer backend.Finalize()
	fmt.Fprintln(out, "\nthe same on one device, without EPL:")
	deal := func(ds train.Dataset) train.Dataset { return ds }
	// A step takes all micro-batches at once.
	alone, err := fit(backend, deal, f.network(c, 1), c, f, f.batch*f.microBatches, out)
	if err != nil {
		return err
	}
	difference(losses, alone, out)
	return nil
}

// difference shows some losses of both trainings, and where they differ most.
func difference(with, without []float32, out io.Writer) {
	const lines = 8
	fmt.Fprintln(out, "\n  step   with EPL  on one device")
	n, shown := len(with), -1
	for i := range lines {
		if step := i * (n - 1) / (lines - 1); step > shown {
			fmt.Fprintf(out, "  %4d  %9.6f  %13.6f\n", step+1, with[step], without[step])
			shown = step
		}
	}
	at, largest := 0, float32(0)
	for step := range with {
		if d := max(with[step]-without[step], without[step]-with[step]); d > largest {
			at, largest = step, d
		}
	}
	fmt.Fprintf(out, "largest difference: %.2g, in step %d\n", largest, at+1)
}

// isTerminal tells whether someone looks at the file: a progress bar in a log is only noise.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
