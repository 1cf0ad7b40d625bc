// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

//go:build linux

package comm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/gomlx/compute/dtypes"
	"golang.org/x/sys/unix"

	"github.com/easyparallel/epl/comm/internal/elements"
	"github.com/easyparallel/epl/comm/internal/transport"
	"github.com/easyparallel/epl/comm/shm"
)

// sharing makes the worlds of n workers on one host.
func sharing(t *testing.T, n int, ranks func(int) int, opts Options) *World {
	t.Helper()
	w, err := newWorlds(func(int) string { return "a" }, ranks)(n, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, w) })
	return w
}

// replace sets a variable until the end of the test.
func replace[T any](t *testing.T, at *T, by T) {
	before := *at
	*at = by
	t.Cleanup(func() { *at = before })
}

// everyCall makes calls of all operations with a size, whose results must be right bit for bit. Buffers come from alloc.
// All workers have one rank.
func everyCall(c *Communicator, e elements.Type, size int, alloc func(like any) any) error {
	n, p := c.Size(), c.Position()
	rng := elements.SeedOf(e.DType, n, size)
	in := inputs(e, rng, n, size)
	counts := elements.Parts(rng, size, n)
	from, to := transport.Total(counts[:p]), transport.Total(counts[:p+1])
	total := e.Reduce(Sum, 1, in)
	check := func(what string, err error, got, want any) error {
		if err == nil && !elements.SameBits(got, want) {
			err = errors.New("the result is wrong")
		}
		if err != nil {
			return fmt.Errorf("%s of %d %s: %w", what, size, e.DType, err)
		}
		return nil
	}
	buf := alloc(in[p])
	if err := check("all-reduce", c.AllReduce(buf, Sum), buf, total); err != nil {
		return err
	}
	part := elements.MakeLike(buf, counts[p])
	if err := check("reduce-scatter", c.ReduceScatter(alloc(in[p]), part, counts, Sum), part, elements.Slice(total, from, to)); err != nil {
		return err
	}
	all := elements.MakeLike(buf, size)
	if err := check("all-gather", c.AllGather(alloc(part), all, counts), all, total); err != nil {
		return err
	}
	give, take := make([]int, n), make([]int, n)
	var wants []any
	for i := range n {
		give[i], take[i] = counts[(i+p)%n], counts[(i+p)%n]
		at := 0
		for j := range p {
			at += counts[(i+j)%n]
		}
		wants = append(wants, elements.Slice(in[i], at, at+take[i]))
	}
	if err := check("all-to-all", c.AllToAll(alloc(in[p]), all, give, take), all, elements.Concat(wants...)); err != nil {
		return err
	}
	root := size % n
	buf = alloc(in[p])
	if err := check("broadcast", c.Broadcast(buf, root), buf, in[root]); err != nil {
		return err
	}
	sent := c.Start(Call{Op: Send, Buf: alloc(in[p]), Peer: (p + 1) % n, Tag: size})
	last := (p + n - 1) % n
	if err := check("recv", c.Recv(all, last, size), all, in[last]); err != nil {
		return err
	}
	return cmp.Or(sent.Wait(), c.Barrier())
}

// everySize does everyCall with ordinary and with shared memory, from one element to several slots.
func everySize(c *Communicator) error {
	var frees []func()
	defer func() {
		for _, f := range frees {
			f()
		}
	}()
	shared := func(like any) any {
		b, _ := transport.BufferOf(like)
		flat, free, err := c.group.world.Alloc(b.DType, b.Len)
		if err != nil {
			panic(err)
		}
		frees = append(frees, free)
		reflect.Copy(reflect.ValueOf(flat), reflect.ValueOf(like))
		return flat
	}
	types := []elements.Type{elements.All[0], elements.All[2], elements.All[14]}
	if testing.Short() {
		types = types[:1]
	}
	for _, e := range types {
		for _, size := range []int{0, 1, 1000, 10_000, 100_003} {
			if err := everyCall(c, e, size, elements.Clone); err != nil {
				return err
			}
			if err := everyCall(c, e, size, shared); err != nil {
				return fmt.Errorf("in shared memory: %w", err)
			}
			mixed := elements.Clone
			if c.Position() > 0 {
				mixed = shared
			}
			if err := everyCall(c, e, size, mixed); err != nil {
				return fmt.Errorf("in different memory: %w", err)
			}
		}
	}
	return nil
}

