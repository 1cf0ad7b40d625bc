// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/schedule"
)

// ownLink are the two directions of a link that a device does not share.
type ownLink struct{ out, in *resource }

// flow is communication: what it takes alone, and the links that it takes. It stands for what all devices that are alike do at the same time.
type flow struct {
	patterns [][]int // groups of ranks, one of each kind
	uses     []use
	times    map[call][2]float64 // latency and the rest, in nanoseconds
}

type call struct {
	kind  cost.Collective
	bytes int64
}

// flowKey names the groups of devices that communicate.
type flowKey struct {
	who      string // "merge", "exchange", "send"
	class    *class // nil: all
	place    int    // or transfer
	together bool   // all devices of the place, not each with its peers
	worker   bool   // only those of a host
}

// take is how long calls take, one after the other: what grows with the load of links apart.
func (s *run) take(f *flow, calls []call) (latency, ns float64) {
	for _, x := range calls {
		t, ok := f.times[x]
		if !ok {
			for _, ranks := range f.patterns {
				if latency, rest := s.cluster.Apart(x.kind, x.bytes, ranks); float64(latency+rest) > t[0]+t[1] {
					t = [2]float64{float64(latency), float64(rest)}
				}
			}
			f.times[x] = t
		}
		latency, ns = latency+t[0], ns+t[1]
	}
	return latency, ns
}

// merges are the devices between which values of a place are merged over model replicas.
func (s *run) merges(place int, together, worker bool) *flow {
	return s.cached(flowKey{"merge", nil, place, together, worker}, s.place(place), func() (groups [][]int) {
		for position := range s.lists.Groups[place] {
			if !together || position == 0 {
				groups = append(groups, nil)
			}
			for replica := range s.lists.Ranks {
				last := len(groups) - 1
				groups[last] = append(groups[last], s.rankOf(replica, place, position))
			}
		}
		if !worker {
			return groups
		}
		var parts [][]int
		for _, g := range groups {
			byHost := map[int]int{} // index of the part
			for _, r := range g {
				h := s.cluster.Devices[r].Host
				if _, ok := byHost[h]; !ok {
					byHost[h] = len(parts)
					parts = append(parts, nil)
				}
				parts[byHost[h]] = append(parts[byHost[h]], r)
			}
		}
		return parts
	})
}

// exchanges are the devices of a place, in each model replica of a class.
func (s *run) exchanges(c *class, place int) *flow {
	return s.cached(flowKey{"exchange", c, place, true, false}, c.actors[place], func() (groups [][]int) {
		for _, replica := range c.replicas {
			var g []int
			for position := range s.lists.Groups[place] {
				g = append(g, s.rankOf(replica, place, position))
			}
			groups = append(groups, g)
		}
		return groups
	})
}

// cached finds the flow between groups of devices.
func (s *run) cached(key flowKey, actors []*actor, groups func() [][]int) *flow {
	if f := s.flows[key]; f != nil {
		return f
	}
	f := &flow{times: map[call][2]float64{}}
	s.flows[key] = f
	inside, between := make([]float64, len(s.hosts)), make([]float64, len(s.hosts)) // how many groups are on each host
	members := make([]float64, len(s.hosts))                                        // of groups
	spans, shared := false, false                                                   // over several hosts; by a link that devices of a host share
	seen := map[string]bool{}
	for _, g := range groups() {
		counts := map[int]int{}
		for _, r := range g {
			counts[s.cluster.Devices[r].Host]++
		}
		spans = spans || len(counts) > 1
		if len(g) > 1 {
			shared = s.linkOf(g).Shared
		}
		sizes := make([]int, 0, len(counts))
		for h, n := range counts {
			sizes = append(sizes, n)
			if i, ok := s.hostOf[h]; ok && len(g) > 1 {
				members[i] += float64(n)
				if len(counts) > 1 {
					between[i]++
				} else {
					inside[i]++
				}
			}
		}
		slices.Sort(sizes)
		if key := fmt.Sprint(sizes); !seen[key] {
			seen[key] = true
			f.patterns = append(f.patterns, g)
		}
	}
	for i, h := range s.hosts {
		if between[i] > 0 && shared {
			f.uses = append(f.uses, use{h.out, between[i]}, use{h.in, between[i]})
		}
		if inside[i] > 0 && shared {
			f.uses = append(f.uses, use{h.inside, inside[i]})
		}
		if members[i] > 0 && h.cores != nil { // they copy and add up themselves
			f.uses = append(f.uses, use{h.cores, min(members[i], h.cores.capacity)})
		}
	}
	for _, a := range actors {
		switch {
		case shared:
		case spans:
			f.uses = append(f.uses, use{a.between.out, 1}, use{a.between.in, 1})
		default:
			f.uses = append(f.uses, use{a.inside.out, 1}, use{a.inside.in, 1})
		}
	}
	return f
}

// linkOf is the slowest kind of link that a group of devices communicates by: between hosts, inside of one, or within a worker.
func (s *run) linkOf(ranks []int) cost.Link {
	link := s.cluster.Link(ranks[0], ranks[len(ranks)-1])
	for _, r := range ranks[1:] {
		if x, first := s.cluster.Devices[r], s.cluster.Devices[ranks[0]]; x.Host != first.Host {
			return s.cluster.Between
		} else if x.Worker != first.Worker {
			link = s.cluster.Link(ranks[0], r)
		}
	}
	return link
}

