// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package passes

import (
	"maps"
	"slices"

	"github.com/easyparallel/epl/ir"
)

// HalfOps are the operations that mixed precision may let compute in the low type.
func HalfOps() []ir.OpType { return slices.Sorted(maps.Keys(classes)) }
