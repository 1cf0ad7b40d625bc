// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"github.com/pkg/errors"
)

// Join puts the steps of several workers into one: the same step of the same program, each with other devices.
//
// Times are taken as they are. Workers of one machine have one clock; those of different machines have clocks that
// differ, by milliseconds where they are kept in time. Nothing here can tell that from waiting, so what is made of a
// joined step says so.
func Join(steps ...*Step) (*Step, error) {
	if len(steps) == 0 {
		return nil, errors.New("epl: there are no steps to join")
	}
	first := steps[0]
	joined := &Step{Program: first.Program, Number: first.Number, Pipeline: first.Pipeline, Predicted: first.Predicted, Workers: len(steps)}
	owner := map[int]int{} // device → step
	begin, end := bounds(first.Events())
	for i, s := range steps {
		switch {
		case s.Program != first.Program || s.Number != first.Number:
			return nil, errors.Errorf("epl: timelines of step %d of program %q and of step %d of program %q do not belong together; "+
				"give the files of one job", first.Number, first.Program, s.Number, s.Program)
		case s.Pipeline != first.Pipeline:
			return nil, errors.Errorf("epl: timelines of different pipelines (%s and %s) do not belong together; give the files of one job",
				first.Pipeline, s.Pipeline)
		}
		from, to := bounds(s.Events())
		if from.After(end) || to.Before(begin) {
			return nil, errors.Errorf("epl: timelines that are %s apart are not of one step: remove the files of earlier jobs; "+
				"or the clocks of their machines differ by that much, and each file has to be looked at in a folder of its own",
				duration(max(from.Sub(end), begin.Sub(to))))
		}
		for _, e := range s.Events() {
			if o, ok := owner[e.Device]; ok && o != i {
				return nil, errors.Errorf("epl: device %d is in two of the timelines; give each worker's file once, and those of one job", e.Device)
			}
			owner[e.Device] = i
			joined.events = append(joined.events, e)
		}
		joined.memory = append(joined.memory, s.Memory()...)
		joined.peaks = append(joined.peaks, s.Peaks()...)
	}
	return joined, nil
}
