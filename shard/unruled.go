package shard

import (
	"maps"
	"slices"

	"github.com/easyparallel/epl/ir"
)

// unruled are the operations without a rule, with the reason.
var unruled = map[ir.OpType]string{
	ir.OpAllReduce:                "between devices that GoMLX knows, not those of a stage",
	ir.OpCall:                     "its function is not looked into",
	ir.OpIf:                       "its functions are not looked into",
	ir.OpWhile:                    "its functions are not looked into",
	ir.OpDynamicShape:             "the shape is known only when the program runs",
	ir.OpDynamicDimensionSize:     "the shape is known only when the program runs",
	ir.OpDynamicReshape:           "the shape is known only when the program runs",
	ir.OpDynamicBroadcastInDim:    "the shape is known only when the program runs",
	ir.OpDynamicIota:              "the shape is known only when the program runs",
	ir.OpDynamicPad:               "the shape is known only when the program runs",
	ir.OpFusedQuantizedDense:      "its weights are blocks that belong together",
	ir.OpQuantizedEmbeddingLookup: "its table is blocks that belong together",
	ir.OpRNGBitGenerator:          "every device draws all numbers, to have the same ones, and takes its rows",
	ir.OpOptimizationBarrier:      "it hands through what there is",
	ir.OpSchedulingBarrier:        "it hands through what there is",
}

// Unruled lists the operations that no rule can shard: what they read is gathered, and every device computes them as a whole.
// Barriers are among them, but hand through what there is.
func Unruled() []ir.OpType { return slices.Sorted(maps.Keys(unruled)) }
