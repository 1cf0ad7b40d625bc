// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestCallsThatDoNotAgreeAreErrorsOnAllRanks(t *testing.T) {
	f32 := func(n int) []float32 { return make([]float32, n) }
	for _, c := range []struct {
		name  string
		calls [3]Call
		want  []string // the last says what differs
	}{
		{"operation", [3]Call{
			{Op: AllReduce, Buf: f32(4), Program: "train"},
			{Op: AllReduce, Buf: f32(4), Program: "train"},
			{Op: AllGather, In: f32(4), Out: f32(12), Program: "train"},
		}, []string{"rank 0 and rank 2 do not agree",
			`rank 0 makes all-reduce #1 of group [0-2] (program "train", sum, Float32, 16 bytes)`,
			`rank 2 makes all-gather #1 of group [0-2] (program "train", Float32, 16 bytes)`, "the operations differ"}},
		{"size", [3]Call{
			{Op: AllReduce, Buf: f32(4)}, {Op: AllReduce, Buf: f32(5)}, {Op: AllReduce, Buf: f32(4)},
		}, []string{"rank 0 and rank 1", "16 bytes", "20 bytes", "the sizes differ"}},
		{"type", [3]Call{
			{Op: Broadcast, Buf: f32(4)}, {Op: Broadcast, Buf: make([]int32, 4)}, {Op: Broadcast, Buf: f32(4)},
		}, []string{"Float32", "Int32", "the element types differ"}},
		{"root", [3]Call{
			{Op: Broadcast, Buf: f32(4)}, {Op: Broadcast, Buf: f32(4)}, {Op: Broadcast, Buf: f32(4), Root: 1},
		}, []string{"broadcast from rank 0", "broadcast from rank 1", "the roots differ"}},
		{"reduction", [3]Call{
			{Op: AllReduce, Buf: f32(4)}, {Op: AllReduce, Buf: f32(4), Reduction: Max}, {Op: AllReduce, Buf: f32(4)},
		}, []string{"sum", "max", "the reductions differ"}},
		{"scale", [3]Call{
			{Op: AllReduce, Buf: f32(4)}, {Op: AllReduce, Buf: f32(4), Scale: 0.5}, {Op: AllReduce, Buf: f32(4)},
		}, []string{"sum·0.5", "the reductions differ"}},
		{"program", [3]Call{
			{Op: Barrier, Program: "train"}, {Op: Barrier, Program: "eval"}, {Op: Barrier, Program: "train"},
		}, []string{`barrier #1 of group [0-2] (program "eval")`, "the programs differ"}},
		{"parts of reduce-scatter", [3]Call{
			{Op: ReduceScatter, In: f32(6), Out: f32(2)},
			{Op: ReduceScatter, In: f32(6), Out: f32(2), InCounts: []int{1, 2, 3}},
			{Op: ReduceScatter, In: f32(6), Out: f32(2)},
		}, []string{"the elements of the parts differ, [2 2 2] and [1 2 3]", "the elements of the parts differ"}},
		{"parts of all-gather", [3]Call{
			{Op: AllGather, In: f32(2), Out: f32(6)},
			{Op: AllGather, In: f32(2), Out: f32(6)},
			{Op: AllGather, In: f32(4), Out: f32(6), OutCounts: []int{1, 1, 4}},
		}, []string{"the elements of the parts differ, [2 2 2] and [1 1 4]", "the elements of the parts differ"}},
		{"parts of all-to-all", [3]Call{
			{Op: AllToAll, In: f32(6), Out: f32(6)},
			{Op: AllToAll, In: f32(6), Out: f32(5), OutCounts: []int{1, 2, 2}},
			{Op: AllToAll, In: f32(6), Out: f32(6)},
		}, []string{"rank 0 gives 2 elements, rank 1 expects 1"}},
		{"equal parts of all-to-all", [3]Call{
			{Op: AllToAll, In: f32(6), Out: f32(6)}, {Op: AllToAll, In: f32(9), Out: f32(9)}, {Op: AllToAll, In: f32(6), Out: f32(6)},
		}, []string{"rank 0 and rank 1", " elements, rank "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
				w := newWorld(t, 3, Options{})
				cs := ends(t, w.All(), 0)
				errs := onAll(cs, func(e *Communicator) error { return e.Do(c.calls[e.Position()]) })
				want := append(c.want, "must make the same calls in the same order")
				if severalWorkers(w) { // whose words these are depends on who sees it first
					want = []string{"do not agree", c.want[len(c.want)-1]}
					// Who does not see it may have what it needs, and be told in the next call.
					errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
					if len(errs) < 2 {
						t.Fatalf("only %d ranks have an error", len(errs))
					}
				}
				wantErrors(t, errs, want...)
				var mismatch *MismatchError
				if !errors.As(errs[1], &mismatch) || !severalWorkers(w) && errs[0] != errs[2] {
					t.Errorf("not one MismatchError for all: %v", errs)
				}
				// The communicator is broken for good.
				wantErrors(t, onAll(cs, (*Communicator).Barrier), "stopped in barrier #2 of group [0-2]", "do not agree")
			})
		})
	}
}