func init() {
	processJobs["everything"] = func(w *World) error {
		c, err := w.All().Communicator(w.local[0], 0)
		if err != nil {
			return err
		}
		if err := everySize(c); err != nil {
			return err
		}
		maps, err := os.ReadFile("/proc/self/maps")
		if err == nil && !bytes.Contains(maps, []byte(segmentName)) {
			err = errors.New("no memory was shared")
		}
		return err
	}
}

func TestProcessesCommunicateThroughMemory(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			workers, outputs := startProcesses(t, "everything", n)
			for i, c := range workers {
				if err := c.Wait(); err != nil {
					t.Errorf("worker %d: %v\n%s", i, err, outputs[i])
				}
			}
		})
	}
}

func init() {
	die := func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	survive := func(w *World, calls func(c *Communicator) error) error {
		c, err := w.All().Communicator(w.local[0], 0)
		if err != nil {
			return err
		}
		for err == nil {
			err = calls(c)
		}
		if !strings.Contains(err.Error(), "worker 2 is gone") {
			return fmt.Errorf("it ended with: %w", err)
		}
		return nil
	}
	processJobs["killed before it joins"] = func(w *World) error {
		if w.local[0] == 2 {
			die()
		}
		return survive(w, (*Communicator).Barrier)
	}
	processJobs["killed while others wait"] = func(w *World) error {
		rounds := 0
		return survive(w, func(c *Communicator) error {
			if rounds++; c.rank == 2 && rounds == 20 {
				die()
			}
			return c.Barrier()
		})
	}
	processJobs["killed in the middle"] = func(w *World) error {
		if w.local[0] == 2 {
			time.AfterFunc(300*time.Millisecond, die)
		}
		flat, _, err := w.Alloc(dtypes.Float32, 1<<20)
		if err != nil {
			return err
		}
		in, out := make([]float32, 1<<18), make([]float32, 3<<18)
		return survive(w, func(c *Communicator) error {
			return cmp.Or(c.AllReduce(flat, Sum), c.AllGather(in, out, nil), c.AllToAll(out, slices.Clone(out), nil, nil),
				c.AllReduce(in, Sum), c.Broadcast(in, 2))
		})
	}
	processJobs["killed while it sends"] = func(w *World) error {
		if w.local[0] == 2 {
			time.AfterFunc(300*time.Millisecond, die)
		}
		in, out := make([]float32, 1<<20), make([]float32, 1<<20)
		return survive(w, func(c *Communicator) error {
			sent := c.Start(Call{Op: Send, Buf: in, Peer: (c.pos + 1) % 3})
			return cmp.Or(c.Recv(out, (c.pos+2)%3, 0), sent.Wait())
		})
	}
}

func TestAKilledWorkerEndsTheOthersAndLeavesNothing(t *testing.T) {
	for _, job := range []string{"killed before it joins", "killed while others wait", "killed in the middle", "killed while it sends"} {
		t.Run(job, func(t *testing.T) {
			before, err := os.ReadDir("/dev/shm")
			if err != nil {
				t.Skip("there is no /dev/shm to look into")
			}
			workers, outputs := startProcesses(t, job, 3)
			workers[2].Wait()
			for i, c := range workers[:2] {
				over := make(chan error, 1)
				go func() { over <- c.Wait() }()
				select {
				case err := <-over:
					if err != nil {
						t.Errorf("worker %d: %v\n%s", i, err, outputs[i])
					}
				case <-time.After(20 * time.Second):
					t.Fatalf("worker %d still runs\n%s", i, outputs[i])
				}
			}
			after, err := os.ReadDir("/dev/shm")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range after {
				if strings.Contains(f.Name(), "epl") && !slices.ContainsFunc(before, func(o os.DirEntry) bool { return o.Name() == f.Name() }) {
					t.Errorf("%s is left", f.Name())
				}
			}
		})
	}
}

// mappings counts what of the engine's memory this process has mapped.
// segmentName is what the kernel calls the memory of segments.
const segmentName = "memfd:epl-segment"

