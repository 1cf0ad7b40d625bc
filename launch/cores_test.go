// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/internal/cores"
)

func TestCoresAreSharedOut(t *testing.T) {
	each := func(core int) cores.Place { return cores.Place{Core: core} }
	for _, test := range []struct {
		all            string
		limit, workers int
		want           string
	}{
		{"0-7", 8, 1, "[any 0]"},
		{"0-7", 8, 2, "[0-3 0][4-7 0]"},
		{"0-1", 2, 3, "[0 0][0 0][1 0]"},
		{"0-7", 4, 2, "[0-3 2][4-7 2]"}, // a container may use 4 of 8 cores
		{"0-7", 2, 4, "[0-1 1][2-3 1][4-5 1][6-7 1]"},
		{"", 8, 2, "[any 4][any 4]"}, // not bound
		{"", 8, 3, "[any 2][any 2][any 2]"},
		{"", 2, 4, "[any 1][any 1][any 1][any 1]"},
		{"", 8, 1, "[any 0]"},
	} {
		var got strings.Builder
		for _, s := range shareCores(cores.Parse(test.all), test.limit, test.workers, each) {
			at := "any"
			if s.pin != nil {
				at = cores.Text(s.pin)
			}
			fmt.Fprintf(&got, "[%s %d]", at, s.procs)
		}
		if got.String() != test.want {
			t.Errorf("%q, %d threads, %d workers: %s, want %s", test.all, test.limit, test.workers, &got, test.want)
		}
	}
}

func TestEachWorkerRunsOnCoresOfItsOwn(t *testing.T) {
	mine := cores.Mine()
	if len(mine) < 2 || runtime.GOMAXPROCS(0) < len(mine) {
		t.Skip("cores are dealt where there are at least two, on a system that binds processes to them, with GOMAXPROCS for all")
	}
	// seen is what the workers of a job say, by index.
	seen := func(o Options) (lines []string) {
		o.Command = []string{"cores"}
		_, stdout, stderr := test(t, o)
		for i := range o.Workers {
			_, after, found := strings.Cut(stdout, fmt.Sprintf("[%d] ", i))
			if !found {
				t.Fatalf("worker %d says nothing: %s, %s", i, stdout, stderr)
			}
			line, _, _ := strings.Cut(after, "\n")
			lines = append(lines, line)
		}
		return lines
	}
	is := func(all []int, threads int) string {
		return fmt.Sprintf("cores %s, %d threads", cores.Text(all), threads)
	}

	dealt := cores.Deal(mine, 2, cores.PlaceOf)
	if got, want := seen(Options{Workers: 2}), []string{is(dealt[0], len(dealt[0])), is(dealt[1], len(dealt[1]))}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := cores.Mine(); !slices.Equal(got, mine) {
		t.Errorf("the launcher itself is left with %v", got)
	}
	for i, line := range seen(Options{Workers: 2, NoPin: true}) {
		if want := is(mine, len(mine)/2); line != want {
			t.Errorf("not bound: worker %d says %q, want %q", i, line, want)
		}
	}
	for i, line := range seen(Options{Workers: 2, Environ: cleanEnviron("GOMAXPROCS=3")}) {
		if want := is(mine, 3); line != want {
			t.Errorf("with the user's GOMAXPROCS: worker %d says %q, want %q", i, line, want)
		}
	}
	if got, want := seen(Options{Workers: 1}), []string{is(mine, len(mine))}; !slices.Equal(got, want) {
		t.Errorf("alone: %q, want %q", got, want)
	}
	for i, line := range seen(Options{Workers: 2 * len(mine)}) {
		if want := is(cores.Deal(mine, 2*len(mine), cores.PlaceOf)[i], 1); line != want {
			t.Errorf("one of many: worker %d says %q, want %q", i, line, want)
		}
	}
}
