// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/emit"
	"github.com/easyparallel/epl/internal/equiv"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/plan"
	"github.com/easyparallel/epl/simulate"
)

// errRecorded ends a program that need not run.
var errRecorded = errors.New("it is recorded")

// recorded is the training program of a model. Nothing runs, and there are no weights.
func recorded(m equiv.Model) (*ir.Program, error) {
	backend, recorder := equiv.NewRecorder(func(inner compute.Backend, p *ir.Program) (compute.Executable, error) {
		if p.IsTraining() {
			return nil, errRecorded
		}
		return emit.Program(inner, p)
	})
	_, err := equiv.Train(backend, m, epl.Optimizer(optimizer.Adam().Done()), 1)
	for _, p := range recorder.Programs {
		if p.IsTraining() && strings.Contains(err.Error(), errRecorded.Error()) {
			return p, nil
		}
	}
	return nil, errors.WithMessage(err, m.Name)
}

// hardware is what is calibrated of a cluster of hosts with 8 GPUs each.
type hardware struct {
	profile string
	speed   float64 // of convolutions, relative to the profile
	between float64 // bytes per second between hosts, for all devices of one
	mixed   string  // the profile of half of the GPUs, the last ones, which have hosts of their own; "": GPUs are alike
	known   bool    // to the planner: else it plans for GPUs that are alike
}

// hosts are how many GPUs each host has.
func (h hardware) hosts(gpus int) []int {
	if h.mixed != "" && gpus < 16 {
		return []int{gpus / 2, gpus / 2}
	}
	return slices.Repeat([]int{min(gpus, 8)}, (gpus+7)/8)
}

// insideOver is how many times as fast a device reaches one of its host as a host reaches another. The paper does not say it. It is what TF's rows of
// figure 10 on 8 and 16 GPUs say, where nothing overlaps, and the same for all models.
const insideOver = 6

// find is a profile with the speed of convolutions. That of products and of the memory is near what the data sheet has at most, and how many flops of a convolution
// are done depends on the algorithm.
func (h hardware) find(name string) (*cost.Profile, error) {
	p, err := cost.Find(name)
	if err != nil || h.speed == 1 {
		return p, err
	}
	q := *p
	q.Rates = maps.Clone(p.Rates)
	for key, rate := range q.Rates {
		if strings.HasPrefix(key, cost.Conv) {
			q.Rates[key] = rate.Scaled(h.speed)
		}
	}
	return &q, nil
}

// cluster is one of so many GPUs.
func (h hardware) cluster(gpus int) (*cost.Cluster, error) {
	p, err := h.find(h.profile)
	if err != nil {
		return nil, err
	}
	inside, between := *p.Inside, *p.Between
	between.Bandwidth, inside.Bandwidth = h.between, insideOver*h.between
	last := p
	if h.mixed != "" {
		if last, err = h.find(h.mixed); err != nil {
			return nil, err
		}
	}
	hosts := h.hosts(gpus)
	c := cost.Uniform(len(hosts), hosts[0], p, inside, between)
	for i := range c.Devices {
		if i >= gpus/2 {
			c.Devices[i].Profile = last
		}
	}
	return c, nil
}

// job is a model on so many GPUs, with settings "key=value".
type job struct {
	network
	gpus     int
	settings string
}

// planner plans jobs, each once.
type planner struct {
	programs map[string]*ir.Program
	plans    map[string]*plan.Result
}

func newPlanner() *planner {
	return &planner{programs: map[string]*ir.Program{}, plans: map[string]*plan.Result{}}
}

// plan is what EPL makes of a job.
func (x *planner) plan(j job, h hardware) (*plan.Result, error) {
	key := fmt.Sprint(j.Name, j.cut, j.gpus, j.settings, h.hosts(j.gpus))
	if h.known {
		key += fmt.Sprint(h)
	}
	if r := x.plans[key]; r != nil {
		return r, nil
	}
	p := x.programs[j.Name]
	if p == nil {
		var err error
		if p, err = recorded(j.Model); err != nil {
			return nil, err
		}
		x.programs[j.Name] = p
	}
	settings := map[string]any{}
	for text := range strings.FieldsSeq(j.settings) {
		name, value, _ := strings.Cut(text, "=")
		settings[name] = value
	}
	cfg, err := config.New(settings)
	if err != nil {
		return nil, err
	}
	c, err := cluster.New(cluster.Spec{Devices: h.hosts(j.gpus)})
	if err != nil {
		return nil, err
	}
	set, err := passes.Parse("", nil)
	if err != nil {
		return nil, err
	}
	target := plan.Target{Cluster: c, Passes: set, AsWritten: true}
	if h.known {
		if target.Hardware, err = h.cluster(j.gpus); err != nil {
			return nil, err
		}
	}
	if j.cut > 0 {
		if target.Cut, err = plan.Stages(p, j.cut, cfg, target); err != nil {
			return nil, err
		}
	}
	_, r, err := plan.Decide(p, cfg, target)
	if err != nil {
		return nil, errors.WithMessagef(err, "%s on %d GPUs", j.Name, j.gpus)
	}
	x.plans[key] = r
	return r, nil
}

// run simulates a step of a job.
func (x *planner) run(j job, h hardware) (*simulate.Result, error) {
	r, err := x.plan(j, h)
	if err != nil {
		return nil, err
	}
	c, err := h.cluster(j.gpus)
	if err != nil {
		return nil, err
	}
	s, _, err := r.Simulate(c)
	return s, err
}

// throughput is how many samples a job trains on in a second.
func (x *planner) throughput(j job, h hardware) (float64, error) {
	s, err := x.run(j, h)
	if err != nil {
		return 0, err
	}
	return float64(j.batch*s.Batches) / s.Step.Seconds(), nil
}

// calibrate finds the value at which what grows with it is as it should be.
func calibrate(low, high, want float64, of func(float64) (float64, error)) (float64, error) {
	for range 30 {
		middle := (low + high) / 2
		got, err := of(middle)
		switch {
		case err != nil:
			return 0, err
		case got < want:
			low = middle
		default:
			high = middle
		}
	}
	return high, nil
}
