// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
)

// padded is a segment that devices run together, on one that has less of some values than others: what it takes is padded with zeros, and padding of
// what it gives is cut off. So nobody else knows of padding. It implements compute.Executable, emit.Late and emit.Joint.
type padded struct {
	compute.Executable
	pad, cut  compute.Executable // of all inputs and outputs that are too short
	ins, outs []int              // which these are
}

var (
	_ emit.Late  = (*padded)(nil)
	_ emit.Joint = (*padded)(nil)
)

// newPadded lets a device run what was compiled for values of the shapes that local has: at some coordinates it has others of s.
func newPadded(b compute.Backend, s, local *ir.Segment, at ir.Coordinates, inner compute.Executable) (_ compute.Executable, err error) {
	x := &padded{Executable: inner}
	if x.pad, x.ins, err = resized(b, "pad", s.Inputs, local.Inputs, at, false); err != nil {
		return nil, err
	}
	if x.cut, x.outs, err = resized(b, "cut", s.Outputs, local.Outputs, at, true); err != nil {
		return nil, err
	}
	if x.pad == nil && x.cut == nil {
		return inner, nil
	}
	return x, nil
}

// resized makes values longer, or back shorter, where a device has less than others. It returns which these are.
func resized(b compute.Backend, name string, values, local []*ir.Value, at ir.Coordinates, back bool) (_ compute.Executable, which []int, _ error) {
	p := ir.NewProgram(name)
	add := func(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value {
		op := p.NewOp(a, in, s)
		p.Main.Append(op)
		return op.Outputs[0]
	}
	for i, v := range values {
		short, long := v.LocalShape(at), local[i].Shape
		if short.Equal(long) {
			continue
		}
		which = append(which, i)
		if back {
			whole := &ir.Slice{Starts: make([]int, short.Rank()), Limits: short.Dimensions, Strides: slices.Repeat([]int{1}, short.Rank())}
			p.Main.Outputs = append(p.Main.Outputs, add(whole, short, add(&ir.Parameter{Name: v.String(), Shape: long}, long)))
			continue
		}
		ends := make([]compute.PadAxis, long.Rank())
		for d, n := range long.Dimensions {
			ends[d].End = n - short.Dimensions[d]
		}
		none := ir.Literal{Shape: shapes.Make(long.DType), Flat: newFlat(shapes.Make(long.DType))}
		in := add(&ir.Parameter{Name: v.String(), Shape: short}, short)
		p.Main.Outputs = append(p.Main.Outputs, add(&ir.Pad{AxesConfig: ends}, long, in, add(&ir.Constant{Value: none}, none.Shape)))
	}
	if len(which) == 0 {
		return nil, nil, nil
	}
	x, err := emit.Program(b, p)
	return x, which, err
}

// pick are some of many.
func pick[T any](all []T, which []int) (some []T) {
	for _, i := range which {
		some = append(some, all[i])
	}
	return some
}

// Execute implements compute.Executable.
func (x *padded) Execute(inputs []compute.Buffer, donate []bool, device compute.DeviceNum) (outs []compute.Buffer, err error) {
	inputs = slices.Clone(inputs)
	if x.pad != nil {
		long, err := x.pad.Execute(pick(inputs, x.ins), pick(donate, x.ins), device)
		if err != nil {
			return nil, err
		}
		for n, i := range x.ins {
			inputs[i] = long[n]
			defer func() {
				if err != nil || !donate[i] { // all devices give the same inputs away
					_ = long[n].Finalize()
				}
			}()
		}
	}
	if outs, err = x.Executable.Execute(inputs, donate, device); err != nil || x.cut == nil {
		return outs, err
	}
	short, err := x.cut.Execute(pick(outs, x.outs), slices.Repeat([]bool{true}, len(x.outs)), device)
	if err != nil {
		return nil, err
	}
	for n, i := range x.outs {
		outs[i] = short[n]
	}
	return outs, nil
}

// Finalize implements compute.Executable.
func (x *padded) Finalize() {
	for _, e := range []compute.Executable{x.Executable, x.pad, x.cut} {
		if e != nil {
			e.Finalize()
		}
	}
}

// Ready implements emit.Late.
func (x *padded) Ready(donate []bool) error {
	var all readying
	all.add(x.Executable, donate)
	if x.pad != nil {
		all.add(x.pad, pick(donate, x.ins))
	}
	if x.cut != nil {
		all.add(x.cut, slices.Repeat([]bool{true}, len(x.outs)))
	}
	return all.wait()
}

// Memory implements emit.Late.
func (x *padded) Memory() *emit.Listing {
	return listing(x.Executable)
}

// Abort implements emit.Joint.
func (x *padded) Abort(err error) {
	if j, ok := x.Executable.(emit.Joint); ok {
		j.Abort(err)
	}
}

// Reset implements emit.Joint.
func (x *padded) Reset() {
	if j, ok := x.Executable.(emit.Joint); ok {
		j.Reset()
	}
}
