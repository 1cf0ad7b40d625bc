// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"slices"
	"time"

	"github.com/pkg/errors"
)

// Profile is what some steps of a training come to: where the time of the devices went, and by [Profile.Advice] what would
// save most of it. All times are added up over devices and steps.
type Profile struct {
	Program  string
	Pipeline Pipeline
	// First and Last are the numbers of the steps, and Steps is how many there are.
	First, Last, Steps int
	Devices, Workers   int
	// Total is the time of the steps and of what lies between them. The parts add up to it.
	Total time.Duration
	Parts []Part
	// Ops are the kernels by task and stage, the longest first. There are none if the devices could not tell.
	Ops []OpTime
	// Stages are those of the pipeline, in order.
	Stages []StageTime
	// Peak is what lives on the device that needs most memory, when most does.
	Peak Peak
	// Traffic is what was communicated, by kind; the longest first.
	Traffic []Traffic

	fetches bool                  // it is known what of the time between steps is the dataset's
	samples []OpTime              // all that is known of kernels
	work    map[int]time.Duration // by device
}

// Part is a part of the devices' time.
type Part struct {
	Name string
	Time time.Duration
}

// StageTime is the work on a stage, for each of its devices.
type StageTime struct {
	Stage, Devices           int
	Forward, Backward, Other time.Duration
}

// Work is all of it.
func (s StageTime) Work() time.Duration { return s.Forward + s.Backward + s.Other }

// The parts of the time in which a device computes nothing.
const (
	dataPart    = "data to devices"
	commPart    = "communication that nothing hides"
	stagesPart  = "waiting for other stages"
	idlePart    = "idle within steps"
	fetchPart   = "waiting for the dataset" // between steps, as far as that is known
	betweenPart = "between steps"
	otherWork   = "other work"
)

// lossParts are those in which a device computes nothing.
var lossParts = []string{dataPart, commPart, stagesPart, idlePart, fetchPart, betweenPart}

// parts are in the order of the table.
var parts = []string{Instance, Forward, Backward, Weights, Accumulate, Apply, otherWork, dataPart, commPart, stagesPart, idlePart, fetchPart, betweenPart}

// NewProfile adds up the steps of a job's workers: for each of them its own, in order. Clocks of different machines are not
// compared.
func NewProfile(workers ...[]*Step) (*Profile, error) {
	p := &Profile{Workers: len(workers), work: map[int]time.Duration{}}
	sums := map[string]time.Duration{}
	traffic := map[string]*Traffic{}
	samples := sampler{}
	stages := map[int]*StageTime{}
	on := map[[2]int]bool{} // stage and device
	numbers := map[int]bool{}
	devices := map[int]bool{}
	for _, steps := range workers {
		var before *Step
		for _, s := range steps {
			events := s.Events()
			if len(events) == 0 {
				continue
			}
			if len(numbers) == 0 {
				p.Program, p.Pipeline, p.First = s.Program, s.Pipeline, s.Number
			}
			numbers[s.Number] = true
			p.First, p.Last = min(p.First, s.Number), max(p.Last, s.Number)
			if most, ok := highest(append(s.Peaks(), p.Peak)); ok {
				p.Peak = most
			}
			byDevice := map[int][]Event{}
			for _, e := range events {
				byDevice[e.Device] = append(byDevice[e.Device], e)
			}
			var gap, fetched time.Duration
			if before != nil && before.Program == s.Program && before.Number+1 == s.Number {
				_, ended := bounds(before.Events())
				gap = max(s.begin().Sub(ended)-s.Overhead, 0)
				fetched = min(s.Fetched, gap)
				p.fetches = p.fetches || s.Fetched > 0
			}
			before = s
			begin, end := bounds(events)
			span := end.Sub(begin)
			for device, list := range byDevice {
				devices[device] = true
				sums[fetchPart] += fetched
				sums[betweenPart] += gap - fetched
				p.Total += span + gap
				p.split(sums, s.Pipeline, device, list, span)
				for _, e := range list {
					if e.computes() && e.Task.Kind != "" {
						at := stages[e.Task.Stage]
						if at == nil {
							at = &StageTime{Stage: e.Task.Stage}
							stages[e.Task.Stage] = at
						}
						if key := [2]int{e.Task.Stage, device}; !on[key] {
							on[key] = true
							at.Devices++
						}
						at.add(e)
					}
				}
				samples.add(list)
			}
			for _, t := range s.Report().Traffic {
				sum := traffic[t.Op]
				if sum == nil {
					sum = &Traffic{Op: t.Op}
					traffic[t.Op] = sum
				}
				sum.Calls += t.Calls
				sum.Bytes += t.Bytes
				sum.Time += t.Time
				sum.Exposed += t.Exposed
			}
		}
	}
	if p.Steps, p.Devices = len(numbers), len(devices); p.Steps == 0 {
		return nil, errors.New("epl: the timeline has no steps in which a device did something")
	}
	for _, name := range parts {
		if t := sums[name]; t > 0 {
			p.Parts = append(p.Parts, Part{name, t})
		}
	}
	for _, t := range traffic {
		p.Traffic = append(p.Traffic, *t)
	}
	slices.SortFunc(p.Traffic, func(a, b Traffic) int { return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Op, b.Op)) })
	p.samples = samples.sorted()
	p.Ops = p.ops()
	for _, s := range stages {
		n := time.Duration(s.Devices)
		s.Forward, s.Backward, s.Other = s.Forward/n, s.Backward/n, s.Other/n
		p.Stages = append(p.Stages, *s)
	}
	slices.SortFunc(p.Stages, func(a, b StageTime) int { return cmp.Compare(a.Stage, b.Stage) })
	return p, nil
}

// split divides the time of a device in a step.
func (p *Profile) split(sums map[string]time.Duration, pipeline Pipeline, device int, events []Event, span time.Duration) {
	between := func(e Event) bool { // stages
		return e.Lane == 0 && (e.Kind == Receive || (e.Kind == Wait || e.Kind == Launch) && e.Op == sendOp)
	}
	data := func(e Event) bool { return e.Lane == 0 && e.Kind == Data }
	busy := covered(events, Event.computes)
	for _, e := range events {
		if e.computes() {
			sums[cmp.Or(e.Task.Kind, otherWork)] += e.End.Sub(e.Start)
		}
	}
	p.work[device] += busy
	fed := covered(events, func(e Event) bool { return data(e) || e.computes() })
	stages := covered(events, func(e Event) bool { return data(e) || e.computes() || between(e) })
	all := covered(events, func(e Event) bool { return e.Lane == 0 || e.communicates() && e.Op != sendOp })
	sums[dataPart] += fed - busy
	sums[commPart] += all - stages
	rest := span - all
	if pipeline.Stages > 1 {
		sums[stagesPart] += stages - fed + rest
	} else {
		sums[commPart] += stages - fed
		sums[idlePart] += rest
	}
}

// sendOp is how values go from stage to stage.
const sendOp = "send"

// add adds an event to the work on a stage.
func (s *StageTime) add(e Event) {
	took := e.End.Sub(e.Start)
	switch e.Task.Kind {
	case Forward:
		s.Forward += took
	case Backward, Weights:
		s.Backward += took
	default:
		s.Other += took
	}
}
