// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Every list of these programs is broken at every instruction.
func brokenLists(t *testing.T, f func(s func() *Program, place, i int)) {
	t.Helper()
	for name, build := range map[string]func() *Program{
		"stages": func() *Program { return buildStages(t, 1, 3, PreferBackward) },
		"splits": func() *Program {
			s, err := Build(pipelineOfSplits(t, 2, 2, 2, 2), Options{MaxSplits: 2, Ranks: [][]int{{0, 1, 2, 3}}})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			for place, l := range build().Places {
				for i := range l {
					f(build, place, i)
				}
			}
		})
	}
}

// found fails the test unless the schedule is refused with all of the words.
func found(t *testing.T, s *Program, what string, words ...string) {
	t.Helper()
	err := s.Check()
	if err == nil {
		t.Errorf("%s: nothing is found", what)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, without %q", what, err, w)
		}
	}
}

func TestCheckFindsEveryInstructionThatIsMissing(t *testing.T) {
	brokenLists(t, func(build func() *Program, place, i int) {
		s := build()
		what := fmt.Sprintf("device %d without %s", place, s.Text(s.Places[place][i]))
		s.Places[place] = slices.Delete(s.Places[place], i, i+1)
		found(t, s, what, `epl: internal error: schedule "`)
	})
}

func TestCheckFindsAndNamesEveryFreeThatIsMissingOrWrong(t *testing.T) {
	brokenLists(t, func(build func() *Program, place, i int) {
		for n, at := range build().Places[place][i].Frees {
			broken := func(what string, f func(l []Instr), words ...string) {
				s := build()
				l := s.Places[place]
				l[i].Frees = slices.Clone(l[i].Frees)
				f(l)
				found(t, s, fmt.Sprintf("device %d, %s, %s", place, s.Text(l[i]), what), append(words, at.Value.String())...)
			}
			drop := func(l []Instr) Slot {
				x := l[i].Frees[n]
				l[i].Frees = slices.Delete(l[i].Frees, n, n+1)
				return x
			}
			broken("freed twice", func(l []Instr) { l[i].Frees = append(l[i].Frees, l[i].Frees[n]) }, fmt.Sprintf("group %d, instruction %d", place, i), "frees", "which is not there")
			broken("not freed", func(l []Instr) { drop(l) }, fmt.Sprintf("group %d, instruction %d", place, i), "nobody frees")
			s := build()
			if i > 0 && slices.ContainsFunc(s.Uses(s.Places[place][i]), func(x Slot) bool { return x.Value.String() == at.Value.String() }) {
				broken("freed before its use", func(l []Instr) { l[i-1].Frees = append(slices.Clone(l[i-1].Frees), drop(l)) }, "which is not there")
			}
		}
	})
}

func TestCheckFindsSendsAndReceivesThatAreSwapped(t *testing.T) {
	for _, c := range []struct {
		name     string
		kind     Kind
		from, to int // micro-batches
		place    int
		wants    string
	}{
		{"sends", Send, 0, 1, 0, "needs"},
		{"receives", Receive, 0, 1, 1, "micro-batch 0 was sent first"},
	} {
		s := buildStages(t, 1, 3, PreferForward)
		var at []int
		for i, in := range s.Places[c.place] {
			if in.Kind == c.kind && (in.Micro == c.from || in.Micro == c.to) && !s.Transfers[in.Transfer].Input {
				at = append(at, i)
			}
		}
		l := s.Places[c.place]
		l[at[0]], l[at[1]] = l[at[1]], l[at[0]]
		found(t, s, c.name, c.wants, fmt.Sprintf("group %d, instruction %d", c.place, at[0]))
	}
	// Each stage receives before it sends.
	s := buildStages(t, 1, 1, PreferBackward)
	l := s.Places[0]
	send := slices.IndexFunc(l, func(in Instr) bool { return in.Kind == Send && in.Micro == 0 && !s.Transfers[in.Transfer].Input })
	receive := slices.IndexFunc(l, func(in Instr) bool { return in.Kind == Receive })
	l[send], l[receive] = l[receive], l[send]
	found(t, s, "receive before send", fmt.Sprintf("group 0 waits forever at instruction %d, receive", send))
}

func TestCheckFindsWhatIsDoneTwice(t *testing.T) {
	brokenLists(t, func(build func() *Program, place, i int) {
		s := build()
		in := s.Places[place][i]
		switch in.Kind {
		case Send, Receive, Feed, Exchange, Accumulate, Merge:
		default:
			return
		}
		if in.Kind == Feed && in.Transfer < 0 {
			return // it comes from the data, as often as it is asked for
		}
		in.Frees = nil
		s.Places[place] = slices.Insert(s.Places[place], i, in)
		found(t, s, fmt.Sprintf("device %d, %s twice", place, s.Text(in)), `epl: internal error: schedule "`)
	})
	// Another device takes what was sent.
	s := buildStages(t, 1, 1, PreferBackward)
	at := slices.IndexFunc(s.Places[1], func(in Instr) bool { return in.Kind == Receive })
	s.Places[0] = append(s.Places[0], s.Places[1][at])
	found(t, s, "received by another, too", "belongs to group 1")
}
