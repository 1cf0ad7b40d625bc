// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/easyparallel/epl/comm/internal/elements"
)

// TestMain lets more tests run at once than there are processors: those that do wait for clocks.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8")
	os.Exit(m.Run())
}

// transports are the ways to make a world. What is tested with newWorldOf holds for all of them.
var transports = []struct {
	name string
	make func(n int, opts Options) (*World, error)
}{
	{"in-process", NewInProcess},
	{"shared memory", newWorlds(func(int) string { return "a" }, one)},
	{"TCP", newWorlds(func(i int) string { return fmt.Sprint("host", i) }, one)},
	{"both", newWorlds(func(i int) string { return fmt.Sprint("host", i/2) }, one)},
	{"shared memory, two ranks each", newWorlds(func(int) string { return "a" }, two)},
	{"TCP, two ranks each", newWorlds(func(i int) string { return fmt.Sprint("host", i) }, two)},
	{"both, two ranks each", newWorlds(func(i int) string { return fmt.Sprint("host", i/2) }, two)},
	{"TCP, opaque", newOpaqueWorlds},
	{"TCP, three streams", inStreams(3, newWorlds(func(i int) string { return fmt.Sprint("host", i) }, one))},
	{"both, uneven", newWorlds(func(i int) string { return []string{"a", "a", "b", "a"}[i%4] }, func(i int) int { return []int{2, 1, 3}[i%3] })},
}

// severalWorkers tells whether a world is one of a job with several. There an error breaks the whole job, and only those
// who see its cause have it from the source: others are told by the mesh.
func severalWorkers(w *World) bool { return len(w.base.Layout.Workers) > 1 }

// forEachTransport runs a test with all of them.
func forEachTransport(t *testing.T, f func(t *testing.T, newWorld func(t *testing.T, n int, opts Options) *World)) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			if testing.Short() && strings.Contains(tr.name, ", ") {
				t.Skip("a variant of another layout; not with -short")
			}
			f(t, func(t *testing.T, n int, opts Options) *World {
				t.Helper()
				w, err := tr.make(n, opts)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { closeAll(t, w) })
				return w
			})
		})
	}
}

// ends returns the communicators of a group, by position.
func ends(t testing.TB, g *Group, channel int) (cs []*Communicator) {
	t.Helper()
	for _, r := range g.Ranks() {
		g, err := worldOf(g.world, r).Group(g.ranks)
		if err != nil {
			t.Fatal(err)
		}
		c, err := g.Communicator(r, channel)
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	return cs
}

// onAll runs f for all communicators at once, each in its goroutine, and returns their errors. Who comes first is random.
func onAll(cs []*Communicator, f func(c *Communicator) error) []error {
	errs := make([]error, len(cs))
	var wg sync.WaitGroup
	for _, i := range rand.Perm(len(cs)) {
		wg.Go(func() {
			for range rand.IntN(4) {
				runtime.Gosched()
			}
			if rand.IntN(50) == 0 {
				time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond) // long enough to park
			}
			errs[i] = f(cs[i])
		})
	}
	wg.Wait()
	return errs
}

// mustAll is onAll for what must succeed.
func mustAll(t testing.TB, cs []*Communicator, f func(c *Communicator) error) {
	t.Helper()
	for i, err := range onAll(cs, f) {
		if err != nil {
			t.Fatalf("position %d: %v", i, err)
		}
	}
}

// reductionOf is what a group has to compute: the inputs in the order of positions if they are all in one worker; else over
// the ranks of each worker, then, if some but not all workers share a host, over those of each host, then over all.
func reductionOf(e elements.Type, g *Group, r Reduction, scale float64, in []any) any {
	places := g.world.base.Layout.Workers
	order, parts := []int{}, map[int][]any{}
	for pos, rank := range g.ranks {
		worker := g.world.base.WorkerOf[rank]
		if parts[worker] == nil {
			order = append(order, worker)
		}
		parts[worker] = append(parts[worker], in[pos])
	}
	if len(order) == 1 {
		return e.Reduce(r, scale, in)
	}
	hosts, onHost := []string{}, map[string][]any{}
	var all []any
	for _, worker := range order {
		x := e.Reduce(r, 1, parts[worker])
		host := places[worker].Host
		if onHost[host] == nil {
			hosts = append(hosts, host)
		}
		onHost[host] = append(onHost[host], x)
		all = append(all, x)
	}
	if len(hosts) > 1 && len(hosts) < len(order) {
		all = nil
		for _, host := range hosts {
			all = append(all, e.Reduce(r, 1, onHost[host]))
		}
	}
	return e.Reduce(r, scale, all)
}

// wantError checks that an error is a sentence of ours that says all of some things.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if !strings.HasPrefix(err.Error(), "epl: ") {
		t.Errorf("%q does not begin with epl:", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("the error does not say %q:\n%v", p, err)
		}
	}
}

// wantErrors checks the errors of all ranks.
func wantErrors(t *testing.T, errs []error, parts ...string) {
	t.Helper()
	for i, err := range errs {
		if err == nil {
			t.Fatalf("position %d has no error", i)
		}
		wantError(t, err, parts...)
	}
}

var errTest = errors.New("the test says so")

func inf() float64 { return math.Inf(1) }
