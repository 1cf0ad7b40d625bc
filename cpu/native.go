// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cpu

import "github.com/easyparallel/epl/ir"

// natives makes the functions of ops that are neither products nor part of groups. Inputs and outputs are contiguous. A
// maker returns nil where it does not know the op's types or attributes: GoMLX's backend runs it then.
var natives = map[ir.OpType]func(*ir.Op) nativeFunc{}

// inPlace are the ops among them that change their first input where it is, if its memory is that of their output.
var inPlace = map[ir.OpType]bool{ir.OpScatterSum: true, ir.OpScatterMax: true, ir.OpScatterMin: true}
