// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/compute/support/humanize"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/simulate"
)

// planPage is what the page shows of the plan of a training program, before the program itself: the cluster and what runs where, memory, the
// predicted timeline, and the ways that were compared. page_plan.html shows it.
type planPage struct {
	Summary  []summaryLine
	Unfit    string
	Hosts    []*hostView // those of a cluster with many are a few of each kind
	Between  string      // the link between hosts; "": it is not known, or there is one host
	Unknown  bool        // what the devices can do
	Legend   []use
	Memory   []memoryBar
	Ample    bool // devices have so much more memory than they need that bars are not drawn up to it
	Timeline template.HTML
	Step     string
	Some     bool // the timeline has one device of each kind
	Times    []timesView
	Compared int // ways
	Ways     []wayView
	Changes  []changeRow
}

// hostView is a host of the cluster.
type hostView struct {
	Name    string
	Kind    string // profile and memory of its devices
	Link    string // between its devices
	Devices []deviceView
	More    int // devices that are not shown
	Alike   int // other hosts that are the same but for the numbers of replicas and devices
}

// deviceView is a device: which model replica it is of, and what it runs of it.
type deviceView struct {
	Rank    int
	Replica int // -1: the plan does not use the device
	Micro   int // micro-batches of its model replica in a step; 0: as many as all have
	Speed   string
	Works   []workView
	More    int // works that are not shown
	Memory  *memoryBar
	peak    int64
}

// workView is a TaskGraph on a device.
type workView struct {
	TaskGraph int
	Text      string
	Share     string // which part of it
}

// memoryBar is the peak of a device, or of several that need the same.
type memoryBar struct {
	Label, When string
	Uses        []use
	Total       string
	Of          string  // the limit; "": there is none
	LimitX      float64 // where the limit is in the bar, in percent; 0: nowhere
	Over        bool
}

// use is a part of a bar, in percent.
type use struct {
	Class, Name, Bytes string
	X, W               float64
}

type timesView struct {
	Devices                        string
	Busy, Exposed, Bubble          float64 // percent of the step
	BusyT, ExposedT, BubbleT, Comm string
}

// wayView is a way that was compared. Bar is its time for a sample, in percent of the slowest.
type wayView struct {
	*plan.Way
	Name, Step, Hours, Memory, Why string
	Bar                            float64
	Chosen                         bool
}

// What the page has room for.
const (
	allHosts      = 8 // a cluster with more shows few of each kind
	hostsOfKind   = 2
	devicesOnHost = 32
	worksOnDevice = 4
	allDevices    = 8 // a timeline of more has one of each kind
	timelineWidth = 1200
	timelineMost  = 20_000 // events
	ample         = 10
)

//go:embed page_plan.html
var planHTML string

// newPlanPage is nil if there is nothing to show: the program was refused before it was placed, or does not train.
func newPlanPage(c *Program) (*planPage, error) {
	if c.Plan == nil || c.Placement == nil || c.Account == nil || !c.Recorded.IsTraining() {
		return nil, nil
	}
	p := &planPage{Summary: c.summary(), Unknown: c.Hardware == nil, Unfit: c.unfit()}
	p.memory(c)
	p.cluster(c)
	p.ways(c.Plan.Ways)
	p.Changes = changeRows(c.Plan.Changes)
	return p, p.timeline(c.Simulated)
}

// limit is what a device may have of memory; 0: that is not known.
func (c *Program) limit(rank int) int64 {
	return cmp.Or(c.Config.Cluster.DeviceMemory, c.Hardware.MemoryOf(rank))
}

// bar draws the peak of a place. most is what the whole bar is.
func bar(x schedule.PlaceAccount, limit, most int64) memoryBar {
	b := memoryBar{Total: bytesText(x.Peak.Total()), When: x.Text, Over: limit > 0 && x.Peak.Total() > limit}
	if limit > 0 {
		b.Of = bytesText(limit)
		if limit < most {
			b.LimitX = percent(limit, most)
		}
	}
	var sum int64
	for _, u := range schedule.Uses() {
		if n := x.Peak[u]; n > 0 {
			b.Uses = append(b.Uses, use{useClass(u), u.String(), bytesText(n), percent(sum, most), percent(n, most)})
			sum += n
		}
	}
	return b
}