func mappings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), segmentName)
}

func descriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

func TestCloseUnmapsWhatWasShared(t *testing.T) {
	flat, free, err := sharing(t, 2, one, Options{}).Alloc(dtypes.Float32, 1) // the heap stays
	if err != nil || len(flat.([]float32)) != 1 {
		t.Fatal(err)
	}
	free()
	files, maps, goroutines := descriptors(t), mappings(t), runtime.NumGoroutine()
	for range 3 {
		w, err := newWorlds(func(int) string { return "a" }, one)(3, Options{})
		if err != nil {
			t.Fatal(err)
		}
		mustAll(t, ends(t, w.All(), 0), func(c *Communicator) error {
			buf := alloc[float32](t, c.group.world, 100_000)
			sent := c.Start(Call{Op: Send, Buf: make([]float32, 50_000), Peer: (c.pos + 1) % 3})
			return cmp.Or(c.Recv(make([]float32, 50_000), (c.pos+2)%3, 0), sent.Wait(), c.AllReduce(buf, Sum))
		})
		if mappings(t) == maps {
			t.Error("nothing was shared")
		}
		closeAll(t, w)
	}
	noMoreGoroutines(t, goroutines)
	if n := mappings(t); n != maps {
		t.Errorf("%d mappings before, %d after", maps, n)
	}
	if n := descriptors(t); n > files {
		t.Errorf("%d open files before, %d after", files, n)
	}
}

// alloc returns a slice of the shared heap that is given back after the test.
func alloc[T any](t *testing.T, w *World, n int) []T {
	flat, free, err := w.Alloc(dtypes.FromGoType(reflect.TypeFor[T]()), n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(free)
	return flat.([]T)
}

func TestWithoutTheKernelsLeaveEverythingGoesThroughSegments(t *testing.T) {
	for name, call := range map[string]*shm.Crossing{"reading": &shm.ReadOther, "writing": &shm.WriteOther} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			replace(t, call, func(uint64, unsafe.Pointer, uint64, int) (int, unix.Errno) {
				asked.Add(1)
				return 0, unix.EPERM
			})
			cs := ends(t, sharing(t, 3, one, Options{Timeout: time.Minute}).All(), 0)
			mustAll(t, cs, everySize)
			mustAll(t, cs, manyTags)
			// Every member tries every other once for each segment: that of collectives, and those of the pairs.
			if n := asked.Load(); n != 6+6 {
				t.Errorf("the kernel was asked %d times", n)
			}
		})
	}
}

// large is from where a crossing is not a trial of the kernel.
const large = 4096

func TestASenderThatWaitsHelpsTheReceiver(t *testing.T) {
	helped := make(chan struct{})
	read, write := shm.ReadOther, shm.WriteOther
	replace(t, &shm.ReadOther, func(pid uint64, here unsafe.Pointer, there uint64, n int) (int, unix.Errno) {
		if n >= large {
			<-helped
		}
		return read(pid, here, there, n)
	})
	var once sync.Once
	replace(t, &shm.WriteOther, func(pid uint64, here unsafe.Pointer, there uint64, n int) (int, unix.Errno) {
		if n >= large {
			defer once.Do(func() { close(helped) })
		}
		return write(pid, here, there, n)
	})
	in := inputs(elements.All[0], elements.SeedOf(1), 2, 1_000_001)
	for _, op := range []Op{Send, Broadcast} {
		t.Run(op.String(), func(t *testing.T) {
			helped, once = make(chan struct{}), sync.Once{}
			got := elements.Clone(in[1])
			mustAll(t, ends(t, sharing(t, 2, one, Options{Timeout: time.Minute}).All(), 0), func(c *Communicator) error {
				switch {
				case op == Broadcast:
					return c.Broadcast([]any{in[0], got}[c.pos], 0)
				case c.pos == 0:
					return c.Send(in[0], 1, 0)
				}
				return c.Recv(got, 0, 0)
			})
			if !elements.SameBits(got, in[0]) {
				t.Error("the data are others")
			}
		})
	}
}

