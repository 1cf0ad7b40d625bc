// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"fmt"
	"slices"
	"testing"

	"github.com/easyparallel/epl/ir"
)

// sharesOf are those of so many model replicas: equal ones, and unequal ones, of which one may have none.
func sharesOf(replicas, micro int) [][]int {
	unequal := make([]int, replicas)
	for r := range unequal {
		unequal[r] = max(micro-2*r, 0)
	}
	return [][]int{nil, unequal}
}

func TestEveryInstanceHasOneBatchAndEveryBatchOneInstance(t *testing.T) {
	for _, devices := range [][]int{{1}, {3}, {1, 1}, {2, 2}, {2, 1, 3}} {
		var workers []int
		for w, n := range devices {
			workers = append(workers, slices.Repeat([]int{w}, n)...)
		}
		for _, micro := range []int{1, 2, 5} {
			for _, shares := range sharesOf(len(workers), micro) {
				local := &ir.Local{Replicas: len(workers), MicroBatches: micro, Shares: shares}
				for _, sliced := range []bool{false, true} {
					feeders, streams := make([]int, len(workers)), 1
					if sliced {
						feeders, streams = workers, len(devices)
					}
					for mine := range streams {
						d := dealTo(local, feeders, streams, mine)
						full := make([]int, streams)
						for r, stream := range feeders {
							full[stream] += local.Share(r)
						}
						if got := d.wanted(); got != max(full[mine], 1) {
							t.Errorf("%v, shares %v: wants %d batches, not %d", devices, shares, got, full[mine])
						}
						// The data end in the middle of the step, sooner for some streams.
						for stream := range streams {
							d.present = append(d.present, max(0, full[stream]-stream-mine))
						}
						seen := map[string]int{}
						instances := 0
						for replica := range workers {
							for m := range micro {
								if d.exists(replica, m) {
									seen[fmt.Sprint(feeders[replica], d.index[replica][m])]++
									instances++
								}
							}
						}
						want := 0
						for _, n := range d.present {
							want += n
						}
						if instances != want || d.total() != want || len(seen) != want {
							t.Errorf("%v, %d micro-batches, shares %v, sliced %v: %d instances (%d) have %d batches, want %d", devices, micro, shares, sliced, instances, d.total(), len(seen), want)
						}
					}
				}
			}
		}
	}
}

func TestAWorkerFeedsItsOwnReplicasFromItsOwnStream(t *testing.T) {
	d := dealTo(&ir.Local{Replicas: 6, MicroBatches: 2}, []int{0, 0, 1, 2, 2, 2}, 3, 0)
	for replica, want := range [][]int{{0, 2}, {1, 3}, {0, 1}, {0, 3}, {1, 4}, {2, 5}} {
		if got := d.index[replica]; !slices.Equal(got, want) {
			t.Errorf("model replica %d: batches %v, want %v", replica, got, want)
		}
	}
}

// An instance has the number of its batch in the step, and so the same random numbers, whoever runs it.
func TestInstancesAreNumberedAsTheirBatches(t *testing.T) {
	for _, shares := range [][]int{nil, {3, 1, 2}, {0, 3, 3}} {
		local := &ir.Local{Replicas: 3, MicroBatches: 3, Shares: shares}
		d := dealTo(local, make([]int, 3), 1, 0)
		for r, all := range d.index {
			for m, want := range all {
				if got := local.Number(r, m); got != want {
					t.Errorf("shares %v: replica %d, micro-batch %d is instance %d and gets batch %d", shares, r, m, got, want)
				}
			}
		}
	}
}

// Model replicas over several workers are fed by that of their first device; the others pull a batch for its shape.
func TestAWorkerThatFeedsNobodyTakesOneBatch(t *testing.T) {
	local := &ir.Local{Replicas: 3, MicroBatches: 4}
	for mine, want := range []int{8, 1, 4} {
		d := dealTo(local, []int{0, 2, 0}, 3, mine)
		if got := d.wanted(); got != want {
			t.Errorf("worker %d wants %d batches, not %d", mine, got, want)
		}
	}
}
