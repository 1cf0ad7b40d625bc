// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
)

// layOut aligns stages written as words, one per line of the stage, and prints a row per slot and a column per stage.
// A word "b:2" has the key b and is another line than "b:1".
func layOut(stages ...string) string {
	var slots []*slot
	for i, s := range stages {
		var lines []keyed
		for word := range strings.FieldsSeq(s) {
			key, _, _ := strings.Cut(word, ":")
			lines = append(lines, keyed{key, line{Op: word}})
		}
		slots = addStage(slots, i, lines)
	}
	var rows []string
	for _, s := range slots {
		var row []string
		for i := range stages {
			if l := s.at(i); l != nil {
				row = append(row, l.Op)
			} else {
				row = append(row, ".")
			}
		}
		rows = append(rows, strings.Join(row, " "))
	}
	return strings.Join(rows, "\n")
}

func TestALineStandsAtTheSameHeightInAllStages(t *testing.T) {
	for _, c := range []struct {
		name   string
		stages []string
		want   string
	}{
		{"nothing changes", []string{"a b", "a b"}, "a a\nb b"},
		{"what is removed leaves a gap", []string{"a b c", "a c"}, "a a\nb .\nc c"},
		{"what is new stands behind what it replaces", []string{"a b c", "a x y c"}, "a a\nb .\n. x\n. y\nc c"},
		{"what is new at the end", []string{"a", "a x"}, "a a\n. x"},
		{"what changes keeps its place", []string{"a b:1 c", "a b:2 c"}, "a a\nb:1 b:2\nc c"},
		{"what moves leaves its place, the rest stays", []string{"a b c d", "b c d a"}, "a .\nb b\nc c\nd d\n. a"},
		{"what comes back has its place again", []string{"a b c", "a c", "a b c"}, "a a a\nb . b\nc c c"},
		{"an empty stage", []string{"", "a"}, ". a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := layOut(c.stages...); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

func TestALineIsToldOnceForAllStagesInWhichItIsTheSame(t *testing.T) {
	program := parse(t, small)
	slots, _ := align([]Stage{{"recorded", "", "", program}, {"one", "", "", program.Clone()}, {"two", "", "", program.Clone()}})
	for _, s := range slots {
		if len(s.lines) != 1 || s.lines[0].From != 0 || s.lines[0].Until != 3 {
			t.Errorf("%q is told as %v", s.key, s.lines)
		}
	}
}

func TestAsManyLinesAsPossibleKeepTheirPlace(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		place := r.Perm(1 + r.IntN(12))
		for i := range place {
			if r.IntN(4) == 0 {
				place[i] = -1
			}
		}
		want := longestIncreasing(place)
		got := slices.Clone(place)
		keepIncreasing(got)
		last, kept := -1, 0
		for i, p := range got {
			if p < 0 {
				continue
			}
			if p != place[i] || p <= last {
				t.Fatalf("%v became %v", place, got)
			}
			last = p
			kept++
		}
		if kept != want {
			t.Fatalf("%v became %v, which keeps %d, not %d", place, got, kept, want)
		}
	}
}

// longestIncreasing finds the length of the longest increasing part in the slow, obvious way.
func longestIncreasing(place []int) int {
	best := make([]int, len(place))
	most := 0
	for i, p := range place {
		if p < 0 {
			continue
		}
		best[i] = 1
		for j, q := range place[:i] {
			if q >= 0 && q < p {
				best[i] = max(best[i], best[j]+1)
			}
		}
		most = max(most, best[i])
	}
	return most
}

func TestLongConstantsAreElidedAndAttributesShort(t *testing.T) {
	texts := texter{attrs: map[ir.Attrs]string{}, sizes: map[string]int64{}}
	var got []string
	for _, l := range texts.program(parse(t, small)) {
		if l.Attrs != "" {
			got = append(got, l.Op+" "+l.Attrs)
		}
	}
	want := []string{
		`Parameter "arg0"`,
		`Parameter "/w"`,
		`Constant (0.5)`,
		`Constant (80 bytes)`,
		`While closure 0 of %5, closure 1 of %5`,
		`Parameter "x"`,
		`Parameter "y"`,
		`ReduceSum {Axes: [0]}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
