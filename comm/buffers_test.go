// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// numbers are n elements that tell ranks, buffers and places apart.
func numbers(rank, buffer, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rank*7+buffer*3) + float32(i%11)/16
	}
	return x
}

// partsOf deals n elements to ranks unevenly.
func partsOf(n, ranks int) []int {
	counts := make([]int, ranks)
	for i := range n {
		counts[i*i%ranks]++
	}
	return counts
}

// A call of several buffers gives each what a call of its own gives it, and is one call: also of empty buffers, and of those that take other ways than
// their neighbours.
func TestACallOfSeveralBuffersDoesWhatACallOfEachDoes(t *testing.T) {
	sizes := []int{5, 0, 70_001, 1000, 300_000}
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		for _, n := range []int{2, 3} {
			w := newWorld(t, n, Options{Timeout: time.Minute})
			for _, op := range []Op{AllReduce, ReduceScatter, AllGather} {
				cs := ends(t, w.All(), int(op))
				mustAll(t, cs, func(c *Communicator) error {
					var many Call
					var got, want [][]float32
					for i, size := range sizes {
						counts := partsOf(size, n)
						call := Call{Op: op}
						mine, all := numbers(c.Rank(), i, counts[c.Position()]), numbers(c.Rank(), i, size)
						if op == AllGather {
							call.In, call.Out, call.OutCounts = mine, all, counts
						} else {
							call.Scale = 0.5
							call.In, call.Out, call.InCounts = all, mine, counts
						}
						if op == AllReduce {
							call.Buf, call.In, call.Out, call.InCounts = all, nil, nil, nil
						}
						one := call
						result := &one.Out
						if op == AllReduce {
							result = &one.Buf
						}
						got = append(got, (*result).([]float32))
						*result = slices.Clone((*result).([]float32))
						want = append(want, (*result).([]float32))
						if err := c.Do(one); err != nil {
							return err
						}
						if i == 0 {
							many = call
						} else {
							many.More = append(many.More, Buffers{call.Buf, call.In, call.Out, call.InCounts, call.OutCounts})
						}
					}
					world := c.group.world
					before := world.Counters(c.Rank())[op.String()]
					if err := c.Do(many); err != nil {
						return err
					}
					after := world.Counters(c.Rank())[op.String()]
					if after.Calls != before.Calls+1 || after.Bytes != 2*before.Bytes {
						return fmt.Errorf("%s: %d calls and %d bytes after %d and %d", op, after.Calls, after.Bytes, before.Calls, before.Bytes)
					}
					for i := range got {
						if !slices.Equal(got[i], want[i]) {
							return fmt.Errorf("%s: buffer %d of %d elements is not what a call of its own gives", op, i, sizes[i])
						}
					}
					return nil
				})
			}
		}
	})
}

func TestCallsOfSeveralBuffersThatDoNotAgreeAreErrors(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		cs := ends(t, newWorld(t, 2, Options{Timeout: time.Minute}).All(), 0)
		wantErrors(t, onAll(cs, func(c *Communicator) error {
			call := Call{Op: AllReduce, Buf: make([]float32, 3)}
			for range 1 + c.Position() {
				call.More = append(call.More, Buffers{Buf: make([]float32, 4)})
			}
			return c.Do(call)
		}), "buffers")
	})
	cs := ends(t, newInProcess(t, 1), 0)
	wantError(t, cs[0].Do(Call{Op: AllReduce, Buf: []float32{1}, More: []Buffers{{Buf: []int32{1}}}}), "buffer 1 holds Int32", "make a call for each type")
}

func newInProcess(t *testing.T, n int) *Group {
	t.Helper()
	w, err := NewInProcess(n, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, w) })
	return w.All()
}

func TestOtherOperationsHaveOneBuffer(t *testing.T) {
	cs := ends(t, newInProcess(t, 1), 0)
	wantError(t, cs[0].Do(Call{Op: Broadcast, Buf: []float32{1}, More: []Buffers{{Buf: []float32{1}}}}), "broadcast has no More")
}
