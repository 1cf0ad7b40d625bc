// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command classification trains a classifier of very many classes: a residual network, data parallel, and a head whose
// weights are split over the devices.
//
//	go run ./examples/classification                              10,000 classes on two devices
//	go run ./examples/classification -classes 1000000 -devices 4  a million classes on four
//	go run ./examples/classification -split=false                 the same network, data parallel as a whole
//	go run ./examples/classification -compare                     also on one device, which must learn the same
//
// It is a GoMLX program for one device. Lines that it would not have without EPL are marked "+ epl".
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
)

func main() {
	f, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(f, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run trains as the flags say, and then once more on one device if they ask for it.
func run(f flags, out io.Writer) error {
	p, err := f.pictures()
	if err != nil {
		return err
	}
	got, err := f.train(p, out)
	if err != nil || !f.compare {
		return err
	}
	fmt.Fprintln(out, "\nonce more, on one device:")
	want, err := f.oneDevice(got.devices).train(p, out)
	if err != nil {
		return err
	}
	last := len(got.losses) - 1
	fmt.Fprintf(out, "\nloss of the last step: %.6f on %s, %.6f on one; the largest difference of a step is %.1e\n",
		got.losses[last], counted(got.devices, "device"), want.losses[last], largestDifference(got.losses, want.losses))
	return nil
}

func largestDifference(a, b []float32) (d float64) {
	for i := range a {
		d = max(d, math.Abs(float64(a[i]-b[i])))
	}
	return d
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
