// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/schedule/play"
)

var strategies = []Strategy{PreferForward, PreferBackward, PreferBackwardOptimizer, Interleaved, ZeroBubble}

// pipelines calls f for every strategy on up to 6 groups with up to 9 micro-batches, and up to 3 stages per group.
func pipelines(t *testing.T, f func(t *testing.T, p Pipeline)) {
	t.Helper()
	for _, strategy := range strategies {
		for groups := 1; groups <= 6; groups++ {
			for micro := 1; micro <= 9; micro++ {
				for perGroup := 1; perGroup <= 3; perGroup++ {
					if perGroup > 1 && strategy != Interleaved {
						continue
					}
					p := Pipeline{strategy, groups * perGroup, groups, micro}
					t.Run(fmt.Sprintf("%s/%d/%d/%d", strategy, p.Stages, groups, micro), func(t *testing.T) { f(t, p) })
				}
			}
		}
	}
}

func orderOf(t *testing.T, p Pipeline) [][]Task {
	t.Helper()
	order, err := p.Order()
	if err != nil {
		t.Fatal(err)
	}
	if err := check(p, order); err != nil {
		t.Fatal(err)
	}
	return order
}

// check proves an order, whoever made it: every task is in it once, on its group; no group waits forever, if what is
// sent can be kept until it is received; and no group holds more than [Pipeline.InFlight].
func check(p Pipeline, order [][]Task) error {
	if len(order) != p.Groups {
		return errors.Errorf("it has %d groups", len(order))
	}
	last := BackwardTask // of a micro-batch on a stage
	if p.Strategy == ZeroBubble {
		last = WeightsTask
	}
	seen := map[Task]bool{}
	for g, l := range order {
		held := 0
		for _, t := range l {
			switch {
			case t.Kind > last || t.Stage < 0 || t.Stage >= p.Stages || t.Stage%p.Groups != g || t.Micro < 0 || t.Micro >= p.Micro:
				return errors.Errorf("%s of stage %d has no place on group %d", t, t.Stage, g)
			case seen[t]:
				return errors.Errorf("%s of stage %d is there twice", t, t.Stage)
			}
			seen[t] = true
			if t.Kind == ForwardTask {
				held++
			}
			if held > p.InFlight(g) {
				return errors.Errorf("group %d holds %d micro-batches at %s of stage %d, where %d are promised", g, held, t, t.Stage, p.InFlight(g))
			}
			if t.Kind == last {
				held--
			}
		}
	}
	for s := range p.Stages {
		for m := range p.Micro {
			for kind := ForwardTask; kind <= last; kind++ {
				if t := (Task{kind, s, m}); !seen[t] {
					return errors.Errorf("%s of stage %d is missing", t, s)
				}
			}
		}
	}
	stops, _ := play.Play(order, p.events, func(int, int) error { return nil })
	for _, x := range stops {
		t := order[x.List][x.At]
		return errors.Errorf("group %d cannot run %s of stage %d: it waits forever for %s of stage %d", x.List, t, t.Stage, x.For, x.For.Stage)
	}
	return nil
}

// textOf has a line for each group.
func textOf(p Pipeline, order [][]Task) (text string) {
	for _, l := range order {
		text += p.Text(l) + "\n"
	}
	return text
}

// peaks is how many micro-batches each group holds at most until the tasks of a kind.
func peaks(order [][]Task, until TaskKind) []int {
	var all []int
	for _, l := range order {
		held, peak := 0, 0
		for _, task := range l {
			if task.Kind == ForwardTask {
				held++
			}
			peak = max(peak, held)
			if task.Kind == until {
				held--
			}
		}
		all = append(all, peak)
	}
	return all
}

func lastTask(p Pipeline) TaskKind {
	if p.Strategy == ZeroBubble {
		return WeightsTask
	}
	return BackwardTask
}

