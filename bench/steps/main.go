// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Command steps prints how long a training step of a small transformer takes in one of several modes, in milliseconds: the
// quantile of 10 % of the steps, and their median. Built from two commits and run in turn, it compares them:
//
//	go build -o /tmp/before ./bench/steps && git checkout other && go build -o /tmp/after ./bench/steps
//	for i in 1 2 3 4 5; do /tmp/before -mode split; /tmp/after -mode split; done
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"

	"github.com/easyparallel/epl/bench/transformer"
)

// depth is how many layers the model has.
const depth = 4

func main() {
	which := flag.String("mode", "one", strings.Join(slices.Sorted(maps.Keys(transformer.Modes)), ", "))
	set := flag.String("set", "", "a configuration `key=value`, besides those of the mode")
	steps := flag.Int("steps", 30, "steps to train, of which the first three do not count")
	flag.Parse()
	m, ok := transformer.Modes[*which]
	if !ok || *steps < 4 {
		fmt.Fprintf(os.Stderr, "steps: there is no mode %q, or fewer than 4 steps\n", *which)
		os.Exit(2)
	}
	params := maps.Clone(m.Params)
	if key, value, given := strings.Cut(*set, "="); given {
		if params == nil {
			params = map[string]any{}
		}
		params[key] = value
	}
	m.Params = params
	times, err := measure(m, *steps)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	times = times[3:]
	slices.Sort(times)
	fmt.Printf("%.2f %.2f\n", times[len(times)/10], times[len(times)/2])
}

// measure returns how long each step took, in milliseconds.
func measure(m transformer.Mode, steps int) (times []float64, err error) {
	env, err := m.Init()
	if err != nil {
		return nil, err
	}
	defer env.Close()
	loop := train.NewLoop(m.Trainer(env, depth))
	last := time.Now()
	loop.OnStep("clock", 0, func(*train.Loop, []*tensors.Tensor) error {
		now := time.Now()
		times = append(times, float64(now.Sub(last).Microseconds())/1000)
		last = now
		return nil
	})
	_, err = loop.RunSteps(env.Dataset(transformer.Sentences{}), steps)
	return times, err
}
