// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package kernel holds the loops that the CPU engine runs over blocks of memory: elementwise operations, conversions,
// reductions of rows and columns, and copies.
//
// A kernel works on a block of Rows × Cols elements. Every operand is given by a pointer to its first element and the
// distance of its rows in bytes, 0 for an operand that is the same in every row. Within a row an operand is either
// contiguous or one element that stands for the whole row: that is its [Form]. No kernel reads or writes memory outside
// the elements of its operands, so buffers need neither slack nor alignment.
//
// Kernels are found by operation, type and form ([Unary], [Binary], …) when a program is compiled; nil means that there is
// none, and the engine leaves the operation to another backend. Every operation has a portable kernel in Go, which
// computes what GoMLX's pure-Go backend computes, bit for bit. Where the CPU has vector instructions, kernels in assembly
// take the place of the hot ones; the portable kernel is then the oracle of their tests.
//
// Sums are taken in an order that depends on the number of elements alone, so that results depend neither on the
// instruction set nor on the number of threads.
package kernel

import "unsafe"

// Args are the operands of a kernel: D is written, A, B and C are read.
type Args struct {
	D, A, B, C     unsafe.Pointer
	SD, SA, SB, SC int // bytes from row to row
	Rows, Cols     int
}

// Func is a kernel.
type Func func(*Args)

// Form tells which operands of a kernel are one element per row instead of Cols of them.
type Form uint8

// The operands that can be one element per row.
const (
	ScalarA Form = 1 << iota
	ScalarB
	ScalarC
)

// Op names an operation, by the word that GoMLX has for it: "Add", "Exp", "ReduceSum".
type Op string
