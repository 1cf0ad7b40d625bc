// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"

	"github.com/easyparallel/epl/comm/internal/elements"
	"github.com/easyparallel/epl/comm/internal/transport"
	"github.com/easyparallel/epl/comm/tcp"
	"github.com/easyparallel/epl/internal/checked"
)

// newPair returns the world of worker 0 in a job of two, on two hosts; the test plays worker 1.
func newPair(t *testing.T, wrap func(net.Conn) net.Conn, opts Options) (*World, *testJob) {
	t.Helper()
	j := newTestJob(2)
	j.wrap = wrap
	opts.Timeout = time.Minute
	w, err := newJob(j, []Place{{Ranks: 1, Host: "a"}, {Ranks: 1, Host: "b"}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, w) })
	return w, j
}

// sealed is what a checked connection carries instead of some bytes.
func sealed(b []byte) (all []byte) {
	var s checked.Sealer
	for len(b) > 0 {
		n := min(len(b), 50_000)
		head := s.Seal(b[:n])
		all = append(append(all, head[:]...), b[:n]...)
		b = b[n:]
	}
	return all
}

// answerWith connects as worker 1, writes something, reads all that comes, as far as it does, and hangs up.
func answerWith(t *testing.T, j *testJob, name string, say []byte, read int64) {
	c, err := j.meshes[1].Connect(context.Background(), 0, name)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if _, err := c.Write(say); err != nil {
		t.Error(err)
	}
	_, _ = io.CopyN(io.Discard, c, read)
}

func TestAConnectionThatBreaksOrSpeaksNonsenseNamesItsWorker(t *testing.T) {
	const elements = 1 << 20
	call := &transport.Call{Header: Header{Op: AllReduce, Seq: 1, Scale: 1, DType: bufferDType([]float32{}), Bytes: 4 * elements, Peer: -1}, PeerPos: -1}
	good := tcp.Header{Digest: call.Digest(), Bytes: 4 * elements}.Append(nil)
	frames := func(fs ...tcp.Frame) (all []byte) {
		for _, f := range fs {
			all = f.Append(all)
		}
		return all
	}
	offer := transport.Told{Header: Header{Op: Send, DType: call.DType, Bytes: 4 * elements, Seq: 1, Group: "[0 1]"}, Pos: 1, Root: 0}
	foreign := offer
	foreign.Pos = 7
	greedy := offer
	greedy.Bytes = 1 << 60
	reduce := func(c *Communicator) error { return c.AllReduce(make([]float32, elements), Sum) }
	recv := func(c *Communicator) error { return c.Recv(make([]float32, elements), 1, 0) }
	send := func(c *Communicator) error { return c.Send(make([]float32, elements), 1, 0) }
	for _, c := range []struct {
		name, purpose string
		say           []byte
		read          int64 // bytes before it hangs up
		call          func(*Communicator) error
		want          string
	}{
		{"closed at once", "collectives", nil, 1000, reduce, "and rank 1 of worker 1 broke in"},
		{"closed in the header", "collectives", good[:10], 1000, reduce, "and rank 1 of worker 1 broke in"},
		{"closed in the data", "collectives", append(good[:tcp.HeaderSize:tcp.HeaderSize], make([]byte, 300_000)...), 1000, reduce, "and rank 1 of worker 1 broke in"},
		{"another protocol", "collectives", []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), 1000, reduce, `"GET / HTTP`},
		{"zeros", "collectives", make([]byte, 100), 1000, reduce, "the connection to worker 1 is not one of this job"},
		{"exchange closed at once", "exchanges", nil, 0, recv, "and rank 1 of worker 1 broke in"},
		{"exchange of another protocol", "exchanges", bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 10), 0, recv, `"GET / HTTP`},
		{"message unknown", "exchanges", frames(tcp.Frame{Kind: tcp.FrameReceived, Number: 9}), 0, recv, "message 9, which was not sent"},
		{"data unasked", "exchanges", frames(tcp.Frame{Kind: tcp.FrameData, Number: 9}), 0, recv, "message 9, which nobody asked for"},
		{"wrong rank", "exchanges", frames(tcp.Frame{Kind: tcp.FrameOffer, Call: foreign}), 0, recv, "position 7"},
		{"too much unasked", "exchanges", frames(tcp.Frame{Kind: tcp.FrameMessage, Call: greedy}), 0, recv, "unasked"},
		{"closed in a message", "exchanges", frames(tcp.Frame{Kind: tcp.FrameMessage, Call: offer})[:tcp.FrameSize+2], 0, recv, "and rank 1 of worker 1 broke in"},
		{"send that nobody takes", "exchanges", nil, 60, send, "and rank 1 of worker 1 broke in"},
	} {
		hide := func(c net.Conn) net.Conn { return opaque{c} }
		for _, kind := range []struct {
			name    string
			wrap    func(net.Conn) net.Conn
			checked bool
		}{{"descriptor", nil, false}, {"opaque", hide, false}, {"checked descriptor", nil, true}, {"checked opaque", hide, true}} {
			t.Run(c.name+"/"+kind.name, func(t *testing.T) {
				t.Parallel() // each waits a second for better words
				w, j := newPair(t, kind.wrap, Options{Unchecked: !kind.checked})
				say := c.say
				if kind.checked {
					say = sealed(say)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					answerWith(t, j, "[0 1] "+c.purpose, say, c.read)
				}()
				comm, err := w.All().Communicator(0, 0)
				if err != nil {
					t.Fatal(err)
				}
				wantError(t, c.call(comm), c.want)
				wantError(t, comm.Barrier(), "stopped in barrier", c.want) // it stays so
				<-done
			})
		}
	}
}

