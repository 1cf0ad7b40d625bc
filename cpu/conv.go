// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cpu/gemm"
	"github.com/easyparallel/epl/cpu/pool"
	"github.com/easyparallel/epl/ir"
)

func init() { natives[ir.OpConvGeneral] = convolution }

// convolution is a contraction: its rows are the pixels of the output, its columns the output channels, and its depth are the
// taps of the kernel times the input channels. Pixels whose windows have the same taps inside of the image are a region: so
// borders, and the zeros between the pixels of a dilated image, are never multiplied, nor copied.
//
// GoMLX writes the gradients of a convolution as convolutions with other axes, strides and dilations, so this is them, too.
func convolution(op *ir.Op) nativeFunc {
	a := op.Attrs.(*ir.ConvGeneral)
	x, kernel, out := op.Inputs[0], op.Inputs[1], op.Outputs[0]
	d := out.Shape.DType
	if !gemm.Supports(d) || x.Shape.DType != d || kernel.Shape.DType != d || a.ChannelGroupCount > 1 && a.BatchGroupCount > 1 {
		return nil
	}
	c := &conv{axes: a.Axes, groups: max(1, a.ChannelGroupCount), batchGroups: max(1, a.BatchGroupCount),
		x: dimsOf(x), kernel: dimsOf(kernel), out: dimsOf(out)}
	for i := range a.Axes.InputSpatial {
		s := spatial{input: c.x[a.Axes.InputSpatial[i]], taps: c.kernel[a.Axes.KernelSpatial[i]], output: c.out[a.Axes.OutputSpatial[i]],
			stride: at(a.Strides, i), inner: at(a.InputDilations, i), dilation: at(a.KernelDilations, i)}
		if len(a.Paddings) > 0 {
			s.pad = a.Paddings[i]
		}
		if s.padded() <= 0 {
			return nil
		}
		c.spatial = append(c.spatial, s)
	}
	border, bytes := c.border(d.Size())
	p := c.contraction(d)
	return func(team *pool.Pool, in, out []unsafe.Pointer) error {
		scratch := team.Shared(bytes + p.Scratch())
		image, by := in[0], in[1]
		if border != nil {
			image = scratch
			if err := border(team, in[0], unsafe.Pointer(&zeros), image); err != nil {
				return err
			}
		}
		if c.swapped {
			image, by = by, image
		}
		return p.Run(team, image, by, out[0], unsafe.Add(scratch, bytes))
	}
}

// conv is a convolution on its way to a contraction.
type conv struct {
	axes                compute.ConvolveAxesConfig
	groups, batchGroups int
	x, kernel, out      []int
	spatial             []spatial
	swapped             bool // the kernel is the contraction's first operand
	cols                int  // the dim of pixels that is its columns, if it is swapped
}

// spatial is one of the axes along which windows move.
type spatial struct {
	input, taps, output     int
	stride, inner, dilation int
	pad                     [2]int
}

// padded is the size of the input with its borders and the zeros of its dilation.
func (s *spatial) padded() int { return s.pad[0] + s.pad[1] + s.input + (s.input-1)*(s.inner-1) }

// at is an element of a list that may be missing: then it is 1.
func at(list []int, i int) int {
	if len(list) == 0 || list[i] == 0 {
		return 1
	}
	return list[i]
}

// windows are positions of the output, step apart, whose windows have the same taps inside of the image, tapStep apart.
type windows struct {
	from, step, size       int
	tap, tapStep, tapCount int
	// The pixel of the first tap at the first position, and the distances to that of the next position and of the next tap.
	input, move, tapMove int
}

// windows sorts the positions along an axis.
func (s *spatial) windows() (list []windows) {
	for o := range s.output {
		w := windows{from: o, size: 1}
		for t := range s.taps {
			y := o*s.stride + t*s.dilation - s.pad[0]
			if y%s.inner != 0 || y < 0 || y/s.inner >= s.input {
				continue
			}
			switch w.tapCount {
			case 0:
				w.tap, w.input = t, y/s.inner
			case 1:
				w.tapStep, w.tapMove = t-w.tap, y/s.inner-w.input
			}
			w.tapCount++
		}
		i := slices.IndexFunc(list, func(l windows) bool {
			return l.tap == w.tap && l.tapStep == w.tapStep && l.tapCount == w.tapCount &&
				(l.size == 1 || o == l.from+l.size*l.step && w.input == l.input+l.size*l.move)
		})
		if i < 0 {
			list = append(list, w)
			continue
		}
		if l := &list[i]; l.size == 1 {
			l.step, l.move = o-l.from, w.input-l.input
		}
		list[i].size++
	}
	return list
}

