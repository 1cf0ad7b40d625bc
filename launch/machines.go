// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// machine is where some of the workers run. They are numbered machine by machine.
type machine struct {
	name  string
	count int // of workers
}

// split takes apart "name:number". The number is 0 where there is none.
func split(text string) (name string, number int, ok bool) {
	name = strings.TrimSpace(text)
	if host, after, err := net.SplitHostPort(name); err == nil {
		if number, err = strconv.Atoi(after); err != nil || number < 1 {
			return "", 0, false
		}
		name = host
	}
	name = strings.Trim(name, "[]")
	return name, number, name != "" && !strings.HasPrefix(name, "-") && !strings.ContainsAny(name, " \t,/")
}

// hosts returns the machines of --hosts. Those without a number share what is left of the workers evenly.
func hosts(list string, workers int) (machines []machine, err error) {
	open, taken := 0, 0 // machines without a number; workers on those with one
	for text := range strings.SplitSeq(list, ",") {
		name, count, ok := split(text)
		if !ok {
			return nil, errors.Errorf("epl: --hosts %q: expected names such as a,b:2, with the number of workers behind the colon; got %q", list, text)
		}
		if count == 0 {
			open++
		}
		taken += count
		machines = append(machines, machine{name, count})
	}
	if workers == 0 {
		workers = taken + open
	}
	left := workers - taken
	if left < open || open == 0 && left != 0 || open > 0 && left%open != 0 {
		return nil, errors.Errorf("epl: --hosts %q has %d machines, with %d workers given by number; --num_workers %d does not fit: "+
			"use %d, or other numbers", list, len(machines), taken, workers, taken+open*max(1, left/max(open, 1)))
	}
	for i := range machines {
		if machines[i].count == 0 {
			machines[i].count = left / open
		}
	}
	return machines, nil
}

// HostNames returns the machines that a list as of --hosts names.
func HostNames(list string) (names []string, err error) {
	machines, err := hosts(list, 0)
	for _, m := range machines {
		names = append(names, m.name)
	}
	return names, err
}

// machineList returns the machines of --machine_list, and the port of the first if it has one.
func machineList(list string, rank, workers int) (machines []machine, port int, err error) {
	for i, text := range slices.Collect(strings.SplitSeq(list, ",")) {
		name, number, ok := split(text)
		if !ok || number > 65535 {
			return nil, 0, errors.Errorf("epl: --machine_list %q: expected names such as a,b or a:%d,b; got %q", list, DefaultPort, text)
		}
		if i == 0 {
			port = number
		}
		machines = append(machines, machine{name: name})
	}
	if rank < 0 || rank >= len(machines) {
		return nil, 0, errors.Errorf("epl: --machine_rank %d: expected a number from 0 to %d, because --machine_list names %d machines",
			rank, len(machines)-1, len(machines))
	}
	return machines, port, deal(machines, workers)
}

// deal gives every machine the same number of workers.
func deal(machines []machine, workers int) error {
	if workers == 0 {
		workers = len(machines)
	}
	if workers%len(machines) != 0 {
		below := workers - workers%len(machines)
		nearest := strconv.Itoa(below + len(machines))
		if below > 0 {
			nearest = fmt.Sprintf("%d or %s", below, nearest)
		}
		return errors.Errorf("epl: --num_workers %d does not divide into %d machines; use %s", workers, len(machines), nearest)
	}
	for i := range machines {
		machines[i].count = workers / len(machines)
	}
	return nil
}

// specs gives each machine its part of the job.
func specs(job spec, machines []machine) (all []spec) {
	for _, m := range machines {
		for range m.count {
			job.Hosts = append(job.Hosts, m.name)
		}
	}
	job.Workers = len(job.Hosts)
	first := 0
	for _, m := range machines {
		s := job
		s.Host, s.First, s.Count, s.LocalWorkers, s.ShareCores = m.name, first, m.count, m.count, m.count
		first += m.count
		all = append(all, s)
	}
	return all
}

// listenAt is where the first machine of several listens: on all of its addresses, because its own name may stand for one
// that only it can reach; but a name that says so is taken at its word.
func listenAt(name string, port int) string {
	if ip := net.ParseIP(name); name == "localhost" || ip != nil && ip.IsLoopback() {
		return net.JoinHostPort(name, strconv.Itoa(port))
	}
	return net.JoinHostPort("", strconv.Itoa(port))
}