// send is the flow of a transfer, in the model replicas of a class. Each device of the second place gets what it needs from one of the first.
func (s *run) send(c *class, transfer int) *flow {
	key := flowKey{"send", c, transfer, false, false}
	if f := s.flows[key]; f != nil {
		return f
	}
	f := &flow{times: map[call][2]float64{}}
	s.flows[key] = f
	t := s.lists.Transfers[transfer]
	n, m := len(s.lists.Groups[t.From]), len(s.lists.Groups[t.To])
	inside, out, in := make([]float64, len(s.hosts)), make([]float64, len(s.hosts)), make([]float64, len(s.hosts))
	count := func(counts []float64, host int) {
		if i, ok := s.hostOf[host]; ok {
			counts[i]++
		}
	}
	var local, remote []int // one of each kind
	for _, replica := range c.replicas {
		for to := range m {
			from := to % n
			if t.Input {
				from = 0
			}
			pair := []int{s.rankOf(replica, t.From, from), s.rankOf(replica, t.To, to)}
			a, b := s.cluster.Devices[pair[0]].Host, s.cluster.Devices[pair[1]].Host
			if a == b {
				if t.Input {
					continue // it has the data itself
				}
				local = pair
				count(inside, a)
				continue
			}
			remote = pair
			count(out, a)
			count(in, b)
		}
	}
	shares := func(pair []int) bool { return pair != nil && s.linkOf(pair).Shared }
	for i, h := range s.hosts {
		for _, x := range []struct {
			n      float64
			pair   []int
			shared *resource
		}{{inside[i], local, h.inside}, {out[i], remote, h.out}, {in[i], remote, h.in}} {
			if x.n > 0 && shares(x.pair) {
				f.uses = append(f.uses, use{x.shared, x.n})
			}
		}
		if n := inside[i] + out[i] + in[i]; n > 0 && h.cores != nil {
			f.uses = append(f.uses, use{h.cores, min(n, h.cores.capacity)})
		}
	}
	for _, x := range []struct {
		pair []int
		own  func(a *actor) *ownLink
	}{{local, func(a *actor) *ownLink { return &a.inside }}, {remote, func(a *actor) *ownLink { return &a.between }}} {
		if x.pair == nil {
			continue
		}
		f.patterns = append(f.patterns, x.pair)
		if shares(x.pair) {
			continue
		}
		for _, a := range c.actors[t.From] {
			f.uses = append(f.uses, use{x.own(a).out, float64((m + n - 1) / n)})
		}
		for _, a := range c.actors[t.To] {
			f.uses = append(f.uses, use{x.own(a).in, 1})
		}
	}
	return f
}

var collectives = map[ir.Collective]cost.Collective{ir.AllReduceOf: cost.AllReduce, ir.AllGatherOf: cost.AllGather,
	ir.ReduceScatterOf: cost.ReduceScatter, ir.AllToAllOf: cost.AllToAll}

// exchange is the call of a collective: bytes are those of the whole value.
func exchange(how ir.Collective, in, out *ir.Value) call {
	return call{collectives[how], max(in.Bytes(), out.Bytes())}
}

// parcelBytes is how much travels together at most: see exec/local.
const parcelBytes = 1 << 20

// merge are the calls by which a bucket is merged; none if no other device takes part. op is the word for them in a timeline.
func (s *run) merge(b schedule.Bucket) (op string, bytes int64, calls []call) {
	if b.How == ir.Check || len(s.lists.Ranks) == 1 && !b.Terms {
		return "", 0, nil
	}
	half := func(m *ir.Op, n int64) int64 {
		if s.o.Traffic.Half && b.How.Adds() && m.Phase == ir.Backward {
			n /= 2
		}
		return n
	}
	if b.Parts {
		for _, m := range b.Merges {
			bytes += half(m, m.Inputs[0].Bytes())
		}
		return ir.ReduceScatterOf.String(), bytes, []call{{cost.ReduceScatter, bytes}}
	}
	parcel := int64(0)
	for _, m := range b.Merges {
		n := half(m, m.Inputs[0].Bytes())
		switch {
		case !b.How.Adds() && b.How != ir.First: // all values of all instances
			n = max(n, m.Outputs[0].Bytes())
			for range s.lists.Local.MicroBatches {
				calls = append(calls, call{cost.AllGather, n / int64(s.lists.Local.MicroBatches)})
			}
		case b.How == ir.First:
			calls = append(calls, call{cost.Broadcast, n})
		case s.o.Traffic.Packed && n <= schedule.SmallBytes:
			if parcel+n > parcelBytes {
				calls = append(calls, call{cost.AllReduce, parcel})
				parcel = 0
			}
			parcel += n
		default:
			calls = append(calls, call{cost.AllReduce, n})
		}
		bytes += n
	}
	if parcel > 0 {
		calls = append(calls, call{cost.AllReduce, parcel})
	}
	switch {
	case b.How.Adds():
		op = ir.AllReduceOf.String()
	case b.How == ir.First:
		op = "broadcast"
	default:
		op = ir.AllGatherOf.String()
	}
	return op, bytes, calls
}
