// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// convLayer is a convolution of square images and kernels, with channels last and borders of half a kernel.
type convLayer struct{ batch, in, out, size, kernel, stride int }

func (l convLayer) String() string {
	return fmt.Sprintf("%dx%dx%d %d->%d %dx%d_%d", l.batch, l.size, l.size, l.in, l.out, l.kernel, l.kernel, l.stride)
}

func (l convLayer) pad() int    { return l.kernel / 2 }
func (l convLayer) output() int { return (l.size+2*l.pad()-l.kernel)/l.stride + 1 }
func (l convLayer) flops() float64 {
	return 2 * float64(l.batch*l.output()*l.output()*l.out) * float64(l.in*l.kernel*l.kernel)
}

// programs are the layer forward, by input and by weights, as GoMLX writes its gradients.
func (l convLayer) programs() map[string]*ir.Program {
	o, k, s, pad := l.output(), l.kernel, l.stride, l.pad()
	x, y := shapes.Make(dtypes.Float32, l.batch, l.size, l.size, l.in), shapes.Make(dtypes.Float32, l.batch, o, o, l.out)
	w := shapes.Make(dtypes.Float32, k, k, l.in, l.out)
	axes := compute.ConvolveAxesConfig{InputBatch: 0, InputChannels: 3, InputSpatial: []int{1, 2}, KernelInputChannels: 2, KernelOutputChannels: 3,
		KernelSpatial: []int{0, 1}, OutputBatch: 0, OutputChannels: 3, OutputSpatial: []int{1, 2}}
	byInput := axes
	byInput.KernelInputChannels, byInput.KernelOutputChannels = 3, 2
	byWeights := compute.ConvolveAxesConfig{InputBatch: 3, InputChannels: 0, InputSpatial: []int{1, 2}, KernelInputChannels: 0, KernelOutputChannels: 3,
		KernelSpatial: []int{1, 2}, OutputBatch: 2, OutputChannels: 3, OutputSpatial: []int{0, 1}}
	both := func(v [2]int) [][2]int { return [][2]int{v, v} }
	start := k - 1 - pad
	end := l.size + (k - 1) - start - (o-1)*s - 1
	list := map[string]*ir.Program{}
	for name, a := range map[string]*ir.ConvGeneral{
		"forward":    {Axes: axes, Strides: []int{s, s}, Paddings: both([2]int{pad, pad})},
		"by input":   {Axes: byInput, InputDilations: []int{s, s}, Paddings: both([2]int{start, end})},
		"by weights": {Axes: byWeights, KernelDilations: []int{s, s}, Paddings: both([2]int{pad, k + (o-1)*s - l.size - pad})},
	} {
		from := map[string][3]shapes.Shape{"forward": {x, w, y}, "by input": {y, w, x}, "by weights": {x, y, w}}[name]
		a.ChannelGroupCount, a.BatchGroupCount = 1, 1
		p := ir.NewProgram(name)
		for i, s := range from[:2] {
			p.Main.Append(p.NewOp(&ir.Parameter{Name: fmt.Sprint("arg", i), Shape: s}, nil, s))
		}
		op := p.NewOp(a, p.Main.Params, from[2])
		p.Main.Append(op)
		p.Main.Outputs = op.Outputs
		list[name] = p
	}
	return list
}

var convLayers = []convLayer{
	{16, 3, 8, 32, 3, 1}, {16, 8, 8, 32, 3, 1}, {16, 8, 16, 32, 3, 2}, {16, 16, 16, 16, 3, 1}, {16, 8, 16, 32, 1, 2}, {16, 16, 32, 16, 3, 2},
	{16, 32, 32, 8, 3, 1}, {16, 16, 16, 32, 3, 1}, {16, 64, 64, 32, 3, 1}, {4, 256, 64, 56, 1, 1}, {4, 64, 64, 56, 3, 1}, {4, 64, 256, 56, 1, 1},
	{2, 3, 64, 112, 7, 2}, {4, 64, 128, 56, 3, 2}, {4, 256, 256, 14, 3, 1},
}

func BenchmarkConvolutions(b *testing.B) {
	for _, threads := range []int{1, 2} {
		engine := cpu.New(opByOp(b), threads)
		defer engine.Finalize()
		r := rand.New(rand.NewPCG(1, 2))
		for _, l := range convLayers {
			list := l.programs()
			for _, name := range []string{"forward", "by input", "by weights"} {
				b.Run(fmt.Sprintf("%d threads/%v/%s", threads, l, name), func(b *testing.B) {
					p := list[name]
					x, err := emit.Program(engine, p)
					if err != nil {
						b.Fatal(err)
					}
					defer x.Finalize()
					var ins []compute.Buffer
					for _, v := range p.Main.Params {
						buf, err := engine.BufferFromFlatData(0, content(r, v.Shape), v.Shape)
						if err != nil {
							b.Fatal(err)
						}
						ins = append(ins, buf)
					}
					for b.Loop() {
						outs, err := x.Execute(ins, nil, 0)
						if err != nil {
							b.Fatal(err)
						}
						for _, o := range outs {
							o.Finalize()
						}
					}
					b.ReportMetric(l.flops()*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
