// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"
)

// commSizes are the bytes of the whole buffer of a collective, and how often it is repeated for one measurement.
var commSizes = []commSize{{"4-KB", 4 << 10, 200}, {"256-KB", 256 << 10, 50}, {"4-MB", 4 << 20, 10}, {"64-MB", 64 << 20, 2}}

// betweenSizes are more of them, without targets, for shared memory: it changes its way at some.
var betweenSizes = []commSize{{"16-KB", 16 << 10, 200}, {"1-MB", 1 << 20, 20}}

type commSize struct {
	name           string
	bytes, repeats int
}

// A comparison of communication: one of our ways against a peer, for some operations. Targets are ratios for 2 workers by
// size; none means that there is no target.
type commComparison struct {
	ops     []string
	path    string
	ours    func(workers int) (*fleet, error)
	peer    string
	theirs  []func(workers int) (*fleet, error) // the best of them counts
	targets []float64
}

func commComparisons() []commComparison {
	mpi := func(settings ...string) func(int) (*fleet, error) {
		return func(workers int) (*fleet, error) { return openMPI(workers, settings...) }
	}
	byDefault := []func(int) (*fleet, error){mpi()}
	best := append(slices.Clone(byDefault),
		mpi("btl_vader_single_copy_mechanism=cma"),
		mpi("btl_vader_single_copy_mechanism=none"),
		mpi("coll_tuned_use_dynamic_rules=1", "coll_tuned_allreduce_algorithm=4", "coll_tuned_reduce_scatter_algorithm=2"), // rings
		mpi("coll_tuned_use_dynamic_rules=1", "coll_tuned_allreduce_algorithm=6", "coll_tuned_reduce_scatter_algorithm=1"), // halving
	)
	tcp := []func(int) (*fleet, error){mpi("btl=tcp,self")}
	all := []string{"all-reduce", "reduce-scatter", "all-gather", "all-to-all"}
	return []commComparison{
		{all[:1], "shared-memory", sharedMemory, "Open MPI, best of 5 settings", best, []float64{1.3, 1.3, 1.3, 1.3}},
		{all[:1], "shared-arena", sharedArena, "Open MPI", byDefault, []float64{2, 3, 2, 3}},
		{all[1:2], "shared-memory", sharedMemory, "Open MPI, best of 5 settings", best, []float64{1, 1.4, 1.3, 2}},
		{append(all[2:], "broadcast", "send-recv"), "shared-memory", sharedMemory, "Open MPI, best of 3 settings", best[:3], []float64{1, 1, 1, 1}},
		{all[:1], "tcp", overTCP, "Open MPI, TCP", tcp, []float64{1.5, 1.2, 1, 1.3}},
		{all[1:], "tcp", overTCP, "Open MPI, TCP", tcp, nil},
		{all[:1], "tcp", overTCP, "Gloo", []func(int) (*fleet, error){gloo}, []float64{10, 4, 1.5, 1.1}},
		{all[1:], "tcp", overTCP, "Gloo", []func(int) (*fleet, error){gloo}, nil},
		{[]string{"all-reduce", "all-gather", "send-recv"}, "tcp-checked", checkedTCP, "EPL without communication.checksum",
			[]func(int) (*fleet, error){overTCP}, []float64{0.9, 0.85, 0.85, 0.85}},
	}
}

// commRows compare collectives between processes with Open MPI and Gloo.
func commRows() (all []Row) {
	for _, workers := range []int{2, 4} {
		for i, size := range slices.Concat(commSizes, betweenSizes) { // sizes outside: processes keep memory for one
			for _, c := range commComparisons() {
				if i >= len(commSizes) && c.path != "shared-memory" {
					continue
				}
				for _, op := range c.ops {
					row := Row{Name: fmt.Sprintf("comm/%d-workers/%s/%s/%s", workers, size.name, op, c.path), Peer: c.peer, Pairs: 15, Warm: 2,
						Ours:   func() (side, error) { return commSide(op, size.bytes, size.repeats, workers, c.ours) },
						Theirs: func() (side, error) { return commSide(op, size.bytes, size.repeats, workers, c.theirs...) }}
					if workers == 2 && i < len(c.targets) {
						row.Target = c.targets[i]
					}
					all = append(all, row)
				}
			}
		}
	}
	return slices.Concat(all, unevenRows(), hostRows(), streamRows())
}

// unevenRows compare steps of uneven computation with an all-reduce of 256 KB, by as many workers as there are cores and by more: what waiting
// costs those who compute.
func unevenRows() (rows []Row) {
	for _, workers := range []int{2, 4} {
		step := func(start func(int) (*fleet, error)) func() (side, error) {
			return func() (side, error) { return commSide("uneven-step", 256<<10, 20, workers, start) }
		}
		rows = append(rows, Row{Name: fmt.Sprintf("comm/%d-workers/256-KB/uneven-step/shared-memory", workers), Peer: "Open MPI", Pairs: 15, Warm: 1, Target: 1,
			Ours: step(sharedMemory), Theirs: step(func(workers int) (*fleet, error) { return openMPI(workers) })})
	}
	return rows
}

// commSide measures an operation on the fleet that is fastest in it.
func commSide(op string, bytes, repeats, workers int, fleets ...func(int) (*fleet, error)) (side, error) {
	var fastest *fleet
	var least time.Duration
	for _, start := range fleets {
		f, err := start(workers)
		if err != nil {
			return side{}, err
		}
		var times []float64
		for range 3 {
			d, err := f.measure(op, bytes, repeats)
			if err != nil {
				return side{}, err
			}
			times = append(times, float64(d))
		}
		if d := time.Duration(slices.Min(times)); fastest == nil || d < least {
			fastest, least = f, d
		}
	}
	return side{once: func() (time.Duration, error) { return fastest.measure(op, bytes, repeats) }}, nil
}
