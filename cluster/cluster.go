// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

// Package cluster says which devices a job has, and which of them each TaskGraph runs on.
//
// In goes a description of the workers, from code ([New]) or from the variables that the launcher sets
// ([FromEnvironment]), and the number of devices that each TaskGraph asks for. Out come a [Cluster], which numbers
// the devices of the job, and a [Placement], which gives each TaskGraph its virtual device: one group of devices for
// every model replica. The number of replicas is found, not asked for: it is what the devices of the job allow.
//
//	c, err := cluster.New(cluster.Spec{Devices: []int{4}}) // one worker with four devices
//	p, err := cluster.Place(c, []cluster.TaskGraph{{Name: "stage_0", Devices: 1}, {Name: "stage_1", Devices: 1}},
//		cluster.Options{PreferIntraNode: true})
//	fmt.Println(p) // VD0=[g0][g2] VD1=[g1][g3]
//
// Everything here but [Allocation.Environ] is a pure function of its arguments: no clock, no network, no hardware is looked
// at, and the environment only through the function given to FromEnvironment. Workers that describe the cluster in the same way,
// each with its own worker index, therefore get the same ranks and the same placements without talking to each other.
// The package trusts the description: whether a worker really has its devices is for the inner backend to find out.
//
// Devices are written as wXgY, device Y of worker X, or as gY where the job has a single worker.
package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
)

// maxDevices bounds the devices of a job: a larger number is a slip of the pen, better refused than allocated.
// It also keeps sums of device counts far from overflow.
const maxDevices = 1 << 20

// Device is one device of a job: where a program runs.
type Device struct {
	// Worker is the index of the worker that owns the device.
	Worker int
	// Index is the device's number on its worker. Devices that are not visible keep theirs, so indices may have gaps.
	Index int
	// Rank is the device's index in the job. Ranks have no gaps.
	Rank int
}

// String returns the device as wXgY. See [Cluster.DeviceName] for the short form.
func (d Device) String() string { return deviceName(d, false) }

// deviceName returns the device as gY if the job has a single worker, else as wXgY.
func deviceName(d Device, singleWorker bool) string {
	if singleWorker {
		return fmt.Sprintf("g%d", d.Index)
	}
	return fmt.Sprintf("w%dg%d", d.Worker, d.Index)
}

// Worker is one process of a job, with its devices.
type Worker struct {
	// Index is the worker's number in the job.
	Index int
	// Host is the machine it runs on; empty if the cluster was described without hosts.
	Host string
	// Devices are the worker's visible devices, in rank order. There is at least one.
	Devices []Device
}

// Spec describes a cluster to [New].
type Spec struct {
	// Devices is the number of devices of each worker. Workers may have unequal numbers.
	Devices []int
	// WorkerIndex says which of the workers this process is.
	WorkerIndex int
	// Hosts names the machine of each worker. Optional; several workers may share a machine.
	Hosts []string
	// Visible holds the indices of the devices that every worker may use (cluster.run_visible_devices), in any order.
	// Empty: all of them.
	Visible []int
}

// Cluster is the workers and devices of one job, as one of its workers sees them. It never changes, and is safe for
// concurrent use; the slices it returns are the caller's.
type Cluster struct {
	workerIndex int
	workers     []Worker
	devices     []Device // those of all workers, in rank order
}

// New returns the cluster that spec describes, or an error if there can be no such cluster.
func New(spec Spec) (*Cluster, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	c := &Cluster{workerIndex: spec.WorkerIndex}
	visible := slices.Sorted(slices.Values(spec.Visible))
	for worker, count := range spec.Devices {
		w := Worker{Index: worker}
		if len(spec.Hosts) > 0 {
			w.Host = spec.Hosts[worker]
		}
		for index := range count {
			if _, found := slices.BinarySearch(visible, index); found || len(visible) == 0 {
				rank := len(c.devices) + len(w.Devices)
				w.Devices = append(w.Devices, Device{Worker: worker, Index: index, Rank: rank})
			}
		}
		c.workers = append(c.workers, w)
		c.devices = append(c.devices, w.Devices...)
	}
	return c, nil
}

