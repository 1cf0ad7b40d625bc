// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package play is the player of lists that wait for each other.
//
// What goes in is the lists, and for every step of them which events it needs and which it tells.
// What comes out is an order in which an observer sees the steps: those of a list one after the other, each when the events that it
// needs have happened; and where lists wait forever. It assumes nothing of what a list stands for: the lists of a
// schedule.Program and the tasks of a pipeline are played alike.
package play

import "slices"

// Stop is where a list waits forever.
type Stop[E comparable] struct {
	List, At int
	For      E // the event that does not happen
}

// Play plays lists, round by round: in a round each goes on as far as it can. do sees that a step is done; what the step tells
// happens after that. Play returns the lists that wait forever, or the first error of do, after which nothing more is played.
func Play[S any, E comparable](lists [][]S, events func(step S) (needs, tells []E), do func(list, at int) error) (stops []Stop[E], err error) {
	next := make([]int, len(lists))
	happened := map[E]bool{}
	for again := true; again; {
		again, stops = false, nil
		for i, l := range lists {
			for ; next[i] < len(l); next[i]++ {
				needs, tells := events(l[next[i]])
				if lacks := slices.IndexFunc(needs, func(e E) bool { return !happened[e] }); lacks >= 0 {
					stops = append(stops, Stop[E]{i, next[i], needs[lacks]})
					break
				}
				if err := do(i, next[i]); err != nil {
					return nil, err
				}
				for _, e := range tells {
					happened[e] = true
				}
				again = true
			}
		}
	}
	return stops, nil
}
