// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// module is whose tests they are; packages are named without it.
const module = "github.com/gomlx/gomlx/"

// test is one test; that without a name is its package: what was built, and what ended outside any test.
type test struct{ pkg, name string }

func (t test) String() string { return strings.TrimSuffix(t.pkg+" "+t.name, " ") }

// below tells whether a test is another one, or a subtest of it.
func (t test) below(o test) bool {
	return t.pkg == o.pkg && (t.name == o.name || strings.HasPrefix(t.name, o.name+"/"))
}

// outcome is how a test ended: "pass", "fail" or "skip"; one that began and did not end failed.
type outcome struct {
	how    string
	output []string
}

type results map[test]*outcome

// read reads what "go test -json" wrote.
func read(r io.Reader, backend string) (results, error) {
	all := results{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "{") {
			continue // go itself speaks
		}
		var e struct{ Action, Package, ImportPath, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, errors.Wrapf(err, "epl: this is no line of go test -json: %q", lines.Text())
		}
		if e.Package == "" {
			e.Package, _, _ = strings.Cut(e.ImportPath, " ") // of a build
		}
		at := test{strings.TrimPrefix(e.Package, module), nameOf(e.Test, backend)}
		o := all[at]
		if o == nil {
			o = &outcome{how: "fail"}
			all[at] = o
		}
		switch e.Action {
		case "pass", "fail", "skip":
			o.how = e.Action
		case "output", "build-output":
			o.output = append(o.output, e.Output)
		}
	}
	if len(all) == 0 && lines.Err() == nil {
		return nil, errors.New("epl: there are no tests in it")
	}
	return all, errors.Wrap(lines.Err(), "epl: results of tests")
}

// nameOf is a test's name, whatever backend it ran on.
func nameOf(name, backend string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		if p == backend {
			parts[i] = "BACKEND"
		}
	}
	return strings.Join(parts, "/")
}

// failed are the tests that failed by themselves, not only because a test below them did.
func (r results) failed() (all []test) {
	for t, o := range r {
		if o.how != "fail" {
			continue
		}
		cause := false
		for below, x := range r {
			cause = cause || below != t && x.how == "fail" && (below.below(t) || t.name == "" && below.pkg == t.pkg)
		}
		if !cause {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b test) int { return strings.Compare(a.String(), b.String()) })
	return all
}
