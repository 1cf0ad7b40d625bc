// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package gemm

import (
	"slices"
	"unsafe"
)

// directArgs are the arguments of a microkernel that reads A and B in place; kernels in assembly know their offsets. All
// distances are in bytes.
//
// Element (i, k) of A is at a + i*row + k*step, element (k, j) of B at b + k*bstep + j elements. After k steps comes the next
// segment: jump and bjump are from where a segment ends to where the next begins.
type directArgs struct {
	a, b, c           unsafe.Pointer
	row, step, jump   int
	bstep, bjump      int
	k, segments, crow int
	mask              uintptr // of columns
	add               int
	cols              int
}

// directKernel computes so many rows of C.
type directKernel struct {
	rows int
	run  func(x *directArgs)
}

// direct are the microkernels of one width, by their rows.
type direct struct {
	cols    int
	kernels []directKernel
	mask    func(cols, size int) uintptr
	whole   bool // they read whole rows of B
}

// The microkernels of this CPU, the widest first; files for an architecture replace them when the program starts.
var direct32, direct64 = portableDirect[float32](), portableDirect[float64]()

// portableDirect are the portable microkernels.
func portableDirect[T element]() []direct {
	d := direct{cols: portableCols, mask: func(int, int) uintptr { return 0 }}
	for rows := 1; rows <= portableRows; rows++ {
		d.kernels = append(d.kernels, directKernel{rows, func(x *directArgs) { directTile[T](x, rows) }})
	}
	return []direct{d}
}

func directTile[T element](x *directArgs, rows int) {
	var acc [portableRows][portableCols]T
	at, bt := 0, 0
	for s := range x.segments {
		if s > 0 {
			at, bt = at+x.jump, bt+x.bjump
		}
		for range x.k {
			y := unsafe.Slice((*T)(unsafe.Add(x.b, bt)), x.cols)
			for i := range rows {
				v, sum := *(*T)(unsafe.Add(x.a, at+i*x.row)), &acc[i]
				for j := range y {
					sum[j] += v * y[j]
				}
			}
			at, bt = at+x.step, bt+x.bstep
		}
	}
	for i := range rows {
		d := unsafe.Slice((*T)(unsafe.Add(x.c, i*x.crow)), x.cols)
		for j := range d {
			if x.add != 0 {
				d[j] += acc[i][j]
			} else {
				d[j] = acc[i][j]
			}
		}
	}
}

// tileRows cuts rows, which are so many bytes apart, into tiles that kernels have, so that the steps of all together take the
// least time.
func (d *direct) tileRows(rows, distance int) (tiles []directKernel) {
	kernels := d.kernels
	if distance != 0 && distance%4096 == 0 { // the rows of a tile fall into the same set of the first cache, which holds few
		kernels = slices.DeleteFunc(slices.Clone(kernels), func(k directKernel) bool { return k.rows > 8 })
	}
	largest := kernels[len(kernels)-1]
	for rows > 4*largest.rows {
		tiles = append(tiles, largest)
		rows -= largest.rows
	}
	best := make([]float64, rows+1)
	first := make([]int, rows+1)
	for n := 1; n <= rows; n++ {
		for i, k := range kernels {
			if k.rows > n {
				break
			}
			if c := best[n-k.rows] + d.cost(k.rows); best[n] == 0 || c < best[n] {
				best[n], first[n] = c, i
			}
		}
	}
	for rows > 0 {
		k := kernels[first[rows]]
		tiles = append(tiles, k)
		rows -= k.rows
	}
	return tiles
}

// cost is about how many cycles a step of a tile takes: multiplications, loads, or the latency of the former.
func (d *direct) cost(rows int) float64 {
	vectors := (d.cols + 15) / 16
	return max(float64(rows*vectors)/2, float64(rows+vectors)/2, 4) + 0.5
}

// time is what the steps of so many rows take.
func (d *direct) time(rows int) (sum float64) {
	for _, k := range d.tileRows(rows, 0) {
		sum += d.cost(k.rows)
	}
	return sum
}

// copyLinesPortable copies rows of cols elements, and writes zeros behind them up to width. Distances are in bytes.
func copyLinesPortable(dst, src unsafe.Pointer, dstStep, srcStep, rows, cols, width, size int) {
	for i := range rows {
		d := unsafe.Slice((*byte)(unsafe.Add(dst, i*dstStep)), width*size)
		copy(d, unsafe.Slice((*byte)(unsafe.Add(src, i*srcStep)), cols*size))
		clear(d[cols*size:])
	}
}
