// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command figures compares what EPL predicts with figures that were published of the original, Whale: the paper at USENIX ATC 2022, and the abstract of
// its first version ("v1").
//
//	go run ./bench/figures
//
// Models are recorded by their shapes, annotated as the paper says, planned for clusters of hosts with 8 V100s, and simulated. Nothing is trained, and
// there are no weights. Of each model one throughput on one GPU and one point on several are given: what the first says of the speed of a
// GPU and the second of the network's bandwidth, and for all of them one that says what links inside of hosts are. All other points are predicted.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
)

func main() {
	rows := flag.String("figures", "", "only the figures that match this regular expression")
	flag.Parse()
	if err := run(os.Stdout, *rows); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		os.Exit(1)
	}
}

// run prints the table of the figures that match.
func run(w io.Writer, match string) error {
	only, err := regexp.Compile(match)
	if err != nil {
		return err
	}
	t := &table{planner: newPlanner()}
	t.note("All models: a GPU reaches others of its host with %d times the bandwidth between hosts, by TF on 8 GPUs in figure 10.", insideOver)
	for _, f := range figures {
		if !only.MatchString(f.name) {
			continue
		}
		t.figure = f.name
		if err := f.predict(t); err != nil {
			return fmt.Errorf("figure %s: %w", f.name, err)
		}
	}
	return t.write(w)
}
