package runtime

import (
	"fmt"
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
					d := deal{job: &Job{Worker: worker, Devices: devices, Sliced: sliced}, replicas: total, micro: micro}
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
					for rank := range total {
						for m := range micro {
							if d.exists(rank, m) {
								stream, index := d.batch(rank, m)
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
	d := deal{job: &Job{Devices: []int{2, 1, 3}, Sliced: true}, replicas: 6, micro: 2, present: []int{0, 2, 5}}
	for rank, want := range [][2][2]int{{{0, 0}, {0, 2}}, {{0, 1}, {0, 3}}, {{1, 0}, {1, 1}}, {{2, 0}, {2, 3}}, {{2, 1}, {2, 4}}, {{2, 2}, {2, 5}}} {
		for m := range 2 {
			stream, index := d.batch(rank, m)
			if got := [2]int{stream, index}; got != want[m] {
				t.Errorf("rank %d, micro-batch %d: batch %v, want %v", rank, m, got, want[m])
			}
		}
	}
}
