// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule/play"
)

func accountOf(t *testing.T, replicas, micro int, traffic Traffic) PlaceAccount {
	t.Helper()
	p, err := ir.Parse(fmt.Sprintf(program, replicas, micro))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Build(p, Options{MaxSplits: 1})
	if err != nil {
		t.Fatal(err)
	}
	return s.Account(p, traffic, nil).Places[0]
}

// Values of the program have 16 bytes, and its step counter 8.
func TestTheAccountSaysWhatLivesAtThePeakAndWhen(t *testing.T) {
	got := accountOf(t, 1, 1, Traffic{})
	// Two weights; the counter; the input, and %12 and %13, which are merged; the gradients %20 and %22; and %21.
	want := Bytes{ForWeights: 32, ForState: 8, ForActivations: 16 + 4 + 8, ForGradients: 32, ForTemporaries: 16}
	if got.Peak != want {
		t.Errorf("at %s there are %v, not %v", got.Text, got.Peak, want)
	}
	if !strings.HasPrefix(got.Text, "run instance.0 micro-batch 0, Mul %22") {
		t.Errorf("most lives at %q", got.Text)
	}
}

func TestWhatIsMergedStaysOnTheBooks(t *testing.T) {
	for _, c := range []struct {
		traffic Traffic
		want    int64
	}{
		{Traffic{}, 8 * 2}, // the counter of both instances, which must agree
		{Traffic{Half: true}, 8*2 + 2*8},
		{Traffic{Packed: true}, 8*2 + 2*16},
		{Traffic{Half: true, Packed: true}, 8*2 + 2*8 + 2*8},
	} {
		got := accountOf(t, 2, 1, c.traffic).Most
		if got[ForCommunication] != c.want || got[ForGradients] != 32 {
			t.Errorf("%+v: copies of %d bytes, not %d; gradients of %d", c.traffic, got[ForCommunication], c.want, got[ForGradients])
		}
	}
}

func TestAccumulationCostsTheSumsOnce(t *testing.T) {
	two, five := accountOf(t, 1, 2, Traffic{}), accountOf(t, 1, 5, Traffic{})
	if two.Most[ForGradients] != 2*32 || five.Most[ForGradients] != 2*32 {
		t.Errorf("gradients of %v and %v bytes", two.Most[ForGradients], five.Most[ForGradients])
	}
}

