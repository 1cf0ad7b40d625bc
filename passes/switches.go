// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

// Switch is something that the engine for CPUs does where the inner backend is "cpu", and can be told not to. Switches are
// words of the same lists as passes.
type Switch struct {
	Name string
	Why  string // one sentence
	// Exact tells whether results stay the same bit for bit.
	Exact bool
}

// Engine is the switch that leaves everything to GoMLX's backend.
const Engine = "engine"

// Switches holds them all, the coarsest first.
var Switches = []Switch{
	{Name: Engine,
		Why: "EPL's engine runs segments on CPUs; off: GoMLX's backend runs them, op by op"},
	{Name: "fuse-elementwise", Exact: true,
		Why: "elementwise ops run together, block by block in caches"},
	{Name: "fuse-reduce", Exact: true,
		Why: "reductions run together with what computes their operands and reads their results"},
	{Name: "fuse-dot", Exact: true,
		Why: "a bias, an activation or a norm is done with each part of a product as soon as it is computed"},
	{Name: "loops", Exact: true,
		Why: "simple ops that follow each other are one loop of machine code; off: a kernel for each"},
	{Name: "views", Exact: true,
		Why: "reshape, transpose, broadcast, slice and reverse are strides; off: copies"},
	{Name: "in-place", Exact: true,
		Why: "results take the memory of what is read for the last time"},
}
