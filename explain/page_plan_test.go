// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
)

// plannedOn plans the pipeline of twoStages on hosts with two devices each, of which it is known what they can do.
func plannedOn(t *testing.T, hosts int, params map[string]any, text string) *Program {
	t.Helper()
	return plannedOnHosts(t, hosts, 2, params, text)
}

// plannedOnHosts has so many devices on each host.
func plannedOnHosts(t *testing.T, hosts, each int, params map[string]any, text string) *Program {
	t.Helper()
	text = regexp.MustCompile(`(?m)^(instances|stage) .*\n|  %3[678] = Merge.*\n| varying| place 1`).ReplaceAllString(text, "")
	text = strings.NewReplacer("gradient %2 = %36", "gradient %2 = %34", "gradient %3 = %37", "gradient %3 = %31",
		"Sub(%2, %36)", "Sub(%2, %34)", "Sub(%3, %37)", "Sub(%3, %31)", "return %40, %41, %38", "return %40, %41, %13").Replace(text)
	devices := make([]int, hosts)
	for i := range devices {
		devices[i] = each
	}
	cl, err := cluster.New(cluster.Spec{Devices: devices})
	if err != nil {
		t.Fatal(err)
	}
	profile := cost.Flat(1e9, 1e9, time.Microsecond)
	profile.Name, profile.Memory = "toy", 16<<10
	link := cost.Link{Latency: 2 * time.Microsecond, Bandwidth: 5e9}
	hardware := cost.Uniform(hosts, each, profile, link, cost.Link{Latency: 30 * time.Microsecond, Bandwidth: 1.25e9, Shared: true})
	on, err := passes.Parse("", nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &Program{Number: 1, Config: settings(t, params), Hardware: hardware}
	pl, r, err := plan.Decide(parse(t, text), c.Config, plan.Target{Cluster: cl, Hardware: hardware, Passes: on})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	c.Plan, c.Result = pl, *r
	if c.Simulated, _, err = r.Simulate(hardware); err != nil {
		t.Fatal(err)
	}
	return c
}

// planSections is the page of a plan, without what follows about the program.
func planSections(t *testing.T, c *Program) string {
	t.Helper()
	page, _ := writePage(t, c, Stage{"recorded", "", "", c.Recorded}, Stage{"final", "", "", c.Final})
	_, rest, ok := strings.Cut(page, `<section aria-labelledby="h-summary">`)
	sections, _, closed := strings.Cut(rest, `<section aria-labelledby="h-picture">`)
	if !ok || !closed {
		t.Fatal("the page has no plan")
	}
	return sections
}

// words is a page as a reader sees it, without pictures.
func wordsOf(page string) string {
	page = regexp.MustCompile(`(?s)<svg.*?</svg>|<[^>]*>`).ReplaceAllString(page, " ")
	return strings.Join(strings.Fields(html.UnescapeString(page)), " ")
}

func TestThePageOfAPlanShowsHostsDevicesAndLinks(t *testing.T) {
	c := plannedOn(t, 2, map[string]any{"pipeline.num_micro_batch": 3}, twoStages)
	got := wordsOf(planSections(t, c))
	for _, want := range []string{
		"plan 4 devices = 2 model replicas of 2 devices in 2 stages", "time ",
		"host 0 toy, 16.0 KiB each device 0 replica 0 first", "device 1 replica 0 second", "host 1 toy, 16.0 KiB each device 2 replica 1 first",
		"2µs, 5 GB/s", "between hosts: 30µs, 1.25 GB/s, shared by the devices of a host",
		"stage 0 · device 0 " + bytesText(c.Account.Places[0].Peak.Total()) + " of 16.0 KiB", "stage 1 · device 1",
		"A step, predicted: ", "0 2 ", "1 3 ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page does not say %q:\n%s", want, got)
		}
	}
	c.Plan.Shares = &plan.Shares{MicroBatches: []int{3, 1}}
	if got := wordsOf(planSections(t, c)); !strings.Contains(got, "device 0 replica 0 · 3 micro-batches first") || !strings.Contains(got, "device 2 replica 1 · 1 micro-batch first") {
		t.Errorf("the page does not say that replicas take different numbers of micro-batches:\n%s", got)
	}
	if strings.Contains(got, "Why this plan") {
		t.Error("nothing was compared, and the page has a section about it")
	}
}

func TestBarsOfMemoryHaveEveryUseOfTheAccountUpToTheLimit(t *testing.T) {
	c := plannedOn(t, 1, map[string]any{"cluster.device_memory": "3KiB"}, twoStages)
	c.Unfit = errors.New("epl: device 0 needs too much")
	p, err := newPlanPage(c)
	if err != nil {
		t.Fatal(err)
	}
	for place, b := range p.Memory {
		peak := c.Account.Places[place].Peak
		sum, bytes := 0.0, 0
		for _, u := range b.Uses {
			if u.X != sum {
				t.Errorf("place %d: %s begins at %v, and what is before it ends at %v", place, u.Name, u.X, sum)
			}
			sum += u.W
		}
		for _, n := range peak {
			bytes += one(n > 0)
		}
		if want := percent(peak.Total(), c.Account.Peak()); len(b.Uses) != bytes || sum < want-1e-9 || sum > want+1e-9 {
			t.Errorf("place %d: %d uses, of %d; they end at %v, want %v", place, len(b.Uses), bytes, sum, want)
		}
		if !b.Over || b.Of != "3.0 KiB" || b.LimitX != percent(3<<10, c.Account.Peak()) {
			t.Errorf("place %d: the limit is %q at %v, over: %v", place, b.Of, b.LimitX, b.Over)
		}
	}
	c.Config = settings(t, map[string]any{"cluster.device_memory": "32GiB"})
	if p, err := newPlanPage(c); err != nil || !p.Ample || p.Memory[0].LimitX != 0 || p.Memory[0].Uses[0].W < 1 {
		t.Errorf("a device that has far more than it needs has no bar to see: %+v, %v", p.Memory[0], err)
	}
	if got := wordsOf(planSections(t, c)); !strings.Contains(got, "It does not fit. device 0 needs too much") {
		t.Errorf("the page does not say why the plan does not fit:\n%s", got)
	}
}

