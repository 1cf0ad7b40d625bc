// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/cpu/gemm"
	"github.com/easyparallel/epl/ir"
)

// dot adds a product; false: its types are none that products have here.
func (b *builder) dot(op *ir.Op, a *ir.DotGeneral) bool {
	l, r, out := op.Inputs[0], op.Inputs[1], op.Outputs[0]
	if !plain(l) || !plain(r) || !plain(out) {
		return false
	}
	in, o := l.Shape.DType, out.Shape.DType
	if r.Shape.DType != in {
		return false
	}
	acc := a.Config.AccumulatorDType
	if acc == dtypes.InvalidDType {
		acc = in
	}
	if acc == dtypes.BFloat16 || acc == dtypes.Float16 {
		acc = dtypes.Float32 // half precision is accumulated in float32
	}
	if gemm.SupportsIntegers(in) && acc == in && o == in {
		b.product(op, out, l, r, a, acc)
		return true
	}
	if !gemm.Supports(acc) || !isFloat(in) || !isFloat(o) {
		return false
	}
	if !gemm.SupportsIn(in, acc) {
		l, r = b.converted(l, acc), b.converted(r, acc)
	}
	if o == acc {
		b.product(op, out, l, r, a, acc)
		return true
	}
	// The product in the type of its accumulator, then rounded.
	wide := synthetic(a, shapes.Make(acc, out.Shape.Dimensions...), l, r)
	b.product(wide, wide.Outputs[0], l, r, a, acc)
	narrow := synthetic(&ir.ConvertDType{DType: o}, out.Shape, wide.Outputs[0])
	b.fuser.add(narrow)
	b.views[out] = b.views.of(narrow.Outputs[0])
	return true
}

func isFloat(d dtypes.DType) bool {
	return d == dtypes.Float32 || d == dtypes.Float64 || d == dtypes.BFloat16 || d == dtypes.Float16
}

func (b *builder) converted(v *ir.Value, d dtypes.DType) *ir.Value {
	op := synthetic(&ir.ConvertDType{DType: d}, shapes.Make(d, v.Shape.Dimensions...), v)
	b.fuser.add(op)
	return op.Outputs[0]
}

// product adds a product of two values of its own type, or of one that is converted while it is packed.
func (b *builder) product(op *ir.Op, out, l, r *ir.Value, a *ir.DotGeneral, d dtypes.DType) {
	lv := b.joined(l, a.LHSBatchAxes, a.LHSContractingAxes)
	rv := b.joined(r, a.RHSBatchAxes, a.RHSContractingAxes)
	in := l.Shape.DType
	p := &gemm.Product{DType: d, In: in}
	c := b.layout(out, len(a.LHSBatchAxes), len(lv.free), len(rv.free))
	p.M, p.A.Row = one(lv.view, lv.free)
	p.K, p.A.Col = one(lv.view, lv.contract)
	p.N, p.B.Col = one(rv.view, rv.free)
	_, p.B.Row = one(rv.view, rv.contract)
	nb := len(a.LHSBatchAxes)
	for i := range nb {
		if n := lv.view.dims[lv.batch[i]]; n > 1 {
			p.Batch = append(p.Batch, gemm.Batch{Size: n, A: lv.view.strides[lv.batch[i]], B: rv.view.strides[rv.batch[i]], C: c.strides[i]})
		}
	}
	_, crow := one(c, seq(nb, len(lv.free)))
	_, ccol := one(c, seq(nb+len(lv.free), len(rv.free)))
	mems := []*ir.Value{lv.view.root, rv.view.root}
	offsets := []int{lv.view.offset, rv.view.offset}
	if p.N == 1 {
		ccol = 1
	}
	if ccol != 1 { // the transposed product has contiguous rows
		p.M, p.N = p.N, p.M
		p.A, p.B = gemm.Matrix{Row: p.B.Col, Col: p.B.Row}, gemm.Matrix{Row: p.A.Col, Col: p.A.Row}
		for i := range p.Batch {
			x := &p.Batch[i]
			x.A, x.B = x.B, x.A
		}
		slices.Reverse(mems)
		slices.Reverse(offsets)
		crow = ccol
	}
	p.CRow = crow
	t := &task{dot: p, dotOffsets: [2]int{offsets[0] * in.Size(), offsets[1] * in.Size()}}
	to := c.root
	add, sum := b.addition(p, to)
	if p.Add = add != nil; p.Add {
		to, mems = add.Outputs[0], append(mems, sum)
	}
	b.fuser.addNode(op, mems)
	node := b.fuser.wrote[op.Outputs[0]]
	if b.fuser.wrote[c.root] = node; p.Add {
		b.fuser.wrote[to], node.ops = node, append(node.ops, add)
	}
	b.tasks[op] = t
	for _, v := range append(mems, to) {
		t.mems = append(t.mems, b.tensor(v, inArena, 0))
	}
	t.reads = len(mems)
}