func TestASendAndARecvThatDoNotAgreeAreErrorsOnBoth(t *testing.T) {
	for _, c := range []struct {
		name string
		recv Call
		want string
	}{
		{"size", Call{Op: Recv, Buf: make([]float32, 3), Peer: 0}, "the sizes differ"},
		{"type", Call{Op: Recv, Buf: make([]int32, 2), Peer: 0}, "the element types differ"},
		{"program", Call{Op: Recv, Buf: make([]float32, 2), Peer: 0, Program: "x"}, "the programs differ"},
	} {
		t.Run(c.name, func(t *testing.T) {
			forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
				cs := ends(t, newWorld(t, 2, Options{}).All(), 0)
				errs := onAll(cs, func(e *Communicator) error {
					if e.Position() == 0 {
						return e.Send(make([]float32, 2), 1, 0)
					}
					return e.Do(c.recv)
				})
				wantErrors(t, errs, "rank 0 and rank 1", "send to rank 1 with tag 0 #1", "recv from rank 0 with tag 0 #1", c.want)
			})
		})
	}
}

func TestARankWithBadArgumentsStopsTheOthersAtOnce(t *testing.T) {
	f32 := func(n int) []float32 { return make([]float32, n) }
	overlapping := f32(8)
	for _, c := range []struct {
		name string
		call Call
		want string
	}{
		{"no operation", Call{}, "invalid is no operation"},
		{"unknown operation", Call{Op: 99}, "Op(99) is no operation"},
		{"no buffer", Call{Op: AllReduce}, "Buf is missing; give a slice"},
		{"no slice", Call{Op: AllReduce, Buf: 3}, "Buf is a int; give a flat slice of one of GoMLX's element types"},
		{"foreign slice", Call{Op: AllReduce, Buf: []string{"x"}}, "Buf is a []string"},
		{"field too many", Call{Op: AllReduce, Buf: f32(1), Root: 1}, "all-reduce has no Root; leave the field empty"},
		{"complex max", Call{Op: AllReduce, Buf: make([]complex64, 1), Reduction: Max}, "Complex64 has no max; use sum or prod"},
		{"unknown reduction", Call{Op: AllReduce, Buf: f32(1), Reduction: 9}, "Reduction(9) is no reduction"},
		{"scaled integers", Call{Op: AllReduce, Buf: make([]int32, 1), Scale: 0.5}, "Int32 cannot be scaled by 0.5; convert to a float type"},
		{"scaled by nonsense", Call{Op: AllReduce, Buf: f32(1), Scale: inf()}, "the scale +Inf is not finite"},
		{"root outside", Call{Op: Broadcast, Buf: f32(1), Root: 2}, "position 2 is outside the group of 2 ranks; use 0 to 1"},
		{"peer outside", Call{Op: Send, Buf: f32(1), Peer: -1}, "position -1 is outside the group of 2 ranks"},
		{"send to itself", Call{Op: Send, Buf: f32(1), Peer: 1}, "a rank cannot exchange with itself; copy instead"},
		{"types differ", Call{Op: AllGather, In: f32(1), Out: make([]int32, 2)}, "In holds Float32 and Out Int32"},
		{"uneven", Call{Op: AllToAll, In: f32(3), Out: f32(4)}, "the 3 elements of In do not divide into 2 equal parts; give InCounts"},
		{"too few counts", Call{Op: AllGather, In: f32(1), Out: f32(1), OutCounts: []int{1}}, "OutCounts has 1 parts for 2 ranks"},
		{"negative count", Call{Op: AllGather, In: f32(1), Out: f32(1), OutCounts: []int{2, -1}}, "OutCounts [2 -1] has a negative part"},
		{"wrong sum", Call{Op: ReduceScatter, In: f32(3), Out: f32(1), InCounts: []int{1, 1}}, "In has 3 elements, but InCounts [1 1] adds up to 2"},
		{"wrong part out", Call{Op: ReduceScatter, In: f32(4), Out: f32(1)}, "Out has 1 elements, but this rank's part of In has 2"},
		{"wrong part in", Call{Op: AllGather, In: f32(1), Out: f32(4)}, "In has 1 elements, but this rank's part of Out has 2"},
		{"wrong own part", Call{Op: AllToAll, In: f32(4), Out: f32(4), InCounts: []int{1, 3}}, "this rank gives itself 3 elements and expects 2"},
		{"overlap", Call{Op: AllToAll, In: overlapping[:4], Out: overlapping[2:6]}, "In and Out share memory; use separate buffers"},
		{"wrong place", Call{Op: AllGather, In: overlapping[:4], Out: overlapping}, "In and Out share memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
				cs := ends(t, newWorld(t, 2, Options{}).All(), 0)
				errs := onAll(cs, func(e *Communicator) error {
					if e.Position() == 1 {
						return e.Do(c.call)
					}
					return e.Barrier()
				})
				wantError(t, errs[1], "rank 1 cannot make "+c.call.Op.String(), c.want)
				wantError(t, errs[0], "rank 0 stopped in barrier #1", "rank 1 cannot make", c.want)
				if !errors.Is(errs[0], errs[1]) {
					t.Error("the one error does not wrap the other")
				}
			})
		})
	}
}

