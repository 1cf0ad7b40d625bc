// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/easyparallel/epl/comm/internal/elements"
)

func TestStartedCallsRunInOrder(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		for _, n := range []int{1, 2, 3} {
			cs := ends(t, newWorld(t, n, Options{}).All(), 0)
			mustAll(t, cs, func(c *Communicator) error {
				// Each doubles (or multiplies by n) what the one before left: only in order does the end come out.
				buf := []int64{1}
				var hs []*Handle
				for range 10 {
					hs = append(hs, c.Start(Call{Op: AllReduce, Buf: buf}))
				}
				if err := c.AllReduce(buf, Sum); err != nil { // behind them
					return err
				}
				want := int64(1)
				for range 11 {
					want *= int64(n)
				}
				if buf[0] != want {
					return fmt.Errorf("%d ranks: %d, want %d", n, buf[0], want)
				}
				for _, h := range hs {
					if err := h.Wait(); err != nil {
						return err
					}
				}
				return hs[0].Wait() // again
			})
		}
	})
}

// What a call sends may follow from what the one before gave, without anybody waiting in between.
func TestACallMayBeFilledWhenItsTurnComes(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		for _, n := range []int{1, 2, 3} {
			cs := ends(t, newWorld(t, n, Options{}).All(), 0)
			mustAll(t, cs, func(c *Communicator) error {
				largest, sum := []float32{0}, []float32{0, 0}
				c.Start(Call{Op: AllReduce, Buf: largest, Reduction: Max, Before: func() { largest[0] = float32(c.Position() + 1) }})
				h := c.Start(Call{Op: AllReduce, Buf: sum, Before: func() { sum[0], sum[1] = largest[0], 1 }})
				if err := h.Wait(); err != nil {
					return err
				}
				again := []float32{0}
				if err := c.Do(Call{Op: AllReduce, Buf: again, Before: func() { again[0] = sum[0] }}); err != nil {
					return err
				}
				if k := float32(n); sum[0] != k*k || sum[1] != k || again[0] != k*k*k {
					return fmt.Errorf("%d ranks: %v, then %v", n, sum, again)
				}
				return nil
			})
		}
	})
}

