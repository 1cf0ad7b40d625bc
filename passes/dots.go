package passes

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// swapDots turns Transpose(DotGeneral(a, b)) into DotGeneral(b, a) where the transpose just exchanges what comes from
// a and what comes from b.
func swapDots(p *ir.Program) int {
	used := users(p)
	by := map[*ir.Value]*ir.Value{}
	for _, op := range slices.Clone(p.Main.Ops) {
		t, ok := op.Attrs.(*ir.Transpose)
		if !ok {
			continue
		}
		in := op.Inputs[0]
		d, ok := in.Op.Attrs.(*ir.DotGeneral)
		if !ok || used[in] != 1 || in.Op.TaskGraph != op.TaskGraph || !exchanges(t.Permutation, in.Op, d) {
			continue
		}
		swapped := p.NewOp(&ir.DotGeneral{
			LHSContractingAxes: d.RHSContractingAxes, LHSBatchAxes: d.RHSBatchAxes,
			RHSContractingAxes: d.LHSContractingAxes, RHSBatchAxes: d.LHSBatchAxes, Config: d.Config,
		}, []*ir.Value{in.Op.Inputs[1], in.Op.Inputs[0]}, op.Outputs[0].Shape)
		p.Main.InsertBefore(op, swapped)
		by[op.Outputs[0]] = swapped.Outputs[0]
	}
	return replace(p, by)
}

// exchanges tells whether perm, applied to the dot's [batch, left cross, right cross], gives [batch, right, left].
func exchanges(perm []int, dot *ir.Op, d *ir.DotGeneral) bool {
	batch := len(d.LHSBatchAxes)
	left := dot.Inputs[0].Shape.Rank() - batch - len(d.LHSContractingAxes)
	right := len(perm) - batch - left
	for i, axis := range perm {
		want := i
		switch {
		case i >= batch+right:
			want = i - right
		case i >= batch:
			want = i + left
		}
		if axis != want {
			return false
		}
	}
	return true
}

// dotLayout puts the left operand of a dot into the layout that the pure-Go backend computes on, [cross, contracting],
// where the right one already is [contracting, cross]. Left alone, the backend would transpose both.
func dotLayout(p *ir.Program) int {
	n := 0
	for _, op := range slices.Clone(p.Main.Ops) {
		d, ok := op.Attrs.(*ir.DotGeneral)
		if !ok || len(d.LHSBatchAxes) != 0 || len(d.LHSContractingAxes) != 1 || d.LHSContractingAxes[0] != 0 || d.RHSContractingAxes[0] != 0 {
			continue
		}
		left := op.Inputs[0]
		if left.Shape.Rank() != 2 || left.Shape.IsDynamic() {
			continue
		}
		t := p.NewOp(&ir.Transpose{Permutation: []int{1, 0}}, []*ir.Value{left},
			shapes.Make(left.Shape.DType, left.Shape.Dimensions[1], left.Shape.Dimensions[0]))
		p.Main.InsertBefore(op, t)
		op.Inputs[0] = t.Outputs[0]
		op.Attrs = &ir.DotGeneral{LHSContractingAxes: []int{1}, RHSContractingAxes: []int{0}, Config: d.Config}
		n++
	}
	return n
}

// sumDots turns float32 sums over all leading, or all trailing, dims into a dot with a vector of ones. The order of
// additions changes.
func sumDots(p *ir.Program) int {
	by := map[*ir.Value]*ir.Value{}
	for _, op := range slices.Clone(p.Main.Ops) {
		r, ok := op.Attrs.(*ir.ReduceSum)
		if !ok {
			continue
		}
		x := op.Inputs[0]
		rows, cols, leading, ok := asMatrix(x.Shape, r.Axes)
		if !ok || x.Shape.DType != dtypes.Float32 || min(rows, cols) < minSumDot {
			continue
		}
		if t := op.TaskGraph; t != nil && t.Devices > 1 && x.Shape.Rank() != 2 {
			continue // as a matrix, dims could not be sharded by themselves
		}
		insert := func(a ir.Attrs, shape shapes.Shape, in ...*ir.Value) *ir.Value {
			o := p.NewOp(a, in, shape)
			p.Main.InsertBefore(op, o)
			return o.Outputs[0]
		}
		f32 := func(dims ...int) shapes.Shape { return shapes.Make(dtypes.Float32, dims...) }
		m := x
		if x.Shape.Rank() != 2 {
			m = insert(&ir.Reshape{Dimensions: []int{rows, cols}}, f32(rows, cols), x)
		}
		summed, kept, axis := cols, rows, 1
		if leading {
			summed, kept, axis = rows, cols, 0
		}
		one := insert(&ir.Constant{Value: ir.Literal{Shape: f32(), Flat: []float32{1}}}, f32())
		ones := insert(&ir.BroadcastInDim{OutputShape: f32(1, summed)}, f32(1, summed), one)
		var sum *ir.Value
		if leading {
			sum = insert(&ir.DotGeneral{LHSContractingAxes: []int{1}, RHSContractingAxes: []int{axis}}, f32(1, kept), ones, m)
		} else {
			sum = insert(&ir.DotGeneral{LHSContractingAxes: []int{1}, RHSContractingAxes: []int{1}}, f32(kept, 1), m, ones)
		}
		out := op.Outputs[0].Shape
		by[op.Outputs[0]] = insert(&ir.Reshape{Dimensions: slices.Clone(out.Dimensions)}, out, sum)
	}
	return replace(p, by)
}

// minSumDot is the size below which a sum is left alone: the dot's overhead would eat the gain.
const minSumDot = 8

// asMatrix views a sum as one over the rows (leading) or the columns of a matrix.
func asMatrix(s shapes.Shape, axes []int) (rows, cols int, leading, ok bool) {
	k, rank := len(axes), s.Rank()
	if s.IsDynamic() || k == 0 || k == rank {
		return 0, 0, false, false
	}
	sorted := slices.Sorted(slices.Values(axes))
	first := sorted[0]
	if sorted[k-1]-first != k-1 || first != 0 && first+k != rank {
		return 0, 0, false, false
	}
	cut := k
	if first != 0 {
		cut = rank - k
	}
	rows, cols = 1, 1
	for i, d := range s.Dimensions {
		if i < cut {
			rows *= d
		} else {
			cols *= d
		}
	}
	return rows, cols, first == 0, true
}
