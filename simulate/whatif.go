// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/schedule"
)

// WhatIf is a change of the cluster. The zero value changes nothing.
type WhatIf struct {
	Bandwidth  float64         // of all links, so many times what it is; 0 is 1
	Latency    float64         // of all links; 0 is 1
	Stragglers map[int]float64 // by rank: how many times as long the device takes for everything
	// Lost are devices that are not there. Model replicas that need one of them do not take part.
	Lost []int
}

// ParseWhatIf reads changes as "epl simulate --what-if" is given them: bandwidth=2,latency=0.5,straggler=3:1.5,lost=7. Each is one by
// itself.
func ParseWhatIf(text string) (all []WhatIf, err error) {
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		wrong := func(what string) error {
			return errors.Errorf("epl: %q is nothing that can change: %s", strings.TrimSpace(part), what)
		}
		var w WhatIf
		switch key {
		case "bandwidth", "latency":
			x, ok := positive(value)
			if !ok {
				return nil, wrong("write how many times what it is, as in " + key + "=2")
			}
			if w.Bandwidth = x; key == "latency" {
				w = WhatIf{Latency: x}
			}
		case "straggler":
			rank, factor, _ := strings.Cut(value, ":")
			n, err := strconv.Atoi(rank)
			x, ok := positive(factor)
			if err != nil || n < 0 || !ok {
				return nil, wrong("write a device and how many times as long it takes, as in straggler=3:1.5")
			}
			w.Stragglers = map[int]float64{n: x}
		case "lost":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return nil, wrong("write a device, as in lost=7")
			}
			w.Lost = []int{n}
		default:
			return nil, wrong("write bandwidth=2, latency=0.5, straggler=3:1.5 or lost=7, with commas between several")
		}
		all = append(all, w)
	}
	return all, nil
}

func positive(text string) (x float64, ok bool) {
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil && x > 0 && x < 1e9
}

// String describes the change, as [ParseWhatIf] reads it.
func (w WhatIf) String() string {
	var parts []string
	if w.Bandwidth != 0 {
		parts = append(parts, fmt.Sprintf("bandwidth=%g", w.Bandwidth))
	}
	if w.Latency != 0 {
		parts = append(parts, fmt.Sprintf("latency=%g", w.Latency))
	}
	var slow []int
	for rank := range w.Stragglers {
		slow = append(slow, rank)
	}
	slices.Sort(slow)
	for _, rank := range slow {
		parts = append(parts, fmt.Sprintf("straggler=%d:%g", rank, w.Stragglers[rank]))
	}
	for _, rank := range w.Lost {
		parts = append(parts, fmt.Sprintf("lost=%d", rank))
	}
	return strings.Join(parts, ",")
}

// With is both changes.
func (w WhatIf) With(o WhatIf) WhatIf {
	both := WhatIf{Bandwidth: times(w.Bandwidth, o.Bandwidth), Latency: times(w.Latency, o.Latency), Lost: append(slices.Clone(w.Lost), o.Lost...)}
	for _, m := range []map[int]float64{w.Stragglers, o.Stragglers} {
		for rank, x := range m {
			if both.Stragglers == nil {
				both.Stragglers = map[int]float64{}
			}
			both.Stragglers[rank] = times(both.Stragglers[rank], x)
		}
	}
	return both
}

// times multiplies numbers of which 0 is 1.
func times(x, y float64) float64 {
	switch {
	case x == 0:
		return y
	case y == 0:
		return x
	}
	return x * y
}

// Check returns an error if the change names a device that the cluster does not have.
func (w WhatIf) Check(c *cost.Cluster) error {
	for rank, x := range w.Stragglers {
		if rank >= len(c.Devices) {
			return errors.Errorf("epl: straggler=%d:%g: the cluster has the devices 0 to %d", rank, x, len(c.Devices)-1)
		}
	}
	for _, rank := range w.Lost {
		if rank >= len(c.Devices) {
			return errors.Errorf("epl: lost=%d: the cluster has the devices 0 to %d", rank, len(c.Devices)-1)
		}
	}
	return nil
}

// Apply makes the change: of the cluster, and of lists whose devices are lost. What it is given stays as it is.
func (w WhatIf) Apply(lists *schedule.Program, c *cost.Cluster) (*schedule.Program, *cost.Cluster, error) {
	if err := w.Check(c); err != nil {
		return nil, nil, err
	}
	changed := *c
	changed.Devices = slices.Clone(c.Devices)
	link := func(l cost.Link) cost.Link {
		l.Bandwidth *= times(w.Bandwidth, 1)
		l.Latency = time.Duration(float64(l.Latency) * times(w.Latency, 1))
		return l
	}
	changed.Within, changed.Inside, changed.Between = link(c.Within), link(c.Inside), link(c.Between)
	changed.Hosts = map[int]cost.Link{}
	for host, l := range c.Hosts {
		changed.Hosts[host] = link(l)
	}
	for rank, x := range w.Stragglers {
		changed.Devices[rank].Speed = speed(c.Devices[rank]) / x
	}
	left := *lists
	for _, rank := range w.Lost {
		if i := slices.IndexFunc(left.Ranks, func(ranks []int) bool { return slices.Contains(ranks, rank) }); i >= 0 {
			left.Ranks = slices.Delete(slices.Clone(left.Ranks), i, i+1)
			if left.Local.Shares != nil {
				left.Local.Shares = slices.Delete(slices.Clone(left.Local.Shares), i, i+1)
			}
		}
	}
	if len(left.Ranks) == 0 {
		return nil, nil, errors.Errorf("epl: %s: no model replica is left; a plan for the devices that are left is another one: epl plan --cluster", w)
	}
	left.Local.Replicas = len(left.Ranks)
	return &left, &changed, nil
}

// RunChanged plays the lists with each change of the cluster by itself, and with all of them if there are several.
func RunChanged(lists *schedule.Program, c *cost.Cluster, o Options, changes ...WhatIf) (rows []Changed) {
	if len(changes) > 1 {
		all := WhatIf{}
		for _, w := range changes {
			all = all.With(w)
		}
		changes = append(slices.Clone(changes), all)
	}
	for _, w := range changes {
		x := Changed{WhatIf: w}
		left, changed, err := w.Apply(lists, c)
		if err == nil {
			x.Result, err = Run(left, changed, o)
		}
		x.Err = err
		rows = append(rows, x)
	}
	return rows
}
