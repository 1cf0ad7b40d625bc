// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gomlx/compute/support/humanize"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/cost"
)

// none says why there is no way, and what a cluster would need.
func (s *searcher) none() error {
	least := slices.MinFunc(s.done, func(a, b *candidate) int {
		if (a.Peak == 0) != (b.Peak == 0) {
			return cmp.Compare(btoi(a.Peak == 0), btoi(b.Peak == 0))
		}
		return cmp.Compare(a.Peak, b.Peak)
	})
	text := fmt.Sprintf("epl: auto.auto_parallel found no way to run program %q on %s; what comes closest is %s: %s",
		s.p.Name, clusterOf(s.t), &least.Way, least.Why)
	if least.Unfit {
		if t, w := s.smallest(); w != nil {
			return errors.Errorf("%s. It would run on %s: %s, %s", text, clusterOf(t), &w.Way, humanize.Bytes(w.Peak))
		}
		text += "; more of them would not help, as far as EPL looks: devices need more memory, or batches fewer samples"
	}
	return errors.New(text)
}

// A program that does not fit is looked for on clusters of so many devices at most, or of so many times as many as the user's, whatever is more; and on so many sizes
// whose devices have room for its variables.
const (
	mostDevices, mostTimes = 4096, 16
	mostSizes              = 4
)

// smallest is the smallest cluster of such workers that a program fits on, and how; nil: there is none. It finds the first that is 2, 4, 8… times as large,
// and, if the program is small, whether fewer workers do.
func (s *searcher) smallest() (Target, *candidate) {
	fits := func(times int) (t Target, best *candidate, room bool) {
		t, err := s.t.times(times)
		if err != nil {
			return t, nil, false
		}
		q, err := newSearch(s.p, s.cfg, t)
		if err != nil || !q.room() {
			return t, nil, false
		}
		return t, q.run(), true
	}
	sizes := 0
	for times := 2; times <= s.largest() && sizes < mostSizes; times *= 2 {
		t, best, room := fits(times)
		if best == nil {
			sizes += btoi(room)
			continue
		}
		for lost := times / 2; times-lost > 1 && len(s.p.Main.Ops) < work/10; { // bisect
			if half, w, _ := fits((lost + times) / 2); w != nil {
				times, t, best = (lost+times)/2, half, w
			} else {
				lost = (lost + times) / 2
			}
		}
		return t, best
	}
	return s.t, nil
}

// largest is how many times as large as the user's a cluster is that is looked at.
func (s *searcher) largest() int { return max(mostTimes, mostDevices/s.t.Cluster.TotalDevices()) }

// room tells whether the variables of some way fit into memory, without offload.
func (s *searcher) room() bool {
	return slices.ContainsFunc(s.open, func(w *candidate) bool {
		x := *w
		for x.saver = range ladder {
			if !slices.Contains(ladder[x.saver], offload) && s.least(&x) <= s.limit {
				return true
			}
		}
		return false
	})
}

// times is the target with so many times as many workers.
func (t Target) times(n int) (Target, error) {
	var devices []int
	for range n {
		devices = append(devices, each(t.Cluster.Workers(), func(w cluster.Worker) int { return len(w.Devices) })...)
	}
	c, err := cluster.New(cluster.Spec{Devices: devices})
	if err != nil {
		return t, err
	}
	h := *t.hardware()
	hosts := 0
	for _, d := range h.Devices {
		hosts = max(hosts, d.Host+1)
	}
	var all []cost.Device
	for i := range n {
		for _, d := range h.Devices {
			d.Host += i * hosts
			all = append(all, d)
		}
	}
	h.Devices = all
	t.Cluster, t.Hardware = c, &h
	return t, nil
}
