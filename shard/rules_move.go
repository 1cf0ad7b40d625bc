package shard

import (
	"slices"

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
	r := &Rule{Cheap: true}
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
	r := &Rule{Linear: Moves, Cheap: true}
	for d, from := range op.Attrs.(*ir.Transpose).Permutation {
		r.factor(op, dims(op.Outputs[0])[d], 0, from, d)
	}
	return r
}

// reshape: dims fall into groups with the same number of elements on both sides. Of a group only the first dim can be
// sharded, in steps that are whole rows on both sides.
func reshape(op *ir.Op) *Rule {
	r := &Rule{Linear: Moves, Cheap: true}
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
	r.Cheap = true
	return r
}

// count is the rule of Iota: rows are the same along all dims but the one that counts.
func count(op *ir.Op) *Rule {
	r := sameDims(op, func(d int) bool { return d != op.Attrs.(*ir.Iota).IotaAxis })
	r.Cheap = true
	return r
}

func slice(op *ir.Op) *Rule {
	r := sameDims(op, func(d int) bool { return dims(op.Inputs[0])[d] == dims(op.Outputs[0])[d] })
	r.Linear = Moves
	return r
}

func pad(op *ir.Op) *Rule {
	axes := op.Attrs.(*ir.Pad).AxesConfig
	return sameDims(op, func(d int) bool {
		return d >= len(axes) || axes[d].Start == 0 && axes[d].End == 0 && axes[d].Interior == 0
	}, 1)
}

func concatenate(op *ir.Op) *Rule {
	r := sameDims(op, func(d int) bool { return d != op.Attrs.(*ir.Concatenate).Axis })
	r.Linear = Adds
	return r
}

func reverse(op *ir.Op) *Rule {
	r := sameDims(op, func(d int) bool { return !slices.Contains(op.Attrs.(*ir.Reverse).Axes, d) })
	r.Linear = Moves
	return r
}
