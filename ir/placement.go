// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/pkg/errors"
)

// In an SPMD program an op stands for all devices of its stage. Values keep the shapes that they have on one device; how the
// devices hold them is said by placements, one for each axis of the mesh of the stage. A change of placement is an op, [Reshard].

// Axis is an axis of a mesh.
type Axis int

// The axes. A stage may have more axes of devices: those after Model.
const (
	Replicas Axis = iota // the model replicas
	Model                // the devices of a stage
)

// String returns "replica", "model", "model2" and so on.
func (a Axis) String() string {
	switch a {
	case Replicas:
		return "replica"
	case Model:
		return "model"
	}
	return fmt.Sprintf("model%d", int(a))
}

// PlacementKind is the kind of a placement.
type PlacementKind uint8

// The kinds of placements.
const (
	Replicated PlacementKind = iota // every device has the whole value
	Sharded                         // every device has some rows of a dim
	Partial                         // every device has a term: their reduction is the value
	Each                            // every device has a value of its own, which depends on its position
	Flat                            // every device has some of the elements, laid out flat: as many each, with zeros past the end
)

var placementNames = [...]string{"replicated", "sharded", "partial", "each", "flat"}

// String returns the word used in program text.
func (k PlacementKind) String() string { return placementNames[k] }

// MarshalText writes kinds as words into files.
func (k PlacementKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads them.
func (k *PlacementKind) UnmarshalText(text []byte) error {
	i := slices.Index(placementNames[:], string(text))
	if i < 0 {
		return errors.Errorf("%q is no kind of placement: it is one of %q", text, placementNames)
	}
	*k = PlacementKind(i)
	return nil
}

// Placement says how the devices along one axis of a mesh hold a value. It is comparable; the zero Placement is Replicated.
type Placement struct {
	Kind PlacementKind `json:"kind"`
	Dim  int           `json:"dim"` // of Sharded
	// Unit, of Sharded, is how many rows stay together. If devices have equal weights, what they get differs by one unit at most, and the first
	// ones get more: 10 rows over 4 devices are 3, 3, 2, 2. A batch of 10 sentences of 7 tokens that was reshaped to 70
	// tokens is sharded in units of 7.
	Unit   int       `json:"unit"`
	Reduce Reduction `json:"reduce,omitempty"` // of Partial
}

// String prints the placement, as "sharded(0)", "sharded(0 by 7)" or "partial(sum)".
func (p Placement) String() string {
	switch {
	case p.Kind == Partial:
		return fmt.Sprintf("partial(%s)", p.Reduce)
	case p.Kind != Sharded:
		return p.Kind.String()
	case p.Unit == 1:
		return fmt.Sprintf("sharded(%d)", p.Dim)
	}
	return fmt.Sprintf("sharded(%d by %d)", p.Dim, p.Unit)
}

// Rows are those of device j, as a range, of a dim of n rows.
func (p Placement) Rows(n, j int, d Division) (from, to int) {
	if d.Weights != nil {
		starts := d.starts(n / p.Unit)
		return starts[j] * p.Unit, starts[j+1] * p.Unit
	}
	whole, extra := n/p.Unit/d.Devices, n/p.Unit%d.Devices
	start := func(j int) int { return (j*whole + min(j, extra)) * p.Unit }
	return start(j), start(j + 1)
}

// Start computes the first row of the device at a position, an int64, of n that devices share: by ops and numbers that others make.
func (p Placement) Start(at *Value, n int, d Division, add func(Attrs, ...*Value) *Value, number func(int) *Value) (start *Value) {
	if d.Weights != nil {
		return p.startBefore(at, n, d, add, number)
	}
	whole, extra := n/p.Unit/d.Devices, n/p.Unit%d.Devices
	start = add(&Mul{}, at, number(whole*p.Unit))
	if extra > 0 { // the first ones have a unit more
		start = add(&Add{}, start, add(&Mul{}, add(&Min{}, at, number(extra)), number(p.Unit)))
	}
	return start
}

// Local is the shape of what device j has of a value.
func (p Placement) Local(s shapes.Shape, j int, d Division) shapes.Shape {
	switch p.Kind {
	case Sharded:
		from, to := p.Rows(s.Dimensions[p.Dim], j, d)
		s = s.Clone()
		s.Dimensions[p.Dim] = to - from
	case Flat:
		return PartShape(s, d.Devices)
	}
	return s
}

// PartShape is the shape of one of n flat parts of a tensor: past the end there are zeros, so that all have one shape.
func PartShape(whole shapes.Shape, n int) shapes.Shape {
	return shapes.Make(whole.DType, (whole.Size()+n-1)/n)
}

// On is the placement of the value along an axis.
func (v *Value) On(axis Axis) Placement {
	if int(axis) < len(v.placed) {
		return v.placed[axis].Placement
	}
	return Placement{}
}

// SetOn says how the value is placed along an axis of k devices, which have equal parts.
func (v *Value) SetOn(axis Axis, p Placement, k int) { v.SetDivided(axis, p, Even(k)) }

// SetDivided says how the value is placed along an axis of devices.
func (v *Value) SetDivided(axis Axis, p Placement, d Division) {
	placed := make([]along, max(len(v.placed), int(axis)+1))
	copy(placed, v.placed)
	placed[axis] = along{p, d}
	for len(placed) > 0 && placed[len(placed)-1].Placement == (Placement{}) {
		placed = placed[:len(placed)-1]
	}
	v.placed, v.local = placed, shapes.Shape{}
	if len(placed) > 0 {
		v.local = v.LocalShape(nil)
	}
}

// LastAxis is the last one along which an operand of the op is placed; -1 if there is none.
func (op *Op) LastAxis() Axis {
	last := -1
	for _, v := range op.Inputs {
		if v != nil {
			last = max(last, len(v.placed)-1)
		}
	}
	for _, v := range op.Outputs {
		last = max(last, len(v.placed)-1)
	}
	return Axis(last)
}

// Devices is how many there are along an axis on which the value is not replicated; 0 if it is.
func (v *Value) Devices(axis Axis) int { return v.Division(axis).Devices }

// Division is the devices along an axis on which the value is not replicated; there are none if it is.
func (v *Value) Division(axis Axis) Division {
	if int(axis) < len(v.placed) {
		return v.placed[axis].Division
	}
	return Division{}
}

// PlaceLike says that the value is placed as another one.
func (v *Value) PlaceLike(w *Value) {
	v.placed, v.local = w.placed, shapes.Shape{}
	if len(v.placed) > 0 {
		v.local = v.LocalShape(nil)
	}
}

// along is a placement along an axis of devices.
type along struct {
	Placement
	Division
}

// Coordinates are where a device is in the mesh, by axis; the rest of it is 0.
type Coordinates []int

// At is the coordinate along an axis.
func (c Coordinates) At(axis Axis) int {
	if int(axis) < len(c) {
		return c[axis]
	}
	return 0
}

// LocalShape is the shape of what a device has of the value: parts along the axes of the stage, and a flat part of what these
// leave. Nowhere is where the device is that has the largest of unequal parts.
func (v *Value) LocalShape(at Coordinates) shapes.Shape {
	switch {
	case len(v.placed) == 0:
		return v.Shape
	case at == nil && v.local.Ok():
		return v.local
	}
	s := v.Shape
	for i, on := range v.placed[1:] {
		j := at.At(Axis(i + 1))
		if at == nil {
			j = on.largest()
		}
		s = on.Local(s, j, on.Division)
	}
	return v.placed[Replicas].Local(s, at.At(Replicas), v.placed[Replicas].Division)
}

// IsPlaced tells whether some device may have something else of the value than others.
func (v *Value) IsPlaced() bool { return len(v.placed) > 0 }

// Reshard is a value in another placement, or on the devices of another stage. What happens for that, a collective between
// devices, a transfer, or nothing but taking rows, follows from the placements of its input and its output.
type Reshard struct {
	// Stack: the input is one of [Each], and the output has all of them, in a new first dim.
	Stack bool
}

// Change is what a Reshard does: along an axis, from one placement to another, which takes a collective, or none if how is 0. The
// position of a device along that axis is then the second input.
func (op *Op) Change() (axis Axis, how Collective) {
	v, w := op.Inputs[0], op.Outputs[0]
	for axis = range Axis(max(len(v.placed), len(w.placed))) {
		if from, to := v.On(axis), w.On(axis); from != to {
			return axis, from.Collective(to)
		}
	}
	return Model, 0
}

// IsExchange tells whether the op is a collective.
func (op *Op) IsExchange() bool {
	if !op.IsReshard() || op.IsTransfer() {
		return false
	}
	_, how := op.Change()
	return how != 0
}

// IsTransfer tells whether the op brings a value of another group of devices.
func (op *Op) IsTransfer() bool {
	return op.IsReshard() && !op.Inputs[0].Op.IsLeaf() && op.Inputs[0].Op.Place != op.Place
}

// Position is where a device is along an axis of the mesh: an int32, given, and different on each.
type Position struct {
	Axis Axis
}

// FillEnd sets what lies past the end of a flat value to a number that changes nothing in a reduction. The second input is the
// position of the device along the model replicas.
type FillEnd struct {
	With Literal
}

// The operations of SPMD programs.
const (
	OpFillEnd  OpType = "FillEnd"
	OpReshard  OpType = "Reshard"
	OpPosition OpType = "Position"
)

func init() {
	newAttrs[OpReshard] = func() Attrs { return &Reshard{} }
	newAttrs[OpFillEnd] = func() Attrs { return &FillEnd{} }
	newAttrs[OpPosition] = func() Attrs { return &Position{} }
}

// PositionShape is that of [Position].
var PositionShape = shapes.Make(dtypes.Int32)

// OpType implements Attrs.
func (*Reshard) OpType() OpType { return OpReshard }

// OpType implements Attrs.
func (*FillEnd) OpType() OpType { return OpFillEnd }

// OpType implements Attrs.
func (*Position) OpType() OpType { return OpPosition }

func (*Reshard) arity() arity  { return arity{}.required(1).list() }
func (*FillEnd) arity() arity  { return arity{}.required(2) }
func (*Position) arity() arity { return arity{} }

// Emit implements Attrs, by an error: see package exec.
func (*FillEnd) Emit(compute.Function, *Operands) ([]compute.Value, error) {
	return nil, errors.New("the end of a flat value is lowered, and not emitted")
}

// Emit implements Attrs, by an error: see package exec.
func (*Reshard) Emit(compute.Function, *Operands) ([]compute.Value, error) {
	return nil, errors.New("a change of placement is lowered to collectives or slices, and not emitted")
}

// Emit implements Attrs, by an error: a segment takes it as an input.
func (*Position) Emit(compute.Function, *Operands) ([]compute.Value, error) {
	return nil, errors.New("the position of a device is an input of its segment")
}

// IsReshard tells whether the op changes a placement.
func (op *Op) IsReshard() bool { _, ok := op.Attrs.(*Reshard); return ok }

// Collective is what the devices along an axis do to change a placement; 0 if that takes no exchange.
func (from Placement) Collective(to Placement) Collective {
	switch {
	case from.Kind == Replicated || from == to:
		return 0
	case from.Kind == Partial && to.Kind == Replicated:
		return AllReduceOf
	case from.Kind == Partial:
		return ReduceScatterOf
	case from.Kind == Sharded && to.Kind == Sharded:
		return AllToAllOf
	}
	return AllGatherOf
}

// placements checks how the results of an op are placed.
func (v *verifier) placements(op *Op) error {
	for i, o := range op.Outputs {
		for axis, p := range o.placed {
			s := o.Shape
			switch {
			case p.Placement == (Placement{}):
			case p.Devices < 1 || !p.Division.Equal(v.division(op, Axis(axis))) && !op.IsLeaf():
				return errors.Errorf("output %d is %s along the axis %s of %s, and its stage has %s there", i, p.Placement, Axis(axis), p.Division, v.division(op, Axis(axis)))
			case p.Kind == Partial && (p.Reduce < ReduceBySum || p.Reduce > ReduceByMin):
				return errors.Errorf("output %d has terms, and no way to reduce them", i)
			case p.Kind == Sharded && (p.Dim < 0 || p.Dim >= s.Rank() || p.Unit < 1 || s.Dimensions[p.Dim]%p.Unit != 0 || s.Dimensions[p.Dim]/p.Unit < p.Devices):
				return errors.Errorf("output %d, %s, cannot be %s over %d devices", i, ShapeText(s), p.Placement, p.Devices)
			}
		}
	}
	if op.IsReshard() && len(op.Outputs) == 1 && !op.IsTransfer() {
		n, v, w := 0, op.Inputs[0], op.Outputs[0]
		for axis := range Axis(max(len(v.placed), len(w.placed))) {
			if v.On(axis) != w.On(axis) {
				n++
			}
		}
		if n > 1 {
			return errors.New("it changes placements along two axes")
		}
	}
	if a, ok := op.Attrs.(*Reshard); ok && len(op.Outputs) == 1 && !a.Stack && !op.Outputs[0].Shape.Equal(op.Inputs[0].Shape) {
		return errors.Errorf("it makes %s of %s", ShapeText(op.Outputs[0].Shape), ShapeText(op.Inputs[0].Shape))
	}
	return nil
}

// division is the devices along an axis, for an op.
func (v *verifier) division(op *Op, axis Axis) Division {
	if axis == Replicas {
		if v.p.Local == nil {
			return Division{}
		}
		return Even(v.p.Local.Replicas)
	}
	for _, s := range v.p.Stages {
		if mesh := s.Mesh(); slices.Contains(s.TaskGraphs, op.TaskGraph) && int(axis) <= len(mesh) {
			return s.Division(axis)
		}
	}
	return Division{}
}
