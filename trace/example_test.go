// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"fmt"
	"os"
	"time"

	"github.com/easyparallel/epl/trace"
)

// A training program with EPL_TRACE=trace.json writes a timeline. This is how long each of its devices was busy.
func Example() {
	f, err := os.Open("testdata/small.json")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	step, err := trace.Read(f)
	if err != nil {
		panic(err)
	}
	report := step.Report()
	for _, d := range report.Devices {
		fmt.Printf("device %d: busy %s of %s\n", d.Device, d.Busy, report.Span.Round(time.Microsecond))
	}
	fmt.Printf("bubble: %.0f%%, ideal %.0f%%\n", 100*report.Bubble, 100*report.Ideal)
	// Output:
	// device 0: busy 9.75ms of 14.25ms
	// device 1: busy 9.75ms of 14.25ms
	// bubble: 25%, ideal 25%
}