func TestStateOfTheOptimizerIsWhatIsComputedFromGradients(t *testing.T) {
	p, err := ir.Parse(strings.NewReplacer(
		`variable "/seen"`, "variable \"/momentum\" %4 update %42 taskgraph 0\nvariable \"/seen\"",
		"update %2 update %3 result", "update %2 update %4 update %3 result",
		"  %10 =", "  %4 = Parameter() {Name: \"/momentum\", Shape: float32[4]} -> float32[4] : apply taskgraph 0\n  %10 =",
		"  %33 =", "  %42 = Add(%4, %31) -> float32[4] : apply taskgraph 0\n  %33 =",
		"return %40, %41,", "return %40, %41, %42,",
	).Replace(fmt.Sprintf(program, 1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Verify(); err != nil {
		t.Fatal(err)
	}
	l := NewLedger(p)
	want := map[string]Use{"/w1": ForWeights, "/w2": ForWeights, "/momentum": ForOptimizer, "/seen": ForState}
	for _, x := range p.Variables {
		if l.Use(x.Param) != want[x.Path] || l.Use(x.Update) != want[x.Path] {
			t.Errorf("%s counts as %s, its new value as %s", x.Path, l.Use(x.Param), l.Use(x.Update))
		}
	}
}

func TestInputsDieInASegmentThatMayKeepThem(t *testing.T) {
	p, err := ir.Parse(`program "chain"
taskgraph 0 "" replicate(1) implicit
input %0
outputs result
main {
  %0 = Parameter() {Name: "arg0", Shape: float32[4]} -> float32[4] : forward taskgraph 0
  %1 = Exp(%0) -> float32[4] : forward taskgraph 0
  %2 = Exp(%1) -> float32[4] : forward taskgraph 0
  %3 = Exp(%2) -> float32[4] : forward taskgraph 0
  return %3
}`)
	if err != nil {
		t.Fatal(err)
	}
	whole := NewLedger(p).Profile(emit.Whole(p), nil)
	for keeps, want := range map[bool]int64{false: 32, true: 16} {
		if got := whole.Need(func(int) bool { return keeps }).Peak.Total(); got != want {
			t.Errorf("keeps %v: %d bytes beyond the input, not %d", keeps, got, want)
		}
	}
}

func TestBytesListTheLargestFirst(t *testing.T) {
	b := Bytes{ForWeights: 10, ForActivations: 2048, ForCommunication: 0}
	if got := b.String(); got != "activations 2.0 KiB, weights 10 B" {
		t.Error(got)
	}
}

// What stage 0 sends counts until it hears of stage 1 again.
func TestWhatIsSentCountsUntilItsSenderCanKnowThatItWasTaken(t *testing.T) {
	s := buildStages(t, 1, 4, PreferForward)
	p, err := ir.Parse(fmt.Sprintf(stages, 1, 4))
	if err != nil {
		t.Fatal(err)
	}
	l := NewLedger(p)
	a := s.accountant(l, Traffic{}, s.Profiles(l, nil), nothing)
	if stops, _ := play.Play(s.Places, events, func(list, at int) error {
		in, known := s.Places[list][at], a.counters[list].known
		err := a.do(list, at)
		switch x := s.Transfers[max(in.Transfer, 0)]; in.Kind {
		case Send:
			took := slices.IndexFunc(s.Places[x.To], func(y Instr) bool {
				return (y.Kind == Receive || y.Kind == Feed) && y.Transfer == in.Transfer && y.Micro == in.Micro
			})
			if took < 0 || known[x.To] > took {
				t.Errorf("device %d knows at once that %s was taken", list, s.Text(in))
			}
		case Receive:
			if known[x.From] == 0 {
				t.Errorf("device %d learned nothing from %s", list, s.Text(in))
			}
		}
		return err
	}); len(stops) > 0 {
		t.Error(stops)
	}
}

// A variable that is fetched from the host twice and sent twice is there twice, until its sender knows that the first was taken.
func TestWhatIsSentAgainCountsAgain(t *testing.T) {
	s := buildStages(t, 1, 1, PreferBackward)
	p, err := ir.Parse(fmt.Sprintf(stages, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	v, w := s.Variables[0].Param, s.Variables[1].Param // of 32 bytes each
	there, back := Slot{v, Once}, Slot{w, Once}
	s.Segments, s.Buckets, s.Results = nil, nil, nil
	s.Variables = []Variable{{Param: v, Places: []int{0}, Host: true}, {Param: w, Places: []int{1}}}
	s.Transfers = []Transfer{{Value: v, Into: v, To: 1, Once: true}, {Value: w, Into: w, From: 1, Once: true}, {Value: v, Into: v, To: 1, Once: true}}
	load := Instr{Kind: Load, Value: v, Micro: Once}
	send := func(i int) Instr { return Instr{Kind: Send, Transfer: i, Micro: Once, Frees: []Slot{there}} }
	take := func(i int) Instr { return Instr{Kind: Receive, Transfer: i, Micro: Once, Frees: []Slot{there}} }
	s.Places = [][]Instr{
		{load, send(0), load, send(2), {Kind: Receive, Transfer: 1, Micro: Once, Frees: []Slot{back}}, {Kind: Load, Value: v, Micro: Once, Frees: []Slot{there}}},
		{take(0), {Kind: Send, Transfer: 1, Micro: Once}, take(2)},
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	live := map[int]int64{}
	for _, x := range s.Account(p, Traffic{}, nil).Course()[0] {
		live[x.At] = x.Live.Total()
	}
	// After the fourth instruction both are on their way; after the fifth only the second.
	if want := map[int]int64{0: 32, 1: 32, 2: 64, 3: 64, 4: 64, 5: 64}; fmt.Sprint(live) != fmt.Sprint(want) {
		t.Errorf("%v, not %v", live, want)
	}
}
