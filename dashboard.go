// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/compile"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/dashboard"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/trace"
)

// WithDashboard shows the training in a browser while it runs: loss and metrics, speed, the parts of a step, memory against the plan, the plan and the last
// step's timeline. The address is HOST:PORT; "" is port 29880 of this machine, or another one if that is taken. Its URL is printed. Where other machines can reach
// it, that has a token, without which nothing is shown.
//
//	env, err := epl.Init(nil, epl.WithDashboard(""))
//
// It is for programs that run without epl-launch, and shows what this worker knows: the first one serves the page. Under epl-launch use its flag --dashboard,
// which shows all workers; then this option does nothing.
func WithDashboard(address string) Option {
	return func(o *options) error {
		if address != "" {
			if err := dashboard.CheckAddress(address); err != nil {
				return err
			}
		}
		o.dashboard = &address
		return nil
	}
}

// Dashboard is the URL of the page that [WithDashboard] made, with its token if it has one; "" if this worker serves none.
//
//	fmt.Println("open", env.Dashboard())
func (e *Env) Dashboard() string {
	if e.watcher == nil {
		return ""
	}
	return e.watcher.url
}

const (
	// lookEvery is how often a step is looked at closely.
	lookEvery = 500 * time.Millisecond
	// drawEvery is how often the timeline of a step is shown.
	drawEvery = 2 * time.Second
	// mostBars is how many bars of a device a timeline has, and mostBarsOfAll of all devices of a worker.
	mostBars, mostBarsOfAll = 300, 4000
)

// watcher tells a dashboard of the training steps of this worker. It implements compile.Observer. Its methods are called where training is.
type watcher struct {
	env   *Env
	put   func(dashboard.Event)
	close func()
	url   string // of the page; "": another process has it
	stats func() []DeviceStats
	waits *atomic.Int64
	peak  *cost.Cluster // what devices can do; nil: that is not known

	steps   int64 // that were begun
	every   int64 // so many steps is one looked at closely: a power of 2, so that all workers look at the same ones
	closely bool
	ended   time.Time // when the step before had
	waited  int64     // up to then
	begun   int64     // waited when this step began
	told    time.Time // when the last record was made
	at      int64     // steps then
	drawn   time.Time
	planned *plan.Plan // that was told
	flops   float64    // of a step
	able    float64    // flops a second of all devices; 0: not known

	names  []string // of results
	tokens int      // of a sample
}

// newWatcher says who is told of training; nil: nobody.
func newWatcher(o *options, main bool) (*watcher, error) {
	w := &watcher{every: 1, waits: new(atomic.Int64)}
	if pipe := os.Getenv(dashboard.Env); pipe != "" {
		s, err := dashboard.NewSender(pipe)
		if err != nil {
			warn("%s; the dashboard shows no steps of this worker", strings.TrimPrefix(err.Error(), "epl: "))
			return nil, nil
		}
		w.put, w.close = s.Put, s.Close
		return w, nil
	}
	if o.dashboard == nil || !main {
		return nil, nil
	}
	s, err := dashboard.New(dashboard.Options{Address: *o.dashboard, Title: filepath.Base(os.Args[0])})
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	s.Put(dashboard.Event{Workers: []dashboard.Worker{{Host: host, State: dashboard.Running}}})
	fmt.Fprintln(os.Stderr, "epl: dashboard: "+s.URL())
	w.put, w.url = s.Put, s.URL()
	w.close = func() {
		s.Put(dashboard.Event{Workers: []dashboard.Worker{{Host: host, State: dashboard.Finished}}})
		s.Close()
	}
	return w, nil
}

// observer is nil if nobody watches.
func (w *watcher) observer() compile.Observer {
	if w == nil {
		return nil
	}
	return w
}

// end tells the last.
func (w *watcher) end() {
	if w != nil {
		w.close()
	}
}

// named takes the names of what a training program returns, and how many tokens a sample has.
func (w *watcher) named(names []string, tokens int) {
	if w != nil {
		w.names, w.tokens = names, tokens
	}
}

// Begin implements compile.Observer.
func (w *watcher) Begin() (closely bool) {
	w.steps++
	w.closely, w.begun = w.steps%w.every == 0, w.waits.Load()
	return w.closely
}

