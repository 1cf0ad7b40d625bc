// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
)

// lines are results of tests: "how package test".
func lines(list ...string) string {
	var b strings.Builder
	for _, l := range list {
		w := strings.Fields(l)
		name := ""
		if len(w) > 2 {
			name = w[2]
		}
		for _, action := range []string{"start", "output", w[0]} {
			fmt.Fprintf(&b, "{\"Action\":%q,\"Package\":%q,\"Test\":%q,\"Output\":\"%s says\\n\"}\n", action, module+w[1], name, name)
		}
	}
	return b.String()
}

func compared(t *testing.T, plain, epl, refusals string) (same bool, text string) {
	t.Helper()
	a, err := read(strings.NewReader(plain), "go")
	if err != nil {
		t.Fatal(err)
	}
	b, err := read(strings.NewReader(epl), "epl:devices=2")
	if err != nil {
		t.Fatal(err)
	}
	refused, err := readRefusals(strings.NewReader(refusals))
	if err != nil {
		t.Fatal(err)
	}
	var w strings.Builder
	same = compare(a, b, refused).print(&w, "go", "epl:devices=2")
	return same, w.String()
}

func TestOnlyWhatFailsOnEPLAloneAndIsNotDocumentedCounts(t *testing.T) {
	plain := lines("pass ml/nn TestA/go", "pass ml/nn TestA", "fail ml/nn TestB", "fail ml/nn", "pass ml/nn TestC/x")
	for _, test := range []struct {
		name, epl, refusals string
		same                bool
		want                string
	}{
		{"all as before", lines("pass ml/nn TestA/epl:devices=2", "fail ml/nn TestB", "fail ml/nn"), "", true, "fail on both: 1\n  ml/nn TestB\n"},
		{"one is worse", lines("fail ml/nn TestA/epl:devices=2", "fail ml/nn TestA", "fail ml/nn"), "", false, "fail on EPL only: 1\n  ml/nn TestA/BACKEND\n"},
		{"and says why", lines("fail ml/nn TestA/epl:devices=2"), "", false, "--- ml/nn TestA/BACKEND\nTestA/epl:devices=2 says\n"},
		{"a documented one", lines("fail ml/nn TestA/epl:devices=2", "fail ml/nn TestA"), "# why\nml/nn TestA: it cannot\n", true, "documented refusals: 1\n  ml/nn TestA/BACKEND\n"},
		{"one of another name is not", lines("fail ml/nn TestAB"), "ml/nn TestA: it cannot\n", false, "fail on EPL only: 1\n"},
		{"a refusal that is over", lines("pass ml/nn TestA"), "ml/nn TestA: it cannot\n", false, "it does not fail: ml/nn TestA (it cannot)"},
		{"of a package that was not run", lines("pass ml/nn TestA"), "core/graph TestA: it cannot\n", true, "fail on EPL only: 0\n"},
		{"one that only EPL ran", lines("fail ml/nn TestA/more"), "", false, "fail on EPL only: 1\n  ml/nn TestA/more\n"},
		{"a package that does not build", lines("pass ml/nn TestA", "fail ml/train"), "", false, "fail on EPL only: 1\n  ml/train\n"},
		{"one that does not end", strings.ReplaceAll(lines("hang ml/nn TestC/x"), "hang", "output"), "", false, "fail on EPL only: 1\n  ml/nn TestC/x\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if same, text := compared(t, plain, test.epl, test.refusals); same != test.same || !strings.Contains(text, test.want) {
				t.Errorf("as good: %v\n%s", same, text)
			}
		})
	}
}

func TestARefusalNeedsAReason(t *testing.T) {
	for _, text := range []string{"ml/nn TestA", "ml/nn: because", "ml/nn Test A: because"} {
		if _, err := readRefusals(strings.NewReader(text)); err == nil {
			t.Errorf("%q is a refusal", text)
		}
	}
}

func TestWhatIsNoOutputOfTestsIsRefused(t *testing.T) {
	for _, text := range []string{"", "no JSON at all", "{not JSON either}"} {
		if r, err := read(strings.NewReader(text), "go"); err == nil {
			t.Errorf("%q is %v", text, r)
		}
	}
}
