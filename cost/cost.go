// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"math"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// Cost is what one op takes.
type Cost struct {
	Flops        int64 // additions and multiplications; others count as in the table of weights
	BytesRead    int64
	BytesWritten int64
}

// Bytes is how much memory the op touches.
func (c Cost) Bytes() int64 { return c.BytesRead + c.BytesWritten }

// Of estimates an op, its closures included. What is given (parameters, constants) costs nothing, and nor does what
// only gives a value another name or shape.
func Of(op *ir.Op) Cost {
	t := op.Type()
	if op.IsLeaf() || renames[t] {
		return Cost{}
	}
	c := Cost{Flops: flops(op) / sharers(op)}
	for _, v := range op.Outputs {
		c.BytesWritten += v.Bytes()
	}
	c.BytesRead = bytesRead(op)
	return c
}

// sharers are how many devices share the arithmetic of an op of an SPMD program.
func sharers(op *ir.Op) int64 {
	n := int64(1)
	for axis := ir.Replicas; axis <= op.LastAxis(); axis++ {
		shared := func(v *ir.Value) bool {
			return v != nil && (v.On(axis).Kind == ir.Sharded || v.On(axis).Kind == ir.Flat)
		}
		for _, v := range slices.Concat(op.Inputs, op.Outputs) {
			if shared(v) {
				n *= int64(v.Devices(axis))
				break
			}
		}
	}
	return n
}

// bytesRead is the size of the inputs, except where an op looks at a part of one only.
func bytesRead(op *ir.Op) (n int64) {
	for i, v := range op.Inputs {
		switch {
		case v == nil:
		case i == 0 && looksAtAPart(op):
			n += min(v.Bytes(), op.Outputs[0].Bytes())
		default:
			n += v.Bytes()
		}
	}
	return n
}

// looksAtAPart tells whether an op reads as much of its first input as it writes.
func looksAtAPart(op *ir.Op) bool {
	switch op.Attrs.(type) {
	case *ir.Slice, *ir.DynamicSlice, *ir.Gather, *ir.QuantizedEmbeddingLookup:
		return true
	}
	return false
}

// flops counts the arithmetic of an op.
func flops(op *ir.Op) int64 {
	t := op.Type()
	if w, ok := weights[t]; ok {
		return w * size(op.Outputs[0].Shape)
	}
	switch a := op.Attrs.(type) {
	case *ir.DotGeneral:
		return dot(op.Inputs[0].Shape, op.Inputs[1].Shape, a.RHSContractingAxes, a.RHSBatchAxes)
	case *ir.ConvGeneral:
		kernel := op.Inputs[1].Shape.Dimensions
		perOutput := dim(kernel, a.Axes.KernelInputChannels)
		for _, axis := range a.Axes.KernelSpatial {
			perOutput *= dim(kernel, axis)
		}
		// Between the elements of an input that is dilated are zeros, which nobody multiplies.
		return 2 * perOutput * size(op.Outputs[0].Shape) / max(product(a.InputDilations), 1)
	case *ir.ReduceWindow:
		return product(a.WindowDimensions) * size(op.Outputs[0].Shape)
	case *ir.SelectAndScatterMax:
		return product(a.WindowDimensions) * size(op.Inputs[1].Shape)
	case *ir.SelectAndScatterMin:
		return product(a.WindowDimensions) * size(op.Inputs[1].Shape)
	case *ir.FFT:
		n := max(product(a.FFTLength), 1)
		return int64(5 * float64(size(op.Outputs[0].Shape)) * math.Log2(float64(n)+1))
	case *ir.RNGBitGenerator:
		return random * size(op.Outputs[1].Shape)
	case *ir.Sort, *ir.While, *ir.If, *ir.Call:
		return closures(op)
	}
	if of, ok := perInput[t]; ok {
		return of.weight * size(op.Inputs[of.input].Shape)
	}
	return fused(op)
}

// dot counts 2mkn for each pair of matrices: every element of lhs meets the columns of rhs, which are what rhs has
// besides contracted and batch dims.
func dot(lhs, rhs shapes.Shape, contracting, batch []int) int64 {
	columns := int64(1)
	for i := range rhs.Dimensions {
		if !slices.Contains(contracting, i) && !slices.Contains(batch, i) {
			columns *= dim(rhs.Dimensions, i)
		}
	}
	return 2 * size(lhs) * columns
}

