// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/checkpoint"
	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/faults"
	"github.com/easyparallel/epl/ir"
	"github.com/easyparallel/epl/worker"
)

// Environment variables for drills.
const (
	// EnvFaults lets things go wrong on purpose: "kill:rank=1,step=7; disk-full:rank=0". docs/drills.md has all of it, and "epl drill" does so with a
	// program. All workers must have the same.
	EnvFaults = faults.Env
	// EnvSlow slows virtual devices down on purpose, for drills and measurements: "20,10" lets the device of rank 0 take twice as long for what it computes in
	// steps as that of rank 1, and 20 times as long as the cost model says of a usual core, by sleeping. 0 leaves a device as it is. Results stay the same.
	// It is short for faults of the kind slow.
	EnvSlow = faults.EnvSlow
)

// injected reads the faults of EPL_FAULTS and EPL_SLOW, and refuses those that this job cannot have.
func injected(cl *cluster.Cluster, cfg *Config, lookup func(string) (string, bool)) ([]faults.Fault, error) {
	all, err := faults.Parse(os.Getenv(EnvFaults))
	if err != nil {
		return nil, err
	}
	generation, err := cluster.Generation(lookup)
	if err != nil {
		return nil, err
	}
	all = faults.In(all, generation) // later ones may have fewer ranks
	if err := faults.Check(all, cl.TotalDevices(), workerOf(cl)); err != nil {
		return nil, err
	}
	for _, f := range all {
		if f.Link() && cfg.Communication.Backend == config.BackendMPI {
			return nil, errors.Errorf("epl: %s: %q: the connections of MPI are its own; set communication.backend to auto", EnvFaults, f)
		}
	}
	slow, err := faults.ParseSlow(os.Getenv(EnvSlow), cl.TotalDevices())
	return append(all, slow...), err
}

// newInjector is this worker's share of the faults.
func newInjector(all []faults.Fault, cl *cluster.Cluster, j *worker.Job) *faults.Injector {
	if j != nil {
		return j.Faults
	}
	return faults.New(all, faults.Job{WorkerOf: workerOf(cl)})
}

// files is where checkpoints are.
func (e *Env) files() checkpoint.FS {
	if e.faults == nil {
		return checkpoint.OS
	}
	return checkpoint.WithFaults(checkpoint.OS, e.faults)
}

// workerOf tells the worker of a rank.
func workerOf(cl *cluster.Cluster) func(rank int) int {
	return func(rank int) int { return cl.Devices()[rank].Worker }
}

// slowed is how long the devices of this worker take at least, nil if none is slowed down.
func slowed(cl *cluster.Cluster, i *faults.Injector) func(device int, s *ir.Segment) time.Duration {
	if !i.Slows() {
		return nil
	}
	var usual sync.Map // what segments take
	return func(device int, s *ir.Segment) time.Duration {
		took, ok := usual.Load(s)
		if !ok {
			took, _ = usual.LoadOrStore(s, cost.Default.Ops(s))
		}
		return time.Duration(float64(took.(time.Duration)) * i.Factor(cl.LocalDevices()[device].Rank))
	}
}

// faultsFact is what workers must agree about.
func faultsFact() string { return strings.TrimSpace(os.Getenv(EnvFaults)) }
