// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/schedule"
)

// class is model replicas that are alike: they have as many micro-batches, and their devices are the same, and on as many hosts, on which there are as many devices.
type class struct {
	replicas []int      // the first of them is simulated
	actors   [][]*actor // by place
}

// host is what the devices of a host share. Of hosts that have the same devices of the same classes one is simulated.
type host struct {
	cores  *resource // nil: each device has its own
	inside *resource
	// out and in are the two directions of the link to other hosts.
	out, in *resource
}

// classify finds the devices and hosts to simulate.
func (s *run) classify() {
	s.onHost = map[int]int{}
	for _, ranks := range s.lists.Ranks {
		for _, r := range ranks {
			s.onHost[s.cluster.Devices[r].Host]++
		}
	}
	known := map[string]*class{}
	members := map[int][]string{} // by host: who is there
	for replica, ranks := range s.lists.Ranks {
		var w strings.Builder
		fmt.Fprintf(&w, "%d\n", s.lists.Local.Share(replica))
		local, workers := map[int]int{}, map[int]int{} // of the replica
		for _, r := range ranks {
			d := s.cluster.Devices[r]
			if _, ok := local[d.Host]; !ok {
				local[d.Host] = len(local)
			}
			if _, ok := workers[d.Worker]; !ok {
				workers[d.Worker] = len(workers)
			}
			fmt.Fprintf(&w, "%p %g %d %d %d %v\n", d.Profile, speed(d), local[d.Host], workers[d.Worker], s.onHost[d.Host], s.cluster.Hosts[d.Host])
		}
		c := known[w.String()]
		if c == nil {
			c = &class{actors: make([][]*actor, len(s.lists.Places))}
			known[w.String()] = c
			s.classes = append(s.classes, c)
		}
		c.replicas = append(c.replicas, replica)
		for h, i := range local {
			members[h] = append(members[h], fmt.Sprintf("%d.%d", slices.Index(s.classes, c), i))
		}
	}
	s.simulateHosts(members)
	for _, c := range s.classes {
		for place := range s.lists.Places {
			s.simulatePlace(c, place)
		}
	}
}

// simulateHosts picks one of those that are alike.
func (s *run) simulateHosts(members map[int][]string) {
	s.hostOf = map[int]int{}
	var numbers []int
	for h := range s.onHost {
		numbers = append(numbers, h)
	}
	slices.Sort(numbers)
	seen := map[string]bool{}
	for _, h := range numbers {
		slices.Sort(members[h])
		key := strings.Join(members[h], " ")
		if seen[key] {
			continue
		}
		seen[key] = true
		s.hostOf[h] = len(s.hosts)
		x := &host{inside: &resource{capacity: 1}, out: &resource{capacity: 1}, in: &resource{capacity: 1}}
		if n := s.coresOf(h); n > 0 {
			x.cores = &resource{capacity: float64(n)}
		}
		s.hosts = append(s.hosts, x)
	}
}

// coresOf are the cores that the devices of a host share; 0: each has its own.
func (s *run) coresOf(host int) (cores int) {
	for _, d := range s.cluster.Devices {
		if d.Host == host {
			cores = max(cores, d.Profile.Cores)
		}
	}
	return cores
}

// simulatePlace makes an actor for each kind of device that a place has.
func (s *run) simulatePlace(c *class, place int) {
	for position, device := range s.lists.Groups[place] {
		rank := s.lists.Ranks[c.replicas[0]][device]
		d := s.cluster.Devices[rank]
		d.Speed = speed(d)
		i := slices.IndexFunc(c.actors[place], func(a *actor) bool {
			return a.device.Profile == d.Profile && a.device.Speed == d.Speed && s.lists.Alike(place, a.positions[0], position)
		})
		if i < 0 {
			i = len(c.actors[place])
			a := &actor{run: s, class: c, place: place, device: d, coming: map[schedule.Slot]*coming{}, summed: map[int]bool{}, merging: map[int]*signal{}}
			for _, l := range []*ownLink{&a.inside, &a.between} {
				l.out, l.in = &resource{capacity: 1}, &resource{capacity: 1}
			}
			c.actors[place] = append(c.actors[place], a)
			s.actors = append(s.actors, a)
		}
		a := c.actors[place][i]
		a.positions = append(a.positions, position)
	}
	for _, a := range c.actors[place] {
		s.giveCores(a)
	}
}

// giveCores lets an actor use the cores of hosts, for all devices that it stands for. They are as fast as so many cores allow.
func (s *run) giveCores(a *actor) {
	on := make([]float64, len(s.hosts))
	for _, rank := range a.ranks() {
		if i, ok := s.hostOf[s.cluster.Devices[rank].Host]; ok {
			on[i]++
		}
	}
	threads := a.device.Profile.Threads(s.onHost[a.device.Host])
	for i, h := range s.hosts {
		if on[i] > 0 && h.cores != nil {
			a.cores = append(a.cores, use{h.cores, on[i] * float64(threads)})
		}
	}
	if a.device.Profile.Cores > 0 {
		p, faster := a.device.Profile.On(threads)
		a.device.Profile, a.device.Speed = p, a.device.Speed*faster
	}
}

// place are all that simulate devices of a place.
func (s *run) place(place int) (all []*actor) {
	for _, c := range s.classes {
		all = append(all, c.actors[place]...)
	}
	return all
}

// rankOf is a device, by its model replica, place and position.
func (s *run) rankOf(replica, place, position int) int {
	return s.lists.Ranks[replica][s.lists.Groups[place][position]]
}

// deviceOf is what the cluster says of it.
func (s *run) deviceOf(replica, place, position int) cost.Device {
	return s.cluster.Devices[s.rankOf(replica, place, position)]
}