func TestMemoryThatIsNoLongerLentEndsTheCallOnAllRanks(t *testing.T) {
	calls := map[string]func(c *Communicator, in, out []float32) error{
		"all-reduce": func(c *Communicator, in, _ []float32) error { return c.AllReduce(in, Sum) },
		"all-gather": func(c *Communicator, in, out []float32) error { return c.AllGather(in, out, nil) },
		"broadcast":  func(c *Communicator, in, _ []float32) error { return c.Broadcast(in, 0) },
		"send": func(c *Communicator, in, out []float32) error {
			if c.pos == 0 {
				return c.Send(in, 1, 0)
			}
			return c.Recv(out[:len(in)], 0, 0)
		},
	}
	read := shm.ReadOther
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			failed := make(chan struct{})
			var once sync.Once
			write := shm.WriteOther
			replace(t, &shm.WriteOther, func(pid uint64, here unsafe.Pointer, there uint64, n int) (int, unix.Errno) {
				if n < large {
					return write(pid, here, there, n)
				}
				once.Do(func() { close(failed) })
				return 0, unix.EFAULT
			})
			replace(t, &shm.ReadOther, func(pid uint64, here unsafe.Pointer, there uint64, n int) (int, unix.Errno) {
				if n >= large && name != "all-reduce" { // which reads first
					<-failed
				}
				return read(pid, here, there, n)
			})
			cs := ends(t, sharing(t, 2, one, Options{Timeout: time.Minute}).All(), 0)
			wantErrors(t, onAll(cs, func(c *Communicator) error { return call(c, make([]float32, 1<<20), make([]float32, 2<<20)) }),
				"can no longer be written", "bad address")
		})
	}
}

func TestManySendsMayBeReceivedInAnyOrder(t *testing.T) {
	pair := ends(t, sharing(t, 2, one, Options{Timeout: time.Minute}).All(), 0)
	mustAll(t, pair, manyTags)
	mustAll(t, pair, manyTags) // now that they are connected
	mustAll(t, ends(t, sharing(t, 6, two, Options{Timeout: time.Minute}).All(), 0), manyTags)
}

// Nobody has to wake up before the other worker sees the data of a send that is started.
func TestAStartedSendIsOfferedAtOnce(t *testing.T) {
	mustAll(t, ends(t, sharing(t, 2, one, Options{Timeout: time.Minute}).All(), 0), func(c *Communicator) error {
		for round := range 3 { // in the first the workers connect, which takes a goroutine
			buf := []float32{float32(round)}
			if c.pos == 1 {
				if err := c.Barrier(); err != nil {
					return err
				}
				if err := c.Recv(buf, 0, 0); err != nil || buf[0] != float32(round) {
					return fmt.Errorf("round %d: %v, %w", round, buf, err)
				}
				continue
			}
			h := c.Start(Call{Op: Send, Buf: buf, Peer: 1})
			if offered := h.call.Posted != 0; offered != (round > 0) {
				return fmt.Errorf("round %d: offered %v", round, offered)
			}
			if err := c.Barrier(); err != nil {
				return err
			}
			if err := h.Wait(); err != nil {
				return err
			}
		}
		return nil
	})
}

