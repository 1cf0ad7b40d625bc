// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/simulate"
)

const ms = time.Millisecond

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
		t.Errorf("%s: %g, not %g", what, got, want)
	}
}

func TestTheBubbleOfEqualStagesIsThatOfTheFormula(t *testing.T) {
	for _, c := range []struct {
		p             schedule.Pipeline
		f, b, w, step time.Duration
		bubble        float64
	}{
		{schedule.Pipeline{Strategy: schedule.PreferForward, Stages: 2, Groups: 2, Micro: 4}, ms, 2 * ms, 0, 15 * ms, 1. / 5},
		{schedule.Pipeline{Strategy: schedule.PreferBackward, Stages: 2, Groups: 2, Micro: 4}, ms, 2 * ms, 0, 15 * ms, 1. / 5},
		{schedule.Pipeline{Strategy: schedule.PreferBackwardOptimizer, Stages: 2, Groups: 2, Micro: 4}, ms, 2 * ms, 0, 15 * ms, 1. / 5},
		{schedule.Pipeline{Strategy: schedule.PreferBackward, Stages: 4, Groups: 4, Micro: 8}, ms, 2 * ms, 0, 33 * ms, 3. / 11},
		// (G-1)/(v·M+G-1), with stages that are half as long.
		{schedule.Pipeline{Strategy: schedule.Interleaved, Stages: 4, Groups: 2, Micro: 4}, ms, 2 * ms, 0, 27 * ms, 1. / 9},
		// (S-1)(f+b-w) of M(f+b+w) more.
		{schedule.Pipeline{Strategy: schedule.ZeroBubble, Stages: 2, Groups: 2, Micro: 4}, ms, ms, ms, 13 * ms, 1. / 13},
	} {
		s := pipeline(t, c.p, 1, 1000)
		r := run(t, s, cost.Uniform(1, c.p.Groups, device, atOnce, atOnce), simulate.Options{Segment: times(c.f, c.b, c.w, 0)})
		if r.Step != c.step {
			t.Errorf("%+v: %v, not %v", c.p, r.Step, c.step)
		}
		near(t, string(c.p.Strategy), r.Bubble(), c.bubble)
		near(t, string(c.p.Strategy)+" of the timeline", r.Trace().Report().Bubble, c.bubble)
	}
}

// With other times the schedule's own arithmetic, which knows tasks only, says the same.
func TestPipelinesTakeAsLongAsTheirOrderSays(t *testing.T) {
	for _, strategy := range []schedule.Strategy{schedule.PreferForward, schedule.PreferBackward, schedule.PreferBackwardOptimizer, schedule.Interleaved, schedule.ZeroBubble} {
		for groups := 2; groups <= 4; groups++ {
			for micro := 1; micro <= 7; micro++ {
				p := schedule.Pipeline{Strategy: strategy, Stages: groups, Groups: groups, Micro: micro}
				if strategy == schedule.Interleaved {
					p.Stages *= 2
				}
				order, err := p.Order()
				if err != nil {
					t.Fatal(err)
				}
				want, _ := p.Slots(order, 3, 5, 2)
				r := run(t, pipeline(t, p, 1, 10), cost.Uniform(1, groups, device, atOnce, atOnce), simulate.Options{Segment: times(3*ms, 5*ms, 2*ms, 0)})
				if r.Step != time.Duration(want)*ms {
					t.Errorf("%+v: %v, not %g ms", p, r.Step, want)
				}
			}
		}
	}
}

// A receive is waited for: with 1F1B the time of a value comes on top wherever the next task needs it.
func TestValuesOfStagesAreWaitedFor(t *testing.T) {
	p := schedule.Pipeline{Strategy: schedule.PreferBackward, Stages: 2, Groups: 2, Micro: 1}
	link := cost.Link{Latency: ms, Bandwidth: 100e3} // 100 bytes a millisecond
	r := run(t, pipeline(t, p, 1, 200), cost.Uniform(1, 2, device, link, link), simulate.Options{Segment: times(ms, 2*ms, 0, 0)})
	if want := (1 + 3 + 1 + 2 + 3 + 2) * ms; r.Step != want {
		t.Errorf("%v, not %v", r.Step, want)
	}
	near(t, "exposed", r.Exposed(), 6./12) // either device computes nothing while a value is on its way
}

func TestALongValueTravelsWhenItIsAskedFor(t *testing.T) {
	// The second stage is busy with micro-batch 0 when micro-batch 1 is sent.
	p := schedule.Pipeline{Strategy: schedule.PreferForward, Stages: 2, Groups: 2, Micro: 2}
	for _, c := range []struct {
		bytes int
		want  time.Duration
	}{
		{1000, (1 + 1 + 5 + 5 + 1 + 1 + 2) * ms},               // F0 of both, then F1, B0 and B1 of the second: micro-batch 1 came meanwhile
		{1000 << 10, (1 + 1 + 5 + 1 + 5 + 1 + 1 + 1 + 2) * ms}, // it is on its way after F0, and so are gradients
	} {
		link := cost.Link{Bandwidth: float64(c.bytes) * 1000} // a millisecond
		r := run(t, pipeline(t, p, 1, c.bytes), cost.Uniform(1, 2, device, link, link), simulate.Options{Segment: func(s *schedule.Segment, _ cost.Device) time.Duration {
			if s.Stage == 1 && s.Kind == schedule.Forward {
				return 5 * ms
			}
			return ms
		}})
		if r.Step != c.want {
			t.Errorf("%d bytes: %v, not %v", c.bytes, r.Step, c.want)
		}
	}
}

