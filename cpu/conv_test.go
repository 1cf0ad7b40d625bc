// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// randomConvolution draws axes, strides, paddings, dilations and groups; ok is false if no output is left.
func randomConvolution(r *rand.Rand) (p *ir.Program, inputs []any, ok bool) {
	d := []dtypes.DType{dtypes.Float32, dtypes.Float64}[r.IntN(2)]
	spatial := 1 + r.IntN(2)
	rank := spatial + 2
	a := &ir.ConvGeneral{ChannelGroupCount: 1, BatchGroupCount: 1}
	groups := 1
	if r.IntN(3) == 0 {
		groups = 2
		if r.IntN(2) == 0 {
			a.ChannelGroupCount = 2
		} else {
			a.BatchGroupCount = 2
		}
	}
	batch, channels, filters := 1+r.IntN(3), 1+r.IntN(9), (1+r.IntN(20))*groups
	x, k, o := make([]int, rank), make([]int, rank), make([]int, rank)
	xa, ka, oa := r.Perm(rank), r.Perm(rank), r.Perm(rank)
	if r.IntN(2) == 0 { // as GoMLX lays images out
		for i := range rank {
			xa[i], oa[i] = (i+spatial+1)%rank, (i+spatial+1)%rank
			ka[i] = (i + spatial) % rank
		}
		xa[0], xa[1], oa[0], oa[1] = 0, rank-1, 0, rank-1
		for i := range spatial {
			xa[2+i], oa[2+i], ka[2+i] = 1+i, 1+i, i
		}
		ka[0], ka[1] = rank-2, rank-1
	}
	a.Axes = compute.ConvolveAxesConfig{InputBatch: xa[0], InputChannels: xa[1], InputSpatial: xa[2:], KernelInputChannels: ka[0], KernelOutputChannels: ka[1],
		KernelSpatial: ka[2:], OutputBatch: oa[0], OutputChannels: oa[1], OutputSpatial: oa[2:]}
	x[xa[0]], x[xa[1]], k[ka[0]], k[ka[1]], o[oa[0]], o[oa[1]] = batch, channels, channels, filters, batch, filters
	if a.ChannelGroupCount > 1 {
		x[xa[1]] = channels * groups
	}
	if a.BatchGroupCount > 1 {
		x[xa[0]] = batch * groups
	}
	for i := range spatial {
		size, taps := 1+r.IntN(12), 1+r.IntN(4)
		stride, pad, dx, dk := 1+r.IntN(3), [2]int{r.IntN(3), r.IntN(3)}, 1+r.IntN(2)*r.IntN(2), 1+r.IntN(2)*r.IntN(2)
		a.Strides, a.Paddings = append(a.Strides, stride), append(a.Paddings, pad)
		a.InputDilations, a.KernelDilations = append(a.InputDilations, dx), append(a.KernelDilations, dk)
		n := (size-1)*dx + 1 + pad[0] + pad[1] - ((taps-1)*dk + 1)
		if n < 0 {
			return nil, nil, false
		}
		x[xa[2+i]], k[ka[2+i]], o[oa[2+i]] = size, taps, n/stride+1
	}
	p = ir.NewProgram("convolution")
	for i, s := range []shapes.Shape{shapes.Make(d, x...), shapes.Make(d, k...)} {
		p.Main.Append(p.NewOp(&ir.Parameter{Name: fmt.Sprint("arg", i), Shape: s}, nil, s))
		inputs = append(inputs, content(r, s))
	}
	op := p.NewOp(a, p.Main.Params, shapes.Make(d, o...))
	p.Main.Append(op)
	p.Main.Outputs = op.Outputs
	return p, inputs, true
}

