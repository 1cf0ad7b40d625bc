// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/easyparallel/epl/ir"
)

// inserter adds an op to a program, where the pass that has it wants it, and returns what it computes.
type inserter func(a ir.Attrs, s shapes.Shape, in ...*ir.Value) *ir.Value

// convert is a value in another type.
func (insert inserter) convert(v *ir.Value, d dtypes.DType) *ir.Value {
	if v.Shape.DType == d {
		return v
	}
	return insert(&ir.ConvertDType{DType: d}, typed(v.Shape, d), v)
}

// instances is how many there are in a step.
func (insert inserter) instances(d dtypes.DType) *ir.Value {
	return insert.convert(insert(&ir.InstanceCount{}, shapes.Make(dtypes.Float32)), d)
}

// concat puts the values of n instances one after the other. joined are those of which that is done: gradients may share indices and factors. A value may
// be merged in another way, too, so that what is merged here is a copy of its own.
func (insert inserter) concat(v *ir.Value, n int, joined map[*ir.Value]*ir.Value) *ir.Value {
	if joined[v] == nil {
		s := v.Shape.Clone()
		s.Dimensions[0] *= n
		joined[v] = insert(&ir.Merge{How: ir.Concat, Pad: true}, s, insert(&ir.Identity{}, v.Shape, v))
	}
	return joined[v]
}
