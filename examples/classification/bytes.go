// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/easyparallel/epl"
)

// sentInAStep is what the busiest device of this worker sent in each of the steps, by kind.
func sentInAStep(stats epl.Stats, steps, devices int) map[string]int64 {
	busiest := map[string]int64{}
	for _, d := range stats.Devices {
		sent := map[string]int64{}
		for kind, given := range d.Sent {
			sent[kind] = int64(overLinks(kind, devices) * float64(given) / float64(steps))
		}
		if total(sent) > total(busiest) {
			busiest = sent
		}
	}
	return busiest
}

// overLinks is how often what a device gives to a collective leaves it, if the devices are in a ring. EPL counts what is
// given: for an all-gather the device's own part, for the others all that it has.
func overLinks(kind string, devices int) float64 {
	others := float64(devices - 1)
	switch kind {
	case "all-gather":
		return others
	case "all-reduce": // a reduce-scatter, and an all-gather of its result
		return 2 * others / float64(devices)
	case "reduce-scatter", "all-to-all":
		return others / float64(devices)
	}
	return 1
}

func total(sent map[string]int64) (sum int64) {
	for _, bytes := range sent {
		sum += bytes
	}
	return sum
}

// ofDataParallelism is what a device would send in a step if each had the whole model: the gradients of all weights.
func ofDataParallelism(store *model.Store, devices int) int64 {
	var gradients int64
	for v := range store.IterVariables() {
		if v.Trainable {
			gradients += int64(v.Shape().ByteSize())
		}
	}
	return int64(overLinks("all-reduce", devices) * float64(gradients))
}

// printBytes tells what a device sent; of a split head, against pure data parallelism.
func (f flags) printBytes(out io.Writer, r result, store *model.Store) {
	if r.devices == 1 {
		return // it has nobody to send to
	}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(r.sent)) {
		if bytes := r.sent[kind]; bytes > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %s", kind, size(bytes)))
		}
	}
	fmt.Fprintf(out, "a device sends %s in a step: %s\n", size(total(r.sent)), strings.Join(kinds, ", "))
	if all := ofDataParallelism(store, r.devices); f.split {
		fmt.Fprintf(out, "data parallelism would send %s of gradients: this is %.1f%% of it\n",
			size(all), 100*float64(total(r.sent))/float64(all))
	}
}

func size(bytes int64) string {
	switch {
	case bytes >= 10_000_000:
		return fmt.Sprintf("%d MB", (bytes+500_000)/1_000_000)
	case bytes >= 10_000:
		return fmt.Sprintf("%d kB", (bytes+500)/1000)
	}
	return fmt.Sprintf("%d B", bytes)
}