func TestGradientsAreMergedWhileBackwardGoesOn(t *testing.T) {
	link := cost.Link{Bandwidth: 1e6} // a bucket of 4000 bytes takes 2·4000·3/4 bytes: 6 ms
	c := cost.Uniform(1, 4, device, link, link)
	o := simulate.Options{Segment: times(0, 10*ms, 0, ms)}
	r := run(t, layers(4, 3, 4000), c, o)
	// 30 ms of backward hide two of the buckets. The third, and apply, come after it.
	if want := (30 + 6 + 1) * ms; r.Step != want {
		t.Errorf("%v, not %v", r.Step, want)
	}
	if d := r.Devices[0]; len(r.Devices) != 1 || d.Communication != 18*ms || d.Exposed != 6*ms || d.Busy != 31*ms {
		t.Errorf("%+v", r.Devices)
	}
	// Slow ones queue behind each other on one communicator; two share the link.
	link.Bandwidth = 0.25e6
	for communicators, want := range map[int]time.Duration{1: (10 + 3*24 + 1) * ms, 2: (10 + 3*24 + 1) * ms} {
		o.Communicators = communicators
		if r := run(t, layers(4, 3, 4000), cost.Uniform(1, 4, device, link, link), o); r.Step != want {
			t.Errorf("%d communicators: %v, not %v", communicators, r.Step, want)
		}
	}
}

func TestSendsOfAHostShareItsLink(t *testing.T) {
	// Four model replicas of two stages: the first stages are on one host, the second on another.
	p := schedule.Pipeline{Strategy: schedule.PreferBackward, Stages: 2, Groups: 2, Micro: 1}
	s := pipeline(t, p, 4, 1000)
	s.Ranks = [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}
	between := cost.Link{Bandwidth: 1e6} // a millisecond alone
	o := simulate.Options{Segment: times(ms, 2*ms, 0, 0)}
	if r := run(t, s, cost.Uniform(2, 4, device, atOnce, between), o); r.Step != 8*ms {
		t.Errorf("each with its link: %v", r.Step)
	}
	between.Shared = true
	if r := run(t, s, cost.Uniform(2, 4, device, atOnce, between), o); r.Step != 14*ms {
		t.Errorf("four of them on one link: %v", r.Step)
	}
}

func TestTheSlowestDeviceHoldsUpTheOthers(t *testing.T) {
	c := cost.Uniform(1, 4, device, atOnce, atOnce)
	c.Devices[2].Speed = 0.5
	r := run(t, layers(4, 2, 1000), c, simulate.Options{Segment: times(0, 10*ms, 0, ms)})
	if want := (40 + 2) * ms; r.Step != want {
		t.Errorf("%v, not %v", r.Step, want)
	}
	if len(r.Devices) != 2 || len(r.Devices[0].Ranks) != 3 || r.Devices[0].Busy != 21*ms || r.Devices[1].Ranks[0] != 2 || r.Devices[1].Busy != 42*ms {
		t.Errorf("%+v", r.Devices)
	}
}

// What a run costs does not grow with the model replicas.
func TestAThousandDevicesCostAsMuchAsOneModelReplica(t *testing.T) {
	p := schedule.Pipeline{Strategy: schedule.PreferBackward, Stages: 8, Groups: 8, Micro: 32}
	between := cost.Link{Latency: time.Microsecond, Bandwidth: 1e9, Shared: true}
	o := simulate.Options{Segment: times(ms, 2*ms, 0, 0)}
	few := run(t, pipeline(t, p, 2, 1000), cost.Uniform(2, 8, device, between, between), o)
	many := run(t, pipeline(t, p, 125, 1000), cost.Uniform(125, 8, device, between, between), o)
	if few.Events != many.Events || few.Step != many.Step {
		t.Errorf("2 model replicas: %d events, %v; 125: %d events, %v", few.Events, few.Step, many.Events, many.Step)
	}
	if n := len(many.Devices[0].Ranks); n != 125 || len(many.Devices) != 8 {
		t.Errorf("%d classes, the first of %d devices", len(many.Devices), n)
	}
}

func TestARunIsTheSameEveryTime(t *testing.T) {
	p := schedule.Pipeline{Strategy: schedule.ZeroBubble, Stages: 4, Groups: 4, Micro: 6}
	link := cost.Link{Latency: 7 * time.Microsecond, Bandwidth: 3e8, Shared: true}
	c := cost.Uniform(2, 8, device, link, link)
	c.Devices[5].Speed = 0.7
	var first []byte
	for range 5 {
		r := run(t, pipeline(t, p, 4, 123456), c, simulate.Options{Segment: times(ms, 2*ms, ms, 0)})
		var w bytes.Buffer
		if err := r.Trace().WriteChrome(&w); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = w.Bytes()
		} else if !bytes.Equal(first, w.Bytes()) {
			t.Fatal("two runs differ")
		}
	}
}

