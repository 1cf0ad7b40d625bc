package kernel

import (
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
	sumRow1
	sumColumns1
)

// vectorKernel is a kernel in assembly: it takes the place of the portable one.
type vectorKernel struct {
	level isa.Level
	table table
	op    Op
	d     dtypes.DType
	form  int // of Where: the form, and the bytes of an element above its 8 bits
	lanes int // elements that AVX2 does at a time
	f     Func
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
			at[0] = k.ended(at[0], [4]int{size, size})
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
		case sumRow1:
			slow := sumRows[k.d]
			if sumRows[k.d] = k.f; l == isa.AVX2 {
				sumRows[k.d] = func(x *Args) {
					if x.Cols%k.lanes == 0 {
						k.f(x)
					} else {
						slow(x)
					}
				}
			}
		case sumColumns1:
			sumColumnsOf[k.d] = k.ended(sumColumnsOf[k.d], [4]int{k.d.Size(), k.d.Size()})
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