// Done implements compile.Observer.
func (w *watcher) Done(s compile.Observed) {
	if !w.closely {
		w.ended, w.waited = s.End, w.waits.Load()
		return
	}
	results, number := s.Read()
	end := time.Now()
	r := &dashboard.Step{Number: cmp.Or(number, w.steps), Time: dashboard.At(end), Devices: w.devices(s, end)}
	if n := w.steps - w.at; !w.told.IsZero() {
		r.Seconds = end.Sub(w.told).Seconds() / float64(n)
		w.adapt(r.Seconds)
	}
	if w.env.IsMain() {
		w.plan(s.Program)
		r.Values = w.values(results)
		if r.Seconds > 0 {
			r.Samples = float64(w.env.GlobalBatch()) / r.Seconds
			r.Tokens, r.Flops = r.Samples*float64(w.tokens), w.flops/r.Seconds
			if w.able > 0 {
				r.MFU = r.Flops / w.able
			}
		}
	}
	me := w.env.cluster.WorkerIndex()
	w.put(dashboard.Event{Worker: me, Step: r})
	if s.Trace != nil && end.Sub(w.drawn) >= drawEvery {
		w.drawn = end
		w.put(dashboard.Event{Worker: me, Timeline: timelineOf(s.Trace, r.Number)})
	}
	w.told, w.at = end, w.steps
	w.ended, w.waited = time.Now(), w.waits.Load()
}

// adapt chooses how often a step is looked at. Workers take their steps together, and so choose the same, but for a while at most.
func (w *watcher) adapt(seconds float64) {
	want := int64(1)
	for want < 1<<20 && float64(want)*seconds < lookEvery.Seconds() {
		want *= 2
	}
	switch {
	case want > w.every:
		w.every *= 2
	case want < w.every/2: // not for every breath
		w.every /= 2
	}
}

// values are the results of a step by name. Those of a GoMLX trainer begin with the loss and its moving average.
func (w *watcher) values(results []float64) map[string]dashboard.Number {
	values := map[string]dashboard.Number{}
	for i, x := range results {
		name := fmt.Sprint("metric ", i)
		switch {
		case i < len(w.names) && len(w.names) == len(results):
			name = w.names[i]
		case i == 0:
			name = "Loss"
		case i == 1:
			name = "Moving Average Loss"
		}
		values[name] = dashboard.Number(x)
	}
	return values
}

// devices is what the devices of this worker did.
func (w *watcher) devices(s compile.Observed, end time.Time) (all []dashboard.Device) {
	inside, between := time.Duration(w.waits.Load()-w.begun), time.Duration(w.begun-w.waited) // waiting for batches
	var other time.Duration
	if !w.ended.IsZero() {
		other = max(s.Start.Sub(w.ended)-between, 0)
	}
	byDevice := map[int][]trace.Event{}
	if s.Trace != nil {
		for _, e := range s.Trace.Events() {
			byDevice[e.Device] = append(byDevice[e.Device], e)
		}
	}
	first := 0
	if w.env.job != nil {
		first = w.env.job.First()
	}
	took := s.End.Sub(s.Start)
	for i, d := range w.stats() {
		if d.Runs == 0 {
			continue
		}
		x := dashboard.Device{Rank: first + i, Peak: d.PeakBytes, Uses: d.Peak}
		for _, n := range d.Sent {
			x.Sent += n / int64(d.Runs)
		}
		compute, exposed, fed := took-inside, time.Duration(0), time.Duration(0)
		if s.Trace != nil {
			events := byDevice[first+i]
			t := trace.Sum(events, took)
			compute, exposed = t.Busy, t.Exposed
			for _, e := range events {
				if e.Kind == trace.Data {
					fed += e.End.Sub(e.Start)
				}
			}
		}
		waiting := max(took-inside-compute-exposed-fed, 0)
		compute += end.Sub(s.End) // a GPU may go on while the host reads its results
		x.Parts = &dashboard.Parts{Compute: compute.Seconds(), Exposed: exposed.Seconds(), Waiting: waiting.Seconds(), Data: (inside + between + fed).Seconds(), Other: other.Seconds()}
		all = append(all, x)
	}
	return all
}

