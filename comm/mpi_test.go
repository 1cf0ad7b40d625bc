// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"

	"github.com/easyparallel/epl/comm/internal/elements"
	"github.com/easyparallel/epl/comm/internal/transport"
	"github.com/easyparallel/epl/comm/mpi"
)

// What the processes of a test are told.
const (
	envMPICase = "EPL_TEST_MPI_CASE"
	envMPIHub  = "EPL_TEST_MPI_HUB"
)

// mpiCases are what workers do, in a job of so many, each in a process that mpirun started. They print mpiWell at the end:
// after an error that was meant to be, MPI itself does not end well.
var mpiCases = map[string]struct {
	workers []int
	run     func(t *testing.T, job mpiJob)
}{
	"every operation does what it does elsewhere":         {[]int{2, 4}, testMPIOperations},
	"teams are made in any order":                         {[]int{3, 4}, testMPITeams},
	"messages meet by peer and tag":                       {[]int{2, 3}, testMPIExchanges},
	"different calls are errors on all":                   {[]int{3}, testMPIDispute},
	"different parts of an all-to-all are errors on all":  {[]int{3}, testMPIParts},
	"a send and a receive that differ are errors on both": {[]int{2}, testMPIPair},
	"who is late is named":                                {[]int{3}, testMPILate},
	"a receive that nobody serves is an error":            {[]int{2}, testMPILateSender},
	"an abort ends what waits":                            {[]int{2}, testMPIAbort},
	"the order of workers is that of MPI":                 {[]int{2}, testMPIOrder},
}

const mpiWell = "EPL: this worker saw what it should"

// mpirun returns how to start n processes, or skips the test.
func mpirun(t *testing.T, n int) []string {
	names, args := []string{"mpirun.mpich", "mpiexec.hydra", "mpirun"}, []string{"-n", fmt.Sprint(n)}
	if strings.Contains(mpi.Version(), "Open MPI") {
		names, args = []string{"mpirun.openmpi", "mpirun"}, append(args, "--oversubscribe", "--allow-run-as-root")
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return append([]string{path}, args...)
		}
	}
	t.Skipf("no mpirun of %s is installed; Debian has it in openmpi-bin and mpich", mpi.Version())
	return nil
}

// needsMPI skips a test in a program without MPI.
func needsMPI(t *testing.T) {
	if !mpi.Available {
		t.Skip(`this program was built without MPI, see "make mpi"`)
	}
}

func TestMPI(t *testing.T) {
	needsMPI(t)
	for name, c := range mpiCases {
		for _, n := range c.workers {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				out := runMPI(t, name, append(mpirun(t, n), os.Args[0]))
				if strings.Count(out, mpiWell) != n {
					t.Errorf("not all of %d workers saw what they should:\n%s", n, out)
				}
			})
		}
	}
}

func TestAWorkerThatMPIDidNotStartIsToldHow(t *testing.T) {
	needsMPI(t)
	out := runMPI(t, "the order of workers is that of MPI", []string{os.Args[0]})
	for _, want := range []string{"epl: worker 1 of 2 is rank 0 of 1 for MPI; start one process for each worker by the mpirun of", mpi.Version()} {
		if !strings.Contains(out, want) {
			t.Errorf("the error does not say %q:\n%s", want, out)
		}
	}
}

// runMPI runs this test program again.
func runMPI(t *testing.T, name string, command []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], "-test.run=^TestMPIWorker$", "-test.count=1")...)
	cmd.Env = append(os.Environ(), envMPICase+"="+name, envMPIHub+"="+serveHub(t))
	cmd.WaitDelay = 10 * time.Second
	out, _ := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("it did not end:\n%s", out)
	}
	return string(out)
}

