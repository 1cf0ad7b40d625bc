// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/cost"
)

// measurement is a rate of a profile.
type measurement struct {
	what     string // the key of the rate
	programs []program
	// rate is what programs tell that took so long. It may need the rates before it in the table.
	rate func(p *cost.Profile, took []float64) cost.Rate
}

// program is a point of a rate.
type program struct {
	text       string
	size, work float64
	kernels    int   // 0: one
	m, n       int64 // of a product
	moved      int64 // bytes that it reads and writes besides
	operands   int64 // bytes of what is packed
	far        bool  // its operands are in no cache
}

// besides is how long it takes to read, write and pack what a program does.
func (x program) besides(p *cost.Profile) float64 {
	k := &cost.Kernel{Family: cost.Elementwise, Read: x.moved, Operands: x.operands}
	return float64(max(x.kernels, 1)) * (p.Kernel(k) - p.Launch).Seconds()
}

// measurements are what there is to measure, in the order of the table.
func measurements() (all []measurement) {
	add := func(what string, programs ...program) {
		all = append(all, measurement{what: what, programs: programs, rate: func(p *cost.Profile, took []float64) (r cost.Rate) {
			for i, x := range programs {
				s := took[i]
				if x.moved > 0 {
					s = max(s-x.besides(p), s/2)
				}
				r = append(r, cost.Point{Size: x.size, PerSecond: significant(x.work / s / p.Filled(x.m, x.n))})
			}
			return r
		}})
	}
	var memory []program
	for _, n := range []int{4 << 10, 64 << 10, 512 << 10, 4 << 20} {
		shape := fmt.Sprintf("float32[%d]", n)
		w := newProgram()
		bytes := 12 * float64(n)
		memory = append(memory, program{text: w.text(w.op("Add(%s, %s)", shape, w.parameter(shape), w.parameter(shape))), size: bytes, work: bytes, far: true})
	}
	add(cost.Memory, memory...) // the others need it
	all = append(all, packing())
	add(cost.Dot+"/float32", dots("float32", 16, 32, 64, 128, 256, 512)...)
	add(cost.Dot+"/bfloat16", dots("bfloat16", 64, 192, 512)...)
	add(cost.Dot+"/float16", dots("float16", 64, 192, 512)...)
	var convolutions []program
	for _, c := range []int{8, 32, 128} {
		convolutions = append(convolutions, convolution(c))
	}
	add(cost.Conv+"/float32", convolutions...)
	var elementwise, loops, functions, sums []program
	for _, n := range []int{4 << 10, 32 << 10, 256 << 10} {
		shape := fmt.Sprintf("float32[%d]", n)
		chain := func(op string) program {
			w := newProgram()
			a, b := w.parameter(shape), w.parameter(shape)
			x := a
			for range 8 {
				x = w.op(op+"(%s, %s)", shape, w.op("Mul(%s, %s)", shape, x, b), a)
			}
			return program{text: w.text(x), size: 16 * float64(n), work: 16 * float64(n)}
		}
		elementwise, loops = append(elementwise, chain("Max")), append(loops, chain("Add"))

		w := newProgram()
		y := w.op("Exp(%s)", shape, w.op("Logistic(%s)", shape, w.op("Erf(%s)", shape, w.parameter(shape))))
		work := float64(cost.Weight("Exp")+cost.Weight("Logistic")+cost.Weight("Erf")) * float64(n)
		functions = append(functions, program{text: w.text(y), size: work, work: work})

		sums = append(sums, sum(n/64, 64))
	}
	add(cost.Elementwise+"/float32", elementwise...)
	add(cost.Loop+"/float32", loops...)
	add(cost.Math+"/float32", functions...)
	add(cost.Reduce+"/float32", sums...)
	return append(all, shortRows())
}

// sum is that of the columns of a matrix.
func sum(rows, columns int) program {
	w := newProgram()
	out := w.op("ReduceSum(%s) {Axes: [0]}", fmt.Sprintf("float32[%d]", columns), w.parameter(fmt.Sprintf("float32[%d,%d]", rows, columns)))
	n := float64(rows * columns)
	return program{text: w.text(out), size: n, work: n}
}

// shortRows measures what it takes to begin a row: the rest is what the sums take.
func shortRows() measurement {
	const rows = 32 << 10
	x := sum(rows, 32)
	return measurement{what: cost.Rows, programs: []program{x}, rate: func(p *cost.Profile, took []float64) cost.Rate {
		s := max(took[0]-x.work/p.Rate(cost.Reduce, dtypes.Float32, x.work), took[0]/10)
		return cost.Rate{{Size: rows, PerSecond: significant(rows / s)}}
	}}
}

