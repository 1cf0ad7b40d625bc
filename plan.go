// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/exec/local"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/simulate"
)

// Environment variables about plans.
const (
	// EnvPlanFile names a plan that training programs run by, as [WithPlan] does.
	EnvPlanFile = "EPL_PLAN_FILE"
	// EnvPlanOut names a file for the plan of the first training program, which then does not run: its first step is an error
	// that says so. "epl plan" sets it. The plan is written as text; as JSON, as a page and as a picture of its memory it is in files whose names
	// have ".json", ".html" and ".svg" after that. A file that is there stays as it is. Planning takes one inner backend and no other
	// worker, however many devices the cluster has.
	EnvPlanOut = "EPL_PLAN_OUT"
	// EnvPlanSet has settings "key=value", one a line, which win over those of the code.
	EnvPlanSet = "EPL_PLAN_SET"
	// EnvPlanCluster describes what the devices of a plan can do, as "epl plan --cluster" does: by profiles, links and speeds. Without it
	// they are like those that "epl calibrate" measured, if it did.
	EnvPlanCluster = "EPL_PLAN_CLUSTER"
	// EnvSimulate lets the plan be simulated, too: it is in files whose names have ".sim", ".sim.json", ".sim.html" and ".sim.svg" after that of
	// EPL_PLAN_OUT. Its value is what else it is simulated with, "bandwidth=2,lost=7", or "-". "epl simulate" sets it. EPL_PLAN_FILE then is the plan.
	EnvSimulate = "EPL_SIMULATE"
)

// WithPlan lets training programs run exactly by the plan in a file, which "epl plan --json" wrote; what it says wins over the
// configuration. A plan that does not fit is refused: of another program, cluster or version. It is as EPL_PLAN_FILE in the
// environment, which wins, and as epl-launch --plan. All workers must have the same plan.
//
//	env, err := epl.Init(nil, epl.WithPlan("plan.json"))
func WithPlan(file string) Option {
	return func(o *options) error {
		o.plan = file
		return nil
	}
}

// pinned is a plan that training programs run by; none if plan is nil.
type pinned struct {
	plan *plan.Plan
	file string
}

// pin reads the plan of the environment or of the code, if there is one, and gives its settings to the configuration.
func (o *options) pin(cfg *Config) (p pinned, with *Config, err error) {
	if p.file = cmp.Or(os.Getenv(EnvPlanFile), o.plan); p.file == "" || os.Getenv(EnvPlanOut) != "" && os.Getenv(EnvSimulate) == "" {
		return pinned{}, cfg, nil
	}
	if p.plan, err = plan.Read(p.file); err != nil {
		return pinned{}, nil, err
	}
	with, err = p.plan.Configure(cfg)
	return p, with, plan.In(p.file, err)
}

// fits refuses a plan for another cluster before anybody waits for it.
func (p pinned) fits(t plan.Target) error {
	if p.plan == nil {
		return nil
	}
	return plan.In(p.file, p.plan.Fits(t))
}

