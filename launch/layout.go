// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/internal/hostmem"
	"github.com/easyparallel/epl/rendezvous"
	"github.com/easyparallel/epl/wire"
)

// layout finds out which machines an elastic job has, and which of them is this one. Launchers of several machines meet at an address of the
// first; "": there are no others.
func (e *elastic) layout() (rank int, address string, err error) {
	seats := e.Workers + e.Spares
	machines := []machine{{hostName(), seats}}
	allocation, found, err := cluster.FindAllocation(e.lookup)
	switch {
	case err != nil:
		return 0, "", err
	case found:
		return e.allocatedSites(allocation)
	case e.Hosts != "":
		if machines, err = hosts(e.Hosts, seats); err != nil {
			return 0, "", err
		}
		e.job.Token, e.job.Environ = wire.NewToken(), forwarded(e.Environ)
		e.meet = e.port()
		for _, m := range machines {
			s := &site{name: m.name, seats: m.count}
			s.reach = func() (*caller, error) { return e.reach(s.name) }
			e.addSite(s)
		}
		return 0, "", nil
	case e.MachineList != "":
		var port int
		if machines, port, err = machineList(e.MachineList, e.MachineRank, seats); err != nil {
			return 0, "", err
		}
		if e.Port == 0 {
			e.Port = port
		}
		if e.job.Token, err = e.token(); err != nil {
			return 0, "", err
		}
		rank, address, e.meet = e.MachineRank, net.JoinHostPort(machines[0].name, itoa(e.port())), e.port()+1
	}
	for i, m := range machines {
		e.addSite(&site{name: m.name, seats: m.count, here: i == 0, calls: i > 0})
	}
	return rank, address, nil
}

// allocatedSites are the tasks of a scheduler, a worker each.
func (e *elastic) allocatedSites(a cluster.Allocation) (rank int, address string, err error) {
	if e.Workers+e.Spares != a.Workers {
		return 0, "", errors.Errorf("epl: --num_workers %d:%d and --spares %d contradict %s, which started %d workers: as many as the largest number of workers, and the spares",
			e.MinWorkers, e.Workers, e.Spares, a.By, a.Workers)
	}
	crews, err := allocated(Options{Environ: e.Environ}, e.job, a)
	if err != nil {
		return 0, "", err
	}
	e.plain, e.allocated, e.job = true, true, crews[0].spec
	address, network := strings.CutPrefix(e.job.Meet, "first://")
	host, port, err := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	if !network || err != nil {
		return 0, "", errors.Errorf("epl: an elastic job that %s starts on one machine has no address where its launchers meet; "+
			"let one epl-launch start all workers, or set %s=first://HOST:PORT and %s", a.By, rendezvous.EnvURL, rendezvous.EnvToken)
	}
	e.meet = n + 1
	for i := range a.Workers {
		name := host
		if a.Hosts != nil {
			name = a.Hosts[i]
		}
		e.addSite(&site{name: name, seats: 1, here: i == 0, calls: i > 0})
	}
	return a.Index, address, nil
}

func (e *elastic) addSite(s *site) {
	s.first = len(e.out)
	e.sites = append(e.sites, s)
	e.out = append(e.out, make([]time.Time, s.seats)...)
}

// places are the crews of a generation.
func (e *elastic) places(g *generation) (crews []place) {
	job := e.job
	job.Generation, job.Began, job.End = g.Number, hostmem.Generation(g.Number), e.end
	if len(e.sites) == 1 && e.sites[0].here {
		crews = alone(job, len(g.Members))
		crews[0].Seats, crews[0].LocalWorkers = g.Members, len(e.out)
		return crews
	}
	job.Workers, job.Hosts, job.Meet = len(g.Members), nil, ""
	for _, s := range e.sites {
		p := place{spec: job, here: s.here}
		p.Host, p.First, p.Seats = s.name, len(job.Hosts), nil
		for _, seat := range g.Members {
			if seat >= s.first && seat < s.first+s.seats {
				p.Seats = append(p.Seats, seat-s.first)
				job.Hosts = append(job.Hosts, s.name)
			}
		}
		if p.Count = len(p.Seats); p.Count == 0 {
			continue
		}
		if e.allocated {
			p.Seats = nil // who started this launcher has given it its share of the machine
		} else {
			p.LocalWorkers, p.ShareCores = s.seats, p.Count
		}
		if !s.here {
			p.join = s.join
		}
		crews = append(crews, p)
	}
	at := crews[0].Host
	for i := range crews {
		crews[i].Hosts, crews[i].Meet, crews[i].Serve = job.Hosts, "tcp://"+net.JoinHostPort(at, itoa(e.meet)), ""
	}
	crews[0].Serve = listenAt(at, e.meet)
	return crews
}

// absent are the machines of a generation that cannot be reached any more.
func (e *elastic) absent(g *generation) (names []string) {
	now := time.Now()
	for _, s := range e.sites {
		member := slices.ContainsFunc(g.Members, func(seat int) bool { return seat >= s.first && seat < s.first+s.seats })
		if member && !s.ready(now) {
			names = append(names, s.name)
		}
	}
	return names
}
