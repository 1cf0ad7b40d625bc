// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/easyparallel/epl/internal/words"
)

// TaskGraph is what one TaskGraph asks for.
type TaskGraph struct {
	// Name is the user's name for it. Names need not differ; without one it is shown as "TaskGraph 0", by its index.
	Name string
	// Devices is the k of its strategy, replicate(k) or split(k): the devices it uses in each model replica.
	Devices int
}

// Options are the settings that decide where TaskGraphs are placed.
type Options struct {
	// PreferIntraNode keeps a model replica inside a worker where it fits, by dealing devices worker by worker. Else
	// they are dealt by their index: the first device of every worker, then the second of every worker that has one,
	// and so on. Config key cluster.device_place_prefer_intra_node.
	PreferIntraNode bool
	// Colocate places all TaskGraphs of a replica on one group of devices.
	// Config key cluster.colocate_split_and_replicate.
	Colocate bool
	// StagesPerDevice is the number v of TaskGraphs that share each device: of S TaskGraphs, number i is placed on
	// group i mod S/v of its replica. 0 means 1: none is shared. Config key pipeline.stages_per_device.
	StagesPerDevice int
	// Memory is that of the devices, by rank; nil: it is not known. Where devices of a model replica have different amounts, the first TaskGraphs get those with
	// most: the first stages of a pipeline keep activations of the most micro-batches.
	Memory []int64
}

// Placement says which devices each TaskGraph runs on, in every model replica.
type Placement struct {
	// Replicas is the number of model replicas, at least 1.
	Replicas int
	// Virtual holds the virtual device of each TaskGraph, in the order in which the TaskGraphs were given.
	Virtual []VirtualDevice
}

// VirtualDevice is, for one TaskGraph, its list over model replicas of device groups. TaskGraphs that share their
// devices have equal virtual devices, which may share memory: read them, do not write them.
type VirtualDevice struct {
	// Groups holds the devices that the TaskGraph uses in each model replica.
	Groups [][]Device
}

// String returns the groups as "[w0g0 w0g1][w1g0 w1g1]".
func (v VirtualDevice) String() string { return v.format(false) }

func (v VirtualDevice) format(singleWorker bool) string {
	var b strings.Builder
	for _, group := range v.Groups {
		names := make([]string, len(group))
		for i, d := range group {
			names[i] = deviceName(d, singleWorker)
		}
		fmt.Fprintf(&b, "[%s]", strings.Join(names, " "))
	}
	return b.String()
}

// String returns the virtual devices as "VD0=[g0][g2] VD1=[g1][g3]", with the workers where there are several.
func (p *Placement) String() string {
	// A placement uses every device of its cluster, so it has only devices of worker 0 if that is the only worker.
	singleWorker := true
	for _, v := range p.Virtual {
		for _, group := range v.Groups {
			singleWorker = singleWorker && !slices.ContainsFunc(group, func(d Device) bool { return d.Worker != 0 })
		}
	}
	parts := make([]string, len(p.Virtual))
	for i, v := range p.Virtual {
		parts[i] = fmt.Sprintf("VD%d=%s", i, v.format(singleWorker))
	}
	return strings.Join(parts, " ")
}

// Place deals the devices of the cluster to the TaskGraphs of a program: replica by replica, and in each replica
// TaskGraph by TaskGraph, until every device is used. It is an error if the devices do not divide into replicas.
func Place(c *Cluster, tgs []TaskGraph, opts Options) (*Placement, error) {
	lay, err := newLayout(tgs, opts)
	if err != nil {
		return nil, err
	}
	devices := c.Devices()
	size := lay.replicaSize()
	if len(devices) < size || len(devices)%size != 0 {
		return nil, lay.doesNotFit(len(devices))
	}
	if !opts.PreferIntraNode {
		slices.SortStableFunc(devices, func(a, b Device) int { return cmp.Compare(a.Index, b.Index) })
	}

	p := &Placement{Replicas: len(devices) / size}
	shared := make([]VirtualDevice, lay.groups)
	for range p.Replicas {
		if opts.Memory != nil && lay.groups > 1 {
			slices.SortStableFunc(devices[:size], func(a, b Device) int { return cmp.Compare(opts.Memory[b.Rank], opts.Memory[a.Rank]) })
		}
		for g := range shared {
			k := tgs[g].Devices
			shared[g].Groups = append(shared[g].Groups, devices[:k:k])
			devices = devices[k:]
		}
	}
	for i := range tgs {
		p.Virtual = append(p.Virtual, shared[i%lay.groups])
	}
	return p, nil
}

// layout is how the TaskGraphs of one replica share its groups of devices: TaskGraph i is on group i mod groups, so
// the first TaskGraphs have a group each and the rest join them. Those that share a group have equal device counts.
type layout struct {
	tgs    []TaskGraph
	groups int    // as many as TaskGraphs: none is shared
	shared string // the setting by which groups are shared; empty if none is
}