// addition finds the addition to a sum that a product can do itself: the only op that reads the product adds it to an input that nothing else reads, and
// the segment returns the sum, which takes the memory of the input.
func (b *builder) addition(p *gemm.Product, product *ir.Value) (add *ir.Op, sum *ir.Value) {
	add = b.onlyAdd[product]
	if add == nil || !b.opts.dots || !b.opts.inPlace || b.uses[product] != 1 || !slices.Contains(b.segment.Outputs, add.Outputs[0]) || !p.CanAdd() {
		return nil, nil
	}
	if sum = add.Inputs[0]; sum == product {
		sum = add.Inputs[1]
	}
	if i, ok := b.number[sum]; !ok || b.tensors[i].place != isInput || b.uses[sum] != 1 || !sum.Shape.Equal(product.Shape) {
		return nil, nil
	}
	return add, sum
}

// dotOperand is an operand of a product whose free dims are one, and whose contracting dims are one, for some stride.
type dotOperand struct {
	view                  view
	batch, free, contract []int
}

// joined finds an operand's dims; where strides do not join them, it is copied into an order in which they do.
func (b *builder) joined(v *ir.Value, batch, contract []int) dotOperand {
	x := dotOperand{view: b.views.of(v), batch: batch, contract: contract}
	for i := range x.view.dims {
		if !slices.Contains(batch, i) && !slices.Contains(contract, i) {
			x.free = append(x.free, i)
		}
	}
	if joins(x.view, x.free) && joins(x.view, contract) {
		return x
	}
	order := slices.Concat(batch, x.free, contract)
	t := synthetic(&ir.Transpose{Permutation: order}, permuted(v.Shape, order), v)
	b.views.add(t)
	c := b.copyOf(t.Outputs[0])
	nb, nf := len(batch), len(x.free)
	return dotOperand{view: b.views.of(c), batch: seq(0, nb), free: seq(nb, nf), contract: seq(nb+nf, len(contract))}
}

func permuted(s shapes.Shape, order []int) shapes.Shape {
	dims := make([]int, len(order))
	for i, k := range order {
		dims[i] = s.Dimensions[k]
	}
	return shapes.Make(s.DType, dims...)
}

func seq(from, n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = from + i
	}
	return s
}

func pick(v view, axes []int) (dims, strides []int) {
	for _, a := range axes {
		dims, strides = append(dims, v.dims[a]), append(strides, v.strides[a])
	}
	return squeeze(dims, strides)
}

func joins(v view, axes []int) bool { d, _ := pick(v, axes); return len(d) <= 1 }

// one is the size and stride of axes that join.
func one(v view, axes []int) (n, stride int) {
	d, s := pick(v, axes)
	if len(d) == 0 {
		return 1, 1
	}
	return d[0], s[0]
}

// layout decides how a product lies in memory: as the transpose of it that is its only reader wants it, if that has
// contiguous rows or columns of the product.
func (b *builder) layout(out *ir.Value, batch, lfree, rfree int) view {
	own := view{root: out, dims: dimsOf(out), strides: rowMajor(dimsOf(out))}
	t := b.onlyTranspose[out]
	if t == nil || b.uses[out] != 1 {
		return own
	}
	to := t.Outputs[0]
	w := view{root: to, dims: dimsOf(out), strides: make([]int, len(own.dims))}
	for i, k := range t.Attrs.(*ir.Transpose).Permutation {
		w.strides[k] = rowMajor(dimsOf(to))[i]
	}
	l, r := seq(batch, lfree), seq(batch+lfree, rfree)
	if !joins(w, l) || !joins(w, r) {
		return own
	}
	n, crow := one(w, l)
	m, ccol := one(w, r)
	if crow != 1 && ccol != 1 || n == 1 && ccol != 1 || m == 1 && crow != 1 {
		return own
	}
	b.views[out] = w
	return w
}
