// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/schedule"
	"github.com/easyparallel/epl/simulate"
)

// hardware is what the devices can do: usual ones, if nobody said.
func (t Target) hardware() *cost.Cluster {
	if t.Hardware != nil {
		return t.Hardware
	}
	if t.Measured.Any() && t.Links != nil {
		return t.Links
	}
	c := &cost.Cluster{Inside: cost.DefaultLink, Between: cost.DefaultLink}
	for _, d := range t.Cluster.Devices() {
		c.Devices = append(c.Devices, cost.Device{Profile: cost.Default, Host: d.Worker, Speed: 1})
	}
	return c
}

// Simulate plays a step of what a plan made of a training program, on a cluster as it is and with changes: see package simulate.
func (r *Result) Simulate(c *cost.Cluster, changes ...simulate.WhatIf) (as *simulate.Result, changed []simulate.Changed, err error) {
	o := simulate.Options{Communicators: r.communicators, Traffic: r.traffic, Account: r.Account}
	if as = r.simulated; as == nil || c != r.hardware {
		if as, err = simulate.Run(r.lists(), c, o); err != nil {
			return nil, nil, err
		}
	}
	return as, simulate.RunChanged(r.lists(), c, o, changes...), nil
}

// lists are what devices run.
func (r *Result) lists() *schedule.Program {
	if r.Schedule == nil {
		return simulate.Whole(r.Final)
	}
	return r.Schedule
}

// short predicts how long a step takes, and nothing else.
func (r *Result) short(lists *schedule.Program, c *cost.Cluster) (time.Duration, error) {
	x, err := simulate.Run(lists, c, simulate.Options{Communicators: r.communicators, Traffic: r.traffic, Account: r.Account, Short: true})
	if err != nil {
		return 0, err
	}
	return x.Step, nil
}
