// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// refusal is a test that EPL may fail, and why.
type refusal struct {
	test
	reason string
}

func readRefusals(r io.Reader) (all []refusal, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		which, reason, ok := strings.Cut(line, ": ")
		words := strings.Fields(which)
		if !ok || len(words) != 2 {
			return nil, errors.Errorf("epl: a refusal is a line PACKAGE TEST: REASON, not %q", line)
		}
		all = append(all, refusal{test{words[0], words[1]}, reason})
	}
	return all, errors.Wrap(lines.Err(), "epl: documented refusals")
}

// comparison is what two runs differ in. A test that only EPL ran counts as one that passes on the plain backend.
type comparison struct {
	plain, epl results
	worse      []test // pass on the plain backend, and fail on EPL
	refused    []test // the same, documented
	both       []test // fail on both
	needless   []refusal
}

func compare(plain, epl results, refusals []refusal) comparison {
	c := comparison{plain: plain, epl: epl}
	used := map[refusal]bool{}
	packages := map[string]bool{}
	for t := range epl {
		packages[t.pkg] = true
	}
	for _, t := range epl.failed() {
		documented := slices.IndexFunc(refusals, func(r refusal) bool { return t.below(r.test) })
		switch before := plain[t]; {
		case before != nil && before.how == "fail":
			c.both = append(c.both, t)
		case documented >= 0:
			used[refusals[documented]] = true
			c.refused = append(c.refused, t)
		default:
			c.worse = append(c.worse, t)
		}
	}
	for _, r := range refusals {
		if !used[r] && packages[r.pkg] {
			c.needless = append(c.needless, r)
		}
	}
	return c
}

// print tells how the runs compare, and whether EPL does as well as the plain backend.
func (c comparison) print(w io.Writer, plain, epl string) bool {
	for _, run := range []struct {
		backend string
		results
	}{{plain, c.plain}, {epl, c.epl}} {
		n := map[string]int{}
		for t, o := range run.results {
			if t.name != "" {
				n[o.how]++
			}
		}
		fmt.Fprintf(w, "%s: %d passed, %d failed, %d skipped\n", run.backend, n["pass"], n["fail"], n["skip"])
	}
	list := func(what string, tests []test) {
		fmt.Fprintf(w, "%s: %d\n", what, len(tests))
		for _, t := range tests {
			fmt.Fprintf(w, "  %s\n", t)
		}
	}
	list("fail on both", c.both)
	list("documented refusals", c.refused)
	list("fail on EPL only", c.worse)
	for _, t := range c.worse {
		fmt.Fprintf(w, "\n--- %s\n%s", t, strings.Join(c.epl[t].output, ""))
	}
	for _, r := range c.needless {
		fmt.Fprintf(w, "documented as a refusal, but it does not fail: %s (%s)\n", r.test, r.reason)
	}
	return len(c.worse)+len(c.needless) == 0
}
