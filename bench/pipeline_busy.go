// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/trace"
)

// within is how far from its ideal a pipeline may be.
const within = 0.02

// busyRow measures for which part of the time a pipeline has something to do for its devices: all that is not bubble. It says what the bubble consists of:
// a core that is slower for a while makes equal stages unequal, which the target, that of equal stages, does not allow for.
func (m stagedMLP) busyRow(micro int, strategy string, where place) Row {
	name := fmt.Sprintf("pipeline/busy/%s/%s/%d-micro-batches/%s", m.name, where.name, micro, strategy)
	return Row{Name: name, Peer: "all the time", Pairs: 10, Custom: func(runs int) (Result, error) {
		var steps []*trace.Step
		var watch watch
		for len(steps) < runs {
			more, err := m.traced(stages(micro, strategy), where, &watch)
			if err != nil {
				return Result{}, err
			}
			steps = append(steps, more...)
		}
		all, err := bubblesOf(steps)
		if err != nil {
			return Result{}, err
		}
		for i, s := range steps {
			all[i].quiet = watch.quiet(i/(lastTraced-firstTraced+1), lastTraced, s.Number-1)
		}
		return resultOf(all, &watch), nil
	}}
}

// resultOf is what bubbles of steps say.
func resultOf(all []bubble, w *watch) Result {
	of := func(f func(b bubble) float64) (x []float64) {
		for _, b := range all {
			x = append(x, f(b))
		}
		return x
	}
	mid := func(f func(b bubble) float64) string { return points(median(of(f))) }
	busy, ideal := of(func(b bubble) float64 { return 1 - b.measured }), median(of(func(b bubble) float64 { return b.ideal }))
	r := Result{Ratio: median(busy), Target: math.Round(1000*(1-ideal-within)) / 1000}
	r.Low, r.High = bootstrap(busy)
	var calm []float64
	for _, b := range all {
		if b.quiet {
			calm = append(calm, b.measured-b.ideal)
		}
	}
	alone := "no step had the cores for itself"
	if len(calm) > 0 {
		alone = fmt.Sprintf("in the %d of %d steps before and after which nobody else was seen, the bubble is %s over ideal", len(calm), len(all), points(median(calm)))
	}
	fmt.Fprintf(os.Stderr, "  bubble %s: ideal %s (formula of equal stages %s), stages that are not equal %s, tasks slower than others of their stage %s, what came between tasks %s; %s; %s\n",
		points(1-r.Ratio), points(ideal), mid(func(b bubble) float64 { return b.formula }), mid(func(b bubble) float64 { return b.typical - b.ideal }),
		mid(func(b bubble) float64 { return b.played - b.typical }), mid(func(b bubble) float64 { return b.measured - b.played }), w, alone)
	return r
}

func points(x float64) string { return fmt.Sprintf("%.1f%%", 100*x) }

// place is where a pipeline runs, with a core for each stage.
type place struct {
	name  string
	train func(stagedMLP, settings) (side, error)
}

var (
	oneProcess = place{"2-devices", func(m stagedMLP, s settings) (side, error) {
		return m.on(s, epl.WithLocalDevices(2))
	}}
	twoWorkers = place{"2-workers", func(m stagedMLP, s settings) (side, error) {
		stopFleets() // those that run do not write timelines
		f, err := m.workers(s)
		return side{once: func() (time.Duration, error) { return f.measure("train", 0, 1) }, close: stopFleets}, err
	}}
)

// The steps of a process that have a timeline. Those before also initialise.
const firstTraced, lastTraced = 4, 8

// traced trains a little, and returns the steps that have a timeline.
func (m stagedMLP) traced(s settings, where place, w *watch) (steps []*trace.Step, err error) {
	dir, err := os.MkdirTemp("", "epl-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for name, value := range map[string]string{epl.EnvTrace: filepath.Join(dir, "trace.json"), epl.EnvTraceSteps: fmt.Sprintf("%d:%d", firstTraced, lastTraced)} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
		defer os.Unsetenv(name)
	}
	run, err := where.train(m, s)
	if err != nil {
		return nil, err
	}
	defer run.close()
	for range lastTraced {
		w.look()
		if _, err := run.once(); err != nil {
			return nil, err
		}
	}
	w.look()
	return timeline(dir)
}

// timeline reads what all workers wrote of the steps.
func timeline(dir string) (steps []*trace.Step, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	byNumber := make([][]*trace.Step, lastTraced-firstTraced+1)
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		all, err := trace.ReadAll(f)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			byNumber[s.Number-firstTraced] = append(byNumber[s.Number-firstTraced], s)
		}
	}
	for _, same := range byNumber {
		s, err := trace.Join(same...)
		if err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	return steps, nil
}
