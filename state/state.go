// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package state describes the variables of a model as pieces, whatever the plan: which part of which variable is where, and who writes it.
//
// What goes in is, for each variable, its shape and which ranks hold which part of it: that is what a plan has made of it, by split (even or
// not), ZeRO, a pipeline, offload, or nothing. What comes out are [Piece]s that cover every variable exactly once, each with one owner among the
// ranks that hold it, so that reads, checkpoints and recovery need no plan. It knows no program, device or file.
//
// A [Region] is a part of a tensor: a box, and of the elements of that box, in row-major order, those from one number up to another. So
// it can be what a split gives a device (a box), what ZeRO gives it (consecutive elements, of the whole or of a box, without padding), and a
// share of either.
package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// Region is a part of a tensor: a box from Start up to Limit, per axis, and of its elements in row-major order those from From up to To.
type Region struct {
	Start []int `json:"start"`
	Limit []int `json:"limit"`
	From  int   `json:"from"`
	To    int   `json:"to"`
}

// Whole is all of a tensor.
func Whole(dims []int) Region {
	r := Region{Start: make([]int, len(dims)), Limit: slices.Clone(dims)}
	if r.Limit == nil {
		r.Limit = []int{}
	}
	r.To = r.boxSize()
	return r
}

// Box is the part of a tensor from start up to limit.
func Box(start, limit []int) Region {
	r := Region{Start: start, Limit: limit}
	r.To = r.boxSize()
	return r
}

// Size is the number of elements.
func (r Region) Size() int { return r.To - r.From }

// boxSize is the number of elements of the box.
func (r Region) boxSize() int {
	n := 1
	for i := range r.Limit {
		n *= r.Limit[i] - r.Start[i]
	}
	return n
}

// isBox tells whether it has all elements of its box.
func (r Region) isBox() bool { return r.From == 0 && r.To == r.boxSize() }

// Dims are the dimensions of a tensor that holds the region: those of the box, or a row of elements if it has not all of them.
func (r Region) Dims() []int {
	if !r.isBox() {
		return []int{r.Size()}
	}
	dims := make([]int, len(r.Limit))
	for i := range dims {
		dims[i] = r.Limit[i] - r.Start[i]
	}
	return dims
}

// Equal tells whether two regions are written the same.
func (r Region) Equal(o Region) bool {
	return slices.Equal(r.Start, o.Start) && slices.Equal(r.Limit, o.Limit) && r.From == o.From && r.To == o.To
}

// String is like [0:4,2:8], and [0:4,2:8]/5:12 if it has not all elements of the box.
func (r Region) String() string {
	var s []string
	for i := range r.Start {
		s = append(s, fmt.Sprintf("%d:%d", r.Start[i], r.Limit[i]))
	}
	text := "[" + strings.Join(s, ",") + "]"
	if !r.isBox() {
		text += fmt.Sprintf("/%d:%d", r.From, r.To)
	}
	return text
}

// Check returns why it is no part of a tensor.
func (r Region) Check(dims []int) error {
	if len(r.Start) != len(dims) || len(r.Limit) != len(dims) {
		return errors.Errorf("epl: the region %v has another rank than the dimensions %v", r, dims)
	}
	for i, n := range dims {
		if r.Start[i] < 0 || r.Start[i] > r.Limit[i] || r.Limit[i] > n {
			return errors.Errorf("epl: the region %v is not within the dimensions %v", r, dims)
		}
	}
	if r.From < 0 || r.From > r.To || r.To > r.boxSize() {
		return errors.Errorf("epl: the region %v has not the elements from %d to %d", r, r.From, r.To)
	}
	return nil
}

// Run is a row of consecutive elements that two tensors have: where it begins in each, and how long it is.
type Run struct{ At, In, Len int }

// runs visits the rows of consecutive elements of the region, in order: at counts in a tensor of these dimensions, in in the region.
func (r Region) runs(dims []int, visit func(Run)) {
	if r.Size() == 0 {
		return
	}
	// The last axes that the box has all of make one row, together with the axis before them.
	inner, axis := 1, len(dims)-1
	for ; axis >= 0; axis-- {
		inner *= r.Limit[axis] - r.Start[axis]
		if r.Start[axis] != 0 || r.Limit[axis] != dims[axis] {
			break
		}
	}
	strides := make([]int, len(dims))
	for i, n := len(dims)-1, 1; i >= 0; i-- {
		strides[i] = n
		n *= dims[i]
	}
	for row := r.From / inner; row*inner < r.To; row++ {
		at, rest := 0, row
		for i := len(dims) - 1; i >= 0; i-- {
			if i >= max(axis, 0) { // these are in the row
				at += r.Start[i] * strides[i]
				continue
			}
			n := r.Limit[i] - r.Start[i]
			at += (r.Start[i] + rest%n) * strides[i]
			rest /= n
		}
		from, to := max(r.From, row*inner), min(r.To, (row+1)*inner)
		visit(Run{At: at + from - row*inner, In: from - r.From, Len: to - from})
	}
}

