// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir

import (
	"github.com/gomlx/compute"
	"github.com/pkg/errors"
)

// Mesh is the devices that run a segment together, with the collectives inside: those of a stage, in all model replicas. Device
// replica·Model + position is the one at a position of a model replica.
type Mesh struct {
	Replicas, Model int // devices along the axes
	Instances       int // that a step has
	// Half: gradients of float32 travel as float16, scaled by this where it fits; 0: as they are.
	Half float64
	// Ranks are the devices, and Workers whose they are; nil: they are of one worker.
	Ranks, Workers []int
}

// Devices is how many there are.
func (m *Mesh) Devices() int { return m.Replicas * m.Model }

// Along are the groups of devices that differ along an axis only.
func (m *Mesh) Along(axis Axis) (groups [][]int) {
	if axis == Model {
		for r := range m.Replicas {
			groups = append(groups, nil)
			for p := range m.Model {
				groups[r] = append(groups[r], r*m.Model+p)
			}
		}
		return groups
	}
	for p := range m.Model {
		groups = append(groups, nil)
		for r := range m.Replicas {
			groups[p] = append(groups[p], r*m.Model+p)
		}
	}
	return groups
}

// Circles are the groups of devices whose values a [Merge] merges: the same device of all model replicas, or all devices if they have terms; of
// these, if it is within workers, those of each worker.
func (m *Mesh) Circles(op *Op) (groups [][]int) {
	all := m.Along(Replicas)
	if op.Inputs[0].On(Model).Kind == Partial {
		all = [][]int{nil}
		for d := range m.Devices() {
			all[0] = append(all[0], d)
		}
	}
	if !op.Attrs.(*Merge).Worker || m.Workers == nil {
		return all
	}
	for _, group := range all {
		at := map[int]int{} // by worker: its group
		for _, d := range group {
			w := m.Workers[d]
			if _, ok := at[w]; !ok {
				at[w] = len(groups)
				groups = append(groups, nil)
			}
			groups[at[w]] = append(groups[at[w]], d)
		}
	}
	return groups
}

// Communicate is a collective of the devices that run a segment together, on what each of them has.
type Communicate struct {
	How    Collective
	Reduce Reduction // of an all-reduce and a reduce-scatter
	Dim    int       // along which values are put together, or the reduction is divided
	Split  int       // of an all-to-all: along which the value is divided
	Groups [][]int   // of devices of the [Mesh]: each is in one
}

// OpCommunicate is the operation of segments that devices run together.
const OpCommunicate OpType = "Communicate"

func init() { newAttrs[OpCommunicate] = func() Attrs { return &Communicate{} } }

// OpType implements Attrs.
func (*Communicate) OpType() OpType { return OpCommunicate }

func (*Communicate) arity() arity { return arity{}.required(1) }

// Emit implements Attrs, by an error.
func (*Communicate) Emit(compute.Function, *Operands) ([]compute.Value, error) {
	return nil, errors.New("a backend of one device does not communicate with others")
}
