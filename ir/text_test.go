// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package ir_test

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

func TestATrainingProgramPrintsAsInTestdata(t *testing.T) {
	const golden = "testdata/train.txt"
	// GoMLX draws the names of metrics at random.
	text := regexp.MustCompile(`_uuid_[0-9a-f-]+`).ReplaceAllString(trainStep(t).String(), "")
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("it differs from %s (run the test with -update to accept it):\n%s", golden, firstDifference(string(want), text))
	}
}

func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return "want " + a[i] + "\ngot  " + b[i]
		}
	}
	return "one is longer"
}

// roundTrip prints and parses a program, and checks that nothing is lost.
func roundTrip(t *testing.T, p *ir.Program) *ir.Program {
	t.Helper()
	text := p.String()
	q, err := ir.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if again := q.String(); again != text {
		t.Fatalf("it prints differently once parsed: %s", firstDifference(text, again))
	}
	if err := q.Verify(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return q
}

func TestExamplesReadAsTheyPrint(t *testing.T) {
	for _, text := range append(examples(t), everything, instances) {
		if got := roundTrip(t, parse(t, text)).String(); got != text {
			t.Errorf("%s", firstDifference(text, got))
		}
	}
}

func TestRandomProgramsSurviveTheirText(t *testing.T) {
	for seed := range uint64(60) {
		p, err := equiv.NewRandom(seed).Record()
		if err != nil {
			t.Fatalf("seed %d: %+v", seed, err)
		}
		q := roundTrip(t, p)
		if r := roundTrip(t, q); !reflect.DeepEqual(q, r) {
			t.Errorf("seed %d: two programs of one text differ in depth", seed)
		}
		if !reflect.DeepEqual(q, q.Clone()) {
			t.Errorf("seed %d: a program and its clone differ in depth", seed)
		}
	}
}

func TestFprintLeavesLongConstantsOut(t *testing.T) {
	p := parse(t, strings.Replace(everything, "bool[](true)", `bool[20]"AQEBAQEBAQEBAQEBAQEBAQEBAQE="`, 1))
	var w strings.Builder
	if err := p.Fprint(&w); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(w.String(), "bool[20](20 bytes)") || !strings.Contains(p.String(), "AQEB") {
		t.Errorf("it prints\n%s", w.String())
	}
}

func TestAnOpPrintsAsOneLine(t *testing.T) {
	p := parse(t, everything)
	if got, want := op(p, 8).Text(), "%8 = If(%7) [closure 0, closure 0] -> float32[2,2] : forward taskgraph 1"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := op(p, 3).String(), "DotGeneral %3 (model.go:11)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Each text has one mistake; the error says where, and what was wrong.
func TestParseSaysWhereTheMistakeIs(t *testing.T) {
	const small = `program "small"
taskgraph 0 "t" replicate(1)
variable "/w" %1 trainable
input %0
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[2]} -> float32[2] : forward
  %1 = Parameter() {Name: "/w", Shape: float32[2]} -> float32[2] : forward taskgraph 0
  %2 = Add(%0, %1) -> float32[2] : forward
  %3 = ReduceSum(%2) {Axes: [0]} -> float32[] : forward
  return %3
}
`
	if err := parse(t, small).Verify(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, line, what string }{
		{`program "small"`, `module "small"`, "line 1", `expected "program"`},
		{`program "small"`, `program small`, "line 1", "quoted"},
		{`program "small"`, `program "small`, "line 1", "string"},
		{"replicate(1)", "share(1)", "line 2", `strategy "share"`},
		{"replicate(1)", "replicate(one)", "line 2", `"one" is not a number`},
		{"input %0", "inputs %0", "line 4", `expected "main"`},
		{"input %0", "input %9", "", "%9 is not defined"},
		{"input %0", "gradient %0 = %1\ninput %0", "", "%0 is not a variable"},
		{"taskgraph 0\n", "taskgraph 5\n", "line 7", "taskgraph 5"},
		{"Add(%0, %1)", "Add(%0, %7)", "line 8", "%7 is not defined"},
		{"Add(%0, %1)", "Add(%0 %1)", "line 8", `expected ","`},
		{"Add(%0, %1)", "Frobnicate(%0, %1)", "line 8", `operation "Frobnicate"`},
		{"%2 = Add", "%1 = Add", "line 8", "%1 is defined twice"},
		{"{Axes: [0]}", "{Axis: [0]}", "line 9", `ReduceSum has no attribute "Axis"`},
		{"{Axes: [0]}", "{Axes: [a]}", "line 9", `"a" is not a int`},
		{"{Axes: [0]}", "{Axes: 0}", "line 9", `expected "["`},
		{"-> float32[] : forward", "-> float32[] : sideways", "line 9", `phase "sideways"`},
		{"-> float32[] : forward", "-> float33[] : forward", "line 9", `"float33"`},
		{"-> float32[] : forward", "-> float32[] : forward by chance", "line 9", `origin "chance"`},
		{"  return %3\n", "", "line 10", `expected "return"`},
		{"main {", "main {\n return }\nmain {", "line 7", "main is defined twice"},
		{"%3 = ReduceSum(%2) {Axes: [0]}", `%3 = Call(%2) [func "f"]`, "", `"f" is called but not defined`},
		{"main {", "func \"f\" {\n return }\nfunc \"f\" {\n return }\nmain {", "line 7", `"f" is defined twice`},
		{"}\n", "}\nfunc \"f\" {\n return %0 }\n", "line 13", "%0 is not defined"},
	} {
		text := strings.Replace(small, c.from, c.to, 1)
		if text == small {
			t.Fatalf("%q is not in the text", c.from)
		}
		_, err := ir.Parse(text)
		if err == nil {
			t.Errorf("%q in place of %q parses", c.to, c.from)
			continue
		}
		if !strings.Contains(err.Error(), c.line) || !strings.Contains(err.Error(), c.what) {
			t.Errorf("%q in place of %q: the error does not mention %q, %q: %v", c.to, c.from, c.line, c.what, err)
		}
	}
}

// The package comment shows a program.
func TestTheProgramInThePackageCommentParses(t *testing.T) {
	src, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.SplitSeq(string(src), "\n") {
		if code, ok := strings.CutPrefix(line, "//\t"); ok {
			text.WriteString(code + "\n")
		}
	}
	if got := roundTrip(t, parse(t, text.String())).String(); got != text.String() {
		t.Error(firstDifference(text.String(), got))
	}
}

// examples are the programs in testdata.
func examples(t testing.TB) []string {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples in testdata", err)
	}
	var texts []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}