// TestOneOfSeveralConnectionsThatBreaksNamesItsWorker: in the middle of what is said, when it is that one's turn. The test plays worker 1.
func TestOneOfSeveralConnectionsThatBreaksNamesItsWorker(t *testing.T) {
	const elements, stripe = 1 << 20, 128 << 10
	call := &transport.Call{Header: Header{Op: AllReduce, Seq: 1, Scale: 1, DType: bufferDType([]float32{}), Bytes: 4 * elements, Peer: -1}, PeerPos: -1}
	collective := append(tcp.Header{Digest: call.Digest(), Bytes: 4 * elements}.Append(nil), make([]byte, 2*stripe)...)
	var messages []byte
	for tag := range 4 {
		header := Header{Op: Send, DType: call.DType, Bytes: tcp.EagerBytes, Seq: 1, Tag: tag, Group: "[0 1]"}
		messages = tcp.Frame{Kind: tcp.FrameMessage, Number: uint64(tag + 1), Call: transport.Told{Header: header, Pos: 1, Root: 0}}.Append(messages)
		messages = append(messages, make([]byte, tcp.EagerBytes)...)
	}
	for _, c := range []struct {
		purpose string
		say     []byte
		call    func(*Communicator) error
	}{
		{"collectives", collective, func(c *Communicator) error { return c.AllReduce(make([]float32, elements), Sum) }},
		{"exchanges", messages, func(c *Communicator) error { return c.Recv(make([]float32, elements), 1, 9) }},
	} {
		for _, checked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/checked=%t", c.purpose, checked), func(t *testing.T) {
				t.Parallel() // each waits a second for better words
				w, j := newPair(t, nil, Options{Unchecked: !checked, Streams: 3})
				say := c.say
				if checked {
					say = sealed(say)
				}
				over := make(chan struct{})
				var others sync.WaitGroup
				others.Go(func() { answerWith(t, j, "[0 1] "+c.purpose+" 1", nil, 0) }) // hangs up at once
				for _, name := range []string{c.purpose, c.purpose + " 2"} {
					others.Go(func() {
						conn, err := j.meshes[1].Connect(context.Background(), 0, "[0 1] "+name)
						if err != nil {
							t.Error(err)
							return
						}
						defer conn.Close()
						if name == c.purpose {
							if _, err := conn.Write(say[:stripe]); err != nil {
								t.Error(err)
							}
						}
						<-over
					})
				}
				end, err := w.All().Communicator(0, 0)
				if err != nil {
					t.Fatal(err)
				}
				wantError(t, c.call(end), "and rank 1 of worker 1 broke in")
				close(over)
				others.Wait()
			})
		}
	}
}

