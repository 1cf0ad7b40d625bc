// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"

	"github.com/easyparallel/epl/internal/equiv"
)

// broken is a harness in which cases of at least two stages and two micro-batches fail, and those of one stage are refused.
func broken(_ context.Context, _ string, args ...string) string {
	for _, a := range args {
		if text, ok := strings.CutPrefix(a, "-equiv.case="); ok {
			c, err := equiv.ParseCase(text)
			switch {
			case err != nil:
				return "--- FAIL: TestFuzzCase\n    fuzz_test.go:1: it cannot be read"
			case c.Stages < 2:
				return "--- FAIL: TestFuzzCase\n    fuzz_test.go:1: a pipeline has stages"
			case c.Micro > 1:
				return "--- FAIL: TestFuzzCase\n    fuzz_test.go:1: variable /w differs by 0.1 at a norm of 3e-3"
			}
			return "--- PASS: TestFuzzCase"
		}
	}
	return "=== NAME  TestFuzz/7/4x2/6/Interleaved\n    fuzz_test.go:9: variable /w/biases differs by 5e-1 at a norm of 8\n" +
		"    fuzz_test.go:8: case: " + found.String() + "\n" +
		"    --- PASS: TestFuzz/6/2x1/1/ (0.1s)\n    --- FAIL: TestFuzz/7/4x2/6/Interleaved (0.1s)\n"
}

var found = equiv.Case{Kind: "stages", Seed: 7, Stages: 4, PerDevice: 2, Replicas: 2, Micro: 6, Strategy: "Interleaved", Passes: "none,common,sums", Settings: equiv.Settings{MaxSplits: 3, Communicators: 2}}

func TestACaseIsMadeAsSmallAsItFailsAlike(t *testing.T) {
	f := &fuzzer{shrinks: 100, run: broken}
	all := f.failures(broken(t.Context(), ""))
	if len(all) != 1 || all[0].seed != "7" || all[0].json != found.String() {
		t.Fatalf("%+v", all)
	}
	c, left := f.shrink(t.Context(), found, class(all[0].text), f.shrinks)
	want := equiv.Case{Kind: "stages", Seed: 7, Stages: 2, Replicas: 1, Micro: 2, Passes: "none", Settings: equiv.Settings{MaxSplits: 1, Communicators: 1}, Ops: 1}
	if c.String() != want.String() || left <= 0 {
		t.Errorf("%s, %d tries left", c, left)
	}
	if c, _ := f.shrink(t.Context(), found, class(all[0].text), 0); c.String() != found.String() {
		t.Errorf("%s without a try", c)
	}
}

func TestCasesAreRunInPiecesUpToTheirNumber(t *testing.T) {
	f := &fuzzer{seed: 6, cases: 4, piece: 2, run: broken}
	if failed := f.all(t.Context()); failed != 2 { // one in each
		t.Errorf("%d failed", failed)
	}
}