func TestScalingByZeroIsRefused(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		cs := ends(t, newWorld(t, 2, Options{}).All(), 0)
		errs := onAll(cs, func(c *Communicator) error {
			return c.AllReduceScaled([]float32{1}, Sum, float64(c.Position()))
		})
		wantErrors(t, errs, "rank 0 cannot scale an all-reduce of group [0 1] by 0")
	})
}

func TestRanksThatShareMemoryAreErrors(t *testing.T) {
	newWorld := func(t *testing.T, n int, opts Options) *World { // only ranks of one worker can
		w, err := NewInProcess(n, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeAll(t, w) })
		return w
	}
	shared := make([]float32, 12)
	for name, f := range map[string]func(c *Communicator) error{
		"the same":       func(c *Communicator) error { return c.AllReduce(shared, Sum) },
		"overlapping":    func(c *Communicator) error { return c.AllReduce(shared[c.Position():][:4], Sum) },
		"broadcast":      func(c *Communicator) error { return c.Broadcast(shared, 1) },
		"out":            func(c *Communicator) error { return c.AllGather(make([]float32, 3), shared[c.Position():][:9], nil) },
		"in and out":     func(c *Communicator) error { return c.AllGather(part(shared, c, 0), part(shared, c, 1), nil) },
		"reduce-scatter": func(c *Communicator) error { return c.ReduceScatter(make([]float32, 12), shared[:4], nil, Sum) },
		"exchange": func(c *Communicator) error {
			switch c.Position() {
			case 0:
				return c.Send(shared[:8], 1, 0)
			case 1:
				return c.Recv(shared[4:], 0, 0)
			}
			return c.Barrier()
		},
	} {
		t.Run(name, func(t *testing.T) {
			cs := ends(t, newWorld(t, 3, Options{}).All(), 0)
			wantErrors(t, onAll(cs, f), "gave memory that overlaps", "give every rank a buffer of its own")
		})
	}

	// What is only read may be shared, and neighbours are no overlap.
	cs := ends(t, newWorld(t, 3, Options{}).All(), 0)
	mustAll(t, cs, func(c *Communicator) error {
		if err := c.ReduceScatter(shared, make([]float32, 4), nil, Sum); err != nil {
			return err
		}
		return c.AllReduce(shared[4*c.Position():][:4], Sum)
	})
}