func TestOrdersOfTheWorkedCases(t *testing.T) {
	for _, c := range []struct {
		p        Pipeline
		inFlight []int
		want     string
	}{
		{Pipeline{PreferForward, 4, 4, 6}, []int{6, 6, 6, 6}, `
F0 F1 F2 F3 F4 F5 B0 B1 B2 B3 B4 B5
F0 F1 F2 F3 F4 F5 B0 B1 B2 B3 B4 B5
F0 F1 F2 F3 F4 F5 B0 B1 B2 B3 B4 B5
F0 F1 F2 F3 F4 F5 B0 B1 B2 B3 B4 B5
`},
		{Pipeline{PreferBackward, 4, 4, 6}, []int{4, 3, 2, 1}, `
F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5
F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5
F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5
F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5
`},
		// The last stage waits for nobody between a forward and its backward, so that it runs none ahead.
		{Pipeline{PreferBackwardOptimizer, 4, 4, 6}, []int{5, 4, 3, 1}, `
F0 F1 F2 F3 F4 B0 F5 B1 B2 B3 B4 B5
F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5
F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5
F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5
`},
		{Pipeline{PreferBackward, 3, 3, 2}, []int{2, 2, 1}, `
F0 F1 B0 B1
F0 F1 B0 B1
F0 B0 F1 B1
`},
		// Two stages on each of two groups, as in Megatron-LM.
		{Pipeline{Interleaved, 4, 2, 4}, []int{5, 3}, `
F0@0 F1@0 F0@2 F1@2 F2@0 B0@2 F3@0 B1@2 F2@2 B0@0 F3@2 B1@0 B2@2 B3@2 B2@0 B3@0
F0@1 F1@1 F0@3 B0@3 F1@3 B1@3 F2@1 B0@1 F3@1 B1@1 F2@3 B2@3 F3@3 B3@3 B2@1 B3@1
`},
		{Pipeline{Interleaved, 3, 1, 2}, []int{3}, `
F0@0 F0@1 F0@2 B0@2 B0@1 B0@0 F1@0 F1@1 F1@2 B1@2 B1@1 B1@0
`},
		// ZB-H1 of "Zero Bubble Pipeline Parallelism".
		{Pipeline{ZeroBubble, 4, 4, 8}, []int{4, 4, 4, 4}, `
F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 F6 B3 W3 F7 B4 W4 B5 W5 B6 W6 B7 W7
F0 F1 F2 B0 F3 B1 W0 F4 B2 W1 F5 B3 W2 F6 B4 W3 F7 B5 W4 B6 W5 B7 W6 W7
F0 F1 B0 F2 B1 F3 B2 W0 F4 B3 W1 F5 B4 W2 F6 B5 W3 F7 B6 W4 B7 W5 W6 W7
F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 W5 W6 W7
`},
	} {
		t.Run(string(c.p.Strategy), func(t *testing.T) {
			order := orderOf(t, c.p)
			if got := textOf(c.p, order); got != c.want[1:] {
				t.Errorf("got\n%swant%s", got, c.want)
			}
			if got := peaks(order, lastTask(c.p)); !slices.Equal(got, c.inFlight) {
				t.Errorf("in flight %v, want %v", got, c.inFlight)
			}
		})
	}
}

func TestOneStageIsGradientAccumulation(t *testing.T) {
	for _, strategy := range strategies {
		want := "F0 B0 F1 B1 F2 B2\n"
		if strategy == ZeroBubble {
			want = "F0 B0 W0 F1 B1 W1 F2 B2 W2\n"
		}
		p := Pipeline{strategy, 1, 1, 3}
		if got := textOf(p, orderOf(t, p)); got != want || p.InFlight(0) != 1 {
			t.Errorf("%s: got %q with %d in flight, want %q with 1", strategy, got, p.InFlight(0), want)
		}
	}
}

