// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
)

// Two hosts with two workers each: this one, and a network namespace behind a cable of limited speed. On hostsPath the workers of a
// host share memory, and one of them communicates for both; on flatPath all communicate with all over connections.
const (
	hostsPath = "two-hosts"
	flatPath  = "two-hosts-flat"

	hostAddress  = "10.77.9.1"
	otherAddress = "10.77.9.2"
)

// hostOf returns the host of a worker.
func hostOf(worker int) int { return worker / 2 }

// cable makes the other host, once, and returns the name of its namespace.
var cable = sync.OnceValues(func() (string, error) {
	const name, here = "epl-bench", "eplbench0"
	cleanUps = append(cleanUps, func() { _ = exec.Command("ip", "netns", "delete", name).Run() })
	const rate = "rate 2gbit burst 512kb latency 100ms"
	for i, line := range []string{
		"ip netns add " + name,
		"ip link add " + here + " type veth peer name eth0 netns " + name,
		"ip address add " + hostAddress + "/24 dev " + here,
		"ip link set " + here + " up",
		"ip -n " + name + " address add " + otherAddress + "/24 dev eth0",
		"ip -n " + name + " link set eth0 up",
		"ip -n " + name + " link set lo up",
		"tc qdisc add dev " + here + " root tbf " + rate,
		"ip netns exec " + name + " tc qdisc add dev eth0 root tbf " + rate,
	} {
		args := strings.Fields(line)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil && i == 0 {
			return "", missing("network namespaces are not to be had (they need root and iproute2)")
		} else if err != nil {
			return "", fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return name, nil
})

func onHosts(path string) func(int) (*fleet, error) {
	return func(workers int) (*fleet, error) {
		name, err := cable()
		if err != nil {
			return nil, err
		}
		by := func(worker int) []string {
			if hostOf(worker) == 0 {
				return nil
			}
			return []string{"ip", "netns", "exec", name}
		}
		return fleetOn(hostAddress, by, workers, path)
	}
}

// hostRows compare one worker that communicates for its host with workers that all do, over a cable of 2 Gbit/s.
func hostRows() (rows []Row) {
	const workers = 4
	for _, size := range commSizes[:3] {
		for _, op := range []string{"all-reduce", "reduce-scatter", "all-gather"} {
			on := func(path string) func() (side, error) {
				return func() (side, error) { return commSide(op, size.bytes, min(size.repeats, 20), workers, onHosts(path)) }
			}
			rows = append(rows, Row{Name: fmt.Sprintf("comm/2x2-workers/%s/%s/two-hosts", size.name, op), Peer: "EPL, every worker over TCP", Pairs: 15, Warm: 1,
				Ours: on(hostsPath), Theirs: on(flatPath)})
		}
	}
	return rows
}