func bufferDType(flat any) (d dtypes.DType) {
	b, _ := transport.BufferOf(flat)
	return b.DType
}

func TestWhatTheMeshKnowsComesBeforeABrokenConnection(t *testing.T) {
	w, j := newPair(t, nil, Options{})
	go func() {
		answerWith(t, j, "[0 1] collectives", nil, 10)
		j.meshes[1].Fail(errTest) // the mesh notices a little later
	}()
	comm, err := w.All().Communicator(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, comm.AllReduce(make([]float32, 1000), Sum), "worker 1 stopped", errTest.Error())
}

// Not with synctest: the connections are real.
func TestALateRankIsNamedOnEveryWorker(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		t.Parallel()
		cs := ends(t, newWorld(t, 4, Options{Timeout: 500 * time.Millisecond}).All(), 0)
		mustAll(t, cs, func(c *Communicator) error { return c.Do(Call{Program: "train", Op: Barrier}) })
		errs := onAll(cs[:3], func(c *Communicator) error {
			return c.Do(Call{Program: "train", Op: AllReduce, Buf: make([]float32, 1024)})
		})
		wantErrors(t, errs, "3 did not arrive within 500ms in all-reduce #2 of group [0-3]", "rank 3: 1 of 1 calls", "barrier #1")
	})
}

func TestASendThatNobodyReceivesIsNamed(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		t.Parallel()
		for _, size := range []int{10, 1 << 20} {
			cs := ends(t, newWorld(t, 4, Options{Timeout: 300 * time.Millisecond}).All(), 0)
			var timeout *TimeoutError
			err := cs[0].Send(make([]int8, size), 3, 7)
			wantError(t, err, "3 did not arrive within 300ms in send to rank 3 with tag 7 #1")
			if !errors.As(err, &timeout) {
				t.Errorf("not a TimeoutError: %v", err)
			}
		}
	})
}

func TestABusyWorkerMayBeLate(t *testing.T) {
	for name, hosts := range map[string][2]string{"shared memory": {"a", "a"}, "TCP": {"a", "b"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newTestJob(2)
			w, err := newJob(j, []Place{{Ranks: 1, Host: hosts[0]}, {Ranks: 1, Host: hosts[1]}}, Options{Timeout: 400 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeAll(t, w) })
			mustAll(t, ends(t, w.All(), 0), func(c *Communicator) error {
				if c.Position() == 1 {
					for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); {
						j.mu.Lock()
						j.busy[1] = time.Now()
						j.mu.Unlock()
						time.Sleep(20 * time.Millisecond)
					}
				}
				return c.Barrier()
			})
		})
	}
}

// Positions of a worker need not be neighbours, nor workers of a host.
func TestGroupsMayInterleaveWorkersAndHosts(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		w := newWorld(t, 6, Options{Timeout: time.Minute})
		for _, ranks := range [][]int{{0, 3, 1, 4, 2, 5}, {5, 0, 4, 1}, {2, 5, 3}} {
			g, err := w.Group(ranks)
			if err != nil {
				t.Fatal(err)
			}
			cs, n := ends(t, g, 0), len(ranks)
			if n == w.Size() {
				mustAll(t, cs, func(c *Communicator) error { return chatter(c, elements.SeedOf(ranks)) })
			}
			rng := elements.SeedOf("interleaved", ranks)
			for _, size := range []int{n, 40_000} {
				e := elements.All[rng.IntN(4)]
				in, counts := inputs(e, rng, n, size), elements.Parts(rng, size, n)
				want, root := reductionOf(e, g, Sum, 0.5, in), rng.IntN(n)
				mustAll(t, cs, func(c *Communicator) error {
					p := c.Position()
					from, to := transport.Total(counts[:p]), transport.Total(counts[:p+1])
					all, part, gathered, roots := elements.Clone(in[p]), elements.MakeLike(in[p], counts[p]), elements.MakeLike(in[p], size), elements.Clone(in[p])
					for _, call := range []Call{
						{Op: AllReduce, Buf: all, Scale: 0.5},
						{Op: ReduceScatter, In: in[p], Out: part, InCounts: counts, Scale: 0.5},
						{Op: AllGather, In: part, Out: gathered, OutCounts: counts},
						{Op: Broadcast, Buf: roots, Root: root},
					} {
						if err := c.Do(call); err != nil {
							return err
						}
					}
					if !elements.SameBits(all, want) || !elements.SameBits(part, elements.Slice(want, from, to)) || !elements.SameBits(gathered, want) || !elements.SameBits(roots, in[root]) {
						return fmt.Errorf("group %d, %d elements: a result is wrong", ranks, size)
					}
					return nil
				})
			}
		}
	})
}