// Overlap visits what two regions of a tensor have in common: At counts in the first region, In in the second.
func Overlap(dims []int, a, b Region, visit func(Run)) {
	if !meet(a, b) {
		return
	}
	if slices.Equal(a.Start, b.Start) && slices.Equal(a.Limit, b.Limit) {
		if from, to := max(a.From, b.From), min(a.To, b.To); from < to {
			visit(Run{At: from - a.From, In: from - b.From, Len: to - from})
		}
		return
	}
	var rows []Run
	a.runs(dims, func(r Run) { rows = append(rows, r) })
	b.runs(dims, func(r Run) {
		// Rows of a region are in the order of the tensor, and do not meet.
		first, _ := slices.BinarySearchFunc(rows, r.At, func(x Run, at int) int { return x.At + x.Len - 1 - at })
		for _, x := range rows[first:] {
			if x.At >= r.At+r.Len {
				break
			}
			from, to := max(x.At, r.At), min(x.At+x.Len, r.At+r.Len)
			visit(Run{At: x.In + from - x.At, In: r.In + from - r.At, Len: to - from})
		}
	})
}

// Bytes is how much memory so many elements take. Elements that share a byte count only together.
func Bytes(dtype dtypes.DType, elements int) int { return dtype.SizeForDimensions(elements) }

// Cut copies a region out of what another region of the same tensor holds. All of it must be there.
func Cut(dtype dtypes.DType, dims []int, to []byte, want Region, from []byte, has Region) error {
	found := 0
	if want.Equal(has) {
		found = want.Size()
		copy(to, from)
	} else if dtype.IsPacked() {
		return errors.Errorf("epl: values of type %s share bytes: such a tensor is read as it was written, not in other parts", dtype)
	} else {
		size := int(dtype.Size())
		Overlap(dims, has, want, func(r Run) {
			found += r.Len
			copy(to[r.In*size:(r.In+r.Len)*size], from[r.At*size:])
		})
	}
	if found != want.Size() {
		return errors.Errorf("epl: internal error: %d of the %d elements of %v are in %v", found, want.Size(), want, has)
	}
	return nil
}

// Cover returns why regions do not cover a tensor exactly once.
func Cover(dims []int, regions []Region) error {
	total := 0
	boxes := map[string][]Region{} // regions of the same box
	for _, r := range regions {
		if err := r.Check(dims); err != nil {
			return err
		}
		if total += r.Size(); r.Size() > 0 {
			box := fmt.Sprint(r.Start, r.Limit)
			boxes[box] = append(boxes[box], r)
		}
	}
	var common error
	check := func(a, b Region) {
		Overlap(dims, a, b, func(Run) { common = errors.Errorf("epl: %v and %v have elements in common", a, b) })
	}
	var before [][]Region
	for _, same := range boxes {
		slices.SortFunc(same, func(a, b Region) int { return cmp.Compare(a.From, b.From) })
		for i := range same[1:] {
			check(same[i], same[i+1])
		}
		for _, others := range before {
			if !meet(same[0], others[0]) {
				continue
			}
			for _, a := range same {
				for _, b := range others {
					check(a, b)
				}
			}
		}
		before = append(before, same)
	}
	if whole := Whole(dims); common == nil && total != whole.Size() {
		return errors.Errorf("epl: %d of the %d elements are there", total, whole.Size())
	}
	return common
}

// meet tells whether the boxes of two regions have elements in common.
func meet(a, b Region) bool {
	for i := range a.Start {
		if a.Limit[i] <= b.Start[i] || b.Limit[i] <= a.Start[i] {
			return false
		}
	}
	return true
}

// Held is a region of a variable and the ranks that hold it.
type Held struct {
	Region
	Ranks []int
}

// Variable is a logical variable, and where its regions are: together they cover it exactly once.
type Variable struct {
	Path  string
	Shape shapes.Shape
	Held  []Held
}

// Piece is a part of a variable that has one owner.
type Piece struct {
	Path   string
	DType  dtypes.DType
	Shape  []int // of the variable
	Region Region
	Owner  int // rank
}

// Bytes is how much memory it takes.
func (p Piece) Bytes() int { return Bytes(p.DType, p.Region.Size()) }