func TestTagsAndDirectionsDoNotWaitForEachOther(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		cs := ends(t, newWorld(t, 2, Options{}).All(), 0)
		mustAll(t, cs, func(c *Communicator) error {
			other := 1 - c.Position()
			var hs []*Handle
			const tags, each = 5, 4
			for tag := range tags {
				for i := range each {
					hs = append(hs, c.Start(Call{Op: Send, Buf: []int{tag, i}, Peer: other, Tag: tag}))
				}
			}
			if err := c.Barrier(); err != nil { // collectives do not wait for them either
				return err
			}
			for tag := tags - 1; tag >= 0; tag-- { // in another order
				for i := range each {
					got := make([]int, 2)
					if err := c.Recv(got, other, tag); err != nil {
						return err
					}
					if got[0] != tag || got[1] != i {
						return fmt.Errorf("tag %d, message %d is %d", tag, i, got)
					}
				}
			}
			for _, h := range hs {
				if err := h.Wait(); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func TestACommunicatorMayBeUsedFromManyGoroutines(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		cs := ends(t, newWorld(t, 3, Options{}).All(), 0)
		mustAll(t, cs, func(c *Communicator) error {
			var wg sync.WaitGroup
			errs := make([]error, 8)
			for i := range errs {
				wg.Go(func() {
					for range 20 {
						buf := []float64{1}
						if err := c.AllReduce(buf, Sum); err != nil || buf[0] != 3 {
							errs[i] = fmt.Errorf("%g, %v", buf[0], err)
						}
					}
				})
			}
			wg.Wait()
			for _, err := range errs {
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// Many communicators of overlapping groups, with calls of random kinds and sizes, started and waited for at random.
func TestCommunicatorsAreIndependent(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		w := newWorld(t, 5, Options{Timeout: time.Minute})
		var wg sync.WaitGroup
		for _, ranks := range [][]int{{0, 1, 2, 3, 4}, {0, 2}, {4, 1, 2}, {1, 3}, {3}} {
			g, err := w.Group(ranks)
			if err != nil {
				t.Fatal(err)
			}
			for channel := range 3 {
				cs := ends(t, g, channel)
				wg.Go(func() {
					for i, err := range onAll(cs, func(c *Communicator) error { return chatter(c, elements.SeedOf(ranks, channel)) }) {
						if err != nil {
							t.Errorf("group %s/%d, position %d: %v", g, channel, i, err)
						}
					}
				})
			}
		}
		wg.Wait()
	})
}

// chatter makes the calls that rng says, the same on all ranks.
func chatter(c *Communicator, rng *rand.Rand) error {
	n := c.Size()
	type pending struct {
		*Handle
		check func() error
	}
	var started []pending
	calls := 60
	if testing.Short() {
		calls = 20
	}
	for range calls {
		size := []int{0, 1, 100, 30000}[rng.IntN(4)] * n
		x := float32(rng.IntN(10))
		in, out := make([]float32, size), make([]float32, size)
		for i := range in {
			in[i] = x + float32(c.Position())
		}
		var call Call
		want := func(i int) float32 { return 0 }
		switch rng.IntN(4) {
		case 0:
			call, out = Call{Op: AllReduce, Buf: in}, in
			want = func(int) float32 { return float32(n)*x + float32(n*(n-1)/2) }
		case 1:
			out = out[:size/n]
			call = Call{Op: ReduceScatter, In: in, Out: out, Reduction: Max}
			want = func(int) float32 { return x + float32(n-1) }
		case 2:
			call = Call{Op: AllGather, In: in[:size/n], Out: out}
			want = func(i int) float32 { return x + float32(i/(size/n)) }
		case 3:
			call = Call{Op: AllToAll, In: in, Out: out}
			want = func(i int) float32 { return x + float32(i/(size/n)) }
		}
		check := func() error {
			for i, v := range out {
				if v != want(i) {
					return fmt.Errorf("%s: element %d of %d is %g, want %g", call.Op, i, size, v, want(i))
				}
			}
			return nil
		}
		started = append(started, pending{c.Start(call), check})
		for len(started) > 0 && rng.IntN(3) == 0 {
			if err := started[0].Wait(); err != nil {
				return err
			}
			if err := started[0].check(); err != nil {
				return err
			}
			started = started[1:]
		}
	}
	for _, s := range started {
		if err := s.Wait(); err != nil {
			return err
		}
		if err := s.check(); err != nil {
			return err
		}
	}
	return nil
}

// noMoreGoroutines waits for goroutines that are about to end.
func noMoreGoroutines(t *testing.T, before int) {
	t.Helper()
	after := runtime.NumGoroutine()
	for i := 0; after > before && i < 100; i++ {
		time.Sleep(10 * time.Millisecond)
		after = runtime.NumGoroutine()
	}
	if after > before {
		t.Errorf("%d goroutines before, %d after", before, after)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	before := runtime.NumGoroutine()
	synctest.Test(t, func(t *testing.T) { // its end is an error while goroutines are left
		w, err := NewInProcess(3, Options{})
		if err != nil {
			t.Fatal(err)
		}
		cs := ends(t, w.All(), 0)
		mustAll(t, cs, func(c *Communicator) error { return c.Start(Call{Op: Barrier}).Wait() })
		hanging := []*Handle{
			cs[0].Start(Call{Op: Barrier}), cs[0].Start(Call{Op: Barrier}),
			cs[1].Start(Call{Op: Recv, Buf: []bool{true}, Peer: 2, Tag: 1}),
			cs[2].Start(Call{Op: Send, Buf: []bool{true}, Peer: 0, Tag: 1}),
		}
		synctest.Wait()
		for range 2 {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
		for _, h := range hanging {
			wantError(t, h.Wait(), "stopped in", "the world of communicators is closed")
		}
		wantError(t, cs[1].Barrier(), "closed")
		wantError(t, cs[1].Start(Call{Op: Barrier}).Wait(), "closed")
		wantError(t, cs[1].Send([]bool{true}, 0, 0), "closed")
		if got := w.Counters(0)["barrier"].Calls; got != 1 {
			t.Errorf("after Close, rank 0 counts %d barriers", got)
		}
	})
	noMoreGoroutines(t, before)
}

func TestAWorldThatIsIdleHasNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	w, err := NewInProcess(4, Options{})
	if err != nil {
		t.Fatal(err)
	}
	cs := ends(t, w.All(), 0)
	mustAll(t, cs, func(c *Communicator) error { return c.AllReduce(make([]float32, 1000), Sum) })
	alone, err := w.Group([]int{2})
	if err != nil {
		t.Fatal(err)
	}
	c := ends(t, alone, 0)[0]
	h := c.Start(Call{Op: AllReduce, Buf: []float32{1}}) // is over at once
	noMoreGoroutines(t, before)
	if err := h.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsAllocatedOnTheWay(t *testing.T) {
	for _, tr := range transports[:2] {
		for _, elements := range []int{1024, 64 << 10} {
			t.Run(fmt.Sprintf("%s, %d elements", tr.name, elements), func(t *testing.T) {
				w, err := tr.make(2, Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer closeAll(t, w)
				nothingIsAllocated(t, ends(t, w.All(), 0), elements)
			})
		}
	}
}

func nothingIsAllocated(t *testing.T, cs []*Communicator, elements int) {
	var bufs, outs, others [2]any
	for i := range bufs {
		bufs[i], outs[i], others[i] = make([]float32, elements), make([]float32, elements/2), make([]float32, elements)
	}
	calls := func(c *Communicator) {
		p := c.Position()
		for _, call := range [...]Call{
			{Op: AllReduce, Buf: bufs[p], Program: "train"},
			{Op: ReduceScatter, In: bufs[p], Out: outs[p]},
			{Op: AllGather, In: outs[p], Out: bufs[p]},
			{Op: AllToAll, In: bufs[p], Out: others[p]},
			{Op: Broadcast, Buf: bufs[p]},
			{Op: Send + Op(p), Buf: bufs[p], Peer: 1 - p, Tag: 3},
			{Op: Barrier},
		} {
			if err := c.Do(call); err != nil {
				panic(err)
			}
		}
	}
	const rounds = 100
	done := make(chan struct{})
	go func() {
		for range rounds + 1 { // AllocsPerRun warms up with one
			calls(cs[1])
		}
		close(done)
	}()
	allocs := testing.AllocsPerRun(rounds, func() { calls(cs[0]) })
	<-done
	if allocs >= 1 { // of both ranks
		t.Errorf("%g allocations a round", allocs)
	}
}