// Many long messages at once, more than may wait unasked, received in another order.
func TestMessagesWaitWithoutStoppingOthers(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		cs := ends(t, newWorld(t, 2, Options{Timeout: time.Minute}).All(), 0)
		const messages = 40
		size := func(tag int) int { return []int{0, 1, 50_000, 200_000}[tag%4] }
		mustAll(t, cs, func(c *Communicator) error {
			other := 1 - c.Position()
			var sends []*Handle
			for tag := range messages {
				sends = append(sends, c.Start(Call{Op: Send, Buf: bytes.Repeat([]byte{byte(tag)}, size(tag)), Peer: other, Tag: tag}))
			}
			for tag := messages - 1; tag >= 0; tag-- {
				got := make([]byte, size(tag))
				if err := c.Recv(got, other, tag); err != nil {
					return err
				}
				if !bytes.Equal(got, bytes.Repeat([]byte{byte(tag)}, size(tag))) {
					return fmt.Errorf("the message with tag %d is wrong", tag)
				}
			}
			for _, h := range sends {
				if err := h.Wait(); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// openFiles counts the file descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("this system has no /proc/self/fd")
	}
	return len(all)
}

func TestAJobLeavesNoDescriptorsAndGoroutines(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		runtime.GC()
		files, goroutines := openFiles(t), runtime.NumGoroutine()
		for _, broken := range []bool{false, true} {
			t.Run(fmt.Sprint("broken=", broken), func(t *testing.T) {
				w := newWorld(t, 4, Options{Timeout: time.Minute})
				cs := ends(t, w.All(), 0)
				mustAll(t, cs, func(c *Communicator) error { return chatter(c, rand.New(rand.NewPCG(1, 2))) })
				mustAll(t, cs, func(c *Communicator) error {
					if c.Position() == 0 {
						return c.Send(make([]int8, 100_000), 3, 0)
					} else if c.Position() == 3 {
						return c.Recv(make([]int8, 100_000), 0, 0)
					}
					return nil
				})
				if broken {
					w.Abort(errTest)
				}
			})
		}
		noMoreGoroutines(t, goroutines)
		if after := openFiles(t); after > files {
			t.Errorf("%d files are open after, %d before", after, files)
		}
	})
}

// A worker that is finished closes its world at once; who sent it something hears that it came.
func TestAMessageIsAcknowledgedThoughItsReceiverIsFinished(t *testing.T) {
	for _, bytes := range []int{4, tcp.EagerBytes, 4 << 20} {
		for range 20 {
			j := newTestJob(2)
			var worlds []*World
			for i := range 2 {
				w, err := New(Layout{Worker: i, Workers: []Place{{Ranks: 1, Host: "a"}, {Ranks: 1, Host: "b"}}}, j.meshes[i], Options{Timeout: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				worlds = append(worlds, w)
			}
			end := func(rank int) *Communicator {
				c, err := worlds[rank].All().Communicator(rank, 0)
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			sent := end(0).Start(Call{Op: Send, Buf: make([]byte, bytes), Peer: 1})
			if err := end(1).Recv(make([]byte, bytes), 0, 0); err != nil {
				t.Fatal(err)
			}
			if err := worlds[1].Close(); err != nil {
				t.Fatal(err)
			}
			if err := sent.Wait(); err != nil {
				t.Errorf("%d bytes: %v", bytes, err)
			}
			closeAll(t, worlds[0])
		}
	}
}