func TestAPageOfManyHostsShowsAFewOfEachKind(t *testing.T) {
	c := plannedOn(t, 20, nil, twoStages)
	c.Hardware.Devices[38].Speed = 0.5
	p, err := newPlanPage(c)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range p.Hosts {
		got = append(got, fmt.Sprint(h.Name, " +", h.Alike))
	}
	if want := "host 0 +0, host 1 +17, host 19 +0"; strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
	if d := p.Hosts[2].Devices[0]; d.Speed != "speed 0.5" || d.Rank != 38 || d.Replica != 19 {
		t.Errorf("the slow device is %+v", d)
	}
	if !p.Some || strings.Count(string(p.Timeline), `class="row"`) != 2 {
		t.Errorf("the timeline has not one row for each kind of device:\n%.2000s", p.Timeline)
	}
}

func TestThePageSaysWhyOtherWaysLost(t *testing.T) {
	c := plannedOn(t, 1, nil, twoStages)
	c.Plan.Ways = []plan.Way{
		{Stages: 2, Split: 1, Replicas: 1, MicroBatches: 2, Samples: 8, Step: 2 * time.Millisecond, Peak: 2 << 20},
		{Stages: 1, Split: 1, Replicas: 2, MicroBatches: 1, Samples: 8, Step: 4 * time.Millisecond, Peak: 3 << 20, Why: "100 % slower"},
		{Stages: 1, Split: 2, Part: hostile, Replicas: 1, MicroBatches: 2, Samples: 8, Why: hostile},
	}
	c.Plan.Changes = []plan.Change{
		{If: "links twice as fast", Step: time.Millisecond}, {If: "half the memory", Best: "4 stages", BestStep: 3 * time.Millisecond}, {If: hostile},
	}
	sections := planSections(t, c)
	got := wordsOf(sections)
	for _, want := range []string{
		"links twice as fast 1ms the same", "half the memory does not fit 4 stages 3ms", hostile + " does not fit none of those compared",
		"Why this plan: 3 ways compared", "2 stages 2ms 8 2 0.139 2.0 MiB chosen", "2 replicas 4ms 8 1 0.278 3.0 MiB 100 % slower", hostile,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page does not say %q:\n%s", want, got)
		}
	}
	if strings.Contains(sections, "<img") {
		t.Error("a name became a part of the page")
	}
	if p, _ := newPlanPage(c); p.Ways[0].Bar != 50 || p.Ways[1].Bar != 100 {
		t.Errorf("bars of %v and %v for 2 ms and 4 ms", p.Ways[0].Bar, p.Ways[1].Bar)
	}
}

func TestWaysThatDifferInWhatSavesMemoryAreOneRow(t *testing.T) {
	way := func(peak int64, why string, settings ...string) plan.Way {
		return plan.Way{Stages: 1, Split: 1, Replicas: 4, Settings: settings, Peak: peak, Unfit: why != "", Why: why}
	}
	var got []string
	for _, w := range foldWays([]plan.Way{
		way(5, "", "zero.level=v2"), way(9, "needs 9 B", "zero.level=v0"), way(20, "needs 20 B"), way(7, "needs 7 B", "zero.level=v1"),
		{Stages: 4, Split: 1, Replicas: 1, Peak: 12, Unfit: true, Why: "needs 12 B"},
		{Stages: 4, Split: 1, Replicas: 1, Peak: 11, Unfit: true, Why: "needs 11 B", Settings: []string{"gradient_checkpoint.type=auto"}},
		{Stages: 4, Split: 1, Replicas: 1, Peak: 8, Unfit: true, Why: "needs 8 B", Settings: []string{"offload.level=v0"}},
	}) {
		got = append(got, w.String()+": "+w.reason())
	}
	want := []string{
		"4 replicas, zero.level=v2: chosen; 2 more with other settings", "4 replicas: needs 20 B",
		"4 stages: needs 12 B", "4 stages, offload.level=v0: needs 8 B; 1 more with other settings",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestThePageOfAPlanEscapesNames(t *testing.T) {
	text := strings.NewReplacer(`"first"`, fmt.Sprintf("%q", hostile), `"train"`, fmt.Sprintf("%q", hostile)).Replace(twoStages)
	c := plannedOn(t, 1, nil, text)
	for _, d := range c.Hardware.Devices {
		d.Profile.Name = hostile
	}
	if sections := planSections(t, c); strings.Contains(sections, "<img") || !strings.Contains(sections, html.EscapeString(hostile)) {
		t.Error("names are not shown as they are")
	}
}

func TestAPlanOfDevicesOfWhichNothingIsKnownHasNoTimeline(t *testing.T) {
	c := plannedOn(t, 2, nil, twoStages)
	c.Hardware, c.Simulated = nil, nil
	got := wordsOf(planSections(t, c))
	if strings.Contains(got, "A step, predicted") || !strings.Contains(got, "host 1 device 2 replica 1 first") || !strings.Contains(got, "What the devices can do is not known") {
		t.Error(got)
	}
}
