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

// Read parses what [Step.WriteChrome] wrote.
func Read(r io.Reader) (*Step, error) {
	var f file
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
	s := &Step{Program: f.Other.Program, Number: f.Other.Step, Workers: f.Other.Workers}
	if p := f.Other.Pipeline; p != nil {
		if min(p.Stages, p.Groups, p.MicroBatches, p.Replicas) < 0 {
			return nil, notOurs("its pipeline has counts below 0: %+v", *p)
		}
		s.Pipeline = *p
	}
	start, err := startTime(f.Other.Start)
	if err != nil {
		return nil, err
	}
	for i, c := range f.Events {
		if c.Phase == metadataPhase {
			continue
		}
		e, err := c.event(start)
		if err != nil {
			return nil, notOurs("its event %d, %q, %v", i, c.Name, err)
		}
		s.events = append(s.events, e)
	}
	return s, nil
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

// event returns what WriteChrome wrote, or what is wrong with it: the end of a sentence.
func (c chromeEvent) event(start time.Time) (Event, error) {
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
	case c.Args.Bytes < 0:
		return e, errors.Errorf("communicates %d bytes", c.Args.Bytes)
	}
	e.Bytes = c.Args.Bytes
	if c.Args.Task == "" {
		return e, nil
	}
	at := func(n *int) int {
		if n == nil {
			return 0
		}
		return *n
	}
	e.Task = Task{c.Args.Task, at(c.Args.Stage), at(c.Args.Micro), at(c.Args.Replica)}
	switch t := e.Task; {
	case !slices.Contains(taskKinds, t.Kind):
		return e, errors.Errorf("is of the task %q", t.Kind)
	case t.Stage < 0 || t.Micro < -1 || t.Replica < 0:
		return e, errors.Errorf("is of stage %d, micro-batch %d and model replica %d", t.Stage, t.Micro, t.Replica)
	}
	return e, nil
}

func fromMicros(us float64) time.Duration { return time.Duration(math.Round(us * 1e3)) }
