// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package record

import (
	"runtime"
	"slices"
	"strings"

	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// findTwin returns the values of the written-out version of a fused op that is to be appended to ops, with these inputs and results. GoMLX's
// InternalFusedOpCaller builds that version first, so its results are the last values that nothing uses yet; they must have
// the shapes of the fused op's results and depend on exactly its inputs. A fused op that was not built there has no
// twin, whatever stands before it.
func findTwin(ops []*ir.Op, inputs []*ir.Value, results []shapes.Shape) []*ir.Value {
	if !calledFrom(gomlx + "core/graph.InternalFusedOpCaller") {
		return nil
	}
	inputs = slices.DeleteFunc(slices.Clone(inputs), func(v *ir.Value) bool { return v == nil })
	var twin []*ir.Value
	used := map[*ir.Value]bool{}
	for i := len(ops) - 1; i >= 0 && len(twin) < len(results); i-- {
		if ops[i].IsLeaf() {
			continue
		}
		for j := len(ops[i].Outputs) - 1; j >= 0; j-- {
			if v := ops[i].Outputs[j]; !used[v] {
				twin = append(twin, v)
			}
		}
		ops[i].Uses(func(v *ir.Value) { used[v] = true })
	}
	slices.Reverse(twin)
	if len(twin) != len(results) {
		return nil
	}
	for i, v := range twin {
		if !v.Shape.Equal(results[i]) {
			return nil
		}
	}
	slice, ok := ir.Between(twin, inputs)
	if !ok {
		return nil
	}
	reached := map[*ir.Value]bool{}
	for o := range slice {
		o.Uses(func(v *ir.Value) { reached[v] = true })
	}
	if slices.ContainsFunc(inputs, func(v *ir.Value) bool { return !reached[v] }) {
		return nil
	}
	return twin
}

// calledFrom tells whether a function whose name starts with prefix is on the stack.
func calledFrom(prefix string) bool {
	var pcs [32]uintptr
	it := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := it.Next()
		if strings.HasPrefix(f.Function, prefix) {
			return true
		}
		if !more {
			return false
		}
	}
}
