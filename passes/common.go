// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/ir"
)

// common computes equal ops once. It does not merge ops of different TaskGraphs, since that would send a value where
// it can be computed; nor an op into one of a later phase; nor barriers, which exist to keep copies apart; nor values that
// collections merge in different ways.
func common(p *ir.Program) int {
	ways := waysOf(p)
	first := make(map[string][]*ir.Op, len(p.Main.Ops))
	by := map[*ir.Value]*ir.Value{}
	for _, op := range p.Main.Ops {
		for i, in := range op.Inputs {
			if to := by[in]; to != nil {
				op.Inputs[i] = to
			}
		}
		if !mergeable(op) {
			continue
		}
		key := number(op)
		same := slices.IndexFunc(first[key], func(o *ir.Op) bool {
			return (o.TaskGraph == op.TaskGraph || op.IsLeaf()) && o.Phase <= op.Phase && ways.same(o, op) && reflect.DeepEqual(o.Attrs, op.Attrs)
		})
		if same < 0 {
			first[key] = append(first[key], op)
			continue
		}
		for i, v := range op.Outputs {
			by[v] = first[key][same].Outputs[i]
		}
	}
	return replace(p, by)
}

func mergeable(op *ir.Op) bool {
	switch op.Attrs.(type) {
	case *ir.Parameter, *ir.OptimizationBarrier, *ir.SchedulingBarrier, *ir.AllReduce:
		return false
	}
	return len(op.Funcs) == 0
}

// number is equal for ops that may be equal.
func number(op *ir.Op) string {
	k := append(make([]byte, 0, 64), op.Type()...)
	if c, ok := op.Attrs.(*ir.Constant); ok {
		k = fmt.Appendf(k, " %s %x", ir.ShapeText(c.Value.Shape), sha256.Sum256(dtypes.UnsafeByteSliceFromAny(c.Value.Flat)))
	}
	for _, in := range op.Inputs {
		k = append(k, ' ')
		if in != nil {
			k = strconv.AppendInt(k, int64(in.Op.ID), 10)
			k = append(k, '.')
			k = strconv.AppendInt(k, int64(in.Index), 10)
		}
	}
	return string(k)
}
