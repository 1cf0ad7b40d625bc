// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package metrics writes down what a training tells of itself, for people and programs that watch it: as JSON lines, as event files of TensorBoard, or, by package
// metrics/prometheus, to Prometheus. Anything else is a [Sink] of a few lines. [github.com/easyparallel/epl.Env.Metrics] fills sinks from a training loop.
package metrics

import (
	"maps"
	"slices"
	"time"
)

// Record is what is known at a step.
type Record struct {
	Step   int64
	Time   time.Time
	Values map[string]float64 // by name
}

// Sink takes records. It makes its files, or connects, with the first one: a worker that has nothing to tell makes none. Sinks are not called by several goroutines at once.
//
//	type printer struct{}
//
//	func (printer) Write(r metrics.Record) error { fmt.Println(r.Step, r.Values); return nil }
//	func (printer) Close() error                 { return nil }
type Sink interface {
	Write(r Record) error
	Close() error
}

// HistogramSink is a sink that also takes how the values of variables are distributed.
type HistogramSink interface {
	Sink
	WriteHistogram(step int64, at time.Time, name string, h *Histogram) error
}

func sorted(values map[string]float64) []string { return slices.Sorted(maps.Keys(values)) }
