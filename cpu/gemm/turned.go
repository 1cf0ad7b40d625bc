// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package gemm

import (
	"unsafe"

	"github.com/easyparallel/epl/cpu/pool"
)

// turnedRows is the most rows of C for which B, if its columns are contiguous, is read where it lies: as the left operand of the
// transposed product, whose right one is as few columns wide. Packing would transpose all of B to use it a few times; the
// gradient by the input of a layer, of a small batch, is such a product.
const turnedRows = 128

// turnedBytes is the most that A may take, packed: it stays in the second cache, or is read from the third a few times.
const turnedBytes = 2 << 20

// turnedLines are the columns of C that are computed before they are transposed: their sums stay in the fastest caches.
const turnedLines = 240

// turns tells whether a block of m rows is computed as its transpose.
func turns[T element](p *Product, k *micro[T], from source[T], m int) bool {
	width := (m + k.cols - 1) / k.cols * k.cols
	return k.turn != nil && from.convert == nil && p.mayTurn() && p.K > 0 && m >= 4 && m <= turnedRows && p.K*width*from.size <= turnedBytes
}

// mayTurn tells whether B is such an operand.
func (p *Product) mayTurn() bool { return p.B.Row == 1 && p.B.Col >= p.K }

// turned computes m×n elements of the result on one thread, as columns of its transpose. Each is the sum of the same products in
// the same order as block computes.
func turned[T element](p *Product, k *micro[T], w *pool.Worker, a, b, c unsafe.Pointer, m, n int, done func(row, rows int)) {
	size := int(unsafe.Sizeof(*new(T)))
	steps := depthOf(p.K)
	panels := (m + k.cols - 1) / k.cols
	width := panels * k.cols
	pa := w.Scratch((p.K + min(n, turnedLines)) * width * size)
	sums := unsafe.Add(pa, p.K*width*size)
	for k0 := 0; k0 < p.K; k0 += steps { // the panels of a part lie one behind the other
		kl := min(steps, p.K-k0)
		for j := range panels {
			k.pack(unsafe.Add(pa, (k0*width+j*k.cols*kl)*size), unsafe.Add(a, (j*k.cols*p.A.Row+k0*p.A.Col)*size), p.A.Row, p.A.Col, min(k.cols, m-j*k.cols), k.cols, kl)
		}
	}
	for n0 := 0; n0 < n; n0 += turnedLines {
		lines := min(turnedLines, n-n0)
		for k0 := 0; k0 < p.K; k0 += steps {
			kl := min(steps, p.K-k0)
			for i := 0; i < lines; i += k.rows {
				left := panel{unsafe.Add(b, ((n0+i)*p.B.Col+k0)*size), p.B.Col, 1}
				soon := following(p, k, b, n, n0, i, k0, lines, steps)
				for j := range panels {
					right := panel{unsafe.Add(pa, (k0*width+j*k.cols*kl)*size), 1, k.cols}
					k.tile(kl, left, right, unsafe.Add(sums, (i*width+j*k.cols)*size), width, min(k.rows, lines-i), min(k.cols, m-j*k.cols), k0 > 0, soon)
					soon = asking{}
				}
			}
		}
		k.turn(unsafe.Add(c, n0*size), sums, width, lines, p.CRow, m)
	}
	if done != nil {
		done(0, m)
	}
}

// following is what the tiles read of B that follow those of line n0+i and step k0.
func following[T element](p *Product, k *micro[T], b unsafe.Pointer, n, n0, i, k0, lines, steps int) asking {
	size := int(unsafe.Sizeof(*new(T)))
	line, step := n0+i+k.rows, k0
	if i+k.rows >= lines {
		if line, step = n0, k0+steps; step >= p.K {
			line, step = n0+lines, 0
		}
	}
	if line >= n {
		return asking{}
	}
	segment := (min(steps, p.K-step)*size + lineBytes - 1) / lineBytes
	return asking{unsafe.Add(b, (line*p.B.Col+step)*size), lineBytes, segment, segment, p.B.Col*size - segment*lineBytes}
}
