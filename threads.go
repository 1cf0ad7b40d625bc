// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package epl

import (
	"github.com/gomlx/compute"
	"github.com/pkg/errors"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/cpu"
	"github.com/easyparallel/epl/internal/cores"
	"github.com/easyparallel/epl/passes"
	"github.com/easyparallel/epl/worker"
)

// ownEngine makes devices of EPL's engine for CPUs of their backends; it does what is on. j is nil if this worker is
// alone; planned tells that nothing runs, and that the devices of the plan are not on this machine.
func ownEngine(devices []compute.Backend, on passes.Set, cfg *Config, cl *cluster.Cluster, j *worker.Job, planned bool) error {
	workers, here := 1, len(cl.LocalDevices())
	if j != nil {
		workers, here = j.Here(cl)
	}
	threads := 1
	if !planned {
		var err error
		if threads, err = threadsPerDevice(cfg.Cluster.CoresPerDevice, cores.Share(workers), workers, len(devices), here); err != nil {
			return err
		}
	}
	var off []string
	for _, x := range passes.Switches {
		if x.Name != passes.Engine && !on[x.Name] {
			off = append(off, x.Name)
		}
	}
	opts := []cpu.Option{cpu.Without(off...)}
	if j != nil {
		if shared := j.World.SharedMemory(); shared != nil { // other workers of this machine reduce and read tensors where they are
			opts = append(opts, cpu.In(shared))
		}
	}
	for i, op := range devices {
		devices[i] = cpu.New(op, threads, opts...)
	}
	return nil
}

// threadsPerDevice is how many threads each of a worker's devices has. share is how many cores the worker has, one of so
// many on its machine; here are the devices of all of them.
func threadsPerDevice(asked, share, workers, devices, here int) (int, error) {
	switch {
	case asked == 0:
		return max(1, min(share/devices, share*workers/here)), nil
	case asked > 1 && asked*devices > share:
		return 0, errors.Errorf("epl: cluster.cores_per_device is %d, but the devices of the job on this machine are %d, and its cores %d; "+
			"use at most %d, or 0, which divides them", asked, here, share*workers, max(1, share/devices))
	}
	return asked, nil
}
