// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cost

import (
	"math"
	"slices"
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
// It is hierarchical: the devices of a worker do it, then workers of a host, then hosts, each device with the part of the value that it has
// reduced, or will gather. Members form a ring, or a tree if that is faster: that saves latency of small values. NCCL's ring through all
// devices loads the slowest links alike.
func (c *Cluster) Collective(kind Collective, bytes int64, ranks []int) time.Duration {
	if len(ranks) < 2 || bytes == 0 {
		return 0
	}
	if kind == Send {
		return c.Link(ranks[0], ranks[1]).Time(bytes)
	}
	n, tiers := float64(bytes), c.tiers(ranks)
	if kind == AllToAll {
		return allToAll(n, len(ranks), tiers)
	}
	total := time.Duration(0)
	for _, t := range tiers {
		total += t.ring(kind, n/float64(t.below))
	}
	return total
}

// Apart is how long a collective takes, in two parts: what it takes whatever the bytes are, and what grows with them.
func (c *Cluster) Apart(kind Collective, bytes int64, ranks []int) (latency, rest time.Duration) {
	all := c.Collective(kind, bytes, ranks)
	latency = min(max(2*c.Collective(kind, 1, ranks)-c.Collective(kind, 2, ranks), 0), all) // what nothing would take
	return latency, all - latency
}

// Connected tells whether it is known what connects some ranks.
func (c *Cluster) Connected(ranks []int) bool {
	return !slices.ContainsFunc(c.tiers(ranks), func(t tier) bool { return t.link == DefaultLink })
}

// tier is members that are connected by links of one kind.
type tier struct {
	link    Link
	members int // at most
	// below are the ranks of a member, where they are fewest: each has a part of the value.
	below int
	// ranks are those that share a link: all of the group on a host.
	ranks int
}

// tiers are those of workers, hosts and the cluster that have several members.
func (c *Cluster) tiers(ranks []int) (all []tier) {
	type worker struct{ host, worker int }
	ofWorker, ofHost, workers := map[worker]int{}, map[int]int{}, map[int]int{}
	inside := c.inside(c.Devices[ranks[0]].Host)
	for _, r := range ranks {
		d := c.Devices[r]
		w := worker{host: d.Host, worker: d.Worker}
		if c.Within.Bandwidth == 0 {
			w.worker = r // each for itself
		}
		if ofWorker[w]++; ofWorker[w] == 1 {
			workers[d.Host]++
		}
		ofHost[d.Host]++
		if l := c.inside(d.Host); l.Bandwidth < inside.Bandwidth {
			inside = l
		}
	}
	add := func(link Link, members, below, ranks int) {
		if members > 1 {
			all = append(all, tier{link, members, below, ranks})
		}
	}
	add(c.Within, most(ofWorker), 1, most(ofWorker))
	add(inside, most(workers), least(ofWorker), most(ofHost))
	add(c.Between, len(ofHost), least(ofHost), least(ofHost))
	return all
}

func most[K comparable](counts map[K]int) (n int) {
	for _, x := range counts {
		n = max(n, x)
	}
	return n
}

func least[K comparable](counts map[K]int) int {
	n := math.MaxInt
	for _, x := range counts {
		n = min(n, x)
	}
	return n
}

// bandwidth is what a rank has of the link.
func (t tier) bandwidth() float64 {
	if t.link.Shared {
		return t.link.Bandwidth / float64(t.ranks)
	}
	return t.link.Bandwidth
}

// ring is how long a collective takes among the members. A tree takes fewer rounds, and moves as much or more.
func (t tier) ring(kind Collective, bytes float64) time.Duration {
	k := float64(t.members)
	rounds, tree := k-1, math.Ceil(math.Log2(k))
	moved, treeMoved := bytes*(k-1)/k, bytes
	switch kind {
	case AllReduce:
		rounds, tree, moved, treeMoved = 2*rounds, 2*tree, 2*moved, 2*bytes
	case Broadcast:
		moved, rounds = bytes, tree // in pieces, one behind the other
	}
	latency := t.link.Latency.Seconds()
	return seconds(min(rounds*latency+moved/t.bandwidth(), tree*latency+treeMoved/t.bandwidth()))
}

// allToAll is how long it takes to give each other device its part: over the links of all tiers at the same time.
func allToAll(bytes float64, k int, tiers []tier) time.Duration {
	part, reached, slowest := bytes/float64(k), 1, 0.0
	for i, t := range tiers {
		others := t.members * max(t.below, 1)
		if i == len(tiers)-1 {
			others = k
		}
		slowest = max(slowest, t.link.Latency.Seconds()+part*float64(others-reached)/t.bandwidth())
		reached = others
	}
	return seconds(slowest)
}