func newLayout(tgs []TaskGraph, opts Options) (layout, error) {
	if len(tgs) == 0 {
		return layout{}, errors.New("epl: there is no TaskGraph to place; a program has at least 1")
	}
	for i, tg := range tgs {
		if tg.Devices < 1 || tg.Devices > maxDevices {
			return layout{}, errors.Errorf("epl: %s asks for %d devices; ask for a number from 1 to %d",
				pointAt(tgs, i), tg.Devices, maxDevices)
		}
	}
	lay := layout{tgs: tgs, groups: len(tgs)}
	switch v := opts.StagesPerDevice; {
	case v < 0:
		return layout{}, errors.Errorf("epl: pipeline.stages_per_device is %d; set it to a number of at least 1", v)
	case v > 1 && opts.Colocate:
		return layout{}, errors.Errorf("epl: cluster.colocate_split_and_replicate makes one stage of all TaskGraphs, "+
			"but pipeline.stages_per_device is %d; turn the first off, or set the second to 1", v)
	case v > 1 && len(tgs)%v != 0:
		return layout{}, errors.Errorf("epl: %s cannot be placed %d on each device; use %s TaskGraphs, "+
			"or change pipeline.stages_per_device", words.Count(len(tgs), "TaskGraph"), v, nearestMultiples(len(tgs), v))
	case v > 1:
		lay.groups = len(tgs) / v
		lay.shared = fmt.Sprintf("pipeline.stages_per_device = %d", v)
	case opts.Colocate:
		lay.groups = 1
		lay.shared = "cluster.colocate_split_and_replicate"
	}
	for i, tg := range tgs {
		if first := i % lay.groups; tg.Devices != tgs[first].Devices {
			return layout{}, errors.Errorf("epl: %s places %s and %s on the same devices, but they ask for %d and %d; "+
				"make their device counts equal, or change that setting",
				lay.shared, pointAt(tgs, first), pointAt(tgs, i), tgs[first].Devices, tg.Devices)
		}
	}
	return lay, nil
}

// replicaSize returns the number of devices that one replica uses.
func (lay layout) replicaSize() int {
	size := 0
	for _, tg := range lay.tgs[:lay.groups] {
		size += tg.Devices
	}
	return size
}

// doesNotFit returns the error for a cluster whose devices do not divide into replicas.
func (lay layout) doesNotFit(devices int) error {
	size := lay.replicaSize()
	change := "change a device count"
	if lay.shared != "" {
		change = "change the device counts"
	}
	if devices > size {
		return errors.Errorf("epl: %d devices do not divide into replicas of %d (%s); use %s devices, or %s",
			devices, size, lay.account(), nearestMultiples(devices, size), change)
	}
	missing := "1 is missing"
	if size-devices > 1 {
		missing = fmt.Sprintf("%d are missing", size-devices)
	}
	waysOut := "or " + change
	if k := lay.tgs[0].Devices; lay.shared == "" && lay.allAskFor(k) && devices%k == 0 {
		waysOut = fmt.Sprintf("%s, or set cluster.colocate_split_and_replicate "+
			"so that all TaskGraphs of a replica share %s", change, words.Count(k, "device"))
	}
	return errors.Errorf("epl: a replica needs %s (%s), but the cluster has %d, so %s; use %s, %s",
		words.Count(size, "device"), lay.account(), devices, missing, words.Count(size, "device"), waysOut)
}

func (lay layout) allAskFor(k int) bool {
	return !slices.ContainsFunc(lay.tgs, func(tg TaskGraph) bool { return tg.Devices != k })
}

// account returns what each TaskGraph asks for, and why that may be more than a replica uses.
func (lay layout) account() string {
	parts := make([]string, len(lay.tgs))
	for i, tg := range lay.tgs {
		name := tg.Name
		if name == "" {
			name = fmt.Sprintf("TaskGraph %d", i)
		}
		parts[i] = fmt.Sprintf("%s: %d", name, tg.Devices)
	}
	account := strings.Join(parts, ", ")
	if lay.shared != "" {
		account += "; devices shared by " + lay.shared
	}
	return account
}

// pointAt returns a name for one TaskGraph that is never that of another: users may give several the same name.
func pointAt(tgs []TaskGraph, i int) string {
	if tgs[i].Name == "" {
		return fmt.Sprintf("TaskGraph %d", i)
	}
	return fmt.Sprintf("TaskGraph %d (%s)", i, tgs[i].Name)
}

// nearestMultiples returns the positive multiples of step on either side of n, which is not one: "4 or 8".
func nearestMultiples(n, step int) string {
	below := n - n%step
	if below == 0 {
		return fmt.Sprint(step)
	}
	return fmt.Sprintf("%d or %d", below, below+step)
}