func TestAFasterNetworkIsNeverSlowerAndNoDeviceFasterThanItsWork(t *testing.T) {
	for _, strategy := range []schedule.Strategy{schedule.PreferForward, schedule.PreferBackward, schedule.ZeroBubble} {
		for _, shared := range []bool{false, true} {
			last := time.Duration(math.MaxInt64)
			for _, bandwidth := range []float64{1e6, 3e6, 1e7, 3e7, 1e8, 1e9, 1e12} {
				p := schedule.Pipeline{Strategy: strategy, Stages: 3, Groups: 3, Micro: 5}
				link := cost.Link{Latency: 5 * time.Microsecond, Bandwidth: bandwidth, Shared: shared}
				r := run(t, pipeline(t, p, 4, 5000), cost.Uniform(4, 3, device, link, link), simulate.Options{Segment: times(ms, 2*ms, ms, 0)})
				if r.Step > last {
					t.Errorf("%s, shared %t: %g bytes per second take %v, more than %v with less", strategy, shared, bandwidth, r.Step, last)
				}
				last = r.Step
				for _, d := range r.Devices {
					if d.Busy > r.Step || d.Busy+d.Waiting+d.Idle != r.Step || d.Exposed > d.Waiting+d.Idle {
						t.Errorf("%+v in %v", d, r.Step)
					}
				}
			}
		}
	}
}

func TestVirtualDevicesShareTheCoresOfTheirMachine(t *testing.T) {
	cpu := cost.Flat(1e9, math.Inf(1), 0)
	cpu.Cores = 2
	o := simulate.Options{Segment: times(0, 10*ms, 0, 0)}
	for devices, want := range map[int]time.Duration{
		1: 5 * ms, // both cores are its own
		2: 10 * ms,
		3: 15 * ms,
		4: 20 * ms,
	} {
		if r := run(t, layers(devices, 1, 4), cost.Uniform(1, devices, cpu, atOnce, atOnce), o); r.Step != want {
			t.Errorf("%d devices on 2 cores: %v, not %v", devices, r.Step, want)
		}
		if r := run(t, layers(2*devices, 1, 4), cost.Uniform(2, devices, cpu, atOnce, atOnce), o); r.Step != want {
			t.Errorf("the same on two machines: %v, not %v", r.Step, want)
		}
	}
	// Stages that wait leave the cores to others.
	p := schedule.Pipeline{Strategy: schedule.PreferForward, Stages: 2, Groups: 2, Micro: 2}
	r := run(t, pipeline(t, p, 2, 4), cost.Uniform(1, 4, cpu, atOnce, atOnce), simulate.Options{Segment: times(ms, 2*ms, 0, 0)})
	if want := (1 + 2 + 1 + 2 + 4 + 2) * ms; r.Step != want {
		t.Errorf("%v, not %v", r.Step, want)
	}
}

// Of devices that are alike some get the batch from another host, and the step is over only when they have it.
func TestABatchTravelsToTheDevicesOfOtherHosts(t *testing.T) {
	v := value(1 << 20)
	s := &schedule.Program{Name: "test", Local: ir.Local{Replicas: 1, MicroBatches: 1}, Groups: [][]int{{0, 1}}, Ranks: [][]int{{0, 1}},
		Pipeline:  schedule.Pipeline{Strategy: schedule.PreferBackward, Stages: 1, Groups: 1, Micro: 1},
		Transfers: []schedule.Transfer{{Value: v, Into: v, Input: true}},
		Places:    [][]schedule.Instr{{{Kind: schedule.Send, Value: v}, {Kind: schedule.Feed, Value: v}}}}
	network := cost.Link{Bandwidth: 1 << 30}
	for hosts, want := range map[int]time.Duration{1: 0, 2: time.Second / 1024} {
		if got := run(t, s, cost.Uniform(hosts, 2/hosts, device, network, network), simulate.Options{}).Step; got != want {
			t.Errorf("on %d hosts: %s, not %s", hosts, got, want)
		}
	}
}

// A timeline that nobody could look at has one of the devices that are alike, or of some of them.
func TestATimelineOfManyEventsShowsOneOfEachClass(t *testing.T) {
	between := cost.Link{Latency: time.Microsecond, Bandwidth: 1e9}
	for micro, want := range map[int]int{4: 64, 400: 8, 4000: 3} {
		p := schedule.Pipeline{Strategy: schedule.PreferBackward, Stages: 8, Groups: 8, Micro: micro}
		r := run(t, pipeline(t, p, 8, 1000), cost.Uniform(8, 8, device, between, between), simulate.Options{Segment: times(ms, 2*ms, 0, 0)})
		if n := len(r.Trace().Report().Devices); n != want {
			t.Errorf("%d micro-batches: the timeline shows %d devices, not %d", micro, n, want)
		}
	}
}