// manyTags sends more messages than the ring holds, of all sizes, and receives them in another order.
func manyTags(c *Communicator) error {
	const tags = 100
	n := c.Size()
	size := func(tag int) int {
		return []int{0, 1, shm.InlineBytes, shm.InlineBytes + 1, 3*shm.StreamBytes + 1}[tag%5]
	}
	value := func(from, tag int) byte { return byte(7*from + tag + 1) }
	var sent []*Handle
	for tag := range tags {
		buf := make([]byte, size(tag))
		for i := range buf {
			buf[i] = value(c.pos, tag)
		}
		sent = append(sent, c.Start(Call{Op: Send, Buf: buf, Peer: (c.pos + 1) % n, Tag: tag}))
	}
	from := (c.pos + n - 1) % n
	for _, tag := range rand.Perm(tags) {
		buf := make([]byte, size(tag))
		if err := c.Recv(buf, from, tag); err != nil {
			return err
		}
		for _, b := range buf {
			if b != value(from, tag) {
				return fmt.Errorf("tag %d from %d has %d", tag, from, b)
			}
		}
	}
	for _, h := range sent {
		if err := h.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func TestWorkersThatCannotShareMemoryUseConnections(t *testing.T) {
	for name, fails := range map[string]func(try int64) bool{
		"all": func(int64) bool { return true },
		"one": func(try int64) bool { return try == 2 },
	} {
		t.Run(name, func(t *testing.T) {
			var tries atomic.Int64
			replace(t, &shm.OpenOther, func(name string, flag int, perm os.FileMode) (*os.File, error) {
				if fails(tries.Add(1)) {
					return nil, os.ErrPermission
				}
				return os.OpenFile(name, flag, perm)
			})
			maps := mappings(t)
			j := newTestJob(3)
			var connected atomic.Bool
			j.between = func(name string, _, _ int, r io.Reader, w io.Writer) {
				if strings.HasSuffix(name, " collectives") {
					connected.Store(true)
				}
				_, _ = io.Copy(w, r)
			}
			w, err := newJob(j, []Place{{Ranks: 1, Host: "a"}, {Ranks: 1, Host: "a"}, {Ranks: 1, Host: "a"}}, Options{Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			cs := ends(t, w.All(), 0)
			mustAll(t, cs, func(c *Communicator) error {
				buf := []int32{int32(c.pos), 1}
				if err := c.AllReduce(buf, Sum); err != nil || !slices.Equal(buf, []int32{3, 3}) {
					return fmt.Errorf("%d, %v", buf, err)
				}
				return nil
			})
			mustAll(t, cs, manyTags)
			if !connected.Load() {
				t.Error("there are no connections")
			}
			closeAll(t, w)
			if n := mappings(t); n != maps {
				t.Errorf("%d mappings before, %d after", maps, n)
			}
		})
	}
}

func TestWorkersThatCannotMapAHeapGoAnotherWay(t *testing.T) {
	for name, fails := range map[string]func(try int64) bool{
		"all": func(int64) bool { return true },
		"one": func(try int64) bool { return try == 1 },
	} {
		for _, lends := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/lends=%t", name, lends), func(t *testing.T) {
				var tries atomic.Int64
				replace(t, &shm.OpenOther, func(name string, flag int, perm os.FileMode) (*os.File, error) {
					if what, _ := os.Readlink(name); strings.Contains(what, "epl-heap") && fails(tries.Add(1)) {
						return nil, unix.EMFILE
					}
					return os.OpenFile(name, flag, perm)
				})
				if !lends {
					replace(t, &shm.ReadOther, func(uint64, unsafe.Pointer, uint64, int) (int, unix.Errno) { return 0, unix.EPERM })
				}
				w := sharing(t, 3, one, Options{Timeout: time.Minute})
				mustAll(t, ends(t, w.All(), 0), everySize)
				if tries.Load() == 0 {
					t.Error("nobody tried to map a heap")
				}
			})
		}
	}
}

func TestMemoryThatRunsOutIsAnErrorWithWords(t *testing.T) {
	replace(t, &shm.Reserve, func(int, uint32, int64, int64) error { return unix.ENOSPC })
	cs := ends(t, sharing(t, 2, one, Options{}).All(), 0)
	wantErrors(t, onAll(cs, (*Communicator).Barrier), "MB of shared memory cannot be reserved: no space left on device", "is free", "start fewer workers")
	_, _, err := cs[0].group.world.Alloc(dtypes.Float64, 100<<20)
	wantError(t, err, "104857600 elements of Float64 cannot be allocated", "2 MB of shared memory cannot be reserved")
}

func TestAWorkerThatDoesNotComeIsNamed(t *testing.T) {
	for name, meet := range map[string]bool{"when memory is to be shared": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cs := ends(t, sharing(t, 3, one, Options{Timeout: time.Second}).All(), 0)
			pair := ends(t, sharing(t, 2, one, Options{Timeout: time.Second}).All(), 0)
			if meet {
				mustAll(t, cs, (*Communicator).Barrier)
				mustAll(t, pair, func(c *Communicator) error {
					return c.Do(Call{Op: Send + Op(c.pos), Buf: []bool{true}, Peer: 1 - c.pos})
				})
			}
			sent := pair[0].Start(Call{Op: Send, Buf: []bool{true}, Peer: 1, Tag: 5})
			errs := onAll(cs[:2], (*Communicator).Barrier)
			wantErrors(t, errs, "rank 2 did not arrive within 1s in barrier")
			var timeout *TimeoutError
			if !errors.As(errs[0], &timeout) && !errors.As(errs[1], &timeout) {
				t.Errorf("no TimeoutError: %v", errs)
			}
			wantError(t, sent.Wait(), "rank 1 did not arrive within 1s in send to rank 1 with tag 5")
		})
	}
}

