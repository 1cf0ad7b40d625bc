// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
)

// chain is backward of so many equal layers: the gradient of each one's weights, and what the next one begins with.
func chain(t *testing.T, layers, micro int) *ir.Program {
	t.Helper()
	var head, ops, merges, applies, updates strings.Builder
	n := func(kind, layer int) int { return 1000*kind + layer }
	var results []string
	for i := range layers {
		fmt.Fprintf(&head, "variable \"/w%d\" %%%d trainable update %%%d taskgraph 0\n", i, n(1, i), n(5, i))
		fmt.Fprintf(&updates, "gradient %%%d = %%%d\n", n(1, i), n(4, i))
		fmt.Fprintf(&ops, "  %%%d = Parameter() {Name: \"/w%d\", Shape: float32[64]} -> float32[64] : forward taskgraph 0\n", n(1, i), i)
		results = append(results, fmt.Sprintf("%%%d", n(5, i)))
	}
	from := 0
	for i := range layers {
		fmt.Fprintf(&ops, "  %%%d = Mul(%%%d, %%%d) -> float32[64] : backward varying taskgraph 0\n", n(2, i), from, n(1, i))
		fmt.Fprintf(&ops, "  %%%d = Neg(%%%d) -> float32[64] : backward varying taskgraph 0\n", n(3, i), n(2, i))
		fmt.Fprintf(&merges, "  %%%d = Merge(%%%d) {How: \"mean\"} -> float32[64] : backward taskgraph 0\n", n(4, i), n(3, i))
		fmt.Fprintf(&applies, "  %%%d = Sub(%%%d, %%%d) -> float32[64] : apply taskgraph 0\n", n(5, i), n(1, i), n(4, i))
		from = n(2, i)
	}
	text := fmt.Sprintf("program \"chain\"\ninstances 2 %d\ntaskgraph 0 \"\" replicate(1) implicit\n%sinput %%0\n%soutputs", micro, head.String(), updates.String())
	for i := range layers {
		text += fmt.Sprintf(" update %%%d", n(1, i))
	}
	text += "\nmain {\n  %0 = Parameter() {Name: \"arg0\", Shape: float32[64]} -> float32[64] : forward varying taskgraph 0\n" +
		ops.String() + merges.String() + applies.String() + "  return " + strings.Join(results, ", ") + "\n}"
	p, err := ir.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

// Backward goes on after each bucket but the last is on its way, in the last micro-batch, and nobody waits for one before backward is over.
func TestBackwardHidesEveryBucketButTheLast(t *testing.T) {
	for _, micro := range []int{1, 3} {
		for _, splits := range []int{1, 2, 4} {
			s, err := Build(chain(t, 4, micro), Options{MaxSplits: splits})
			if err != nil {
				t.Fatal(err)
			}
			l := s.Places[0]
			computed := 0 // by then
			for i, in := range l {
				if in.Kind == Run && in.Micro == micro-1 {
					computed = i
				}
			}
			var begun []int
			for i, in := range l {
				switch {
				case in.Kind == Merge:
					begun = append(begun, i)
				case in.Kind == Wait && i < computed:
					t.Errorf("%d micro-batches, %d buckets: %s comes before the end of backward", micro, splits, s.Text(in))
				}
			}
			if len(begun) != splits {
				t.Fatalf("%d micro-batches: %d buckets instead of %d", micro, len(begun), splits)
			}
			for i, at := range begun[:splits-1] {
				if !slices.ContainsFunc(l[at:begun[i+1]], func(in Instr) bool { return in.Kind == Run }) {
					t.Errorf("%d micro-batches: nothing is computed between buckets %d and %d of %d\n%s", micro, i, i+1, splits, s)
				}
			}
		}
	}
}
