// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package faults injects faults into a job on purpose, for drills: a worker that is killed, a connection that breaks, a full disk.
//
// What goes in is the text of EPL_FAULTS, see [Grammar]. [Parse] makes a list of [Fault] of it; an [Injector] is one worker's share of them, and is
// asked at the points where faults act: at the beginning of a step, on connections to other workers, and when a checkpoint is written. A job without
// faults has no injector: a nil one does nothing. The package knows neither steps nor files, only how many there were.
package faults