// plan tells of the plan of a program, once.
func (w *watcher) plan(c *compile.Compiled) {
	if c.Plan == w.planned {
		return
	}
	w.planned, w.able = c.Plan, 0
	flops, products := 0.0, map[dtypes.DType]float64{}
	for _, op := range c.Recorded.Main.Ops {
		n := float64(cost.Of(op).Flops)
		if flops += n; cost.Family(op) == cost.Dot && len(op.Outputs) > 0 {
			products[op.Outputs[0].Shape.DType] += n
		}
	}
	w.flops = flops * float64(max(c.Plan.Batches(), 1))
	if w.peak != nil {
		dtype, most := dtypes.Float32, 0.0
		for t, n := range products {
			if n > most {
				dtype, most = t, n
			}
		}
		w.able = able(w.peak, dtype)
	}
	shown := c.Program
	if shown.Hardware == nil {
		shown.Hardware = w.peak
	}
	g := shown.Glance()
	if g == nil {
		return
	}
	p := &dashboard.Plan{Program: c.Recorded.Name, Summary: g.Summary, Seconds: c.Plan.Costs.StepSeconds, Samples: w.env.GlobalBatch()}
	for _, d := range g.Devices {
		x := dashboard.PlanDevice{Rank: d.Rank, Worker: d.Worker, Replica: d.Replica, Peak: d.Peak, Limit: w.env.engine.Limit(d.Rank)}
		for _, t := range d.Works {
			x.Works = append(x.Works, dashboard.Work(t))
		}
		p.Devices = append(p.Devices, x)
	}
	var page strings.Builder
	if err := shown.WritePlan(&page); err == nil {
		p.Page = page.String()
	}
	w.put(dashboard.Event{Plan: p})
}

// able is how many flops a second the devices of a cluster do at most, in products of large matrices.
func able(c *cost.Cluster, t dtypes.DType) (sum float64) {
	hosts := map[int]int{}
	for _, d := range c.Devices {
		hosts[d.Host]++
	}
	for _, d := range c.Devices {
		if d.Profile == nil {
			return 0
		}
		p, faster := d.Profile, 1.0
		if p.Cores > 0 {
			p, faster = p.On(p.Threads(hosts[d.Host]))
		}
		if d.Speed > 0 {
			faster *= d.Speed
		}
		rate := faster * p.Rate(cost.Dot, t, 1e12)
		if rate <= 0 || math.IsInf(rate, 0) {
			return 0
		}
		sum += rate
	}
	return sum
}

// timelineOf is a step as a dashboard shows it.
func timelineOf(s *trace.Step, number int64) *dashboard.Timeline {
	events := s.Events()
	t := &dashboard.Timeline{Step: number, Rows: []dashboard.Row{}, Names: []string{}}
	if len(events) == 0 {
		return t
	}
	start, end := events[0].Start, events[0].End
	rows, names := map[int][]dashboard.Bar{}, map[string]int64{}
	for _, e := range events {
		if e.End.After(end) {
			end = e.End
		}
		name := strings.TrimSpace(e.Op + " " + e.Name)
		if _, known := names[name]; !known {
			names[name] = int64(len(names))
			t.Names = append(t.Names, name)
		}
		micro := int64(-1)
		if e.Task.Kind != "" {
			micro = int64(e.Task.Micro)
		}
		rows[e.Device] = append(rows[e.Device], dashboard.Bar{kindOf(e), e.Start.Sub(start).Microseconds(), e.End.Sub(e.Start).Microseconds(), names[name], micro})
	}
	t.Micro = max(end.Sub(start).Microseconds(), 1)
	most := min(mostBars, max(mostBarsOfAll/len(rows), 1))
	for rank, bars := range rows {
		if n := len(bars) - most; n > 0 {
			slices.SortStableFunc(bars, func(a, b dashboard.Bar) int { return cmp.Compare(b[2], a[2]) })
			bars = bars[:most]
			t.Lost += n
		}
		t.Rows = append(t.Rows, dashboard.Row{Rank: rank, Bars: bars})
	}
	slices.SortFunc(t.Rows, func(a, b dashboard.Row) int { return cmp.Compare(a.Rank, b.Rank) })
	return t
}

func kindOf(e trace.Event) int64 {
	switch e.Kind {
	case trace.Data:
		return dashboard.KindData
	case trace.Launch:
		return dashboard.KindLaunch
	case trace.Communicate:
		return dashboard.KindCommunicate
	case trace.Run:
		switch e.Task.Kind {
		case trace.Forward, trace.Instance:
			return dashboard.KindForward
		case trace.Backward, trace.Weights:
			return dashboard.KindBackward
		}
		return dashboard.KindApply
	}
	return dashboard.KindWait
}
