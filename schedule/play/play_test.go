package play_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/easyparallel/epl/schedule/play"
)

type step = play.Step[string]

// watcher writes down what it sees.
type watcher struct {
	log  []string
	fail string // what it refuses
}

func (w *watcher) see(what string, list, at int) error {
	line := fmt.Sprintf("%s %d.%d", what, list, at)
	w.log = append(w.log, line)
	if line == w.fail {
		return errors.New("refused")
	}
	return nil
}

func (w *watcher) Arrive(list, at int, _ step) error { return w.see("arrive", list, at) }
func (w *watcher) Do(list, at int, _ step) error     { return w.see("do", list, at) }

func run(lists [][]step, observers ...play.Observer[string]) ([]play.Stop[string], error) {
	var lengths []int
	for _, l := range lists {
		lengths = append(lengths, len(l))
	}
	return play.Play(lengths, func(list, at int) step { return lists[list][at] }, observers...)
}

func needs(e string) step { return step{Needs: []string{e}} }
func tells(e string) step { return step{Tells: []string{e}} }
func meets(e string, n int) step {
	return step{Arrives: []string{e}, Needs: []string{e}, Times: n}
}

func TestAListWaitsForWhatItNeeds(t *testing.T) {
	w := &watcher{}
	stops, err := run([][]step{{{}, needs("a"), tells("b")}, {tells("a"), needs("b")}}, w)
	want := []string{"arrive 0.0", "do 0.0", "arrive 0.1", "arrive 1.0", "do 1.0", "arrive 1.1", "do 0.1", "arrive 0.2", "do 0.2", "do 1.1"}
	if err != nil || stops != nil || !slices.Equal(w.log, want) {
		t.Errorf("%v, %v:\n%q, not\n%q", stops, err, w.log, want)
	}
}

func TestAMeetingWaitsForAll(t *testing.T) {
	w := &watcher{}
	stops, _ := run([][]step{{meets("m", 3)}, {meets("m", 3)}, {{}, meets("m", 3)}}, w)
	if stops != nil || slices.Index(w.log, "do 0.0") < slices.Index(w.log, "arrive 2.1") {
		t.Errorf("%v, %q", stops, w.log)
	}
	if stops, _ := run([][]step{{meets("m", 3)}, {meets("m", 3)}, {{}}}); fmt.Sprint(stops) != "[{0 0 m} {1 0 m}]" {
		t.Errorf("without the third: %v", stops)
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
		{"meetings in different orders", [][]step{{meets("m", 2), meets("n", 2)}, {meets("n", 2), meets("m", 2)}}, "[{0 0 m} {1 0 n}]"},
		{"for the second of two", [][]step{{{Needs: []string{"a", "b"}}}, {tells("a")}}, "[{0 0 b}]"},
	} {
		if stops, err := run(c.lists, &watcher{}); fmt.Sprint(stops) != c.want || err != nil {
			t.Errorf("%s: %v, %v; want %s", c.name, stops, err, c.want)
		}
	}
}

func TestAnErrorEndsThePlayAndSaysWhere(t *testing.T) {
	for _, fail := range []string{"arrive 1.0", "do 1.0"} {
		w := &watcher{fail: fail}
		stops, err := run([][]step{{{}}, {{}, {}}, {{}}}, w)
		if err == nil || fmt.Sprint(stops) != "[{1 0 }]" || w.log[len(w.log)-1] != fail {
			t.Errorf("%s: %v, %v, %q", fail, stops, err, w.log)
		}
	}
}

// A list knows of another what that one knew when it made happen what the list waited for.
func TestClocksKnowWhatListsWereTold(t *testing.T) {
	c := play.Clocks[string](3)
	if stops, _ := run([][]step{
		{{}, tells("a"), {}, {}},
		{needs("a"), tells("b"), meets("m", 2)},
		{needs("b"), {}, meets("m", 2)},
	}, c); stops != nil {
		t.Fatal(stops)
	}
	// List 0 hears of nobody; 1 and 2 know what list 0 had done when it told a, and meet at the end of both.
	if got := fmt.Sprint(c.At); got != "[[4 0 0] [2 3 2] [2 2 3]]" {
		t.Error(got)
	}
}

func TestTimesAddUpAlongWhatListsWaitFor(t *testing.T) {
	took := [][]float64{{2, 3}, {1, 4, 1}}
	times := play.Times[string](2, func(list, at int) float64 { return took[list][at] })
	stops, _ := run([][]step{{tells("a"), meets("m", 2)}, {{}, needs("a"), meets("m", 2)}}, times)
	if stops != nil || times.At[0] != 9 || times.At[1] != 7 { // both meet at 6
		t.Errorf("%v, %v", stops, times.At)
	}
}