func TestInterleavedWithOneStagePerGroupIsPreferBackward(t *testing.T) {
	a, b := Pipeline{Interleaved, 4, 4, 6}, Pipeline{PreferBackward, 4, 4, 6}
	if got, want := textOf(a, orderOf(t, a)), textOf(b, orderOf(t, b)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestEveryOrderKeepsItsPromise(t *testing.T) {
	pipelines(t, func(t *testing.T, p Pipeline) {
		order := orderOf(t, p) // checks it
		// With an incomplete round, Interleaved may need less than it promises.
		exact := p.Groups == p.Stages || p.Micro%p.Groups == 0
		for g, peak := range peaks(order, lastTask(p)) {
			if want := p.InFlight(g); peak > want || exact && peak < want {
				t.Errorf("group %d holds %d micro-batches, %d are promised", g, peak, want)
			}
		}
		if p.Strategy != ZeroBubble {
			return
		}
		for g, whole := range peaks(order, BackwardTask) { // memory of 1F1B, but for what weight halves read
			if want := min(p.Stages-g, p.Micro); whole != want {
				t.Errorf("group %d holds %d micro-batches before their backward, 1F1B %d", g, whole, want)
			}
		}
	})
}

func TestABrokenOrderIsRefused(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	pipelines(t, func(t *testing.T, p Pipeline) {
		order := orderOf(t, p)
		refused := func(group int, l []Task, what string, task Task) {
			t.Helper()
			broken := slices.Clone(order)
			broken[group] = l
			if check(p, broken) == nil {
				t.Errorf("group %d passes with %s of stage %d %s: %v", group, task, task.Stage, what, l)
			}
		}
		for g, l := range order {
			i := rng.Intn(len(l))
			refused(g, slices.Delete(slices.Clone(l), i, i+1), "missing", l[i])
			refused(g, slices.Insert(slices.Clone(l), rng.Intn(len(l)), l[i]), "twice", l[i])
			// On a group, each task of a micro-batch depends on those before it.
			for j := range l {
				if l[j].Micro == l[i].Micro && i != j {
					swapped := slices.Clone(l)
					swapped[i], swapped[j] = l[j], l[i]
					refused(g, swapped, fmt.Sprintf("in place of %s of stage %d", l[j], l[j].Stage), l[i])
				}
			}
			other := l[i]
			other.Micro = p.Micro
			refused(g, append(slices.Clone(l), other), "added", other)
			other = l[i]
			other.Stage += p.Stages
			refused(g, append(slices.Clone(l), other), "added", other)
		}
		if check(p, order[1:]) == nil {
			t.Error("it passes without a group")
		}
		if p.Groups > 1 {
			order[0], order[1] = order[1], order[0]
			if check(p, order) == nil {
				t.Error("it passes with two groups exchanged")
			}
		}
	})
}

func TestCheckSaysWhatIsWrong(t *testing.T) {
	p := Pipeline{PreferBackward, 2, 2, 3}
	for _, c := range []struct {
		name  string
		order [][]Task
		want  string
	}{
		{"deadlock", [][]Task{
			{{0, 0, 0}, {1, 0, 0}, {0, 0, 1}, {1, 0, 1}, {0, 0, 2}, {1, 0, 2}},
			{{0, 1, 1}, {1, 1, 1}, {0, 1, 0}, {1, 1, 0}, {0, 1, 2}, {1, 1, 2}},
		}, "group 0 cannot run B0 of stage 0: it waits forever for B0 of stage 1"},
		{"too much memory", orderOf(t, Pipeline{PreferForward, 2, 2, 3}), "group 0 holds 3 micro-batches at F2 of stage 0, where 2 are promised"},
		{"weight halves", orderOf(t, Pipeline{ZeroBubble, 2, 2, 3}), "W0 of stage 0 has no place on group 0"},
		{"another pipeline", orderOf(t, Pipeline{PreferBackward, 2, 2, 2}), "F2 of stage 0 is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := check(p, c.order)
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestTheOriginalSchedulesTakeTheSameTime(t *testing.T) {
	pipelines(t, func(t *testing.T, p Pipeline) {
		if p.Strategy == Interleaved || p.Strategy == ZeroBubble {
			return
		}
		total, idle := p.Slots(orderOf(t, p), 1, 1, 0)
		if want := float64(2 * (p.Micro + p.Stages - 1)); total != want {
			t.Errorf("%v slots, want %v", total, want)
		}
		for g, n := range idle {
			if want := float64(2 * (p.Stages - 1)); n != want {
				t.Errorf("group %d idles %v slots, want %v", g, n, want)
			}
		}
	})
}

func TestZeroBubbleIdlesAThirdOfPreferBackward(t *testing.T) {
	pipelines(t, func(t *testing.T, p Pipeline) {
		if p.Strategy != ZeroBubble {
			return
		}
		total, idle := p.Slots(orderOf(t, p), 1, 1, 1)
		want := float64(3*p.Micro + p.Stages - 1)
		if p.Micro < p.Stages { // no order is faster than the way of the last micro-batch there and back, and its weight half
			want = float64(2*(p.Stages+p.Micro-1) + 1)
		}
		if total != want || slices.Max(idle) != want-float64(3*p.Micro) {
			t.Errorf("%v slots, idle %v; want %v slots", total, idle, want)
		}
		p.Strategy = PreferBackward
		if whole, _ := p.Slots(orderOf(t, p), 1, 2, 0); p.Stages > 1 && total >= whole {
			t.Errorf("%v slots, PreferBackward takes %v", total, whole)
		}
	})
}

func TestInterleavedIdlesLessTheMoreStagesShareAGroup(t *testing.T) {
	pipelines(t, func(t *testing.T, p Pipeline) {
		if p.Strategy != Interleaved {
			return
		}
		v := float64(p.Stages / p.Groups)
		total, _ := p.Slots(orderOf(t, p), 1/v, 2/v, 0) // the same model, cut finer
		work, bubble := float64(3*p.Micro), float64(3*(p.Groups-1))
		if p.Micro%p.Groups == 0 {
			if want := work + bubble/v; math.Abs(total-want) > 1e-9 {
				t.Errorf("it takes %v, want %v", total, want)
			}
		} else if total > work+bubble+1e-9 {
			t.Errorf("it takes %v, more than %v, which PreferBackward takes", total, work+bubble)
		}
	})
}

func TestPipelinesThatHaveNoOrder(t *testing.T) {
	for _, c := range []struct {
		p    Pipeline
		want string
	}{
		{Pipeline{PreferBackward, 2, 2, 0}, "epl: pipeline.num_micro_batch = 0 must be at least 1"},
		{Pipeline{PreferBackward, 0, 1, 1}, "epl: a pipeline of 0 stages has nothing to run"},
		{Pipeline{Interleaved, 2, 0, 1}, "epl: 2 stages have 0 groups of devices to run on; pipeline.stages_per_device must not be more than"},
		{Pipeline{Interleaved, 5, 2, 4}, "epl: 5 stages do not divide over 2 groups of devices; set pipeline.stages_per_device to a divisor of 5"},
		{Pipeline{PreferForward, 4, 2, 4}, `epl: 4 stages share 2 groups of devices (pipeline.stages_per_device = 2), for which pipeline.strategy = "PreferForward" has no order; set it to "Interleaved"`},
		{Pipeline{ZeroBubble, 4, 2, 4}, `pipeline.strategy = "ZeroBubble" has no order`},
		{Pipeline{"1F1B", 4, 4, 4}, `epl: pipeline.strategy = "1F1B" is not known; use "PreferBackward", "PreferForward", "PreferBackwardOptimizer", "Interleaved" or "ZeroBubble"`},
	} {
		order, err := c.p.Order()
		if order != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, %v; want %s", c.p, order, err, c.want)
		}
	}
}