func TestSharedMemoryIsReducedInTheSameOrderAsOrdinary(t *testing.T) {
	for _, ranks := range []func(int) int{one, two} {
		cs := ends(t, sharing(t, 5, ranks, Options{}).All(), 0)
		for _, e := range elements.All[:4] { // floats
			const size = 70_001
			in := inputs(e, elements.SeedOf(e.DType), 5, size)
			counts := elements.Parts(elements.SeedOf("parts"), size, 5)
			mustAll(t, cs, func(c *Communicator) error {
				ordinary := elements.Clone(in[c.pos])
				shared, free, err := c.group.world.Alloc(e.DType, size)
				if err != nil {
					return err
				}
				defer free()
				reflect.Copy(reflect.ValueOf(shared), reflect.ValueOf(ordinary))
				a, b := elements.MakeLike(shared, counts[c.pos]), elements.MakeLike(shared, counts[c.pos])
				if err := cmp.Or(c.ReduceScatter(ordinary, a, counts, Sum), c.ReduceScatter(shared, b, counts, Sum)); err != nil {
					return err
				}
				if err := cmp.Or(c.AllReduceScaled(ordinary, Sum, 0.3), c.AllReduceScaled(shared, Sum, 0.3)); err != nil {
					return err
				}
				if !elements.SameBits(a, b) || !elements.SameBits(ordinary, shared) {
					return fmt.Errorf("%s: other bits", e.DType)
				}
				return nil
			})
		}
	}
}

func TestAllocGivesZerosAndTakesThemBack(t *testing.T) {
	alone, err := NewInProcess(1, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	for _, w := range []*World{alone, sharing(t, 2, one, Options{})} {
		for _, e := range elements.All {
			for range 2 { // the second time it is used memory
				flat, free, err := w.Alloc(e.DType, 1000)
				if err != nil {
					t.Fatal(err)
				}
				if b, ok := transport.BufferOf(flat); !ok || b.DType != e.DType || b.Len != 1000 {
					t.Errorf("%s: it is a %T", e.DType, flat)
				}
				if !elements.SameBits(flat, elements.MakeLike(flat, 1000)) {
					t.Errorf("%s: not zero", e.DType)
				}
				reflect.Copy(reflect.ValueOf(flat), reflect.ValueOf(e.Fill(elements.SeedOf("x"), 1000)))
				free()
				free() // once is enough
			}
		}
		_, _, err := w.Alloc(dtypes.Int4, 1)
		wantError(t, err, "Int4 has no flat slice")
		_, _, err = w.Alloc(dtypes.Float32, -1)
		wantError(t, err, "a slice of -1 elements is impossible")
	}
}

// A root has nothing to wait for, so it can be far ahead of the others.
func TestBroadcastsThatFollowEachOtherAreNotMixedUp(t *testing.T) {
	cs := ends(t, sharing(t, 4, one, Options{Timeout: time.Minute}).All(), 0)
	mustAll(t, cs, func(c *Communicator) error {
		for i := range 300 {
			buf := make([]int32, []int{1, 5_000, 12_000, 40_000}[i%4]) // in one step, in some, read from the root
			root := i / 7 % 4
			if c.pos == root {
				for j := range buf {
					buf[j] = int32(i)
				}
			}
			if err := c.Broadcast(buf, root); err != nil {
				return err
			}
			if buf[0] != int32(i) || buf[len(buf)-1] != int32(i) {
				return fmt.Errorf("broadcast %d gave %d … %d", i, buf[0], buf[len(buf)-1])
			}
		}
		return nil
	})
}