// fact is what workers must agree about.
func (p pinned) fact() string {
	if p.plan == nil {
		return "none"
	}
	h := sha256.New()
	_ = p.plan.Encode(h) // what was read can be written
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// planned returns what a plan is to be made for: the settings of EPL_PLAN_SET, and the devices of the environment, which
// need not exist, in place of those that the code asks for.
func planned(cfg *Config, o *options) (*Config, error) {
	if strings.TrimSpace(os.Getenv(cluster.EnvDevicesPerWorker)) != "" {
		o.localDevices = 0
	}
	settings := strings.Split(os.Getenv(EnvPlanSet), "\n")
	if settings[0] == "" {
		return cfg, nil
	}
	return cfg.With(settings)
}

// costs is what the devices of a plan can do; nil if that is not known, nor which are faster. It is what a description says: that of EPL_PLAN_CLUSTER, or of
// cluster.description. profile is that of the devices, if nothing says otherwise; "": that of this machine.
func costs(cl *cluster.Cluster, description, profile string) (*cost.Cluster, error) {
	said := &cost.Description{}
	spec, by := os.Getenv(EnvPlanCluster), EnvPlanCluster+"="
	if spec == "" {
		spec, by = description, "cluster.description = "
	}
	if spec != "" {
		var err error
		if said, err = cost.Describe(spec); err != nil {
			return nil, errors.WithMessagef(err, "epl: %s%s", by, spec)
		}
		if err := sameDevices(said, cl); err != nil {
			return nil, errors.WithMessagef(err, "epl: %s%s", by, spec)
		}
		said.Profile = cmp.Or(said.Profile, profile)
	} else {
		for _, w := range cl.Workers() {
			said.Workers = append(said.Workers, cost.Workers{Host: w.Host, Count: 1, Devices: len(w.Devices), Profile: profile})
		}
	}
	c, err := said.Cluster()
	if err != nil {
		return nil, err
	}
	if !c.Known() && !c.Unequal() {
		return nil, nil
	}
	return c, nil
}

// onHosts notes which workers are on the same machine, by a name of each worker's. A job finds that out, also where nobody names the machines.
func onHosts(c *cost.Cluster, host func(worker int) string) {
	first := map[string]int{}
	for i := range c.Devices {
		d := &c.Devices[i]
		name := host(d.Worker)
		if _, known := first[name]; !known {
			first[name] = d.Worker
		}
		d.Host = first[name]
	}
}

// measured is what the devices can do, with speeds and links that are measured now. known is what is known without that, if anything. Of devices that are equally fast, and
// otherwise unknown, links alone are known.
func measured(runner *local.Runner, cl *cluster.Cluster, known *cost.Cluster, gpus bool) (hardware, links *cost.Cluster, found *cost.Links, err error) {
	speeds, err := runner.Speeds()
	if err != nil {
		return nil, nil, nil, errors.WithMessage(err, "epl: cluster.measure: speeds of devices")
	}
	c := cost.Cluster{Inside: cost.DefaultLink, Between: cost.DefaultLink}
	if known != nil {
		c = *known
	}
	c.Devices = nil
	for i, d := range cl.Devices() {
		x := cost.Device{Profile: cost.Default, Host: d.Worker, Worker: d.Worker}
		if known != nil {
			x = known.Devices[i]
		}
		// Equal devices differ by what else the machine does.
		relative := speeds[i] / slices.Max(speeds)
		x.Speed = max(math.Round(relative*10)/10, min(relative, 0.05))
		c.Devices = append(c.Devices, x)
	}
	switch {
	case gpus:
		found = &cost.Links{Not: "those of GPUs are not measured; their profile says what connects them, or cluster.description"}
	case cl.TotalDevices() == 1:
		found = &cost.Links{Not: "there is one device"}
	default:
		l, err := runner.Links()
		if err != nil {
			return nil, nil, nil, errors.WithMessage(err, "epl: cluster.measure: links")
		}
		if runner.Job != nil {
			onHosts(&c, runner.Job.Host)
		}
		found = &l
		found.On(&c)
		links = &c
	}
	if known == nil && !c.Unequal() {
		return nil, links, found, nil
	}
	return &c, nil, found, nil
}

// sameDevices refuses a description of other workers than there are.
func sameDevices(said *cost.Description, cl *cluster.Cluster) error {
	var described, there []int
	said.Each(func(w cost.Workers) { described = append(described, w.Devices) })
	for _, w := range cl.Workers() {
		there = append(there, len(w.Devices))
	}
	if !slices.Equal(described, there) {
		return errors.Errorf("it describes workers with %v devices, and the job has workers with %v; describe the devices of each worker, in the order of workers", described, there)
	}
	return nil
}

// gpuProfile is the profile of a GPU, by how it describes itself, such as "NVIDIA H200"; "": there is none. Of those that differ in memory it is the
// one that comes next.
func gpuProfile(description string, memory int64) (name string) {
	best := int64(math.MaxInt64)
	for _, n := range cost.Names() {
		kind, _, _ := strings.Cut(n, "-")
		p, err := cost.Find(n)
		if err != nil || !strings.Contains(description, kind) || n == cost.This {
			continue
		}
		if off := max(p.Memory-memory, memory-p.Memory); off < best {
			name, best = n, off
		}
	}
	return name
}

// simulation is what EPL_SIMULATE asks for, on devices of which it is known what they can do.
func simulation(known *cost.Cluster) (asked bool, changes []simulate.WhatIf, err error) {
	text := os.Getenv(EnvSimulate)
	switch {
	case text == "":
		return false, nil, nil
	case !known.Known():
		return false, nil, errors.New("epl: it is not known what the devices can do: name their profile, as in epl simulate --cluster 1x8xV100-32, " +
			"or let epl calibrate measure this machine")
	case text == "-":
		return true, nil, nil
	}
	if changes, err = simulate.ParseWhatIf(text); err != nil {
		return false, nil, err
	}
	for _, w := range changes {
		if err := w.Check(known); err != nil {
			return false, nil, err
		}
	}
	return true, changes, nil
}
