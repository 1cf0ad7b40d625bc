// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package hlo writes programs for XLA: StableHLO modules, as MLIR text.
//
// What goes in is a segment of a verified program, with the shapes that one device has ([exec/lower] makes it), and [Options]. What
// comes out of [Module] is the text of a module with one function, main, which takes the inputs of the segment and returns its outputs,
// both in order. The same segment gives the same bytes. The package compiles and runs nothing, and needs no XLA.
//
// Every operation of the IR is either written, as GoMLX's own XLA backend would build it, or refused by an error that names it and says
// why: shapes known only when the program runs, quantised operations, and those that are not for one device alone. Fused operations
// are written as their definitions; attention in half precision as a call of cuDNN, if [Options.CUDNN] is set, and functions that there are kernels
// for (ir.NormGradient, ir.GELUGradient) as those, in Triton's language. Operations that several
// devices do together, such as a change of placement, are written by [Options.Extra], with the collectives of [Writer].
//
// Numbers are those of the types of the program: half precision is computed in float32 inside fused operations, and float32 products
// and convolutions have full precision unless [Options.TF32] is set.
//
// [exec/lower]: https://pkg.go.dev/github.com/easyparallel/epl/exec/lower
package hlo
