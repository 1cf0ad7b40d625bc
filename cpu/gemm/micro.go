package gemm

import "unsafe"

type element interface{ float32 | float64 }

// micro is a microkernel: it multiplies a packed panel of A, rows wide, by one of B, cols wide.
type micro[T element] struct {
	rows, cols int
	// tile writes rows×cols elements of C, or adds to them.
	tile func(k int, a, b, c unsafe.Pointer, crow, rows, cols int, add bool)
	// pack writes dst[s*width+i] = src[i*stride+s*step] for i < n and s < k, and zeros for i from n to width.
	pack func(dst, src unsafe.Pointer, stride, step, n, width, k int)
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
func tile[T element](k int, a, b, c unsafe.Pointer, crow, rows, cols int, add bool) {
	var acc [portableRows][portableCols]T
	as, bs := unsafe.Slice((*T)(a), k*portableRows), unsafe.Slice((*T)(b), k*portableCols)
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