// packing measures what it takes to pack the operands of products: a product of few rows has many times as many of them as a square one of as many flops.
func packing() measurement {
	few, square := products("float32", 16, 1024, 1024), products("float32", 256, 256, 256)
	return measurement{what: cost.Pack, programs: []program{few, square}, rate: func(p *cost.Profile, took []float64) cost.Rate {
		longer := max((took[0]-few.besides(p))-(took[1]-square.besides(p)), took[0]/100)
		bytes := float64(3 * (few.operands - square.operands))
		return cost.Rate{{Size: bytes, PerSecond: significant(bytes / longer)}}
	}}
}

// dots are products of square matrices.
func dots(dtype string, sizes ...int) (programs []program) {
	for _, n := range sizes {
		programs = append(programs, products(dtype, n, n, n))
	}
	return programs
}

// products are those of a layer in a training: of its input and its weights, and those of the gradient of its output with both.
func products(dtype string, m, k, n int) program {
	size := int64(4)
	if dtype != "float32" {
		size = 2
	}
	w := newProgram()
	shape := func(rows, columns int) string { return fmt.Sprintf("%s[%d,%d]", dtype, rows, columns) }
	x, weights, dy := w.parameter(shape(m, k)), w.parameter(shape(k, n)), w.parameter(shape(m, n))
	const dot = "DotGeneral(%s, %s) {LHSContractingAxes: [%d], RHSContractingAxes: [%d]}"
	y := w.op(dot, shape(m, n), x, weights, 1, 0)
	dx := w.op(dot, shape(m, k), dy, weights, 1, 1)
	dw := w.op(dot, shape(k, n), x, dy, 0, 0)
	flops := 2 * float64(m) * float64(k) * float64(n)
	matrices := int64(m*k+k*n+m*n) * size // each of the products reads two of them and writes one
	return program{text: w.text(y, dx, dw), size: flops, work: 3 * flops, kernels: 3, m: int64(m), n: int64(n), moved: matrices, operands: matrices * 2 / 3, far: true}
}

// convolution is one of a layer in a training, with so many channels, and those of its gradients.
func convolution(channels int) program {
	const images, side, window = 4, 16, 3
	w := newProgram()
	image, kernel := fmt.Sprintf("float32[%d,%d,%d,%d]", images, side, side, channels), fmt.Sprintf("float32[%d,%d,%d,%d]", window, window, channels, channels)
	const conv = "ConvGeneral(%s, %s) {Axes: {InputBatch: %d, InputChannels: %d, InputSpatial: [1, 2], KernelInputChannels: %d, KernelOutputChannels: %d, KernelSpatial: [%s], " +
		"OutputBatch: %d, OutputChannels: %d, OutputSpatial: [%s]}, Strides: [1, 1], Paddings: [[1, 1], [1, 1]], ChannelGroupCount: 1, BatchGroupCount: 1}"
	x, weights, dy := w.parameter(image), w.parameter(kernel), w.parameter(image)
	y := w.op(conv, image, x, weights, 0, 3, 2, 3, "0, 1", 0, 3, "1, 2")
	dx := w.op(conv, image, dy, w.op("Reverse(%s) {Axes: [0, 1]}", kernel, weights), 0, 3, 3, 2, "0, 1", 0, 3, "1, 2")
	dw := w.op(conv, kernel, x, dy, 3, 0, 0, 3, "1, 2", 2, 3, "0, 1")
	flops := 2 * images * side * side * window * window * float64(channels*channels)
	return program{text: w.text(y, dx, dw), size: flops, work: 3 * flops, kernels: 3, n: int64(channels),
		moved: 4 * int64(2*images*side*side*channels+window*window*channels*channels), far: true}
}

// writer writes the text of a program of the IR.
type writer struct {
	inputs, ops strings.Builder
	n           int
}

func newProgram() *writer { return &writer{} }

func (w *writer) value() string {
	w.n++
	return fmt.Sprint("%", w.n-1)
}

func (w *writer) parameter(shape string) string {
	v := w.value()
	fmt.Fprintf(&w.inputs, "input %s\n", v)
	fmt.Fprintf(&w.ops, "  %s = Parameter() {Name: \"arg%s\", Shape: %s} -> %s : forward\n", v, v[1:], shape, shape)
	return v
}

// op writes an op; format has its name, inputs and attributes.
func (w *writer) op(format, shape string, inputs ...any) string {
	v := w.value()
	fmt.Fprintf(&w.ops, "  %s = %s -> %s : forward\n", v, fmt.Sprintf(format, inputs...), shape)
	return v
}

func (w *writer) text(outputs ...string) string {
	return "program \"calibrate\"\n" + w.inputs.String() + "outputs" + strings.Repeat(" result", len(outputs)) + "\nmain {\n" + w.ops.String() + "  return " + strings.Join(outputs, ", ") + "\n}\n"
}
