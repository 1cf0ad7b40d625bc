// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package gemm

import (
	"unsafe"

	"github.com/easyparallel/epl/cpu/isa"
)

//go:generate sh -c "go run gen_amd64.go > kernels_amd64.s"

// tileArgs are the arguments of a microkernel in assembly, which knows their offsets.
type tileArgs struct {
	k    int
	a, b unsafe.Pointer
	c    unsafe.Pointer
	crow int // bytes
	rows int
	mask uint64 // of columns
	add  int
	// Bytes from row to row of a, and from step to step of a and b.
	arow, astep, bstep int
	soon               asking
}

//go:noescape
func tile12x32(x *tileArgs)

//go:noescape
func tile12x16d(x *tileArgs)

//go:noescape
func tile6x16(x *tileArgs)

//go:noescape
func tile6x8d(x *tileArgs)

//go:noescape
func copyRows(dst unsafe.Pointer, dstRow int, src unsafe.Pointer, srcRow int, times int, low, high uint64)

//go:noescape
func transpose4x16(dst unsafe.Pointer, dstRow int, src unsafe.Pointer, srcRow int, times int)

//go:noescape
func transpose4x8d(dst unsafe.Pointer, dstRow int, src unsafe.Pointer, srcRow int, times int)

//go:noescape
func transpose4x8(dst unsafe.Pointer, dstRow int, src unsafe.Pointer, srcRow int, times int)

func init() { isa.OnUse(use) }

// use chooses the microkernels of a level.
func use(l isa.Level) {
	switch l {
	case isa.AVX512:
		micro32 = micro[float32]{rows: 12, cols: 32, direct: true, tile: tile512, pack: pack512, turn: turn512}
		micro64 = micro[float64]{rows: 12, cols: 16, direct: true, tile: tile512d, pack: pack512d, turn: turn512d}
	case isa.AVX2:
		micro32 = micro[float32]{rows: 6, cols: 16, tile: tile256, pack: pack256}
		micro64 = micro[float64]{rows: 6, cols: 8, tile: tile256d, pack: pack[float64]}
	default:
		micro32 = micro[float32]{rows: portableRows, cols: portableCols, tile: tile[float32], pack: pack[float32]}
		micro64 = micro[float64]{rows: portableRows, cols: portableCols, tile: tile[float64], pack: pack[float64]}
	}
}

// The functions below call assembly by its name: an argument of a function value would be put on the heap.

func newTileArgs(k int, a, b panel, c unsafe.Pointer, crow, rows, cols, size int, add bool, soon asking) tileArgs {
	x := tileArgs{k: k, a: a.at, b: b.at, c: c, crow: crow * size, rows: rows, mask: 1<<cols - 1, arow: a.stride * size, astep: a.step * size, bstep: b.step * size, soon: soon}
	if soon.at == nil { // always the same line, which is there
		x.soon = asking{at: a.at}
	}
	if add {
		x.add = 1
	}
	return x
}

func tile512(k int, a, b panel, c unsafe.Pointer, crow, rows, cols int, add bool, soon asking) {
	x := newTileArgs(k, a, b, c, crow, rows, cols, 4, add, soon)
	tile12x32(&x)
}

func tile512d(k int, a, b panel, c unsafe.Pointer, crow, rows, cols int, add bool, soon asking) {
	x := newTileArgs(k, a, b, c, crow, rows, cols, 8, add, soon)
	tile12x16d(&x)
}

// The microkernels of AVX2 write whole tiles only: where C ends they write beside it.

func tile256(k int, a, b panel, c unsafe.Pointer, crow, rows, cols int, add bool, _ asking) {
	x := newTileArgs(k, a, b, c, crow, rows, 0, 4, add, asking{})
	if rows == 6 && cols == 16 {
		tile6x16(&x)
		return
	}
	var beside [6 * 16]float32
	x.c, x.crow, x.add = unsafe.Pointer(&beside), 4*16, 0
	tile6x16(&x)
	put(beside[:], 16, c, crow, rows, cols, add)
}

