package local

import (
	"fmt"
	"slices"
	"testing"
)

func TestEveryInstanceHasOneBatchAndEveryBatchOneInstance(t *testing.T) {
	for _, devices := range [][]int{{1}, {3}, {1, 1}, {2, 2}, {2, 1, 3}} {
		for _, micro := range []int{1, 2, 5} {
			for _, sliced := range []bool{false, true} {
				total := 0
				for _, n := range devices {
					total += n
				}
				for worker := range devices {
					d := deal{mine: worker, sliced: sliced, micro: micro}
					for w, n := range devices {
						d.feeders = append(d.feeders, slices.Repeat([]int{w}, n)...)
					}
					streams := 1
					if sliced {
						streams = len(devices)
					}
					// The data end in the middle of the step, sooner for some streams.
					for stream := range streams {
						full := total * micro
						if sliced {
							full = devices[stream] * micro
						}
						d.present = append(d.present, max(0, full-stream-worker))
						if sliced == (stream == worker) || !sliced {
							if got := d.wanted(); got != full {
								t.Errorf("%v: wants %d batches, not %d", devices, got, full)
							}
						}
					}
					seen := map[string]int{}
					instances := 0
					for replica := range total {
						for m := range micro {
							if d.exists(replica, m) {
								stream, index := d.batch(replica, m)
								seen[fmt.Sprint(stream, index)]++
								instances++
							}
						}
					}
					if instances != d.total() || len(seen) != d.total() {
						t.Errorf("%v, %d micro-batches, sliced %v: %d instances have %d batches, want %d", devices, micro, sliced, instances, len(seen), d.total())
					}
				}
			}
		}
	}
}

func TestAWorkerFeedsItsOwnReplicasFromItsOwnStream(t *testing.T) {
	d := deal{sliced: true, feeders: []int{0, 0, 1, 2, 2, 2}, micro: 2, present: []int{0, 2, 5}}
	for replica, want := range [][2][2]int{{{0, 0}, {0, 2}}, {{0, 1}, {0, 3}}, {{1, 0}, {1, 1}}, {{2, 0}, {2, 3}}, {{2, 1}, {2, 4}}, {{2, 2}, {2, 5}}} {
		for m := range 2 {
			stream, index := d.batch(replica, m)
			if got := [2]int{stream, index}; got != want[m] {
				t.Errorf("model replica %d, micro-batch %d: batch %v, want %v", replica, m, got, want[m])
			}
		}
	}
}

// Model replicas over several workers are fed by that of their first device; the others pull a batch for its shape.
func TestAWorkerThatFeedsNobodyTakesOneBatch(t *testing.T) {
	d := deal{mine: 1, sliced: true, feeders: []int{0, 2, 0}, micro: 4}
	if got := d.wanted(); got != 1 {
		t.Errorf("it wants %d batches", got)
	}
	d.mine = 0
	if got := d.wanted(); got != 8 {
		t.Errorf("a worker that feeds two wants %d batches", got)
	}
}
