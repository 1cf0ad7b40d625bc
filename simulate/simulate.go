// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/trace"
)

// Options of a run.
type Options struct {
	// Communicators is how many buckets are merged at a time: communication.num_communicators. 0 is 1.
	Communicators int
	// Traffic says what copies values travel in.
	Traffic schedule.Traffic
	// Segment is how long a segment takes on a device that has its cores for itself; nil: what its profile says.
	Segment func(s *schedule.Segment, d cost.Device) time.Duration
	// Account is what the lists need of memory, for the timeline and the result; nil: it is not known.
	Account *schedule.Account
	// Short: only the step time is wanted. The result has neither devices nor a timeline.
	Short bool
	// Devices is how many devices the timeline shows at most, if some are alike: of more, or of devices on which much happens, it shows one of each class. 0 is 64.
	Devices int
}

// Whole are the lists of a program that one device runs as a whole.
func Whole(p *ir.Program) *schedule.Program {
	s := emit.Whole(p)
	return &schedule.Program{Name: p.Name, Local: ir.Local{Replicas: 1, MicroBatches: 1}, Ranks: [][]int{{0}}, Groups: [][]int{{0}},
		Pipeline: schedule.Pipeline{Strategy: schedule.PreferBackward, Stages: 1, Groups: 1, Micro: 1},
		Segments: []*schedule.Segment{{Segment: s, First: s, Kind: schedule.Instance}},
		Places:   [][]schedule.Instr{{{Kind: schedule.Run, Micro: 0}}}}
}

// Run plays the lists of a schedule in time.
func Run(lists *schedule.Program, c *cost.Cluster, o Options) (*Result, error) {
	for _, ranks := range lists.Ranks {
		for _, r := range ranks {
			if r < 0 || r >= len(c.Devices) {
				return nil, errors.Errorf("epl: the plan of program %q has device %d, and the cluster %d devices: describe all of them", lists.Name, r, len(c.Devices))
			}
			if c.Devices[r].Profile == nil {
				return nil, errors.Errorf("epl: it is not known what device %d of the cluster can do: give it a profile", r)
			}
		}
	}
	o.Communicators = max(o.Communicators, 1)
	if o.Devices == 0 {
		o.Devices = 64
	}
	s := &run{lists: lists, cluster: c, o: o, messages: map[messageKey]*message{}, meetings: map[meetingKey]*meeting{}, lanes: map[laneKey]*lane{},
		segments: map[segmentKey]float64{}, flows: map[flowKey]*flow{}}
	s.classify()
	for _, a := range s.actors {
		s.after(0, a.step)
	}
	s.clock.run()
	for _, a := range s.actors {
		if !a.over {
			return nil, errors.Errorf("epl: internal error: schedule %q: in a simulation device %d waits forever at instruction %d, %s",
				lists.Name, a.rank(), a.next, lists.Text(a.list()[min(a.next, len(a.list())-1)]))
		}
	}
	return s.result(), nil
}

// run is the state of a simulation.
type run struct {
	clock
	lists    *schedule.Program
	cluster  *cost.Cluster
	o        Options
	classes  []*class
	actors   []*actor
	hosts    []*host     // that are simulated
	onHost   map[int]int // how many devices of the lists are on each host of the cluster
	hostOf   map[int]int // their index, by number of the host in the cluster; others are like one of them
	messages map[messageKey]*message
	meetings map[meetingKey]*meeting
	lanes    map[laneKey]*lane
	segments map[segmentKey]float64
	flows    map[flowKey]*flow
}

type segmentKey struct {
	segment *ir.Segment
	profile *cost.Profile
	speed   float64
}

// segment is how long a segment takes the device at a position, in nanoseconds.
func (s *run) segment(n, position int, d cost.Device) float64 {
	x := s.lists.Segments[n]
	key := segmentKey{x.On(position), d.Profile, d.Speed}
	ns, ok := s.segments[key]
	if !ok {
		if s.o.Segment != nil {
			ns = float64(s.o.Segment(x, d))
		} else {
			ns = float64(d.Profile.Ops(x.On(position))) / speed(d)
		}
		s.segments[key] = ns
	}
	return ns
}

// moves is how long a device takes to read and write so many bytes of its memory, which no cache has: what came before was larger.
func moves(d cost.Device, read, written int64) float64 {
	if read+written == 0 {
		return 0
	}
	return (float64(d.Profile.Launch) + float64(read+written)/d.Profile.Bandwidth*1e9) / speed(d)
}

// speed is that of a device, relative to its profile.
func speed(d cost.Device) float64 {
	if d.Speed == 0 {
		return 1
	}
	return d.Speed
}

// pipeline describes the lists to a timeline.
func pipeline(p *schedule.Program) trace.Pipeline {
	return trace.Pipeline{Strategy: string(p.Pipeline.Strategy), Stages: p.Pipeline.Stages, Groups: p.Pipeline.Groups,
		MicroBatches: p.Local.MicroBatches, Replicas: p.Local.Replicas}
}