// naiveConvolution computes a convolution by its definition. GoMLX's backend cannot be the oracle: with groups of batches it takes the
// output's batch size from the input's axis.
func naiveConvolution(a *ir.ConvGeneral, x, k []float64, xd, kd, od []int) []float64 {
	strides := func(dims []int) []int {
		s, n := make([]int, len(dims)), 1
		for i := len(dims) - 1; i >= 0; i-- {
			s[i] = n
			n *= dims[i]
		}
		return s
	}
	xs, ks, os := strides(xd), strides(kd), strides(od)
	out := make([]float64, product(od))
	filters, channels := od[a.Axes.OutputChannels], kd[a.Axes.KernelInputChannels]
	taps := 1
	for _, i := range a.Axes.KernelSpatial {
		taps *= kd[i]
	}
	for o := range out {
		at := func(axis int) int { return o / os[axis] % od[axis] }
		f, n := at(a.Axes.OutputChannels), at(a.Axes.OutputBatch)
		c0 := f / (filters / a.ChannelGroupCount) * channels
		n += f / (filters / a.BatchGroupCount) * od[a.Axes.OutputBatch]
		for t := range taps {
			ox, ok, rest, inside := n*xs[a.Axes.InputBatch], f*ks[a.Axes.KernelOutputChannels], t, true
			for i := len(a.Axes.KernelSpatial) - 1; i >= 0; i-- {
				tap := rest % kd[a.Axes.KernelSpatial[i]]
				rest /= kd[a.Axes.KernelSpatial[i]]
				y := at(a.Axes.OutputSpatial[i])*a.Strides[i] + tap*a.KernelDilations[i] - a.Paddings[i][0]
				inside = inside && y >= 0 && y%a.InputDilations[i] == 0 && y/a.InputDilations[i] < xd[a.Axes.InputSpatial[i]]
				ox += y / a.InputDilations[i] * xs[a.Axes.InputSpatial[i]]
				ok += tap * ks[a.Axes.KernelSpatial[i]]
			}
			for c := 0; inside && c < channels; c++ {
				out[o] += x[ox+(c0+c)*xs[a.Axes.InputChannels]] * k[ok+c*ks[a.Axes.KernelInputChannels]]
			}
		}
	}
	return out
}

// wide are numbers as float64.
func wide(flat any) []float64 {
	v := reflect.ValueOf(flat)
	w := make([]float64, v.Len())
	for i := range w {
		w[i] = v.Index(i).Float()
	}
	return w
}

func TestConvolutionsOfAnyAxesStridesPaddingsDilationsAndGroups(t *testing.T) {
	list := engines(t)
	r := rand.New(rand.NewPCG(11, 12))
	for n := 0; n < 400; {
		p, inputs, ok := randomConvolution(r)
		if !ok {
			continue
		}
		n++
		op := p.Main.Outputs[0].Op
		want := naiveConvolution(op.Attrs.(*ir.ConvGeneral), wide(inputs[0]), wide(inputs[1]), op.Inputs[0].Shape.Dimensions, op.Inputs[1].Shape.Dimensions, op.Outputs[0].Shape.Dimensions)
		for name, b := range list {
			if err := same(want, wide(execute(t, b, p, inputs)[0]), 1e-5); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, p)
			}
		}
	}
}

// Layers are large enough to be shared out, and to have depths that are cut.
func TestConvolutionsOfLayersAndTheirGradients(t *testing.T) {
	list := engines(t)
	r := rand.New(rand.NewPCG(13, 14))
	layers := []convLayer{{3, 3, 8, 16, 3, 1}, {2, 8, 8, 15, 3, 1}, {2, 5, 40, 14, 3, 2}, {3, 8, 16, 16, 1, 2}, {2, 17, 33, 9, 1, 1}, {1, 3, 70, 21, 7, 2},
		{2, 48, 24, 7, 3, 1}, {5, 34, 100, 8, 3, 1}, {1, 2, 1, 40, 5, 3}}
	for _, l := range layers {
		for name, p := range l.programs() {
			var inputs []any
			for _, v := range p.Main.Params {
				inputs = append(inputs, content(r, v.Shape))
			}
			op := p.Main.Outputs[0].Op
			a := *op.Attrs.(*ir.ConvGeneral)
			for _, s := range []*[]int{&a.Strides, &a.InputDilations, &a.KernelDilations} {
				if *s == nil {
					*s = []int{1, 1}
				}
			}
			want := naiveConvolution(&a, wide(inputs[0]), wide(inputs[1]), op.Inputs[0].Shape.Dimensions, op.Inputs[1].Shape.Dimensions, op.Outputs[0].Shape.Dimensions)
			var first any
			for engine, b := range list {
				got := execute(t, b, p, inputs)[0]
				if err := same(want, wide(got), 1e-5); err != nil {
					t.Fatalf("%v %s, %s: %v", l, name, engine, err)
				}
				if first == nil {
					first = got
				}
				if err := same(first, got, 0); err != nil {
					t.Fatalf("%v %s: engines differ: %v", l, name, err)
				}
			}
		}
	}
}