// dim is a dim of pixels: its size, and the distances in the input and in the output.
type dim struct{ size, x, out int }

// pixels are the dims of the pixels of a region: batches, then an entry for each spatial axis.
func (c *conv) pixels(w []windows) []dim {
	xs, os := rowMajor(c.x), rowMajor(c.out)
	list := []dim{{c.out[c.axes.OutputBatch], xs[c.axes.InputBatch], os[c.axes.OutputBatch]}}
	for i, w := range w {
		list = append(list, dim{w.size, w.move * xs[c.axes.InputSpatial[i]], w.step * os[c.axes.OutputSpatial[i]]})
	}
	return list
}

// orient decides which operand has the contraction's columns, which should be contiguous.
func (c *conv) orient() {
	os := rowMajor(c.out)
	score := func(size, operand, out int) int {
		s := min(size, 16)
		if operand == 1 {
			s *= 2
		}
		if out == 1 {
			s *= 4
		}
		return s
	}
	best := score(c.out[c.axes.OutputChannels]/c.groups/c.batchGroups, 1, os[c.axes.OutputChannels]) // a kernel is packed once
	var w []windows
	for _, s := range c.spatial {
		w = append(w, windows{size: s.output, step: 1, move: s.stride})
	}
	for i, p := range c.pixels(w) {
		if s := score(p.size, p.x, p.out); p.out == 1 && s > best {
			best, c.swapped, c.cols = s, true, i
		}
	}
}

// border decides whether the input is copied with its borders, and makes the function that does it and the bytes that it takes.
func (c *conv) border(size int) (fill func(team *pool.Pool, x, value, out unsafe.Pointer) error, bytes int) {
	c.orient()
	// The columns of all regions must be the same pixels. Where pixels are the depth, as they are in a gradient by weights, all
	// taps should have the same of them. And regions must not be many.
	regions := 1
	for _, s := range c.spatial {
		regions *= len(s.windows())
	}
	if !c.swapped && (rowMajor(c.x)[c.axes.InputBatch] != 1 && regions < 400 || regions == 1) {
		return nil, 0
	}
	config := make([]compute.PadAxis, len(c.x))
	padded := slices.Clone(c.x)
	for i, axis := range c.axes.InputSpatial {
		s := &c.spatial[i]
		config[axis] = compute.PadAxis{Start: s.pad[0], End: s.pad[1], Interior: s.inner - 1}
		padded[axis] = s.padded()
		s.input, s.inner, s.pad = padded[axis], 1, [2]int{}
	}
	if slices.Equal(padded, c.x) {
		return nil, 0
	}
	fill = bordered(c.x, padded, config, size)
	c.x = padded
	return fill, (product(padded)*size + 63) &^ 63
}

// bordered makes a function that copies an image into a larger one with a value around it. Lines along the last axis that has
// borders are copied as a whole; where there is dilation, or parts are cut off, element by element.
func bordered(dims, to []int, config []compute.PadAxis, size int) func(team *pool.Pool, x, value, out unsafe.Pointer) error {
	last := len(dims) - 1
	inner := size
	for last > 0 && config[last] == (compute.PadAxis{}) {
		inner *= dims[last]
		last--
	}
	for i, c := range config {
		if c.Start < 0 || c.End < 0 || c.Interior != 0 && (i == last || dims[i] > 1) {
			return padder(dims, to, config, size)
		}
	}
	start, line, end := config[last].Start*inner, dims[last]*inner, config[last].End*inner
	length := start + line + end
	lines := product(to[:last])
	tasks := max(1, min(lines, lines*length/moved))
	return func(team *pool.Pool, x, value, out unsafe.Pointer) error {
		fill := func(row []byte) {
			if value == unsafe.Pointer(&zeros) {
				clear(row)
				return
			}
			copyStrided(unsafe.Pointer(unsafe.SliceData(row)), value, len(row)/size, 0, size)
		}
		return team.Run(tasks, func(_ *pool.Worker, t int) {
			for l := t * lines / tasks; l < (t+1)*lines/tasks; l++ {
				row := unsafe.Slice((*byte)(unsafe.Add(out, l*length)), length)
				from, stride, rest, inside := 0, line, l, true
				for i := last - 1; i >= 0; i-- {
					at := rest%to[i] - config[i].Start
					rest /= to[i]
					inside = inside && at >= 0 && at < dims[i]
					from += at * stride
					stride *= dims[i]
				}
				if !inside {
					fill(row)
					continue
				}
				fill(row[:start])
				copy(row[start:], unsafe.Slice((*byte)(unsafe.Add(x, from)), line))
				fill(row[start+line:])
			}
		})
	}
}