// fused counts the arithmetic of ops that do what several others would.
func fused(op *ir.Op) int64 {
	switch a := op.Attrs.(type) {
	case *ir.FusedDense:
		x, y := op.Inputs[0].Shape, op.Outputs[0].Shape
		return (2*last(x) + 1 + activations[a.Options.Activation]) * size(y)
	case *ir.FusedQuantizedDense:
		x, y := op.Inputs[0].Shape, op.Outputs[0].Shape
		return (2*last(x) + 2 + activations[a.Activation]) * size(y)
	case *ir.FusedAttentionQKVProjection:
		x := op.Inputs[0].Shape
		return size(x) * 2 * int64(a.QueryDim+2*a.KeyValueDim)
	case *ir.FusedScaledDotProductAttention:
		return attention(op, a.AxesLayout, 2)
	case *ir.FusedScaledDotProductAttentionVJP:
		return attention(op, a.AxesLayout, 5) // the scores again, and the gradients of weights, query, key and value
	}
	return 0
}

// attention counts so many products between all queries and keys, and a softmax.
func attention(op *ir.Op, layout compute.AttentionAxesLayout, products int64) int64 {
	query, key := op.Inputs[0].Shape, op.Inputs[1].Shape
	length := 2
	if layout == compute.AttentionAxesLayoutBSHD {
		length = 1
	}
	keys := dim(key.Dimensions, length)
	scores := size(query) / max(last(query), 1) * keys
	return scores * (2*products*last(query) + softmax)
}

// closures counts the functions of an op as often as is known: both sides of an If cost what the larger does, a sort
// compares n·log n times, and of a While, whose iterations are known only when it runs, one is counted.
func closures(op *ir.Op) int64 {
	var n int64
	for _, f := range op.Funcs {
		var body int64
		for _, o := range f.Ops {
			body += Of(o).Flops
		}
		if _, either := op.Attrs.(*ir.If); either {
			n = max(n, body)
		} else {
			n += body
		}
	}
	if a, ok := op.Attrs.(*ir.Sort); ok {
		elements := op.Inputs[0].Shape
		length := dim(elements.Dimensions, a.Axis)
		n = max(n, 1) * int64(float64(size(elements))*math.Log2(float64(length)+1))
	}
	return n
}

// Activations is how many bytes of what forward computes the backward ops among ops read, and so must be kept until
// they run. Parameters and constants are there anyway.
func Activations(ops []*ir.Op) int64 {
	var n int64
	seen := map[*ir.Value]bool{}
	for _, op := range ops {
		if op.Phase != ir.Backward {
			continue
		}
		op.Uses(func(v *ir.Value) {
			if v.Op.Phase == ir.Forward && !v.Op.IsLeaf() && !seen[v] {
				seen[v] = true
				n += v.Bytes()
			}
		})
	}
	return n
}

func size(s shapes.Shape) int64 { return product(s.Dimensions) }

func product(dims []int) int64 {
	n := int64(1)
	for i := range dims {
		n *= dim(dims, i)
	}
	return n
}

// dim is a dimension, 1 if it is known only when the program runs; axes may count from the end.
func dim(dims []int, axis int) int64 {
	if axis < 0 {
		axis += len(dims)
	}
	if axis < 0 || axis >= len(dims) || dims[axis] == shapes.DynamicDim {
		return 1
	}
	return int64(dims[axis])
}

func last(s shapes.Shape) int64 { return dim(s.Dimensions, -1) }

// Cheap are the forward ops that are done at once from parameters and constants, except those that the user marked.
func Cheap(p *ir.Program, marked map[*ir.Op]bool) map[*ir.Op]bool {
	cheap := map[*ir.Op]bool{}
	for _, op := range p.Main.Ops {
		if op.IsLeaf() || op.Phase != ir.Forward || marked[op] || !Light(op) {
			continue
		}
		ok := true
		op.Uses(func(v *ir.Value) { ok = ok && (v.Op.IsLeaf() || cheap[v.Op]) })
		if ok {
			cheap[op] = true
		}
	}
	return cheap
}
