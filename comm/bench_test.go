// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// together runs f for all ranks at once and returns how long it took.
func together(ranks int, f func(rank int)) time.Duration {
	var ready, over sync.WaitGroup
	start := make(chan struct{})
	for r := range ranks {
		ready.Add(1)
		over.Add(1)
		go func() {
			ready.Done()
			<-start
			f(r)
			over.Done()
		}()
	}
	ready.Wait()
	t := time.Now()
	close(start)
	over.Wait()
	return time.Since(t)
}

func sizeName(bytes int) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%dKB", bytes>>10)
	}
	return fmt.Sprintf("%dMB", bytes>>20)
}

// BenchmarkAllReduce measures all-reduce in place of float32. Its peer is copy(): every rank copies a buffer of the same
// size, at the same time, which moves as many bytes in memory. GB/s are buffer bytes per time, of both; ratio above 1
// means that the all-reduce is faster. The two alternate, in rounds of some milliseconds.
func BenchmarkAllReduce(b *testing.B) {
	for _, ranks := range []int{2, 4} {
		for size := 4 << 10; size <= 64<<20; size *= 4 {
			b.Run(fmt.Sprintf("ranks=%d/size=%s", ranks, sizeName(size)), func(b *testing.B) { benchmarkAllReduce(b, ranks, size) })
		}
	}
}

func benchmarkAllReduce(b *testing.B, ranks, size int) {
	w, err := NewInProcess(ranks, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	comms := make([]*Communicator, ranks)
	bufs, copies := make([][]float32, ranks), make([][]float32, ranks)
	flat := make([]any, ranks)
	for r := range ranks {
		comms[r], _ = w.All().Communicator(r, 0)
		bufs[r], copies[r] = make([]float32, size/4), make([]float32, size/4)
		for i := range bufs[r] {
			bufs[r][i], copies[r][i] = 1, 2
		}
		flat[r] = bufs[r]
	}
	runtime.GC()
	var reducing, copying time.Duration
	round := max(1, 16<<20/size)
	total := 0
	b.ResetTimer()
	for left := b.N; left > 0; left -= round {
		n := min(left, round)
		total += n
		copying += together(ranks, func(r int) {
			for range n {
				copy(copies[r], bufs[r])
			}
		})
		reducing += together(ranks, func(r int) {
			for range n {
				if err := comms[r].AllReduceScaled(flat[r], Sum, 0.5); err != nil {
					panic(err)
				}
			}
		})
	}
	b.StopTimer()
	speed := func(d time.Duration) float64 { return float64(size) * float64(total) / d.Seconds() / 1e9 }
	b.ReportMetric(speed(reducing), "GB/s")
	b.ReportMetric(speed(copying), "copy-GB/s")
	b.ReportMetric(copying.Seconds()/reducing.Seconds(), "ratio")
	b.ReportMetric(float64(reducing.Nanoseconds())/float64(total), "ns/op")
}

// BenchmarkChecksum measures what CRC-32C costs: an all-reduce in place of float32 between two workers over loopback TCP,
// which is the fastest network there is, and a message. Its peer is the same without; the two alternate. ratio is the speed
// with it over the speed without; cpu-ratio compares processor time, which others on the machine disturb less.
func BenchmarkChecksum(b *testing.B) {
	calls := []struct {
		name string
		do   func(c *Communicator, buf any) error
	}{
		{"all-reduce", func(c *Communicator, buf any) error { return c.AllReduce(buf, Sum) }},
		{"send", func(c *Communicator, buf any) error {
			if c.Position() == 0 {
				return c.Send(buf, 1, 0)
			}
			return c.Recv(buf, 0, 0)
		}},
	}
	for _, call := range calls {
		for _, size := range []int{4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("%s/size=%s", call.name, sizeName(size)), func(b *testing.B) {
				var took, busy [2]time.Duration // with, without
				var all [2][]*Communicator
				for i := range all {
					w, err := newJob(newTestJob(2), []Place{{Ranks: 1, Host: "a"}, {Ranks: 1, Host: "b"}}, Options{Unchecked: i == 1})
					if err != nil {
						b.Fatal(err)
					}
					defer closeAll(b, w)
					all[i] = ends(b, w.All(), 0)
				}
				bufs := [2]any{make([]float32, size/4), make([]float32, size/4)}
				round, total := max(1, 4<<20/size), 0
				run := func(which, n int) {
					before := processorTime(b)
					defer func() { busy[which] += processorTime(b) - before }()
					took[which] += together(2, func(r int) {
						for range n {
							if err := call.do(all[which][r], bufs[r]); err != nil {
								panic(err)
							}
						}
					})
				}
				run(0, 1) // connect
				run(1, 1)
				took, busy = [2]time.Duration{}, [2]time.Duration{}
				b.ResetTimer()
				for left := b.N; left > 0; left -= round {
					n := min(left, round)
					total += n
					run(total/round%2, n)
					run(1-total/round%2, n)
				}
				b.StopTimer()
				speed := func(d time.Duration) float64 { return float64(size) * float64(total) / d.Seconds() / 1e9 }
				b.ReportMetric(speed(took[0]), "GB/s")
				b.ReportMetric(speed(took[1]), "unchecked-GB/s")
				b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "ratio")
				b.ReportMetric(busy[1].Seconds()/busy[0].Seconds(), "cpu-ratio")
				b.ReportMetric(float64(took[0].Nanoseconds())/float64(total), "ns/op")
			})
		}
	}
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
