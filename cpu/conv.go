package cpu

import (
	"unsafe"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/cpu/gemm"
	"github.com/easyparallel/epl/cpu/pool"
	"github.com/easyparallel/epl/ir"
)

func init() { natives[ir.OpConvGeneral] = convolution }

// convolution is a product: its rows are the pixels of the output, its columns the output channels, and its depth are the
// taps of the kernel times the input channels. A copy of the input with its padding, and with the zeros of its dilation,
// makes every tap of every pixel a place in memory; nothing else is copied.
//
// GoMLX writes the gradients of a convolution as convolutions with other axes, strides and dilations, so this is them, too.
func convolution(op *ir.Op) nativeFunc {
	a := op.Attrs.(*ir.ConvGeneral)
	x, kernel, out := op.Inputs[0], op.Inputs[1], op.Outputs[0]
	d := out.Shape.DType
	if !gemm.Supports(d) || x.Shape.DType != d || kernel.Shape.DType != d {
		return nil
	}
	axes := a.Axes
	get := func(list []int, i int) int {
		if len(list) == 0 || list[i] == 0 {
			return 1
		}
		return list[i]
	}
	groups, batchGroups := max(1, a.ChannelGroupCount), max(1, a.BatchGroupCount)
	if groups > 1 && batchGroups > 1 {
		return nil
	}

	// The input with its borders.
	config := make([]compute.PadAxis, x.Shape.Rank())
	padded := append([]int(nil), dimsOf(x)...)
	copied := false
	for i, axis := range axes.InputSpatial {
		c := compute.PadAxis{Interior: get(a.InputDilations, i) - 1}
		if len(a.Paddings) > 0 {
			c.Start, c.End = a.Paddings[i][0], a.Paddings[i][1]
		}
		config[axis] = c
		padded[axis] = c.Start + c.End + padded[axis] + (padded[axis]-1)*c.Interior
		copied = copied || c != compute.PadAxis{}
		if padded[axis] <= 0 {
			return nil
		}
	}
	xs, ks, os := rowMajor(padded), rowMajor(dimsOf(kernel)), rowMajor(dimsOf(out))

	// The depth: taps, then input channels, in the order in which the kernel has them in memory if possible.
	channels := dimsOf(kernel)[axes.KernelInputChannels]
	var depthX, depthK []int
	each(pickDims(dimsOf(kernel), axes.KernelSpatial), func(tap []int) {
		ox, ok := 0, 0
		for i, t := range tap {
			ox += t * get(a.KernelDilations, i) * xs[axes.InputSpatial[i]]
			ok += t * ks[axes.KernelSpatial[i]]
		}
		for c := range channels {
			depthX = append(depthX, ox+c*xs[axes.InputChannels])
			depthK = append(depthK, ok+c*ks[axes.KernelInputChannels])
		}
	})
	// Pixels of the output: of every batch.
	batch := dimsOf(out)[axes.OutputBatch]
	var pixelX, pixelO []int
	pixel := func(at []int, n int) {
		ox, oo := n*xs[axes.InputBatch], n*os[axes.OutputBatch]
		for i, t := range at {
			ox += t * get(a.Strides, i) * xs[axes.InputSpatial[i]]
			oo += t * os[axes.OutputSpatial[i]]
		}
		pixelX, pixelO = append(pixelX, ox), append(pixelO, oo)
	}
	where := pickDims(dimsOf(out), axes.OutputSpatial)
	if xs[axes.InputBatch] == 1 { // so that neighbours of a panel are neighbours in memory
		each(where, func(at []int) {
			for n := range batch {
				pixel(at, n)
			}
		})
	} else {
		for n := range batch {
			each(where, func(at []int) { pixel(at, n) })
		}
	}
	filters := dimsOf(out)[axes.OutputChannels]
	all := groups * batchGroups
	per := filters / all
	var filterK, filterO []int
	for f := range filters {
		filterK, filterO = append(filterK, f*ks[axes.KernelOutputChannels]), append(filterO, f*os[axes.OutputChannels])
	}

	// C's columns are contiguous: channels or pixels.
	var products []*gemm.Indexed
	var shifts []int // of the input, by group
	image, weights := gemm.Side{Free: pixelX, Depth: depthX}, func(g int) gemm.Side {
		return gemm.Side{Free: filterK[g*per : (g+1)*per], Depth: depthK}
	}
	swapped, beside := false, false
	for g := range all {
		p := &gemm.Indexed{DType: d}
		cols := filterO[g*per : (g+1)*per]
		switch {
		case contiguous(cols):
			p.A, p.B = image, weights(g)
			p.C = shifted(pixelO, cols[0])
		case contiguous(pixelO):
			p.A, p.B = weights(g), image
			p.C, swapped = shifted(cols, pixelO[0]), true
		default: // neither: the product is written beside, and its elements then put where they belong
			p.A, p.B = image, weights(g)
			beside = true
			for i := range pixelO {
				p.C = append(p.C, i*per)
			}
		}
		products = append(products, p)
		switch {
		case groups > 1:
			shifts = append(shifts, g*channels*xs[axes.InputChannels])
		default:
			shifts = append(shifts, g*batch*xs[axes.InputBatch])
		}
	}
	size := d.Size()
	fill := padder(dimsOf(x), padded, config, size)
	imageBytes, besideBytes := 0, 0
	if copied {
		imageBytes = (product(padded)*size + 63) &^ 63
	}
	if beside {
		besideBytes = len(pixelO) * per * size
	}
	return func(team *pool.Pool, in, out []unsafe.Pointer) error {
		scratch := team.Shared(imageBytes + besideBytes)
		img, to := in[0], out[0]
		if copied {
			img = scratch
			if err := fill(team, in[0], unsafe.Pointer(&zeros), img); err != nil {
				return err
			}
		}
		if beside {
			to = unsafe.Add(scratch, imageBytes)
		}
		for g, p := range products {
			from, by := unsafe.Add(img, shifts[g]*size), in[1]
			if swapped {
				from, by = by, from
			}
			if err := p.Run(team, from, by, to); err != nil {
				return err
			}
			if !beside {
				continue
			}
			err := team.Run(len(pixelO), func(_ *pool.Worker, i int) {
				for j := range per {
					at := pixelO[i] + filterO[g*per+j]
					copyStrided(unsafe.Add(out[0], at*size), unsafe.Add(to, (i*per+j)*size), size, 1, 1)
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// zeros is an element of any type.
var zeros [8]byte

// pickDims are some dims.
func pickDims(dims, axes []int) []int {
	p := make([]int, len(axes))
	for i, a := range axes {
		p[i] = dims[a]
	}
	return p
}

// each calls f for every index of these dims, the last running fastest.
func each(dims []int, f func([]int)) {
	at := make([]int, len(dims))
	for range product(dims) {
		f(at)
		for i := len(dims) - 1; i >= 0; i-- {
			if at[i]++; at[i] < dims[i] {
				break
			}
			at[i] = 0
		}
	}
}

func contiguous(offsets []int) bool {
	for i, o := range offsets {
		if o != offsets[0]+i {
			return false
		}
	}
	return true
}

func shifted(offsets []int, by int) []int {
	s := make([]int, len(offsets))
	for i, o := range offsets {
		s[i] = o + by
	}
	return s
}
