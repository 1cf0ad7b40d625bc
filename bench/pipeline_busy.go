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
const within = 0.05

// busyRow measures for which part of the time a pipeline has something to do for its devices: all that is not bubble. The
// ideal is M/(M+S-1) with M micro-batches and S stages, and more with ZeroBubble, as a timeline's report says.
func (m stagedMLP) busyRow(micro int, strategy string, where place) Row {
	name := fmt.Sprintf("pipeline/busy/%s/%s/%d-micro-batches/%s", m.name, where.name, micro, strategy)
	return Row{Name: name, Peer: "all the time", Pairs: 10, Custom: func(runs int) (Result, error) {
		var busy, ideal []float64
		for len(busy) < runs {
			reports, err := m.traced(stages(micro, strategy), where)
			if err != nil {
				return Result{}, err
			}
			for _, r := range reports {
				busy, ideal = append(busy, 1-r.Bubble), append(ideal, 1-r.Ideal)
			}
		}
		r := Result{Ratio: median(busy), Target: math.Round(1000*(median(ideal)-within)) / 1000}
		r.Low, r.High = bootstrap(busy)
		return r, nil
	}}
}

// place is where a pipeline runs, with a core for each stage.
type place struct {
	name  string
	train func(stagedMLP, settings) (side, error)
}

var (
	oneProcess = place{"2-devices", func(m stagedMLP, s settings) (side, error) {
		return m.on(s, epl.WithLocalDevices(2), epl.WithInner(oneCore))
	}}
	twoWorkers = place{"2-workers", func(m stagedMLP, s settings) (side, error) {
		stopFleets() // those that run do not write timelines
		f, err := m.workers(s)
		return side{once: func() (time.Duration, error) { return f.measure("train", 0, 1) }, close: stopFleets}, err
	}}
)

// traced trains a little, and reports on the steps that have a timeline, but for the first one, which also initialises.
func (m stagedMLP) traced(s settings, where place) (reports []*trace.Report, err error) {
	dir, err := os.MkdirTemp("", "epl-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.Setenv(epl.EnvTrace, filepath.Join(dir, "trace.json")); err != nil {
		return nil, err
	}
	defer os.Unsetenv(epl.EnvTrace)
	run, err := where.train(m, s)
	if err != nil {
		return nil, err
	}
	defer run.close()
	for i := range 3 {
		if _, err := run.once(); err != nil {
			return nil, err
		}
		if i == 0 {
			continue
		}
		step, err := timeline(dir)
		if err != nil {
			return nil, err
		}
		if step.Number != i+1 {
			return nil, fmt.Errorf("the timeline after step %d is of step %d", i+1, step.Number)
		}
		reports = append(reports, step.Report())
	}
	return reports, nil
}

// timeline reads what all workers wrote of a step.
func timeline(dir string) (*trace.Step, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var steps []*trace.Step
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		step, err := trace.Read(f)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return trace.Join(steps...)
}
