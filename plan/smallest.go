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
	if s.limit > 0 && least.Peak > s.limit {
		if t, w := s.smallest(); w != nil {
			return errors.Errorf("%s. It would run on %s: %s, %s", text, clusterOf(t), &w.Way, humanize.Bytes(w.Peak))
		}
		text += fmt.Sprintf("; nor would it run on a cluster that is %d times as large", largest)
	}
	return errors.New(text)
}

// largest is how many times as large as the user's a cluster is at most that is looked at for a program that does not fit.
const largest = 16

// smallest is the smallest cluster of such workers that a program fits on, and how; nil: there is none.
func (s *searcher) smallest() (Target, *candidate) {
	for times := 2; times <= largest; times *= 2 {
		t, err := s.t.times(times)
		if err != nil {
			break
		}
		q, err := newSearch(s.p, s.cfg, t)
		if err != nil {
			break
		}
		if best := q.run(); best != nil {
			return t, best
		}
	}
	return s.t, nil
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
