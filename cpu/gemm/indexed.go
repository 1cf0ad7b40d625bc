package gemm

import (
	"unsafe"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/pool"
)

// Indexed is a product whose operands are addressed by tables: a convolution, which so needs no copy of the image for every
// tap of its kernel. Element (i, k) of A is at A.Free[i] + A.Depth[k], element (k, j) of B at B.Depth[k] + B.Free[j], and
// element (i, j) of C at C[i] + j, all in elements. It may be run by several pools at a time.
type Indexed struct {
	DType dtypes.DType
	A, B  Side
	C     []int
}

// Side are the offsets of an operand: the sum of one for its free dim and one for the depth of the product.
type Side struct{ Free, Depth []int }

// size is the product's sizes.
func (p *Indexed) size() *Product {
	return &Product{M: len(p.A.Free), N: len(p.B.Free), K: len(p.A.Depth)}
}

// Flops counts multiplications and additions.
func (p *Indexed) Flops() int64 { return p.size().Flops() }

// Run computes the product.
func (p *Indexed) Run(team *pool.Pool, a, b, c unsafe.Pointer) error {
	switch p.DType {
	case dtypes.Float64:
		return runIndexed(p, &micro64, team, a, b, c)
	default:
		return runIndexed(p, &micro32, team, a, b, c)
	}
}

func runIndexed[T element](p *Indexed, k *micro[T], team *pool.Pool, a, b, c unsafe.Pointer) error {
	size := p.size()
	rows, cols := size.parts(team.Threads())
	sa, sb := segments(p.A.Depth), segments(p.B.Depth)
	return team.Run(rows*cols, func(w *pool.Worker, t int) {
		m0, m1 := cut(size.M, rows, t%rows, k.rows)
		n0, n1 := cut(size.N, cols, t/rows, k.cols)
		if m0 < m1 && n0 < n1 {
			indexedBlock(p, k, w, sa, sb, a, b, c, m0, m1, n0, n1)
		}
	})
}

// segment is a run of steps along the depth with a constant distance.
type segment struct{ from, n, offset, step int }

// segments cuts offsets into runs of a constant distance, none of which crosses a multiple of depth.
func segments(offsets []int) (list []segment) {
	for i := 0; i < len(offsets); {
		end := min(len(offsets), (i/depth+1)*depth)
		s := segment{from: i, n: 1, offset: offsets[i], step: 1}
		if i+1 < end {
			s.step = offsets[i+1] - offsets[i]
		}
		for i+s.n < end && offsets[i+s.n] == s.offset+s.n*s.step {
			s.n++
		}
		list = append(list, s)
		i += s.n
	}
	return list
}

// stride is the distance of offsets, if it is constant.
func stride(offsets []int) (n int, ok bool) {
	if len(offsets) < 2 {
		return 1, true
	}
	n = offsets[1] - offsets[0]
	for i := 2; i < len(offsets); i++ {
		if offsets[i] != offsets[0]+i*n {
			return 0, false
		}
	}
	return n, true
}

func indexedBlock[T element](p *Indexed, k *micro[T], w *pool.Worker, sa, sb []segment, a, b, c unsafe.Pointer, m0, m1, n0, n1 int) {
	size := int(unsafe.Sizeof(*new(T)))
	depthAll := len(p.A.Depth)
	steps := min(depthAll, depth)
	panels := (n1 - n0 + k.cols - 1) / k.cols
	pa := w.Scratch(((k.rows+panels*k.cols)*steps + k.rows*k.cols) * size)
	pb := unsafe.Add(pa, k.rows*steps*size)
	beside := unsafe.Add(pb, panels*k.cols*steps*size)
	for k0 := 0; k0 < depthAll; k0 += steps {
		kl := min(steps, depthAll-k0)
		na, nb := within(sa, k0), within(sb, k0)
		for j := range panels {
			free := p.B.Free[n0+j*k.cols : min(n1, n0+(j+1)*k.cols)]
			packIndexed(k, unsafe.Add(pb, j*k.cols*kl*size), b, free, nb, k0, k.cols)
		}
		for i := m0; i < m1; i += k.rows {
			rows := min(k.rows, m1-i)
			packIndexed(k, pa, a, p.A.Free[i:i+rows], na, k0, k.rows)
			crow, regular := stride(p.C[i : i+rows])
			panelA := panel{pa, 1, k.rows}
			for j := range panels {
				cols := min(k.cols, n1-n0-j*k.cols)
				col := n0 + j*k.cols
				panelB := panel{unsafe.Add(pb, j*k.cols*kl*size), 1, k.cols}
				if regular {
					k.tile(kl, panelA, panelB, unsafe.Add(c, (p.C[i]+col)*size), crow, rows, cols, k0 > 0)
					continue
				}
				k.tile(kl, panelA, panelB, beside, k.cols, rows, cols, false)
				for r := range rows {
					from := unsafe.Slice((*T)(unsafe.Add(beside, r*k.cols*size)), cols)
					to := unsafe.Slice((*T)(unsafe.Add(c, (p.C[i+r]+col)*size)), cols)
					for x := range to {
						if k0 > 0 {
							to[x] += from[x]
						} else {
							to[x] = from[x]
						}
					}
				}
			}
		}
	}
	if depthAll == 0 {
		for i := m0; i < m1; i++ {
			clear(unsafe.Slice((*T)(unsafe.Add(c, (p.C[i]+n0)*size)), n1-n0))
		}
	}
}

// within are the segments of the slice of depth that begins at k0.
func within(list []segment, k0 int) []segment {
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := (lo + hi) / 2; list[mid].from < k0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	end := lo
	for end < len(list) && list[end].from < k0+depth {
		end++
	}
	return list[lo:end]
}

// packIndexed packs a panel of one operand.
func packIndexed[T element](k *micro[T], dst, src unsafe.Pointer, free []int, list []segment, k0, width int) {
	size := int(unsafe.Sizeof(*new(T)))
	distance, regular := stride(free)
	for _, s := range list {
		to := unsafe.Add(dst, (s.from-k0)*width*size)
		if regular {
			k.pack(to, unsafe.Add(src, (free[0]+s.offset)*size), distance, s.step, len(free), width, s.n)
			continue
		}
		d := unsafe.Slice((*T)(to), width*s.n)
		for x := range s.n {
			row := d[x*width : (x+1)*width]
			at := s.offset + x*s.step
			for i, o := range free {
				row[i] = *(*T)(unsafe.Add(src, (o+at)*size))
			}
			clear(row[len(free):])
		}
	}
}
