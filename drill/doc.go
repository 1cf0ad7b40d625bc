// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package drill runs a training program again and again while something goes wrong on purpose, and looks at what comes of it.
//
// What goes in is a command that trains, and how many workers it has. It runs undisturbed at first, twice: how many steps and saves it has is known then, and whether two
// runs of it end with the same weights. Then each [Drill] injects a fault by EPL_FAULTS. What comes out is a [Result] for each: whether the job ended as it should, how soon the
// fault was noticed, whether the error names the worker, its machine and what it was doing, and whether the weights are those of the undisturbed run.
package drill
