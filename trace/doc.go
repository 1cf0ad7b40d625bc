// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package trace records what the devices do in a step, and shows it.
//
// What goes in are events: while a step runs, its devices tell a [Step] what took them how long, and which [Task] of the
// pipeline it was.
//
//	s := &trace.Step{Program: "train", Number: 3, Pipeline: trace.Pipeline{Strategy: "PreferBackward", Stages: 2, Groups: 2, MicroBatches: 4, Replicas: 1}}
//	start := time.Now()
//	…
//	s.Add(trace.Event{Kind: trace.Run, Task: trace.Task{Kind: trace.Forward, Stage: 0, Micro: 2}, Name: "forward", Start: start})
//
// What comes out is a timeline: a file that Chrome's tracing page and Perfetto show ([Write]), which [Read]
// reads back and [Join] joins with those of other workers; a Gantt chart as SVG, as a page or in letters; and a [Report]
// in numbers: the bubble of the pipeline, and communication by kind. A [Profile] adds up several steps, and says what to change.
package trace
