package cost

import (
	"math"
	"time"
)

// Collective is what devices do together.
type Collective int

// The collectives.
const (
	AllReduce     Collective = iota
	AllGather                // bytes are those of the result
	ReduceScatter            // bytes are those of the input
	AllToAll                 // bytes are those that one device has
	Broadcast
	Send // from the first rank to the second
)

// Collective is how long a collective takes among the given ranks, if nothing else is on the links. bytes is the size of the whole value on one
// device: of the result of an all-gather, of the input of a reduce-scatter.
//
// Devices of one host form a ring, or a tree if that is faster: that saves latency of small values. Hosts do the same with what the devices of
// a host have reduced or gathered before, each device with a part of it.
func (c *Cluster) Collective(kind Collective, bytes int64, ranks []int) time.Duration {
	if len(ranks) < 2 || bytes == 0 {
		return 0
	}
	if kind == Send {
		return c.Link(ranks[0], ranks[1]).Time(bytes)
	}
	onHost := map[int]int{}
	most := 0
	for _, r := range ranks {
		onHost[c.Devices[r].Host]++
		most = max(most, onHost[c.Devices[r].Host])
	}
	n, hosts := float64(bytes), len(onHost)
	if kind == AllToAll {
		return c.allToAll(n, len(ranks), most, hosts)
	}
	total := ring(kind, n, most, c.Inside, most)
	if hosts > 1 {
		// Each of the devices of a host communicates its part of the value.
		total += ring(kind, n/float64(most), hosts, c.Between, most)
	}
	return total
}

// ring is how long a collective takes among k members of which each has its link, or sharers have one. A tree takes fewer rounds, and moves as much or more.
func ring(kind Collective, bytes float64, k int, l Link, sharers int) time.Duration {
	if k < 2 {
		return 0
	}
	bandwidth := l.Bandwidth
	if l.Shared {
		bandwidth /= float64(sharers)
	}
	rounds, tree := float64(k-1), math.Ceil(math.Log2(float64(k)))
	moved, treeMoved := bytes*float64(k-1)/float64(k), bytes
	switch kind {
	case AllReduce:
		rounds, tree, moved, treeMoved = 2*rounds, 2*tree, 2*moved, 2*bytes
	case Broadcast:
		moved, rounds = bytes, tree // in pieces, one behind the other
	}
	latency := l.Latency.Seconds()
	return seconds(min(rounds*latency+moved/bandwidth, tree*latency+treeMoved/bandwidth))
}

// allToAll is how long it takes to give each other device its part.
func (c *Cluster) allToAll(bytes float64, k, most, hosts int) time.Duration {
	part := bytes / float64(k)
	send := func(l Link, devices int) float64 {
		if devices == 0 {
			return 0
		}
		bandwidth := l.Bandwidth
		if l.Shared {
			bandwidth /= float64(most)
		}
		return l.Latency.Seconds() + part*float64(devices)/bandwidth
	}
	inside := send(c.Inside, most-1)
	if hosts == 1 {
		return seconds(inside)
	}
	return seconds(max(inside, send(c.Between, k-most)))
}