// TestMPIWorker is what the other processes run.
func TestMPIWorker(t *testing.T) {
	c, ok := mpiCases[os.Getenv(envMPICase)]
	if !ok {
		t.Skip("only for processes that TestMPI starts")
	}
	job := mpiJob{size: 2, hub: os.Getenv(envMPIHub)}
	for _, name := range []string{"OMPI_COMM_WORLD_", "PMI_"} {
		if rank, err := strconv.Atoi(os.Getenv(name + "RANK")); err == nil {
			job.rank, job.started = rank, true
			job.size, _ = strconv.Atoi(os.Getenv(name + "SIZE"))
		}
	}
	t.Cleanup(func() {
		if !t.Failed() {
			fmt.Println(mpiWell)
		}
		if mesh, err := newHubMesh(job.hub, "end", job.rank); err == nil && job.started {
			mesh.leave(job.size) // mpirun ends all when one has ended without MPI's blessing
		}
	})
	c.run(t, job)
}

// mpiJob is a worker's part in a job.
type mpiJob struct {
	rank, size int
	started    bool // by mpirun
	hub        string
}

// world makes a world in which worker i has ranks(i) ranks.
func (j mpiJob) world(t *testing.T, name string, ranks func(int) int, timeout time.Duration) *World {
	t.Helper()
	w, err := j.tryWorld(name, j.rank, ranks, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (j mpiJob) tryWorld(name string, worker int, ranks func(int) int, timeout time.Duration) (*World, error) {
	mesh, err := newHubMesh(j.hub, name, worker)
	if err != nil {
		return nil, err
	}
	layout := Layout{Worker: worker}
	for i := range j.size {
		layout.Workers = append(layout.Workers, Place{Ranks: ranks(i)})
	}
	return New(layout, mesh, Options{MPI: true, Timeout: timeout})
}

// localEnds returns the communicators of a group that belong to this worker.
func localEnds(t *testing.T, w *World, ranks []int, channel int) (cs []*Communicator) {
	t.Helper()
	g, err := w.Group(ranks)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range w.LocalRanks() {
		if g.Position(r) < 0 {
			continue
		}
		c, err := g.Communicator(r, channel)
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	return cs
}

func testMPIOperations(t *testing.T, job mpiJob) {
	plain := job.world(t, "plain", one, 20*time.Second)
	mixed := job.world(t, "mixed", func(i int) int { return 1 + i%2 }, time.Minute)
	defer mixed.Close()
	defer plain.Close()
	order := elements.SeedOf("order", job.size).Perm(mixed.Size()) // the same in all workers
	for _, x := range []struct {
		w     *World
		ranks []int
		exact []dtypes.DType // floats that have the bits of the reduction in rank order
	}{{plain, plain.All().Ranks(), []dtypes.DType{dtypes.Float16, dtypes.BFloat16}}, {mixed, order, nil}} {
		cs, n := localEnds(t, x.w, x.ranks, 0), len(x.ranks)
		for _, e := range elements.All {
			same := near
			if slices.Contains(x.exact, e.DType) {
				same = elements.SameBits
			}
			for _, size := range []int{0, 1, n - 1, n, 1000, 20_011} {
				rng := elements.SeedOf(e.DType, x.ranks, size) // the same in all workers
				in := inputs(e, rng, n, size)
				counts := elements.Parts(rng, size, n)
				what := fmt.Sprintf("%s, %d elements, ranks %v", e.DType, size, x.ranks)
				for _, r := range e.Ops {
					scales := []float64{1}
					if transport.Scalable(e.DType) {
						scales = append(scales, 1/float64(n))
					}
					for _, scale := range scales {
						want := e.Reduce(r, scale, in)
						mpiAll(t, cs, what, func(c *Communicator) error {
							buf := elements.Clone(in[c.Position()])
							if err := c.AllReduceScaled(buf, r, scale); err != nil {
								return err
							}
							if !same(buf, want) {
								return fmt.Errorf("all-reduce %s·%g is wrong", r, scale)
							}
							return sameEverywhere(c, buf)
						})
						mpiAll(t, cs, what, func(c *Communicator) error {
							p := c.Position()
							from, to := transport.Total(counts[:p]), transport.Total(counts[:p+1])
							for _, inPlace := range []bool{false, true} {
								mine := elements.Clone(in[p])
								out := elements.MakeLike(mine, counts[p])
								if inPlace {
									out = elements.Slice(mine, from, to)
								}
								err := c.Do(Call{Op: ReduceScatter, In: mine, Out: out, InCounts: counts, Reduction: r, Scale: scale})
								if err != nil {
									return err
								}
								if !same(out, elements.Slice(want, from, to)) {
									return fmt.Errorf("reduce-scatter %s·%g of %d is wrong", r, scale, counts)
								}
								if !inPlace && !elements.SameBits(mine, in[p]) {
									return fmt.Errorf("reduce-scatter changed its input")
								}
							}
							return nil
						})
					}
				}
				mpiMoves(t, cs, what, e, rng, in, counts)
			}
		}
	}
}

// mpiMoves tests the operations that compute nothing.
func mpiMoves(t *testing.T, cs []*Communicator, what string, e elements.Type, rng *rand.Rand, in []any, counts []int) {
	n, size := len(counts), transport.Total(counts)
	root := rng.IntN(n)
	want := e.Fill(rng, size)
	swapped := make([][]int, n) // from i to j
	pieces := make([][]any, n)
	for i := range n {
		swapped[i] = elements.Parts(rng, size, n)
		for j := range n {
			pieces[i] = append(pieces[i], e.Fill(rng, swapped[i][j]))
		}
	}
	mpiAll(t, cs, what, func(c *Communicator) error {
		p := c.Position()
		from, to := transport.Total(counts[:p]), transport.Total(counts[:p+1])
		for _, inPlace := range []bool{false, true} {
			part, out := elements.Slice(want, from, to), elements.MakeLike(want, size)
			if inPlace {
				part = elements.Slice(out, from, to)
				reflect.Copy(reflect.ValueOf(part), reflect.ValueOf(elements.Slice(want, from, to)))
			}
			if err := c.AllGather(part, out, counts); err != nil {
				return err
			}
			if !elements.SameBits(out, want) {
				return fmt.Errorf("all-gather of %d is wrong", counts)
			}
		}
		var outCounts []int
		var wants []any
		for i := range n {
			outCounts = append(outCounts, swapped[i][p])
			wants = append(wants, pieces[i][p])
		}
		got := elements.MakeLike(want, transport.Total(outCounts))
		if err := c.AllToAll(elements.Concat(pieces[p]...), got, swapped[p], outCounts); err != nil {
			return err
		}
		if !elements.SameBits(got, elements.Concat(wants...)) {
			return fmt.Errorf("all-to-all of %d is wrong", swapped)
		}
		buf := elements.Clone(in[p])
		if err := c.Broadcast(buf, root); err != nil {
			return err
		}
		if !elements.SameBits(buf, in[root]) {
			return fmt.Errorf("broadcast from %d is wrong", root)
		}
		return c.Barrier()
	})
}

// mpiAll is mustAll for the ranks of one worker.
func mpiAll(t *testing.T, cs []*Communicator, what string, f func(c *Communicator) error) {
	t.Helper()
	for i, err := range onAll(cs, f) {
		if err != nil {
			t.Fatalf("%s: rank %d: %v", what, cs[i].Rank(), err)
		}
	}
}

// sameEverywhere checks that all ranks have the same bits.
func sameEverywhere(c *Communicator, flat any) error {
	h := fnv.New64a()
	h.Write(elements.BytesOf(flat))
	all := make([]uint64, c.Size())
	if err := c.AllGather([]uint64{h.Sum64()}, all, nil); err != nil {
		return err
	}
	if slices.Max(all) != slices.Min(all) {
		return fmt.Errorf("the bits differ between ranks")
	}
	return nil
}

// near compares slices, floats with a tolerance: MPI adds them in an order of its own, and those of 16 bits are rounded once
// for the ranks of a worker and once for the workers.
func near(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	tolerance := 1e-5
	var number func(reflect.Value) complex128
	switch a.(type) {
	case []float32, []float64:
		number = func(v reflect.Value) complex128 { return complex(v.Float(), 0) }
	case []complex64, []complex128:
		number = reflect.Value.Complex
	case []float16.Float16, []bfloat16.BFloat16:
		tolerance = 0.05
		number = func(v reflect.Value) complex128 {
			return complex(float64(v.Interface().(interface{ Float32() float32 }).Float32()), 0)
		}
	default:
		return elements.SameBits(a, b)
	}
	for i := range x.Len() {
		p, q := number(x.Index(i)), number(y.Index(i))
		if d := cmplx.Abs(p - q); d > tolerance*(1+cmplx.Abs(q)) || math.IsNaN(d) {
			return false
		}
	}
	return x.Len() == y.Len()
}

// Every worker makes the same calls in every team, but comes to the teams in an order of its own, to many at once.
func testMPITeams(t *testing.T, job mpiJob) {
	w := job.world(t, "teams", one, 20*time.Second)
	defer w.Close()
	var teams []Call // the group is in InCounts, the channel in Tag
	for a := range job.size {
		for b := range job.size {
			if a != b {
				for channel := range 3 {
					teams = append(teams, Call{InCounts: []int{a, b}, Tag: channel})
				}
			}
		}
	}
	for channel := range 4 {
		teams = append(teams, Call{InCounts: rand.New(rand.NewPCG(uint64(channel), 1)).Perm(job.size), Tag: channel})
	}
	rand.Shuffle(len(teams), func(i, j int) { teams[i], teams[j] = teams[j], teams[i] })
	var wg sync.WaitGroup
	for _, team := range teams {
		for _, c := range localEnds(t, w, team.InCounts, team.Tag) {
			wg.Go(func() {
				for i := range 20 {
					buf := []int32{int32(i), 1}
					if err := c.AllReduce(buf, Sum); err != nil {
						t.Error(err)
						return
					}
					if n := int32(c.Size()); buf[0] != n*int32(i) || buf[1] != n {
						t.Errorf("group %v, round %d: the sum is %d", team.InCounts, i, buf)
					}
				}
			})
		}
	}
	wg.Wait()
}

func testMPIExchanges(t *testing.T, job mpiJob) {
	w := job.world(t, "exchanges", two, 20*time.Second)
	defer w.Close()
	cs := localEnds(t, w, w.All().Ranks(), 0)
	mpiAll(t, cs, "exchange", func(c *Communicator) error {
		n := c.Size()
		var handles []*Handle
		for _, i := range rand.Perm(3 * n) { // to everybody with several tags at once, two messages each
			peer, tag := i%n, (i/n-1)*1_000_000_007
			if peer == c.Position() {
				continue
			}
			for k := range 2 {
				size := []int{0, 1, 70_001}[i/n]
				value := func(from, to int) []int64 {
					buf := make([]int64, size)
					for j := range buf {
						buf[j] = int64(j*1000 + from*100 + to*10 + k)
					}
					return buf
				}
				handles = append(handles, c.Start(Call{Op: Send, Buf: value(c.Position(), peer), Peer: peer, Tag: tag}))
				got := make([]int64, size)
				received := c.Start(Call{Op: Recv, Buf: got, Peer: peer, Tag: tag})
				handles = append(handles, received)
				want := value(peer, c.Position())
				t.Cleanup(func() {
					if received.Wait() == nil && !slices.Equal(got, want) {
						t.Errorf("rank %d got something else from %d with tag %d", c.Rank(), peer, tag)
					}
				})
			}
		}
		for _, h := range handles {
			if err := h.Wait(); err != nil {
				return err
			}
		}
		return nil
	})
}

// mpiWantErrors checks the errors of this worker's ranks, and that they come soon.
func mpiWantErrors(t *testing.T, cs []*Communicator, f func(c *Communicator) error, parts ...string) {
	t.Helper()
	began := time.Now()
	wantErrors(t, onAll(cs, f), parts...)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the error came after %s", took)
	}
}

func testMPIDispute(t *testing.T, job mpiJob) {
	w := job.world(t, "dispute", one, 20*time.Second)
	defer w.Close()
	cs := localEnds(t, w, w.All().Ranks(), 0)
	mpiAll(t, cs, "before", (*Communicator).Barrier)
	mpiWantErrors(t, cs, func(c *Communicator) error {
		return c.AllReduce(make([]float32, 4+c.Position()/2), Sum)
	}, "rank 0 and rank 2 do not agree", "16 bytes", "20 bytes", "the sizes differ", "all-reduce #2")
}

func testMPIParts(t *testing.T, job mpiJob) {
	w := job.world(t, "parts", one, 20*time.Second)
	defer w.Close()
	mpiWantErrors(t, localEnds(t, w, w.All().Ranks(), 0), func(c *Communicator) error {
		in, out := []int{2, 2, 2}, []int{2, 2, 2}
		if c.Position() == 1 {
			out[0] = 1
		}
		return c.AllToAll(make([]float32, transport.Total(in)), make([]float32, transport.Total(out)), in, out)
	}, "rank 0 gives 2 elements, rank 1 expects 1")
}

func testMPIPair(t *testing.T, job mpiJob) {
	w := job.world(t, "pair", one, 20*time.Second)
	defer w.Close()
	mpiWantErrors(t, localEnds(t, w, w.All().Ranks(), 0), func(c *Communicator) error {
		if c.Position() == 0 {
			return c.Send(make([]float32, 2), 1, -7)
		}
		return c.Recv(make([]float32, 3), 0, -7)
	}, "rank 0 and rank 1", "send to rank 1 with tag -7 #1", "recv from rank 0 with tag -7 #1", "the sizes differ")
}

func testMPILate(t *testing.T, job mpiJob) {
	w := job.world(t, "late", one, 2*time.Second)
	defer w.Close()
	cs := localEnds(t, w, w.All().Ranks(), 0)
	mpiAll(t, cs, "before", (*Communicator).Barrier)
	if job.rank == 1 {
		<-w.base.Mesh.Done() // somebody tells that we are late
		wantError(t, w.base.Mesh.Err(), "rank 1 did not arrive")
		return
	}
	mpiWantErrors(t, cs, func(c *Communicator) error { return c.AllReduce(make([]float32, 100_000), Sum) },
		"rank 1 did not arrive within 2s in all-reduce #2 of group [0-2]", "ranks 0, 2 waited", "barrier")
}

func testMPILateSender(t *testing.T, job mpiJob) {
	w := job.world(t, "late sender", one, 2*time.Second)
	defer w.Close()
	cs := localEnds(t, w, w.All().Ranks(), 0)
	if job.rank == 1 {
		<-w.base.Mesh.Done()
		return
	}
	mpiWantErrors(t, cs, func(c *Communicator) error { return c.Recv(make([]float32, 4), 1, 0) }, "rank 1 did not arrive within 2s")
}

func testMPIAbort(t *testing.T, job mpiJob) {
	w := job.world(t, "abort", one, 20*time.Second)
	defer w.Close()
	cs := localEnds(t, w, w.All().Ranks(), 0)
	mpiAll(t, cs, "before", (*Communicator).Barrier)
	if job.rank == 1 {
		team := cs[0].end.meeting.Team
		for calls, err := team.CallsOf(0); err != nil || calls[0].Seq < 2; calls, err = team.CallsOf(0) {
		} // until the other waits
		w.Abort(errTest)
	}
	mpiWantErrors(t, cs, (*Communicator).Barrier, "rank "+fmt.Sprint(job.rank)+" stopped in barrier #2", "the test says so")
}

func testMPIOrder(t *testing.T, job mpiJob) {
	_, err := job.tryWorld("order", job.size-1-job.rank, one, 20*time.Second)
	wantError(t, err, fmt.Sprintf("worker %d of 2 is rank %d of 2 for MPI", 1-job.rank, job.rank), "in the order of the workers")
}
