package shard

import (
	"slices"

	"github.com/gomlx/compute"

	"github.com/easyparallel/epl/ir"
)

func init() {
	rules[ir.OpBroadcastInDim] = broadcast
	rules[ir.OpTranspose] = transpose
	rules[ir.OpReshape] = reshape
	rules[ir.OpBitcast] = bitcast
	rules[ir.OpIota] = count
	rules[ir.OpSlice] = slice
	rules[ir.OpPad] = pad
	rules[ir.OpConcatenate] = concatenate
	rules[ir.OpReverse] = reverse
}

func broadcast(op *ir.Op) *Rule {
	in, out := op.Inputs[0], op.Outputs[0]
	r := &Rule{}
	if in.Shape.Size() == out.Shape.Size() { // else it is cheaper to reduce the smaller value
		r.Linear = Moves
	}
	axes := op.Attrs.(*ir.BroadcastInDim).BroadcastAxes
	for d, n := range dims(out) {
		if i := slices.Index(axes, d); i >= 0 && dims(in)[i] == n {
			r.factor(op, n, 0, i, d)
		} else {
			r.factor(op, n, 0, whole, d)
		}
	}
	return r
}

func transpose(op *ir.Op) *Rule {
	r := &Rule{Linear: Moves}
	for d, from := range op.Attrs.(*ir.Transpose).Permutation {
		r.factor(op, dims(op.Outputs[0])[d], 0, from, d)
	}
	return r
}

// reshape: dims fall into groups with the same number of elements on both sides. Of a group only the first dim can be
// sharded, in steps that are whole rows on both sides.
func reshape(op *ir.Op) *Rule {
	r := &Rule{Linear: Moves}
	in, out := dims(op.Inputs[0]), dims(op.Outputs[0])
	if op.Outputs[0].Shape.Size() == 0 {
		return r
	}
	for i, j := 0, 0; ; {
		for i < len(in) && in[i] == 1 {
			i++
		}
		for j < len(out) && out[j] == 1 {
			j++
		}
		if i == len(in) || j == len(out) {
			return r
		}
		first, last := i, j
		a, b := in[i], out[j]
		for i, j = i+1, j+1; a != b; {
			if a < b {
				a, i = a*in[i], i+1
			} else {
				b, j = b*out[j], j+1
			}
		}
		rowIn, rowOut := a/in[first], b/out[last] // elements of one row
		step := rowIn / gcd(rowIn, rowOut) * rowOut
		if a/step > 1 {
			r.Factors = append(r.Factors, Factor{Size: a / step, In: []Ref{{first, step / rowIn}}, Out: []Ref{{last, step / rowOut}}})
		}
	}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// bitcast changes the last dim, if any.
func bitcast(op *ir.Op) *Rule {
	in := op.Inputs[0].Shape.Rank()
	r := sameDims(op, func(d int) bool { return d < in })
	return r
}

// count is the rule of Iota: along the dim that counts, a device counts from its first row.
func count(op *ir.Op) *Rule {
	r := sameDims(op, func(int) bool { return true })
	return r
}

// slice: dims that are taken whole, and those of which every so many rows are taken. What else is taken out of a sharded dim
// is made of the rows of several devices: if it is not much, each gives what it has.
func slice(op *ir.Op) *Rule {
	a := op.Attrs.(*ir.Slice)
	in, out := dims(op.Inputs[0]), dims(op.Outputs[0])
	r := sameDims(op, func(d int) bool { return in[d] == out[d] })
	r.Linear = Moves
	for d, n := range out {
		switch step := strideOf(a, d); {
		case n == in[d]:
		case in[d] == n*step:
			r.steps(n, Ref{d, step}, Ref{d, 1}, 0)
		case 8*n <= in[d]:
			r.factor(op, in[d], ir.ReduceBySum, d, whole)
		}
	}
	return r
}

func strideOf(a *ir.Slice, dim int) int {
	if len(a.Strides) == 0 {
		return 1
	}
	return a.Strides[dim]
}

// pad: dims without padding, and those where every row gets as much. With padding at the ends only, a device can make its rows
// from the whole.
func pad(op *ir.Op) *Rule {
	in, out := dims(op.Inputs[0]), dims(op.Outputs[0])
	r := &Rule{}
	for d, n := range in {
		switch a := padOf(op.Attrs.(*ir.Pad), d); {
		case a == compute.PadAxis{}:
			r.factor(op, n, 0, d, whole, d)
		case a.Start < 0 || a.End < 0:
		case a.Start+a.End == a.Interior:
			r.steps(n, Ref{d, 1}, Ref{d, a.Interior + 1}, 1)
		case a.Interior == 0:
			r.factor(op, out[d], 0, whole, whole, d)
		}
	}
	return r
}

func padOf(a *ir.Pad, dim int) compute.PadAxis {
	if dim >= len(a.AxesConfig) {
		return compute.PadAxis{}
	}
	return a.AxesConfig[dim]
}

// steps adds a factor of which a step is several rows of the first input or of the output; other inputs are needed whole.
func (r *Rule) steps(size int, in, out Ref, others int) {
	if size < 2 {
		return
	}
	f := Factor{Size: size, In: []Ref{in}, Out: []Ref{out}}
	for range others {
		f.In = append(f.In, Ref{whole, 1})
	}
	r.Factors = append(r.Factors, f)
}

// concatenate: other dims. Along its own, a device can make its rows from whole inputs.
func concatenate(op *ir.Op) *Rule {
	axis := op.Attrs.(*ir.Concatenate).Axis
	r := sameDims(op, func(d int) bool { return d != axis })
	r.Linear = Adds
	refs := append(slices.Repeat([]int{whole}, len(op.Inputs)), axis)
	r.factor(op, dims(op.Outputs[0])[axis], 0, refs...)
	return r
}

func reverse(op *ir.Op) *Rule {
	r := sameDims(op, func(d int) bool { return !slices.Contains(op.Attrs.(*ir.Reverse).Axes, d) })
	r.Linear = Moves
	return r
}