func tile256d(k int, a, b panel, c unsafe.Pointer, crow, rows, cols int, add bool, _ asking) {
	x := newTileArgs(k, a, b, c, crow, rows, 0, 8, add, asking{})
	if rows == 6 && cols == 8 {
		tile6x8d(&x)
		return
	}
	var beside [6 * 8]float64
	x.c, x.crow, x.add = unsafe.Pointer(&beside), 8*8, 0
	tile6x8d(&x)
	put(beside[:], 8, c, crow, rows, cols, add)
}

// put writes a part of a tile to C.
func put[T element](tile []T, width int, c unsafe.Pointer, crow, rows, cols int, add bool) {
	size := int(unsafe.Sizeof(*new(T)))
	for i := range rows {
		d := unsafe.Slice((*T)(unsafe.Add(c, i*crow*size)), cols)
		for j := range d {
			if add {
				d[j] += tile[i*width+j]
			} else {
				d[j] = tile[i*width+j]
			}
		}
	}
}

func pack512(dst, src unsafe.Pointer, stride, step, n, width, k int) {
	if stride == 1 && k > 0 {
		mask := uint64(1)<<n - 1
		copyRows(dst, width*4, src, step*4, k, mask&0xffff, mask>>16)
		return
	}
	packRows[float32](dst, src, stride, step, n, width, k, transpose4x16, 16)
}

func pack512d(dst, src unsafe.Pointer, stride, step, n, width, k int) {
	if stride == 1 && k > 0 {
		mask := uint64(1)<<(2*n) - 1
		copyRows(dst, width*8, src, step*8, k, mask&0xffff, mask>>16)
		return
	}
	packRows[float64](dst, src, stride, step, n, width, k, transpose4x8d, 8)
}

func pack256(dst, src unsafe.Pointer, stride, step, n, width, k int) {
	packRows[float32](dst, src, stride, step, n, width, k, transpose4x8, 8)
}

// packRows packs elements whose steps are contiguous by transposing four rows at a time.
func packRows[T element](dst, src unsafe.Pointer, stride, step, n, width, k int, transpose transposer, lanes int) {
	if step != 1 || stride == 1 || k < lanes {
		pack[T](dst, src, stride, step, n, width, k)
		return
	}
	transposeRows[T](dst, src, stride, n, width, k, transpose, lanes)
	d := unsafe.Slice((*T)(dst), width*k)
	for i := n; i < width; i++ {
		for j := range k {
			d[j*width+i] = 0
		}
	}
}

// transposer transposes four rows of src, of as many registers as times says.
type transposer func(dst unsafe.Pointer, dstRow int, src unsafe.Pointer, srcRow int, times int)

// transposeRows writes dst[s*width+i] = src[i*stride+s] for i < n and s < k.
func transposeRows[T element](dst, src unsafe.Pointer, stride, n, width, k int, transpose transposer, lanes int) {
	size := int(unsafe.Sizeof(*new(T)))
	d := unsafe.Slice((*T)(dst), width*(k-1)+n)
	whole := k / lanes * lanes
	i := 0
	for ; i+4 <= n; i += 4 {
		if whole > 0 {
			transpose(unsafe.Add(dst, i*size), width*size, unsafe.Add(src, i*stride*size), stride*size, k/lanes)
		}
		for r := i; r < i+4; r++ {
			s := unsafe.Slice((*T)(unsafe.Add(src, r*stride*size)), k)
			for j := whole; j < k; j++ {
				d[j*width+r] = s[j]
			}
		}
	}
	for ; i < n; i++ {
		for j, v := range unsafe.Slice((*T)(unsafe.Add(src, i*stride*size)), k) {
			d[j*width+i] = v
		}
	}
}

func turn512(dst, src unsafe.Pointer, stride, n, width, k int) {
	transposeRows[float32](dst, src, stride, n, width, k, transpose4x16, 16)
}

func turn512d(dst, src unsafe.Pointer, stride, n, width, k int) {
	transposeRows[float64](dst, src, stride, n, width, k, transpose4x8d, 8)
}
