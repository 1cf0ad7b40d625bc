// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package shard

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/easyparallel/epl/ir"
)

// unruled are the operations without a rule, with the reason: what they read is gathered, and every device computes them as a
// whole. Barriers are among them, but hand through what there is.
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

// Every operation has a rule, or a reason to have none.
func TestEveryOperationHasARuleOrIsListed(t *testing.T) {
	source, err := os.ReadFile("../ir/gen_ops.go")
	if err != nil {
		t.Fatal(err)
	}
	var all []ir.OpType
	for _, m := range regexp.MustCompile(`(?m)^\tOp\w+\s+OpType = "(\w+)"$`).FindAllStringSubmatch(string(source), -1) {
		all = append(all, ir.OpType(m[1]))
	}
	if len(all) < 100 {
		t.Fatalf("only %d operations were found", len(all))
	}
	for _, op := range all {
		if ruled := rules[op] != nil; ruled == (unruled[op] != "") {
			t.Errorf("%s has a rule: %v; is listed as one without: %v", op, ruled, !ruled)
		}
	}
	for op := range unruled {
		if !slices.Contains(all, op) {
			t.Errorf("%s is listed, but is no operation", op)
		}
	}
}
