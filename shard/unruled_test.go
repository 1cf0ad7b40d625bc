package shard

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/easyparallel/epl/ir"
)

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
	listed := Unruled()
	for _, op := range all {
		if ruled := rules[op] != nil; ruled == slices.Contains(listed, op) {
			t.Errorf("%s has a rule: %v; is listed as one without: %v", op, ruled, !ruled)
		}
	}
	for _, op := range listed {
		if !slices.Contains(all, op) {
			t.Errorf("%s is listed, but is no operation", op)
		}
	}
}
