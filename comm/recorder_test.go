// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomlx/compute/dtypes"
)

func TestTheFlightRecorderPrintsATable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := NewInProcess(2, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		cs := ends(t, w.All(), 0)
		if got, want := w.FlightRecorder(0).String(), "rank 0: no calls\n"; got != want {
			t.Errorf("an empty recorder prints %q, want %q", got, want)
		}
		time.Sleep(250 * time.Millisecond)
		mustAllAtOnce(t, cs, func(c *Communicator) error {
			return c.Do(Call{Op: AllReduce, Buf: make([]float32, 1024), Scale: 0.5, Program: "train"})
		})
		time.Sleep(time.Second)
		mustAllAtOnce(t, cs, func(c *Communicator) error {
			if c.Position() == 0 {
				return c.Send([]int8{1}, 1, 7)
			}
			return c.Recv([]int8{0}, 0, 7)
		})
		cs[0].Start(Call{Op: Barrier})
		time.Sleep(time.Millisecond)
		cs[0].Start(Call{Op: Broadcast, Buf: []float64{1, 2}, Root: 1})
		synctest.Wait()
		want := `
rank 0: 4 of 4 calls, at 1.251000s
  call                             group  program  dtype    bytes  state    queued     started    ended
  all-reduce sum·0.5 #1            [0 1]  train    Float32  4096   done     0.250000s  0.250000s  0.250000s
  send to rank 1 with tag 7 #1     [0 1]  -        Int8     1      done     1.250000s  1.250000s  1.250000s
  barrier #2                       [0 1]  -        -        0      started  1.250000s  1.250000s  -
  broadcast from rank 1 #3         [0 1]  -        Float64  16     queued   1.251000s  -          -
`
		got := w.FlightRecorder(0).String()
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		es := w.FlightRecorder(1).Entries()
		if len(es) != 2 || es[1].Op != Recv || es[1].State != Done || es[1].Peer != 0 || es[0].DType != dtypes.Float32 {
			t.Errorf("rank 1 has %+v", es)
		}
		w.Abort(errTest)
		synctest.Wait()
		for _, e := range w.FlightRecorder(0).Entries()[2:] {
			if e.State != Failed {
				t.Errorf("%s is %s after Abort", e.Header, e.State)
			}
		}
	})
}

// mustAllAtOnce is mustAll without random sleeps.
func mustAllAtOnce(t *testing.T, cs []*Communicator, f func(c *Communicator) error) {
	t.Helper()
	var hs []chan error
	for _, c := range cs {
		h := make(chan error, 1)
		hs = append(hs, h)
		go func() { h <- f(c) }()
	}
	for _, h := range hs {
		if err := <-h; err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheFlightRecorderKeepsWhatHangs(t *testing.T) {
	now := time.Duration(0)
	f := &FlightRecorder{rank: 3, now: func() time.Duration { return now }, entries: make([]Entry, 4)}
	hang := f.add(&Header{Op: Barrier, Seq: 1, Group: "[0-3]"}, Started, 0)
	for i := range 10 {
		now = time.Duration(i) * time.Second
		f.set(f.add(&Header{Op: AllReduce, Seq: uint64(i), Group: "[0 1]/1"}, Started, now), Done, now)
	}
	es := f.Entries()
	if len(es) != 4 || es[0].Op != Barrier || es[0].State != Started || es[3].Seq != 9 || es[1].Seq != 7 {
		t.Errorf("it keeps %+v", es)
	}
	if got := f.table(2); !strings.Contains(got, "2 of 11 calls") || !strings.Contains(got, "barrier #1") || !strings.Contains(got, "#9") {
		t.Errorf("the last two are\n%s", got)
	}
	for i := range 4 { // nothing but what hangs: the oldest goes
		f.add(&Header{Op: Barrier, Seq: uint64(10 + i)}, Queued, now)
	}
	f.set(hang, Done, now) // it is gone
	for _, e := range f.Entries() {
		if e.Seq < 10 || e.State != Queued {
			t.Errorf("it keeps %s as %s", e.Header, e.State)
		}
	}
}

func TestCountersCountWhatARankGives(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		w := newWorld(t, 3, Options{})
		pair, err := w.Group([]int{0, 2})
		if err != nil {
			t.Fatal(err)
		}
		alone, err := w.Group([]int{1})
		if err != nil {
			t.Fatal(err)
		}
		mustAll(t, ends(t, w.All(), 0), func(c *Communicator) error {
			p := c.Position()
			for _, call := range []Call{
				{Op: AllReduce, Buf: make([]float32, 10)},
				{Op: ReduceScatter, In: make([]float64, 9), Out: make([]float64, 3)},
				{Op: AllGather, In: make([]int16, p), Out: make([]int16, 3), OutCounts: []int{0, 1, 2}},
				{Op: AllToAll, In: make([]int8, 6), Out: make([]int8, 6)},
				{Op: Broadcast, Buf: make([]int32, 5), Root: 1},
				{Op: Barrier},
			} {
				if err := c.Do(call); err != nil {
					return err
				}
			}
			return nil
		})
		mustAll(t, ends(t, pair, 1), func(c *Communicator) error {
			if err := c.AllReduce(make([]float32, 1), Sum); err != nil {
				return err
			}
			if c.Position() == 0 {
				return c.Send(make([]bool, 4), 1, 0)
			}
			return c.Recv(make([]bool, 4), 0, 0)
		})
		mustAll(t, ends(t, alone, 0), func(c *Communicator) error { return c.AllReduce(make([]float32, 100), Sum) })
		for r, want := range []map[string]Counter{
			{"all-reduce": {2, 44}, "reduce-scatter": {1, 72}, "all-gather": {1, 0}, "all-to-all": {1, 6}, "broadcast": {1, 0}, "barrier": {1, 0}, "send": {1, 4}},
			{"all-reduce": {2, 40}, "reduce-scatter": {1, 72}, "all-gather": {1, 2}, "all-to-all": {1, 6}, "broadcast": {1, 20}, "barrier": {1, 0}},
			{"all-reduce": {2, 44}, "reduce-scatter": {1, 72}, "all-gather": {1, 4}, "all-to-all": {1, 6}, "broadcast": {1, 0}, "barrier": {1, 0}, "recv": {1, 4}},
		} {
			got := worldOf(w, r).Counters(r)
			if len(got) != len(want) {
				t.Errorf("rank %d counts %v", r, got)
			}
			for op, c := range want {
				if got[op] != c {
					t.Errorf("rank %d, %s: %v, want %v", r, op, got[op], c)
				}
			}
		}
	})
}

func TestGroupsAndCommunicatorsAreFoundAgain(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		w := newWorld(t, 8, Options{})
		a, err := w.Group([]int{0, 1, 2, 5, 6, 4})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := w.Group([]int{0, 1, 2, 5, 6, 4})
		if a != b || a.String() != "[0-2 5 6 4]" || a.Position(4) != 5 || a.Position(3) != -1 || a.Size() != 6 {
			t.Errorf("the groups are %s and %s", a, b)
		}
		all, _ := w.Group([]int{0, 1, 2, 3, 4, 5, 6, 7})
		if all != w.All() || w.Size() != 8 || all.String() != "[0-7]" {
			t.Errorf("all is %s", all)
		}
		c, d := ends(t, a, 2), ends(t, b, 2)
		if c[5] != d[5] || c[5].Rank() != 4 || c[5].Position() != 5 || c[0].Group() != a || c[5].Size() != 6 {
			t.Error("the communicators differ")
		}
	})
}