func percent(n, of int64) float64 { return 100 * float64(n) / float64(max(of, 1)) }

// limitOf is what the device has that has least, of those of some places.
func (c *Program) limitOf(places []int) int64 {
	if c.Schedule == nil {
		return c.limit(0)
	}
	least := int64(math.MaxInt64)
	for _, ranks := range c.Schedule.Ranks {
		for _, place := range places {
			for _, device := range c.Schedule.Groups[place] {
				least = min(least, c.limit(ranks[device]))
			}
		}
	}
	return least
}

// memory draws a bar for all places that need the same.
func (p *planPage) memory(c *Program) {
	most := c.Account.Peak()
	var limit int64
	for place := range c.Account.Places {
		limit = max(limit, c.limitOf([]int{place}))
	}
	if p.Ample = limit > ample*most; !p.Ample {
		most = max(most, limit)
	}
	seen := map[string]bool{}
	for _, places := range alike(c.Account) {
		b := bar(c.Account.Places[places[0]], c.limitOf(places), most)
		b.Label = c.memoryLabel(places)
		for _, u := range b.Uses {
			seen[u.Class] = true
		}
		p.Memory = append(p.Memory, b)
	}
	for _, u := range schedule.Uses() {
		if seen[useClass(u)] {
			p.Legend = append(p.Legend, use{Class: useClass(u), Name: u.String()})
		}
	}
}

// cluster draws hosts with their devices, and what is on each.
func (p *planPage) cluster(c *Program) {
	devices := c.devices()
	hosts := c.hosts()
	if c.Hardware != nil && len(hosts) > 1 {
		p.Between = linkText(c.Hardware.Between)
	}
	shown := map[string][]*hostView{} // by kind
	for i, ranks := range hosts {
		h := &hostView{Name: fmt.Sprintf("host %d", i)}
		for _, rank := range ranks {
			h.Devices = append(h.Devices, devices[rank])
		}
		if c.Hardware != nil {
			h.Kind = profileText(c.Hardware.Devices[ranks[0]].Profile)
			if len(ranks) > 1 {
				h.Link = linkText(c.Hardware.Link(ranks[0], ranks[1]))
			}
		}
		kind := h.kind()
		if n := len(shown[kind]); len(hosts) > allHosts && n >= hostsOfKind {
			shown[kind][n-1].Alike++
			continue
		}
		shown[kind] = append(shown[kind], h)
		if n := len(h.Devices) - devicesOnHost; n > 0 {
			h.Devices, h.More = h.Devices[:devicesOnHost], n
		}
		p.Hosts = append(p.Hosts, h)
	}
}

// hosts are the ranks on each host; of a cluster of which nothing is known, those of each worker.
func (c *Program) hosts() (all [][]int) {
	rank := 0
	for worker, indices := range c.Plan.Cluster.Workers {
		for range indices {
			host := worker
			if c.Hardware != nil {
				host = c.Hardware.Devices[rank].Host
			}
			for len(all) <= host {
				all = append(all, nil)
			}
			all[host] = append(all[host], rank)
			rank++
		}
	}
	return slices.DeleteFunc(all, func(ranks []int) bool { return len(ranks) == 0 })
}

// kind is the same for hosts that are alike.
func (h *hostView) kind() string {
	var b strings.Builder
	fmt.Fprintln(&b, h.Kind, h.Link)
	for _, d := range h.Devices {
		fmt.Fprintln(&b, d.Replica < 0, d.Micro, d.Speed, d.Works)
	}
	return b.String()
}

