// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package local

import (
	"slices"
	"sync"
	"time"

	"github.com/easyparallel/epl/comm"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/cost/links"
)

// Links measures what connects the devices of the job, by the transports that it uses. Of several links of a kind the slowest counts. All workers have to ask,
// and get the same.
func (d *Runner) Links() (cost.Links, error) {
	if d.Job == nil {
		return d.linksAlone()
	}
	hosts := make([]string, len(d.Job.Devices))
	for w := range hosts {
		hosts[w] = d.Job.Host(w)
	}
	var worst [3]cost.Link // by kind
	for _, round := range pairs(d.Job.Devices, hosts) {
		if _, err := gather(d.Job.Leaders, measures, 0); err != nil { // nobody does anything else meanwhile
			return cost.Links{}, err
		}
		l, err := d.measurePairs(round.pairs)
		if err != nil {
			return cost.Links{}, err
		}
		all, err := gather(d.Job.Leaders, measures, int64(l.Latency), int64(l.Bandwidth))
		if err != nil {
			return cost.Links{}, err
		}
		for _, x := range all {
			worst[round.kind] = slower(worst[round.kind], cost.Link{Latency: time.Duration(x[0]), Bandwidth: float64(x[1]), Shared: true})
		}
	}
	worst[2].Bandwidth /= 2 // one device of each host: nobody shares it
	return cost.Links{Within: found(worst[0]), Inside: found(worst[1]), Between: found(worst[2])}, nil
}

// measures is the program that calls belong to, for errors.
const measures = "cluster.measure"

// found is a link, if it was measured.
func found(l cost.Link) *cost.Link {
	if l.Bandwidth == 0 {
		return nil
	}
	l.Bandwidth = cost.Significant(l.Bandwidth, 2)
	l.Latency = max(l.Latency.Round(100*time.Nanosecond), 100*time.Nanosecond)
	return &l
}

// slower has the worse of what two links can do. One without bandwidth was not measured.
func slower(a, b cost.Link) cost.Link {
	switch {
	case a.Bandwidth == 0:
		return b
	case b.Bandwidth == 0:
		return a
	}
	return cost.Link{Latency: max(a.Latency, b.Latency), Bandwidth: min(a.Bandwidth, b.Bandwidth), Shared: a.Shared}
}

// linksAlone are those of a worker that is alone.
func (d *Runner) linksAlone() (cost.Links, error) {
	if len(d.devices) < 2 {
		return cost.Links{}, nil
	}
	w, err := comm.NewInProcess(2, comm.Options{})
	if err != nil {
		return cost.Links{}, err
	}
	defer func() { _ = w.Close() }()
	l, err := measurePair(w, 0, 1)
	return cost.Links{Within: found(l)}, err
}

// A pairing has pairs of ranks that measure their links at the same time, all of one kind.
type pairing struct {
	kind  int // devices of a worker, workers of a host, hosts
	pairs [][2]int
}

// pairs chooses whose links are measured: on each host those of its first two devices of a worker and of its first two workers, and then those of hosts, two by two.
func pairs(devices []int, hosts []string) (rounds []pairing) {
	firsts, at := make([]int, len(devices)), 0
	var order []string // of hosts
	workers := map[string][]int{}
	for w, n := range devices {
		firsts[w], at = at, at+n
		if workers[hosts[w]] == nil {
			order = append(order, hosts[w])
		}
		workers[hosts[w]] = append(workers[hosts[w]], w)
	}
	var within, inside, between, last [][2]int
	for i, h := range order {
		all := workers[h]
		if w := slices.IndexFunc(all, func(w int) bool { return devices[w] > 1 }); w >= 0 {
			within = append(within, [2]int{firsts[all[w]], firsts[all[w]] + 1})
		}
		if len(all) > 1 {
			inside = append(inside, [2]int{firsts[all[0]], firsts[all[1]]})
		}
		switch first := firsts[all[0]]; {
		case i%2 == 1:
			between = append(between, [2]int{firsts[workers[order[i-1]][0]], first})
		case i > 0 && i == len(order)-1: // who is left measures with one that is done
			last = append(last, [2]int{firsts[workers[order[0]][0]], first})
		}
	}
	for _, r := range []pairing{{0, within}, {1, inside}, {2, between}, {2, last}} {
		if len(r.pairs) > 0 {
			rounds = append(rounds, r)
		}
	}
	return rounds
}

// measurePairs measures the link of the pair that devices of this worker belong to. It has no bandwidth if they belong to none.
func (d *Runner) measurePairs(pairs [][2]int) (l cost.Link, err error) {
	for _, p := range pairs {
		if slices.ContainsFunc(p[:], func(rank int) bool { return d.Job.WorkerOf(rank) == d.Job.Worker }) {
			return measurePair(d.Job.World, p[0], p[1])
		}
	}
	return l, nil
}

// measurePair measures the link of two ranks, of which one or both are this worker's.
func measurePair(w *comm.World, ranks ...int) (slowest cost.Link, err error) {
	g, err := w.Group(ranks)
	if err != nil {
		return slowest, err
	}
	var mu sync.Mutex
	var failed error
	var done sync.WaitGroup
	for _, rank := range ranks {
		if !slices.Contains(w.LocalRanks(), rank) {
			continue
		}
		end, err := g.Communicator(rank, 0)
		if err != nil {
			return slowest, err
		}
		done.Go(func() {
			l, err := links.Quick(end)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			slowest = slower(slowest, l)
		})
	}
	done.Wait()
	return slowest, failed
}
