// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package play_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/easyparallel/epl/schedule/play"
)

type step struct{ needs, tells []string }

func needs(e ...string) step { return step{needs: e} }
func tells(e string) step    { return step{tells: []string{e}} }

// run plays lists, writes down what is done, and refuses one step.
func run(lists [][]step, refused string) (log []string, stops []play.Stop[string], err error) {
	stops, err = play.Play(lists, func(s step) (needs, tells []string) { return s.needs, s.tells }, func(list, at int) error {
		log = append(log, fmt.Sprintf("%d.%d", list, at))
		if log[len(log)-1] == refused {
			return errors.New("refused")
		}
		return nil
	})
	return log, stops, err
}

func TestAListWaitsForWhatItNeeds(t *testing.T) {
	log, stops, err := run([][]step{{{}, needs("a"), tells("b")}, {tells("a"), needs("b")}}, "")
	if want := []string{"0.0", "1.0", "0.1", "0.2", "1.1"}; err != nil || stops != nil || !slices.Equal(log, want) {
		t.Errorf("%v, %v:\n%q, not\n%q", stops, err, log, want)
	}
}

func TestListsThatWaitForeverAreNamed(t *testing.T) {
	for _, c := range []struct {
		name  string
		lists [][]step
		want  string
	}{
		{"each for the other", [][]step{{{}, needs("b"), tells("a")}, {needs("a"), tells("b")}}, "[{0 1 b} {1 0 a}]"},
		{"for nobody", [][]step{{needs("a")}, {{}}}, "[{0 0 a}]"},
		{"for the second of two", [][]step{{needs("a", "b")}, {tells("a")}}, "[{0 0 b}]"},
	} {
		if _, stops, err := run(c.lists, ""); fmt.Sprint(stops) != c.want || err != nil {
			t.Errorf("%s: %v, %v; want %s", c.name, stops, err, c.want)
		}
	}
}

func TestAnErrorEndsThePlay(t *testing.T) {
	log, stops, err := run([][]step{{{}}, {{}, {}}, {{}}}, "1.0")
	if err == nil || stops != nil || log[len(log)-1] != "1.0" {
		t.Errorf("%v, %v, %q", stops, err, log)
	}
}