// devices are what is on each device of the cluster, by rank.
func (c *Program) devices() []deviceView {
	var all []deviceView
	for _, indices := range c.Plan.Cluster.Workers {
		for range indices {
			d := deviceView{Rank: len(all), Replica: -1}
			if c.Hardware != nil && c.Hardware.Devices[d.Rank].Speed > 0 && c.Hardware.Devices[d.Rank].Speed != 1 {
				d.Speed = fmt.Sprintf("speed %g", c.Hardware.Devices[d.Rank].Speed)
			}
			all = append(all, d)
		}
	}
	most := c.Account.Peak()
	for rank := range all {
		most = max(most, c.limit(rank))
	}
	for i, v := range c.Placement.Virtual {
		t := c.Recorded.TaskGraphs[i]
		for replica, group := range v.Groups {
			for n, device := range group {
				d := &all[device.Rank]
				d.Replica = replica
				w := workView{TaskGraph: t.ID, Text: shorten(workText(t, len(c.Placement.Virtual)), 40)}
				if len(group) > 1 {
					w.Share = fmt.Sprintf("%s %d of %d", map[bool]string{true: "shard", false: "share"}[t.Kind == ir.Split], n, len(group))
				}
				if len(d.Works) == worksOnDevice {
					d.More++
					continue
				}
				d.Works = append(d.Works, w)
			}
		}
	}
	for rank := range all {
		d := &all[rank]
		if d.Replica < 0 {
			continue
		}
		if s := c.Plan.Shares; s != nil {
			d.Micro = s.MicroBatches[d.Replica]
		}
		x := c.Account.Places[0]
		if c.Schedule != nil {
			device := slices.Index(c.Schedule.Ranks[d.Replica], rank)
			place := c.Schedule.PlaceOf(device)
			x = c.Account.Places[place]
			x.Peak = x.On(slices.Index(c.Schedule.Groups[place], device))
		}
		b := bar(x, c.limit(rank), most)
		d.Memory, d.peak = &b, x.Peak.Total()
	}
	return all
}

// workText names a TaskGraph.
func workText(t *ir.TaskGraph, of int) string {
	if t.Implicit && of == 1 {
		return "the whole model"
	}
	return t.Title()
}

func profileText(p *cost.Profile) string {
	if p.Memory == 0 {
		return p.Name
	}
	return p.Name + ", " + bytesText(p.Memory)
}

func linkText(l cost.Link) string {
	text := fmt.Sprintf("%s, %.3g GB/s", l.Latency, l.Bandwidth/1e9)
	if l.Shared {
		text += ", shared by the devices of a host"
	}
	return text
}

// timeline draws the simulated step.
func (p *planPage) timeline(r *simulate.Result) error {
	if r == nil {
		return nil
	}
	devices := 0
	for _, d := range r.Devices {
		devices += len(d.Ranks)
		bubble := d.Waiting + d.Idle - d.Exposed
		share := func(t time.Duration) float64 { return percent(int64(t), int64(r.Step)) }
		p.Times = append(p.Times, timesView{ranksText(d.Ranks), share(d.Busy), share(d.Exposed), share(bubble), humanize.Duration(d.Busy),
			humanize.Duration(d.Exposed), humanize.Duration(bubble), humanize.Duration(d.Communication)})
	}
	p.Step = humanize.Duration(r.Step)
	timeline := r.Trace
	if devices > allDevices {
		timeline, p.Some = r.Kinds, true
	}
	step := timeline()
	if len(step.Events()) > timelineMost {
		return nil
	}
	var b strings.Builder
	err := step.WriteFigure(&b, timelineWidth)
	p.Timeline = template.HTML(b.String()) // as html/template made it
	return err
}

// ranksText lists ranks, as far as they fit.
func ranksText(ranks []int) string {
	const most = 8
	text := placesText(ranks[:min(most, len(ranks))])
	if len(ranks) > most {
		text += fmt.Sprintf(" … (%d)", len(ranks))
	}
	return text
}

// ways are in the order of the plan: the chosen one first.
func (p *planPage) ways(all []plan.Way) {
	p.Compared = len(all)
	slowest := 0.0
	rate := func(w *plan.Way) float64 { return float64(w.Step) / float64(max(w.Samples, 1)) }
	for i := range all {
		slowest = max(slowest, rate(&all[i]))
	}
	for _, w := range foldWays(all) {
		v := wayView{Way: w.Way, Name: w.String(), Step: humanize.Duration(w.Step), Hours: fmt.Sprintf("%.3g", w.DeviceHours()), Memory: "–", Why: w.reason(), Chosen: w.Why == ""}
		if w.Peak > 0 {
			v.Memory = humanize.Bytes(w.Peak)
		}
		if slowest > 0 {
			v.Bar = 100 * rate(w.Way) / slowest
		}
		p.Ways = append(p.Ways, v)
	}
}
