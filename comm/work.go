package comm

import "unsafe"

// worker does pieces of collectives, each of which reads and writes the memory of all ranks. It is one rank's.
type worker struct {
	src, dst []unsafe.Pointer // by position
	offsets  []int            // by position
	scratch  *scratch
}

func newWorker(n int) worker {
	return worker{src: make([]unsafe.Pointer, n), dst: make([]unsafe.Pointer, n), offsets: make([]int, n), scratch: new(scratch)}
}

// workOf returns how many elements a collective has to compute or move, and their size.
func workOf(calls []*call) (elements, size int) {
	switch c := calls[0]; c.Op {
	case AllReduce, ReduceScatter, Broadcast:
		return c.in.len, c.in.size
	case AllGather:
		return c.out.len, c.out.size
	case AllToAll:
		for _, c := range calls {
			elements += c.out.len
		}
		return elements, c.out.size
	}
	return 0, 0
}

// do does the elements [from, to) of a collective.
func (w *worker) do(calls []*call, from, to int) {
	if from >= to {
		return
	}
	switch calls[0].Op {
	case AllReduce:
		w.allReduce(calls, from, to)
	case ReduceScatter:
		w.reduceScatter(calls, from, to)
	case AllGather:
		w.allGather(calls, from, to)
	case AllToAll:
		w.allToAll(calls, from, to)
	case Broadcast:
		w.broadcast(calls, from, to)
	}
}

func (w *worker) allReduce(calls []*call, from, to int) {
	c := calls[0]
	if len(calls) == 1 && c.Scale == 1 {
		return
	}
	for i, c := range calls {
		w.src[i] = c.in.at(from)
	}
	reduce(c.DType, c.Reduction, c.Scale, w.src, w.src, to-from, w.scratch)
}

func (w *worker) reduceScatter(calls []*call, from, to int) {
	c := calls[0]
	start := 0 // of the part
	for pos, count := range c.inCounts {
		lo, hi := max(from, start), min(to, start+count)
		if lo < hi {
			for i, c := range calls {
				w.src[i] = c.in.at(lo)
			}
			w.dst[0] = calls[pos].out.at(lo - start)
			reduce(c.DType, c.Reduction, c.Scale, w.dst[:1], w.src, hi-lo, w.scratch)
		}
		start += count
	}
}

func (w *worker) allGather(calls []*call, from, to int) {
	start := 0 // of the part
	for pos, count := range calls[0].outCounts {
		lo, hi := max(from, start), min(to, start+count)
		if lo < hi {
			for i, c := range calls {
				w.dst[i] = c.out.at(lo)
			}
			in := calls[pos].in
			moveToAll(w.dst, in.at(lo-start), (hi-lo)*in.size)
		}
		start += count
	}
}

// allToAll numbers the elements by where they go: all that the first rank gets, then the second, …
func (w *worker) allToAll(calls []*call, from, to int) {
	clear(w.offsets) // in each rank's In, of the part that goes to the receiver
	start := 0       // of the part
	for j, receiver := range calls {
		out := 0 // in the receiver's Out
		for i, sender := range calls {
			count := sender.inCounts[j]
			lo, hi := max(from, start), min(to, start+count)
			if lo < hi {
				skip := lo - start
				move(receiver.out.at(out+skip), sender.in.at(w.offsets[i]+skip), (hi-lo)*sender.in.size)
			}
			w.offsets[i] += count
			start += count
			out += count
		}
	}
}

func (w *worker) broadcast(calls []*call, from, to int) {
	root := calls[calls[0].peer]
	for i, c := range calls {
		w.dst[i] = c.out.at(from)
	}
	moveToAll(w.dst, root.in.at(from), (to-from)*root.in.size)
}
