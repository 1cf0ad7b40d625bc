// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package comm

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// Under the race detector this shows that nobody touches a buffer after its owner's call has returned, whatever ended it.
func TestAbortInTheMiddleOfTrafficGivesTheBuffersBack(t *testing.T) {
	forEachTransport(t, func(t *testing.T, newWorld func(*testing.T, int, Options) *World) {
		times := 150
		if testing.Short() {
			times = 50
		}
		for left := times; left > 0; left-- {
			n := 2 + rand.IntN(3)
			w := newWorld(t, n, Options{})
			if severalWorkers(w) {
				left -= 4 // each takes longer
			}
			var rounds atomic.Int64
			stop := 1 + rand.Int64N(30)
			kind := rand.IntN(3)
			size := []int{1, 5000, 50000}[rand.IntN(3)]
			errs := onAll(ends(t, w.All(), 0), func(c *Communicator) error {
				p := c.Position()
				buf, other := make([]float32, size), make([]float32, size)
				for i := 0; ; i++ {
					if rounds.Add(1) == stop {
						switch kind {
						case 0:
							go w.Abort(errTest)
						case 1:
							return c.Do(Call{Op: AllGather, In: 3, Out: errTest}) // a mistake
						case 2:
							time.AfterFunc(time.Duration(rand.IntN(100))*time.Microsecond, func() { w.Abort(errTest) })
						}
					}
					sent := c.Start(Call{Op: Send, Buf: other, Peer: (p + 1) % n, Tag: i})
					err := c.AllReduce(buf, Max)
					for j := range buf { // it is mine again
						buf[j] = float32(i)
					}
					if err == nil {
						err = c.Recv(buf, (p+n-1)%n, i)
						clear(buf)
					}
					if e := sent.Wait(); err == nil {
						err = e
					}
					clear(other)
					if err != nil {
						return err
					}
				}
			})
			for _, err := range errs {
				if kind == 1 {
					wantError(t, err, "In is a int")
				} else if !errors.Is(err, errTest) {
					t.Errorf("not the reason of the abort: %v", err)
				}
			}
		}
	})
}
