// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package inproc

import (
	"slices"
	"unsafe"

	"github.com/easyparallel/epl/comm/internal/kernel"
	"github.com/easyparallel/epl/comm/internal/transport"
)

// worker does pieces of collectives, each of which reads and writes the memory of all ranks. It is one rank's.
type worker struct {
	src, dst []unsafe.Pointer // by position
	offsets  []int            // by position
	scratch  *kernel.Scratch
}

func newWorker(n int) worker {
	return worker{src: make([]unsafe.Pointer, n), dst: make([]unsafe.Pointer, n), offsets: make([]int, n), scratch: new(kernel.Scratch)}
}

// workOf returns how many elements a collective has to compute or move, and their size.
func workOf(calls []*transport.Call) (elements, size int) {
	switch c := calls[0]; c.Op {
	case transport.AllReduce, transport.ReduceScatter, transport.Broadcast:
		return c.In.Len, c.In.Size
	case transport.AllGather:
		return c.Out.Len, c.Out.Size
	case transport.AllToAll:
		for _, c := range calls {
			elements += c.Out.Len
		}
		return elements, c.Out.Size
	}
	return 0, 0
}

// doParts does the elements [from, to) of a collective of several buffers, which are numbered one buffer after the other.
func (w *worker) doParts(parts [][]*transport.Call, from, to int) {
	for _, calls := range parts {
		n, _ := workOf(calls)
		w.do(calls, max(from, 0), min(to, n))
		from, to = from-n, to-n
	}
}

// do does the elements [from, to) of a collective.
func (w *worker) do(calls []*transport.Call, from, to int) {
	if from >= to {
		return
	}
	switch calls[0].Op {
	case transport.AllReduce:
		w.allReduce(calls, from, to)
	case transport.ReduceScatter:
		w.reduceScatter(calls, from, to)
	case transport.AllGather:
		w.allGather(calls, from, to)
	case transport.AllToAll:
		w.allToAll(calls, from, to)
	case transport.Broadcast:
		w.broadcast(calls, from, to)
	}
}

func (w *worker) allReduce(calls []*transport.Call, from, to int) {
	c := calls[0]
	if len(calls) == 1 && c.Scale == 1 {
		return
	}
	for i, c := range calls {
		w.src[i] = c.In.At(from)
	}
	kernel.Reduce(c.DType, c.Reduction, c.Scale, w.src, w.src, to-from, w.scratch)
}

func (w *worker) reduceScatter(calls []*transport.Call, from, to int) {
	c := calls[0]
	start := 0 // of the part
	for pos, count := range c.InCounts {
		lo, hi := max(from, start), min(to, start+count)
		if lo < hi {
			for i, c := range calls {
				w.src[i] = c.In.At(lo)
			}
			w.dst[0] = calls[pos].Out.At(lo - start)
			kernel.Reduce(c.DType, c.Reduction, c.Scale, w.dst[:1], w.src, hi-lo, w.scratch)
		}
		start += count
	}
}

func (w *worker) allGather(calls []*transport.Call, from, to int) {
	start := 0 // of the part
	for pos, count := range calls[0].OutCounts {
		lo, hi := max(from, start), min(to, start+count)
		if lo < hi {
			dst := w.dst[:0]
			for _, c := range calls {
				if p := c.Out.At(lo); !slices.Contains(dst, p) { // ranks may gather into the same memory
					dst = append(dst, p)
				}
			}
			in := calls[pos].In
			transport.MoveToAll(dst, in.At(lo-start), (hi-lo)*in.Size)
		}
		start += count
	}
}

// allToAll numbers the elements by where they go: all that the first rank gets, then the second, …
func (w *worker) allToAll(calls []*transport.Call, from, to int) {
	clear(w.offsets) // in each rank's In, of the part that goes to the receiver
	start := 0       // of the part
	for j, receiver := range calls {
		out := 0 // in the receiver's Out
		for i, sender := range calls {
			count := sender.InCounts[j]
			lo, hi := max(from, start), min(to, start+count)
			if lo < hi {
				skip := lo - start
				transport.Move(receiver.Out.At(out+skip), sender.In.At(w.offsets[i]+skip), (hi-lo)*sender.In.Size)
			}
			w.offsets[i] += count
			start += count
			out += count
		}
	}
}

func (w *worker) broadcast(calls []*transport.Call, from, to int) {
	root := calls[calls[0].PeerPos]
	for i, c := range calls {
		w.dst[i] = c.Out.At(from)
	}
	transport.MoveToAll(w.dst, root.In.At(from), (to-from)*root.In.Size)
}
