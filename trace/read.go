// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/pkg/errors"
)

// longest is more than a step takes. Within it a float64 of microseconds is exact to the nanosecond.
const longest = 1e12 // microseconds: 11 days

// readEvent is a chromeEvent whose args are not known yet: those of a counter are numbers, by use.
type readEvent struct {
	chromeEvent
	Args json.RawMessage `json:"args"`
}

// Read parses what [Write] wrote: one step, or the last of several.
func Read(r io.Reader) (*Step, error) {
	steps, err := ReadAll(r)
	if err != nil {
		return nil, err
	}
	return steps[len(steps)-1], nil
}

// ReadAll parses what [Write] wrote: all steps, in order.
func ReadAll(r io.Reader) ([]*Step, error) {
	var f struct {
		Events []readEvent `json:"traceEvents"`
		Peaks  []filePeak  `json:"peaks"`
		Other  *otherData  `json:"otherData"`
	}
	dec := json.NewDecoder(r)
	if err := dec.Decode(&f); err != nil {
		if err == io.EOF {
			return nil, notOurs("it is empty")
		}
		return nil, notOurs("%v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, notOurs("something follows the JSON value, at byte %d", dec.InputOffset())
	}
	switch {
	case f.Events == nil:
		return nil, notOurs("it has no traceEvents")
	case f.Other == nil:
		return nil, notOurs("its otherData does not say which program it shows")
	case f.Other.Workers < 0:
		return nil, notOurs("it is of %d workers", f.Other.Workers)
	}
	start, err := startTime(f.Other.Start)
	if err != nil {
		return nil, err
	}
	steps, err := f.Other.read()
	if err != nil {
		return nil, err
	}
	for _, p := range f.Peaks {
		i := slices.IndexFunc(steps, func(s *Step) bool { return s.Number == p.Step })
		if i < 0 || p.Device < 0 || p.Bytes < 0 || slices.ContainsFunc(p.Held, func(x Held) bool { return x.Bytes < 0 || x.Tensors < 0 }) {
			return nil, notOurs("it has a peak of %d bytes on device %d in step %d", p.Bytes, p.Device, p.Step)
		}
		steps[i].SetPeak(p.Peak)
	}
	begins := f.Other.Steps
	stepAt := func(ts float64) *Step {
		i := len(begins) - 1
		for i > 0 && begins[i].Begin > ts {
			i--
		}
		return steps[max(i, 0)]
	}
	type async struct {
		device int
		id     string
	}
	open := map[async]chromeEvent{}
	args := map[async]json.RawMessage{}
	for i, c := range f.Events {
		bad := func(err error) error { return notOurs("its event %d, %q, %v", i, c.Name, err) }
		var key async
		if c.ID2 != nil {
			key = async{c.Pid, c.ID2.Local}
		}
		switch c.Phase {
		case metadataPhase, flowStart, flowFinish: // flows follow from the events
			continue
		case counterPhase:
			m, err := c.memory(start)
			if err != nil {
				return nil, bad(err)
			}
			step := stepAt(c.Ts)
			if c.Name == memoryCounters[1] {
				step.sites = append(step.sites, m)
			} else {
				step.memory = append(step.memory, m)
			}
			continue
		case asyncBegin:
			if _, twice := open[key]; twice || c.ID2 == nil {
				return nil, bad(errors.New("begins without an id of its own"))
			}
			open[key], args[key] = c.chromeEvent, c.Args
			continue
		case asyncEnd:
			begun, ok := open[key]
			if !ok {
				return nil, bad(errors.New("ends without having begun"))
			}
			delete(open, key)
			begun.Phase, begun.Dur = completePhase, c.Ts-begun.Ts
			c = readEvent{begun, args[key]}
		}
		e, err := c.event(start)
		if err != nil {
			return nil, bad(err)
		}
		step := stepAt(c.Ts)
		step.events = append(step.events, e)
	}
	if len(open) > 0 {
		return nil, notOurs("%d of its events do not end", len(open))
	}
	return steps, nil
}

// read makes the steps, without what happened in them.
func (o *otherData) read() (steps []*Step, err error) {
	heads := o.Steps
	if len(heads) == 0 {
		heads = []fileStep{o.fileStep}
	}
	for i, h := range heads {
		s := &Step{Program: h.Program, Number: h.Step, Predicted: h.Predicted, Workers: o.Workers, Overhead: fromMicros(h.Overhead), Fetched: fromMicros(h.Fetched)}
		if h.Overhead < 0 || h.Overhead > longest {
			return nil, notOurs("its step %d took %g µs to write", h.Step, h.Overhead)
		}
		if h.Fetched < 0 || h.Fetched > longest {
			return nil, notOurs("its step %d waited %g µs for the dataset", h.Step, h.Fetched)
		}
		if p := h.Pipeline; p != nil {
			if min(p.Stages, p.Groups, p.MicroBatches, p.Replicas) < 0 {
				return nil, notOurs("its pipeline has counts below 0: %+v", *p)
			}
			s.Pipeline = *p
		}
		if i > 0 && h.Begin < heads[i-1].Begin {
			return nil, notOurs("its step %d begins before the one before", h.Step)
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// startTime reads nanoseconds since 1970, up to a time of which the last event's can be written, too.
func startTime(text string) (time.Time, error) {
	if text == "" {
		return time.Unix(0, 0), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<62 {
		return time.Time{}, notOurs("its startUnixNano is %q", text)
	}
	return time.Unix(0, n), nil
}

func notOurs(format string, args ...any) error {
	return errors.Errorf("epl: this is no timeline that EPL_TRACE wrote: %s", fmt.Sprintf(format, args...))
}

// memory returns what Write wrote of a device's memory, or what is wrong with it.
func (c readEvent) memory(start time.Time) (Memory, error) {
	m := Memory{Device: c.Pid, At: start.Add(fromMicros(c.Ts))}
	switch {
	case c.Pid < 0:
		return m, errors.Errorf("is of device %d", c.Pid)
	case c.Ts < 0 || c.Ts > longest:
		return m, errors.Errorf("is at %g µs", c.Ts)
	}
	return m, errors.Wrap(json.Unmarshal(c.Args, &m.Bytes), "counts something else than bytes")
}

// event returns what Write wrote, or what is wrong with it: the end of a sentence.
func (c readEvent) event(start time.Time) (Event, error) {
	e := Event{Device: c.Pid, Lane: c.Tid, Kind: Kind(c.Cat), Name: c.Name,
		Start: start.Add(fromMicros(c.Ts)), End: start.Add(fromMicros(c.Ts) + fromMicros(c.Dur))}
	switch {
	case c.Phase != completePhase:
		return e, errors.Errorf("has the phase %q", c.Phase)
	case !slices.Contains(kinds, e.Kind):
		return e, errors.Errorf("has the category %q", c.Cat)
	case c.Pid < 0 || c.Tid < 0:
		return e, errors.Errorf("is of device %d and lane %d", c.Pid, c.Tid)
	case c.Ts < 0 || c.Dur < 0 || c.Ts > longest || c.Dur > longest:
		return e, errors.Errorf("starts at %g µs and takes %g", c.Ts, c.Dur)
	case c.Args == nil:
		return e, nil
	}
	var args chromeArgs
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return e, errors.Wrap(err, "has other args")
	}
	if args.Bytes < 0 {
		return e, errors.Errorf("communicates %d bytes", args.Bytes)
	}
	if args.Flops < 0 {
		return e, errors.Errorf("computes %d operations", args.Flops)
	}
	for _, s := range args.Sites {
		if !(s.Share >= 0 && s.Share <= 1) {
			return e, errors.Errorf("has a share of %g in %q", s.Share, s.Line)
		}
	}
	e.Op, e.Bytes, e.Flops, e.Flow, e.Sites = args.Op, args.Bytes, args.Flops, args.Flow, args.Sites
	if e.Lane > 0 && e.Op != "" {
		e.Name = args.What
	}
	if args.Task == "" {
		return e, nil
	}
	at := func(n *int) int {
		if n == nil {
			return 0
		}
		return *n
	}
	e.Task = Task{args.Task, at(args.Stage), at(args.Micro), at(args.Replica)}
	switch t := e.Task; {
	case !slices.Contains(taskKinds, t.Kind):
		return e, errors.Errorf("is of the task %q", t.Kind)
	case t.Stage < 0 || t.Micro < -1 || t.Replica < 0:
		return e, errors.Errorf("is of stage %d, micro-batch %d and model replica %d", t.Stage, t.Micro, t.Replica)
	}
	return e, nil
}

func fromMicros(us float64) time.Duration { return time.Duration(math.Round(us * 1e3)) }
