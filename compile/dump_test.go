// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
)

const small = `program "train"
taskgraph 0 "first" replicate(1)
main {
  %0 = Constant() {Value: float32[](0.5)} -> float32[] : forward taskgraph 0
  return %0
}
`

func parse(t *testing.T, text string) *ir.Program {
	t.Helper()
	p, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFilesOfAProgramHaveItsNumberAndName(t *testing.T) {
	dir := t.TempDir()
	program := parse(t, strings.Replace(small, `"train"`, `"../my model/train#1"`, 1))
	d, err := newDump(Options{Dump: filepath.Join(dir, "made", "for", "this")}, newCompiled(program, 3, nil))
	if err != nil {
		t.Fatal(err)
	}
	d.add("recorded", "", program)
	d.add("dead-code", "", program)
	if err := d.write(); err != nil {
		t.Fatal(err)
	}
	if got, want := list(t, d.dir), []string{
		"03-.._my_model_train_1-00-recorded.txt", "03-.._my_model_train_1-01-dead-code.txt", "03-.._my_model_train_1.html",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	text, err := os.ReadFile(filepath.Join(d.dir, "03-.._my_model_train_1-00-recorded.txt"))
	if err != nil || string(text) != program.String() {
		t.Errorf("the text is not the program's, or %v", err)
	}
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestNamesOfFilesAreNeverEmptyOrLong(t *testing.T) {
	for name, want := range map[string]string{"": "program", "///": "program", "a b": "a_b", strings.Repeat("x", 100) + "end": strings.Repeat("x", 57) + "end"} {
		if got := fileName(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
}

func TestTwoEnginesDoNotOverwriteEachOthersFiles(t *testing.T) {
	opts := Options{Dump: t.TempDir()}
	for range 2 { // both count their programs from 1
		program := parse(t, small)
		d, err := newDump(opts, newCompiled(program, 1, nil))
		if err != nil {
			t.Fatal(err)
		}
		d.add("recorded", "", program)
		if err := d.write(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"01-train-00-recorded.txt", "01-train-again2-00-recorded.txt", "01-train-again2.html", "01-train.html"}
	if got := list(t, opts.Dump); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestADirectoryThatCannotBeMadeIsReportedByTheNameOfTheVariable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		_, err := newDump(Options{Dump: dir}, newCompiled(parse(t, small), 1, nil))
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("EPL_DUMP=%q", dir)) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
