// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package plan decides how a program runs, and has passes and schedule apply what it decided.
//
// What goes in is a program as recorded, a cluster, which may be only described, and a configuration. What comes out of [Decide] is
// a [Plan], all decisions as data, with reasons and predicted costs; and a [Result], what they make of the program. Decide is a pure
// function: it reads no clock, file or device. In a job worker 0 decides, and the others apply its plan. A plan is encoded as JSON
// ([Plan.Encode], [Decode]), compared with another ([Diff]), and applied to the same program again ([Plan.Apply]), or refused with
// what does not fit.
//
// A decision about the whole program is a setting of the configuration. Those about single ops and variables are made by [Choose],
// right before the pass that applies them, on the program as that pass gets it. Passes never choose.
//
// A program without gradients follows the plan of the training program whose variables it reads (forward.go): the same stages, devices and
// shardings, forward only. With several replicas, batches are dealt to them ([DecideAhead]).
//
// [Stages] cuts a program without annotations into stages, if the configuration asks for it: every op gets a TaskGraph, on one
// device. It assumes that every backward op was recorded with its forward op (ir.Op.Of). [Cut.Apply] annotates the
// program as a user would have done; nothing else in EPL knows the difference. The work is
// done in this order, a file each: one order of the live ops, in which every op has a
// position, and where it repeats (chain.go); what crosses when that order is cut (traffic.go); the best cuts (divide.go);
// and what follows for every op and variable (stages.go).
package plan