// contraction makes the product.
func (c *conv) contraction(d dtypes.DType) *gemm.Contraction {
	xs, ks, os := rowMajor(c.x), rowMajor(c.kernel), rowMajor(c.out)
	channels, all := c.kernel[c.axes.KernelInputChannels], c.groups*c.batchGroups
	filters := c.out[c.axes.OutputChannels] / all
	p := &gemm.Contraction{DType: d, Size: product(c.out),
		Groups: gemm.Dim{Size: all, A: channels * xs[c.axes.InputChannels], B: filters * ks[c.axes.KernelOutputChannels], C: filters * os[c.axes.OutputChannels]}}
	if c.batchGroups > 1 {
		p.Groups.A = c.out[c.axes.OutputBatch] * xs[c.axes.InputBatch]
	}
	var lists [][]windows
	var counts []int
	for i := range c.spatial {
		lists = append(lists, c.spatial[i].windows())
		counts = append(counts, len(lists[i]))
	}
	// The depth: a dim for the taps of every axis, then one for channels.
	for i, s := range c.spatial {
		n := gemm.Dim{Size: s.taps, B: ks[c.axes.KernelSpatial[i]]}
		if c.swapped {
			n.B = s.dilation * xs[c.axes.InputSpatial[i]]
		}
		p.Depth = append(p.Depth, n)
	}
	n := gemm.Dim{Size: channels, B: ks[c.axes.KernelInputChannels]}
	if c.swapped {
		n.B = xs[c.axes.InputChannels]
		p.Groups.A, p.Groups.B = p.Groups.B, p.Groups.A
	}
	p.Depth = append(p.Depth, n)
	p.Cols = gemm.Dim{Size: filters, B: ks[c.axes.KernelOutputChannels], C: os[c.axes.OutputChannels]}
	var regions []gemm.Region
	each(counts, func(at []int) {
		var r gemm.Region
		var w []windows
		for i, k := range at {
			w = append(w, lists[i][k])
		}
		begin := 0 // of the region in the input
		for i, v := range w {
			begin += v.input * xs[c.axes.InputSpatial[i]]
			r.C += v.from * os[c.axes.OutputSpatial[i]]
			t := gemm.Range{Size: v.tapCount, From: v.tap, Step: v.tapStep, A: v.tapMove * xs[c.axes.InputSpatial[i]]}
			if c.swapped {
				t.A = v.tapStep * ks[c.axes.KernelSpatial[i]]
			}
			r.Depth = append(r.Depth, t)
		}
		t := gemm.Range{Size: channels, Step: 1, A: xs[c.axes.InputChannels]}
		if c.swapped {
			t.A = ks[c.axes.KernelInputChannels]
		}
		r.Depth = append(r.Depth, t)
		pixels := c.pixels(w)
		if !c.swapped {
			r.A = begin
			for _, q := range pixels {
				r.Rows = append(r.Rows, gemm.Dim{Size: q.size, A: q.x, C: q.out})
			}
		} else {
			r.B = begin
			r.Rows = []gemm.Dim{{Size: filters, A: ks[c.axes.KernelOutputChannels], C: os[c.axes.OutputChannels]}}
			for i, q := range pixels {
				if i == c.cols {
					p.Cols = gemm.Dim{Size: q.size, B: q.x, C: q.out}
				} else {
					r.Outer = append(r.Outer, gemm.Dim{Size: q.size, B: q.x, C: q.out})
				}
			}
		}
		regions = append(regions, r)
	})
	p.Compile(regions)
	return p
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
