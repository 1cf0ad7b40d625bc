// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package hlo

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

func init() {
	table[ir.OpAllReduce] = func(w *Writer, op *ir.Op, in []Value) []Value {
		a := op.Attrs.(*ir.AllReduce)
		out := make([]Value, len(in))
		for i, x := range in { // XLA combines those that belong together
			out[i] = w.AllReduce(x, a.ReductionType, a.ReplicaGroups)
		}
		return out
	}
	table[ir.OpCommunicate] = func(w *Writer, op *ir.Op, in []Value) []Value {
		return []Value{communicate(w, op.Attrs.(*ir.Communicate), in[0])}
	}
}

var reduceBy = map[ir.Reduction]compute.ReduceOpType{ir.ReduceBySum: compute.ReduceOpSum, ir.ReduceByMax: compute.ReduceOpMax, ir.ReduceByMin: compute.ReduceOpMin}

// communicate writes a collective of the IR.
func communicate(w *Writer, a *ir.Communicate, x Value) Value {
	switch a.How {
	case ir.AllReduceOf:
		return w.AllReduce(x, reduceBy[a.Reduce], a.Groups)
	case ir.AllGatherOf:
		return w.AllGather(x, a.Dim, a.Groups)
	case ir.ReduceScatterOf:
		return w.ReduceScatter(x, reduceBy[a.Reduce], a.Dim, a.Groups)
	case ir.AllToAllOf:
		return w.AllToAll(x, a.Split, a.Dim, a.Groups)
	}
	refuse("there is no collective %s", a.How)
	return Value{}
}

// Groups are lists of replicas that do a collective together: every replica is in one. None: all replicas together.

// AllReduce gives every replica the reduction of what those of its group have.
func (w *Writer) AllReduce(x Value, by compute.ReduceOpType, groups [][]int) Value {
	return w.emit("stablehlo.all_reduce", []Value{x}, w.together(groups),
		[]region{w.pairwise(reductionOf(by), x.Shape.DType)}, x.Shape)[0]
}

// AllGather gives every replica what those of its group have, one after the other along an axis.
func (w *Writer) AllGather(x Value, axis int, groups [][]int) Value {
	return w.emit("stablehlo.all_gather", []Value{x}, append([]string{integer("all_gather_dim", axis)}, w.together(groups)...), nil,
		times(x.Shape, axis, w.size(groups), 1))[0]
}

// ReduceScatter gives every replica a part, along an axis, of the reduction of what those of its group have.
func (w *Writer) ReduceScatter(x Value, by compute.ReduceOpType, axis int, groups [][]int) Value {
	return w.emit("stablehlo.reduce_scatter", []Value{x}, append(w.together(groups), integer("scatter_dimension", axis)),
		[]region{w.pairwise(reductionOf(by), x.Shape.DType)}, times(x.Shape, axis, 1, w.size(groups)))[0]
}

// AllToAll sends each replica of the group a part along one axis, and puts what arrives together along another.
func (w *Writer) AllToAll(x Value, split, concat int, groups [][]int) Value {
	k := w.size(groups)
	return w.emit("stablehlo.all_to_all", []Value{x}, []string{
		integer("concat_dimension", concat), w.groups(groups), integer("split_count", k), integer("split_dimension", split),
	}, nil, times(times(x.Shape, split, 1, k), concat, k, 1))[0]
}

// CollectivePermute sends values from replicas to others: who is no target has zeros.
func (w *Writer) CollectivePermute(x Value, sourceTarget [][2]int) Value {
	return w.emit("stablehlo.collective_permute", []Value{x}, []string{pairs("source_target_pairs", sourceTarget)}, nil, x.Shape)[0]
}

// ReplicaID is the number of the replica, a uint32.
func (w *Writer) ReplicaID() Value { return w.one("replica_id", shapes.Make(dtypes.Uint32), nil) }

// together are the attributes of a collective of groups. With one partition, the global number of a device is that of its replica.
// The all-to-all and the permutation have no channel: it would make them collectives of partitions.
func (w *Writer) together(groups [][]int) []string {
	w.channel++
	return []string{
		fmt.Sprintf("channel_handle = #stablehlo.channel_handle<handle = %d, type = 1>", w.channel), w.groups(groups), "use_global_device_ids",
	}
}

func (w *Writer) replicaGroups(groups [][]int) [][]int {
	if len(groups) == 0 {
		return [][]int{upTo(max(w.options.Replicas, 1))}
	}
	return groups
}

// groups is the attribute; shorter groups are filled up with -1.
func (w *Writer) groups(groups [][]int) string {
	longest := 0
	for _, g := range w.replicaGroups(groups) {
		longest = max(longest, len(g))
	}
	var filled [][]int
	for _, g := range w.replicaGroups(groups) {
		filled = append(filled, append(slices.Clone(g), slices.Repeat([]int{-1}, longest-len(g))...))
	}
	return rows("replica_groups", filled, longest)
}

// size is how many replicas a group has, where they must be as many in each.
func (w *Writer) size(groups [][]int) int {
	groups = w.replicaGroups(groups)
	for _, g := range groups {
		if len(g) != len(groups[0]) {
			refuse("the groups %v are not of one size", groups)
		}
	}
	return len(groups[0])
}

// times is a shape with more or less rows along an axis.
func times(s shapes.Shape, axis, by, over int) shapes.Shape {
	if s.Dimensions[axis]*by%over != 0 {
		refuse("%d rows do not divide among %d replicas", s.Dimensions[axis], over)
	}
	s = s.Clone()
	s.Dimensions[axis] = s.Dimensions[axis] * by / over
	return s
}