// part gives rank 0 an In within the Out of rank 1.
func part(shared []float32, c *Communicator, which int) []float32 {
	if c.Position() == which {
		return shared[:4+8*which]
	}
	return make([]float32, 4+8*which)
}

func TestARankThatDoesNotArriveIsNamedOnEveryRankThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := NewInProcess(4, Options{Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		cs := ends(t, w.All(), 0)
		mustAll(t, cs, func(c *Communicator) error { return c.Do(Call{Program: "train", Op: Barrier}) })
		start := time.Now()
		errs := onAll(cs, func(c *Communicator) error {
			switch c.Position() {
			case 1: // comes later; the clock runs since the first came
				time.Sleep(9 * time.Second)
			case 2: // never comes
				return errTest
			case 3: // comes too late
				time.Sleep(30 * time.Second)
				wantError(t, c.AllReduce([]float32{1}, Sum), "ranks 2, 3 did not arrive within 10s in all-reduce #2")
				return errTest
			}
			err := c.Do(Call{Program: "train", Op: AllReduce, Buf: make([]float32, 1024)})
			if d := time.Since(start).Round(time.Millisecond); d < 10*time.Second || d > 10*time.Second+10*time.Millisecond {
				t.Errorf("position %d waited until %s", c.Position(), d)
			}
			return err
		})
		wantErrors(t, errs[:2],
			`epl: ranks 2, 3 did not arrive within 10s in all-reduce #2 of group [0-3] (program "train", sum, Float32, 4096 bytes), where ranks 0, 1 waited`,
			"raise communication.timeout",
			"rank 2: 1 of 1 calls", "rank 3: 1 of 1 calls", "rank 0: 2 of 2 calls", "barrier #1", "done", "started")
		var timeout *TimeoutError
		if !errors.As(errs[0], &timeout) || errs[0] != errs[1] || len(timeout.Missing) != 2 || timeout.Seq != 2 {
			t.Errorf("not one TimeoutError: %v", errs)
		}
	})
}

func TestAnExchangeThatNobodyAnswersIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := NewInProcess(3, Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		cs := ends(t, w.All(), 1)
		sent := cs[0].Start(Call{Op: Send, Buf: []int64{7}, Peer: 2, Tag: 5, Program: "train"})
		time.Sleep(time.Second)
		wantError(t, cs[2].Recv([]int64{0}, 0, 6), // another tag
			"rank 2 stopped in recv from rank 0 with tag 6 #1 of group [0-2]/1", "rank 2 did not arrive within 1m0s in send to rank 2 with tag 5")
		wantError(t, sent.Wait(), `epl: rank 2 did not arrive within 1m0s in send to rank 2 with tag 5 #1 of group [0-2]/1 (program "train", Int64, 8 bytes), where rank 0 waited`,
			"recv from rank 0 with tag 6 #1")
	})
}

func TestALongWaitIsNotATimeoutBeforeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := NewInProcess(2, Options{}) // 5 minutes
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for range 3 { // timers are used again
			mustAll(t, ends(t, w.All(), 0), func(c *Communicator) error {
				time.Sleep(time.Duration(c.Position()) * (DefaultTimeout - time.Second))
				if err := c.Barrier(); err != nil {
					return err
				}
				if c.Position() == 0 {
					time.Sleep(DefaultTimeout - time.Second)
					return c.Send([]bool{true}, 1, 0)
				}
				return c.Recv([]bool{false}, 0, 0)
			})
		}
	})
}

func TestAbortWakesEveryoneAndStaysInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := NewInProcess(4, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		pair, err := w.Group([]int{1, 2})
		if err != nil {
			t.Fatal(err)
		}
		all, two := ends(t, w.All(), 0), ends(t, pair, 0)
		queued := all[0].Start(Call{Op: Barrier})
		behind := all[0].Start(Call{Op: AllReduce, Buf: []float32{1}})
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			w.Abort(errTest)
			w.Abort(errors.New("a later reason"))
		}()
		errs := onAll([]*Communicator{all[3], two[0], two[1]}, func(c *Communicator) error {
			switch c.Rank() {
			case 1:
				return c.Recv([]float32{0}, 1, 0)
			case 2:
				return c.Recv([]float32{0}, 0, 0)
			}
			return c.Barrier()
		})
		errs = append(errs, queued.Wait(), behind.Wait())
		if d := time.Since(start); d > time.Second+time.Millisecond {
			t.Errorf("it took %s", d)
		}
		late, err := w.Group([]int{3})
		if err != nil {
			t.Fatal(err)
		}
		errs = append(errs, all[1].Barrier(), two[0].Send([]float32{1}, 1, 1), ends(t, late, 0)[0].Barrier(), all[1].Start(Call{Op: Barrier}).Wait())
		for i, err := range errs {
			if !errors.Is(err, errTest) {
				t.Errorf("error %d does not wrap the reason: %v", i, err)
			}
		}
		wantErrors(t, errs, "stopped in", errTest.Error())
		wantError(t, errs[1], "rank 1 stopped in recv from rank 2 with tag 0 #1 of group [1 2] (Float32, 4 bytes): the test says so")
	})
}

func TestAbortNeedsNoReason(t *testing.T) {
	w, err := NewInProcess(1, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.Abort(nil)
	wantError(t, ends(t, w.All(), 0)[0].Barrier(), "aborted without a reason")
}

func TestImpossibleWorldsAndGroupsAreRefused(t *testing.T) {
	for want, f := range map[string]func() error{
		"a world of 0 ranks":  func() error { _, err := NewInProcess(0, Options{}); return err },
		"a world of -1 ranks": func() error { _, err := NewInProcess(-1, Options{}); return err },
		"a timeout of -1s":    func() error { _, err := NewInProcess(1, Options{Timeout: -time.Second}); return err },
		"a flight recorder of -1 calls": func() error {
			_, err := NewInProcess(1, Options{RecorderCalls: -1})
			return err
		},
	} {
		wantError(t, f(), want)
	}
	w, err := NewInProcess(4, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for want, ranks := range map[string][]int{
		"a group of no ranks":                   {},
		"group [0 4] names rank 4, but":         {0, 4},
		"group [-1] names rank -1, but":         {-1},
		"group [1-3 1] names rank 1 twice":      {1, 2, 3, 1},
		"the world has 4 ranks; use 0 to 3":     {9},
		"names rank 0 twice; name each rank on": {0, 0},
	} {
		_, err := w.Group(ranks)
		wantError(t, err, want)
	}
	_, err = w.All().Communicator(4, 0)
	wantError(t, err, "rank 4 is not in group [0-3]")
	_, err = w.All().Communicator(1, -1)
	wantError(t, err, "channel -1 of group [0-3] is impossible")
}

func TestErrorsOfUsersReadAsSentences(t *testing.T) {
	e := &TimeoutError{
		Header: Header{Op: Broadcast, Seq: 2, Group: "[0 1]/3", Peer: 1}, Timeout: time.Second, Waiting: []int{0}, Missing: []int{1},
		Recorders: "rank 1: no calls\n",
	}
	want := "epl: rank 1 did not arrive within 1s in broadcast from rank 1 #2 of group [0 1]/3, where rank 0 waited; " +
		"see what rank 1 did last, or raise communication.timeout\nrank 1: no calls"
	if e.Error() != want || strings.HasSuffix(e.Error(), "\n") {
		t.Errorf("got  %s\nwant %s", e, want)
	}
}
