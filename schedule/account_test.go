package schedule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/easyparallel/epl/ir"
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
	whole := NewLedger(p).Whole(p, nil)
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
	g := newNews(s)
	at := make([]int, len(s.Places))
	for moved := true; moved; {
		moved = false
		for place, list := range s.Places {
			for at[place] < len(list) && g.hears(place, at[place]) {
				in := list[at[place]]
				g.tells(place, at[place])
				at[place]++
				moved = true
				if in.Kind == Send && !s.Transfers[in.Transfer].Input && g.knows(place, g.taking(in)) {
					t.Errorf("device %d knows at once that %s was taken", place, s.Text(in))
				}
				if in.Kind == Receive {
					from := s.Transfers[in.Transfer].From
					if g.known[place][from] == 0 {
						t.Errorf("device %d learned nothing from %s", place, s.Text(in))
					}
				}
			}
		}
	}
	for place, list := range s.Places {
		if at[place] != len(list) {
			t.Errorf("device %d stops at %d of %d", place, at[place], len(list))
		}
	}
}