// validate checks that spec describes a cluster in which every worker has a device and every visible device exists.
func (spec Spec) validate() error {
	workers := len(spec.Devices)
	if workers == 0 {
		return errors.New("epl: the cluster has no workers; describe at least 1, with the number of its devices")
	}
	total := 0
	for worker, count := range spec.Devices {
		if count < 1 {
			return errors.Errorf("epl: worker %d has %d devices; give every worker at least 1", worker, count)
		}
		if count > maxDevices-total {
			return errors.Errorf("epl: the workers have more than %d devices in total, the most a job can have; use fewer",
				maxDevices)
		}
		total += count
	}
	if spec.WorkerIndex < 0 || spec.WorkerIndex >= workers {
		return errors.Errorf("epl: worker index %d does not exist in a cluster of %s; use %s",
			spec.WorkerIndex, words.Count(workers, "worker"), indices(workers))
	}
	if len(spec.Hosts) > 0 && len(spec.Hosts) != workers {
		return errors.Errorf("epl: %s for %s; name the host of every worker, or none",
			words.Count(len(spec.Hosts), "host"), words.Count(workers, "worker"))
	}
	for i, index := range spec.Visible {
		if slices.Contains(spec.Visible[:i], index) {
			return errors.Errorf("epl: cluster.run_visible_devices names device %d twice; name each device once", index)
		}
		for worker, count := range spec.Devices {
			if index < 0 || index >= count {
				return errors.Errorf("epl: cluster.run_visible_devices names device %d, but worker %d has %s; use %s",
					index, worker, words.Count(count, "device"), indices(count))
			}
		}
	}
	return nil
}

// WorkerNum returns the number of workers in the job.
func (c *Cluster) WorkerNum() int { return len(c.workers) }

// WorkerIndex returns the index of the worker that this process is.
func (c *Cluster) WorkerIndex() int { return c.workerIndex }

// TotalDevices returns the number of devices in the job.
func (c *Cluster) TotalDevices() int { return len(c.devices) }

// LocalDevices returns the devices of this worker, in rank order.
func (c *Cluster) LocalDevices() []Device { return slices.Clone(c.workers[c.workerIndex].Devices) }

// Devices returns all devices of the job in rank order: those of worker 0, then those of worker 1, and so on.
func (c *Cluster) Devices() []Device { return slices.Clone(c.devices) }

// Workers returns the workers of the job, in order.
func (c *Cluster) Workers() []Worker {
	workers := slices.Clone(c.workers)
	for i := range workers {
		workers[i].Devices = slices.Clone(workers[i].Devices)
	}
	return workers
}

// Device returns the device of the given rank. It panics if the rank is not in [0, TotalDevices()).
func (c *Cluster) Device(rank int) Device { return c.devices[rank] }

// DeviceName returns the name of a device of this cluster, as short as it can be: gY if there is a single worker,
// else wXgY.
func (c *Cluster) DeviceName(d Device) string { return deviceName(d, len(c.workers) == 1) }

// String returns "2x4" for 2 workers with 4 devices each, and "4+2" for a worker with 4 devices and one with 2.
func (c *Cluster) String() string {
	counts := make([]string, len(c.workers))
	for i, w := range c.workers {
		counts[i] = strconv.Itoa(len(w.Devices))
	}
	if slices.ContainsFunc(counts, func(count string) bool { return count != counts[0] }) {
		return strings.Join(counts, "+")
	}
	return fmt.Sprintf("%dx%s", len(counts), counts[0])
}

// indices returns the valid indices of n things: "0", "0 or 1", "0 to 2".
func indices(n int) string {
	switch n {
	case 1:
		return "0"
	case 2:
		return "0 or 1"
	default:
		return fmt.Sprintf("0 to %d", n-1)
	}
}
