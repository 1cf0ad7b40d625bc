// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package loop compiles runs of simple float32 ops into one loop of machine code. What goes in is a [Program]: which op
// reads which values. What comes out is a [Func], in which every element is loaded once, computed in registers and stored
// once. A loop computes the bits that the kernels of package kernel give one after the other, which are its oracle.
//
// There are loops for AVX-512 on Linux. Elsewhere, and where the operating system allows no memory that holds new code,
// [Compile] returns nil, and its caller runs kernels.
package loop

import "fmt"

// Op is what an instruction computes, by the name of the kernel.
type Op string

// The ops of loops.
const (
	Add  Op = "Add"
	Sub  Op = "Sub"
	Mul  Op = "Mul"
	Div  Op = "Div"
	Sqrt Op = "Sqrt"
	Neg  Op = "Neg"
	Abs  Op = "Abs"
)

// Arity is how many operands an op has; 0: loops have no such op.
func Arity(op Op) int {
	switch op {
	case Add, Sub, Mul, Div:
		return 2
	case Sqrt, Neg, Abs:
		return 1
	}
	return 0
}

// Program is what a loop does for every element of a row. Its values are numbered: first the operands, which are read
// from memory, then the results of the instructions, in order.
type Program struct {
	Operands []Operand
	Instrs   []Instr
	Stores   []Store
}

// Operand is a value in memory.
type Operand struct {
	Scalar   bool // one element for all of a row
	Prefetch bool // it lies in memory that is read, or written, in order
}

// Store is a result of an instruction that is written to memory.
type Store struct {
	Value    int
	Prefetch bool // as of an operand
}

// Instr is an op on values; B counts only where the op has two operands.
type Instr struct {
	Op   Op
	A, B int
}

// The most pointers that a loop takes.
const (
	maxStreams  = 10
	maxPointers = 24
)

// Args are what a Func is called with. Pointers are those of the operands, then those of the stores; they are numbers
// because the loop counts them up, over the end of what they point to. The caller keeps the memory alive.
type Args struct {
	bytes    int    // of the whole registers of a row
	mask     uint64 // of the elements after them
	rows     int
	Pointers [maxPointers]uintptr
	Strides  [maxPointers]int // bytes from row to row
}

// Func is a compiled loop.
type Func struct {
	code []byte
}

// Run runs the loop for rows of so many elements.
func (f *Func) Run(x *Args, rows, cols int) {
	if rows == 0 || cols == 0 {
		return
	}
	x.rows, x.bytes, x.mask = rows, cols/lanes*lanes*4, 1<<(cols%lanes)-1
	call(f.code, x)
}

// lanes are the elements of a register.
const lanes = 16

// key names the program's code.
func (p *Program) key() string { return fmt.Sprint(*p) }
