// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build linux

package comm

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
)

// TestResultsAreRightAroundEveryThreshold: shared memory changes its way at 8, 16, 64, 128 and 512 KB, of the whole or of a
// part.
func TestResultsAreRightAroundEveryThreshold(t *testing.T) {
	for _, x := range []struct {
		name    string
		workers int
		ranks   func(int) int
	}{{"1 worker", 1, two}, {"2 workers", 2, one}, {"2 workers of 2 ranks", 2, two}, {"3 workers of 2 and 1 ranks", 3, func(i int) int { return 2 - i%2 }}, {"4 workers", 4, one}} {
		t.Run(x.name, func(t *testing.T) {
			if testing.Short() && x.workers != 3 {
				t.Skip("a simpler layout; not with -short")
			}
			n := 0
			for i := range x.workers {
				n += x.ranks(i)
			}
			cs := ends(t, sharing(t, n, x.ranks, Options{}).All(), 0)
			for _, threshold := range []int{8 << 10, 16 << 10, 64 << 10, 128 << 10, 512 << 10} {
				for _, part := range []int{threshold / 4 / n, threshold / 4} {
					for _, more := range []int{-1, 0, 1} {
						mustAll(t, cs, func(c *Communicator) error { return equalParts(c, part+more) })
					}
				}
			}
		})
	}
}

// equalParts makes calls of every operation whose parts have so many elements, and says which result is wrong.
func equalParts(c *Communicator, part int) error {
	n, me := c.Size(), c.Position()
	value := func(rank, i int) float32 { return float32((7*i + 13*rank) % 1000) }
	whole := func(rank int) []float32 {
		x := make([]float32, n*part)
		for i := range x {
			x[i] = value(rank, i)
		}
		return x
	}
	check := func(what string, err error, got []float32, want func(i int) float32) error {
		for i := range got {
			if err == nil && got[i] != want(i) {
				err = fmt.Errorf("element %d is %g, not %g", i, got[i], want(i))
			}
		}
		if err != nil {
			return fmt.Errorf("%s of %d parts of %d elements: %w", what, n, part, err)
		}
		return nil
	}
	sum := func(i int) (s float32) {
		for r := range n {
			s += value(r, i)
		}
		return s
	}
	mine := func(x []float32) []float32 { return x[me*part : (me+1)*part] }
	all, own := make([]float32, n*part), make([]float32, part)
	errs := []error{
		check("reduce-scatter", c.ReduceScatter(whole(me), own, nil, Sum), own, func(i int) float32 { return sum(me*part + i) }),
		check("all-gather", c.AllGather(mine(whole(me)), all, nil), all, func(i int) float32 { return value(i/part, i) }),
		check("all-to-all", c.AllToAll(whole(me), all, nil, nil), all, func(i int) float32 { return value(i/part, me*part+i%part) }),
	}
	buf := whole(me)
	errs = append(errs, check("broadcast", c.Broadcast(buf, n-1), buf, func(i int) float32 { return value(n-1, i) }))
	buf = whole(me)
	errs = append(errs, check("all-reduce", c.AllReduce(buf, Sum), buf, sum))
	last := (me + n - 1) % n
	sent := c.Start(Call{Op: Send, Buf: whole(me), Peer: (me + 1) % n, Tag: part})
	errs = append(errs, check("recv", c.Recv(all, last, part), all, func(i int) float32 { return value(last, i) }), sent.Wait())
	return cmp.Or(errs...)
}

// TestTheFlightRecorderHasEveryCallBetweenWorkersOnce: a call is written down while the others get what they wait for, or when it
// waits.
func TestTheFlightRecorderHasEveryCallBetweenWorkersOnce(t *testing.T) {
	cs := ends(t, sharing(t, 2, one, Options{}).All(), 0)
	mustAll(t, cs, func(c *Communicator) error {
		in, out := make([]float32, 64<<10), make([]float32, 128<<10)
		exchange := Call{Op: Send + Op(c.pos), Buf: in[:100], Peer: 1 - c.pos}
		return cmp.Or(c.Barrier(), c.AllGather(in[:8], out[:16], nil), c.AllGather(in, out, nil), c.Do(exchange),
			c.Start(Call{Op: AllReduce, Buf: in}).Wait(), c.Do(Call{Op: Broadcast, Buf: in[:3], Before: func() {}}))
	})
	for _, c := range cs {
		var ops []Op
		for _, e := range c.local.recorder.Entries() {
			ops = append(ops, e.Op)
			if e.State != Done || e.Queued <= 0 || e.Started < e.Queued || e.Ended < e.Started {
				t.Errorf("rank %d: %s is %s, queued at %s, started at %s, ended at %s", c.rank, e.Header, e.State, e.Queued, e.Started, e.Ended)
			}
		}
		if want := []Op{Barrier, AllGather, AllGather, Send + Op(c.pos), AllReduce, Broadcast}; !slices.Equal(ops, want) {
			t.Errorf("rank %d recorded %v, not %v", c.rank, ops, want)
		}
	}
}

// TestTagsThatAreUsedOnceLeaveNothingBehind: a communicator keeps lanes for tags that come again, and not more than some.
func TestTagsThatAreUsedOnceLeaveNothingBehind(t *testing.T) {
	cs := ends(t, sharing(t, 2, one, Options{}).All(), 0)
	mustAll(t, cs, func(c *Communicator) error {
		buf := []float32{1}
		for tag := range 300 {
			if err := c.Do(Call{Op: Send + Op(c.pos), Buf: buf, Peer: 1 - c.pos, Tag: tag}); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range cs {
		if n := len(c.exchanges) + len(c.idle); n > 100 {
			t.Errorf("rank %d keeps %d lanes for 300 tags", c.rank, n)
		}
	}
}
