// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"math"
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/isa"
)

//go:generate go run gen_amd64.go

// table is where a kernel belongs.
type table int

const (
	unary1 table = iota
	binary2
	choose
	convert1
	row1
	columns1    // D = the rows of B taken into A
	addColumns1 // D takes in the rows of A
)

// vectorKernel is a kernel in assembly: it takes the place of the portable one.
type vectorKernel struct {
	level isa.Level
	table table
	op    Op
	d     dtypes.DType
	form  int // of Where: the form, and the bytes of an element above its 8 bits; of a conversion: the type of the result
	lanes int // elements that AVX2 does at a time; of a row that is reduced: what its length must be a multiple of
	f     Func
}

// onLines copies a table to memory that begins on a cache line.
func onLines[T any](table []T) unsafe.Pointer {
	size := int(unsafe.Sizeof(table[0]))
	b := make([]byte, len(table)*size+63)
	p := unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), -uintptr(unsafe.Pointer(unsafe.SliceData(b)))&63)
	copy(unsafe.Slice((*T)(p), len(table)), table)
	return p
}

func eight(x uint64) (v [8]uint64) {
	for i := range v {
		v[i] = x
	}
	return v
}

// current is the level whose kernels are in the tables.
var current isa.Level

// use puts the kernels of a level in the place of portable ones.
func use(l isa.Level) {
	current = l
	fillTables()
	for _, k := range vectorKernels() {
		if k.level != l {
			continue
		}
		switch k.table {
		case unary1:
			at := unaries[key{k.op, k.d}]
			size := k.d.Size()
			slow := at[0]
			at[0] = k.ended(slow, [4]int{size, size})
			if k.op == "Sin" || k.op == "Cos" {
				at[0] = ifNear(at[0], slow)
			}
		case binary2:
			at, form := binaries[key{k.op, k.d}], Form(k.form)
			size, out := k.d.Size(), k.d.Size()
			if isComparison[k.op] {
				out = 1
			}
			at[form] = k.ended(at[form], [4]int{out, unless(form&ScalarA, size), unless(form&ScalarB, size)})
		case choose:
			form, size := Form(k.form&0xff), k.form>>8
			wheres[whereKey{size, form}] = k.ended(wheres[whereKey{size, form}], [4]int{size, 1, unless(form&ScalarB, size), unless(form&ScalarC, size)})
		case convert1:
			to := dtypes.DType(k.form)
			at := converts[[2]dtypes.DType{k.d, to}]
			at[0] = k.ended(at[0], [4]int{to.Size(), k.d.Size()})
		case row1:
			rowReductions[key{k.op, k.d}] = k.whole(rowReductions[key{k.op, k.d}])
		case columns1:
			slow := columnReductions[key{k.op, k.d}]
			into := k.ended(func(x *Args) { x.A, x.SA = x.B, x.SB; slow(x) }, [4]int{4, 4, k.d.Size()})
			columnReductions[key{k.op, k.d}] = taking(into)
		case addColumns1:
			at := key{k.op, k.d}
			columnReductions[at] = k.ended(columnReductions[at], [4]int{k.d.Size(), k.d.Size()})
		}
	}
}

// nearBy is up to which size numbers are taken to the first quadrant exactly by what Sin and Cos have for that.
const nearBy = 1 << 20

// ifNear is fast where all numbers are finite and at most nearBy, and slow elsewhere.
func ifNear(fast, slow Func) Func {
	limit := math.Float32bits(nearBy)
	return func(x *Args) {
		for r := range x.Rows {
			for _, bits := range unsafe.Slice((*uint32)(unsafe.Add(x.A, r*x.SA)), x.Cols) {
				if bits&(1<<31-1) > limit {
					slow(x)
					return
				}
			}
		}
		fast(x)
	}
}

// whole is the kernel for rows of a length that it can do, and the portable one for others.
func (k vectorKernel) whole(slow Func) Func {
	if k.lanes == 1 {
		return k.f
	}
	return func(x *Args) {
		if x.Cols%k.lanes == 0 {
			k.f(x)
		} else {
			slow(x)
		}
	}
}

func unless(scalar Form, size int) int {
	if scalar != 0 {
		return 0
	}
	return size
}

// ended is the kernel with the portable one for the ends of rows, where it cannot do those itself. step are the bytes from
// column to column of D, A, B and C.
func (k vectorKernel) ended(slow Func, step [4]int) Func {
	if k.level == isa.AVX512 {
		return k.f
	}
	fast, lanes := k.f, k.lanes
	return func(x *Args) {
		cols := x.Cols
		whole := cols / lanes * lanes
		if whole > 0 {
			x.Cols = whole
			fast(x)
		}
		if whole == cols {
			return
		}
		before := *x
		x.Cols = cols - whole
		for i, p := range []*unsafe.Pointer{&x.D, &x.A, &x.B, &x.C} {
			if step[i] > 0 {
				*p = unsafe.Add(*p, whole*step[i])
			}
		}
		slow(x)
		*x = before
		x.Cols = cols
	}
}
