// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package gemm

import "unsafe"

type element interface {
	float32 | float64 | uint8 | uint16 | uint32 | uint64
}

// micro is a microkernel: it multiplies a panel of A, at most rows wide, by one of B, at most cols wide.
type micro[T element] struct {
	rows, cols int
	// direct tells whether panels may lie anywhere, those of B with contiguous columns. Otherwise they are packed.
	direct bool
	// tile writes rows×cols elements of C, or adds to them. It may ask for what is read soon.
	tile func(k int, a, b panel, c unsafe.Pointer, crow, rows, cols int, add bool, soon asking)
	// pack writes dst[s*width+i] = src[i*stride+s*step] for i < n and s < k. What it writes for i from n to width is read,
	// but has no influence.
	pack func(dst, src unsafe.Pointer, stride, step, n, width, k int)
	// turn writes dst[s*width+i] = src[i*stride+s] for i < n and s < k, and nothing else; microkernels that are direct have it.
	turn func(dst, src unsafe.Pointer, stride, n, width, k int)
}

// panel are rows of A or columns of B, for some steps along K: the distance of rows or columns, and that of steps.
type panel struct {
	at           unsafe.Pointer
	stride, step int
}

// lineBytes is how much of memory comes at once.
const lineBytes = 64

// asking is memory that is read soon, a line for each step: from at on, left lines of a segment, and then all lines of the segments
// behind it. It comes into the second cache while a tile is computed, so that memory and multiplications take their time together.
type asking struct {
	at               unsafe.Pointer // nil: there is nothing to ask for
	step             int            // bytes from line to line
	left, lines, gap int            // gap: bytes from the end of a segment to the next
}

// The microkernels of this CPU; files for an architecture replace them when the program starts.
var (
	micro32 = micro[float32]{rows: portableRows, cols: portableCols, tile: tile[float32], pack: pack[float32]}
	micro64 = micro[float64]{rows: portableRows, cols: portableCols, tile: tile[float64], pack: pack[float64]}
)

const (
	portableRows = 4
	portableCols = 8
)

// tile is the portable microkernel.
func tile[T element](k int, a, b panel, c unsafe.Pointer, crow, rows, cols int, add bool, _ asking) {
	var acc [portableRows][portableCols]T
	as, bs := unsafe.Slice((*T)(a.at), k*portableRows), unsafe.Slice((*T)(b.at), k*portableCols)
	for len(as) >= portableRows && len(bs) >= portableCols {
		y := (*[portableCols]T)(bs)
		for i := range acc {
			x, row := as[i], &acc[i]
			for j := range row {
				row[j] += x * y[j]
			}
		}
		as, bs = as[portableRows:], bs[portableCols:]
	}
	size := int(unsafe.Sizeof(*new(T)))
	for i := range rows {
		d := unsafe.Slice((*T)(unsafe.Add(c, i*crow*size)), cols)
		for j := range d {
			if add {
				d[j] += acc[i][j]
			} else {
				d[j] = acc[i][j]
			}
		}
	}
}

// pack is the portable packing.
func pack[T element](dst, src unsafe.Pointer, stride, step, n, width, k int) {
	size := int(unsafe.Sizeof(*new(T)))
	d := unsafe.Slice((*T)(dst), width*k)
	if stride == 1 {
		for s := range k {
			row := d[s*width : (s+1)*width]
			copy(row, unsafe.Slice((*T)(unsafe.Add(src, s*step*size)), n))
			clear(row[n:])
		}
		return
	}
	for i := range n {
		p := unsafe.Add(src, i*stride*size)
		at := 0
		for s := range k {
			d[s*width+i] = *(*T)(unsafe.Add(p, at))
			at += step * size
		}
	}
	for i := n; i < width; i++ {
		for s := range k {
			d[s*width+i] = 0
		}
	}
}
