// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package links measures what connects two devices.
//
// What goes in is the end of a communicator that each of them has. What comes out is a [cost.Link]: the one by which an all-reduce of the two takes as long as
// it does. Both ends have to ask for the same, and get their own view of it.
package links

import (
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/cost"
)

// program is what calls belong to, for errors.
const program = "measurement of links"

// Measure is the link by which an all-reduce of so many bytes takes as long as it does, for the two that share it twice the bytes. All-reduces of each size
// take so long in all, at least three.
func Measure(end *comm.Communicator, large int, each time.Duration) (l cost.Link, err error) {
	small, err := allReduce(end, 4, each)
	if err != nil {
		return l, err
	}
	whole, err := allReduce(end, large, each)
	if err != nil {
		return l, err
	}
	bandwidth := 2 * float64(large) / max(whole-small, whole/4, time.Microsecond).Seconds()
	return cost.Link{Latency: max(small/2, 1), Bandwidth: bandwidth, Shared: true}, nil
}

// What Quick does: values grow until one takes a while, and each size is measured for some milliseconds.
const (
	quickFirst = 64 << 10
	quickLast  = 16 << 20
	quickLong  = 2 * time.Millisecond
	quickEach  = 10 * time.Millisecond
)

// Quick is like Measure, for as short a time as will do: some ten milliseconds, unless the link is very slow.
func Quick(end *comm.Communicator) (l cost.Link, err error) {
	large := quickFirst
	for ; large < quickLast; large *= 4 {
		took, err := allReduces(end, large, 3)
		if err != nil {
			return l, err
		}
		long, err := largest(end, int64(slices.Min(took))) // the first may have to set something up, and the machine may do something else for a while
		if err != nil {
			return l, err
		}
		if long >= int64(quickLong) {
			break
		}
	}
	return Measure(end, large, quickEach)
}

// allReduce is how long it usually takes.
func allReduce(end *comm.Communicator, bytes int, each time.Duration) (time.Duration, error) {
	one, err := allReduces(end, bytes, 3)
	if err != nil {
		return 0, err
	}
	times, err := largest(end, min(max(int64(each/max(Median(one), 1)), 3), 10000)) // both have to do the same number of calls
	if err != nil {
		return 0, err
	}
	all, err := allReduces(end, bytes, int(times))
	if err != nil {
		return 0, err
	}
	return Median(all), nil
}

// allReduces is how long each of several takes.
func allReduces(end *comm.Communicator, bytes, times int) ([]time.Duration, error) {
	took, buffer := make([]time.Duration, times), make([]float32, bytes/4)
	for n := range times {
		start := time.Now()
		if err := end.Do(comm.Call{Op: comm.AllReduce, Buf: buffer, Reduction: comm.Sum, Program: program}); err != nil {
			return nil, errors.WithStack(err)
		}
		took[n] = time.Since(start)
	}
	return took, nil
}

// largest is the larger one of the numbers that both have.
func largest(end *comm.Communicator, n int64) (int64, error) {
	both := []int64{n}
	err := end.Do(comm.Call{Op: comm.AllReduce, Buf: both, Reduction: comm.Max, Program: program})
	return both[0], errors.WithStack(err)
}

// Median is the one in the middle; it sorts them.
func Median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
