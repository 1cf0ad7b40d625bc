// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/config"
	"github.com/easyparallel/epl/cost"
	"github.com/easyparallel/epl/internal/usage"
)

// described is a cluster that need not exist.
type described struct {
	devices []string // of each worker
	hosts   []string // of each worker; none if they are not said
	memory  string   // of each device; "" if it is not said, or they have different amounts
}

// describe reads --cluster.
func describe(spec string) (d described, err error) {
	wrong := func(err error) (described, error) {
		return d, usage.Errorf("epl: --cluster %s: %s", spec, strings.TrimPrefix(err.Error(), "epl: "))
	}
	said, err := cost.Describe(spec)
	if err != nil {
		return wrong(err)
	}
	said.Each(func(w cost.Workers) {
		d.devices = append(d.devices, strconv.Itoa(w.Devices))
		if w.Host != "" {
			d.hosts = append(d.hosts, w.Host)
		}
	})
	c, err := said.Cluster()
	if err != nil {
		return wrong(err)
	}
	if n := c.Memory(); n > 0 && !slices.ContainsFunc(c.Devices, func(d cost.Device) bool { return d.Profile.Memory != n }) {
		d.memory = config.FormatBytes(n)
	}
	return d, nil
}

// variables describe the cluster to a program. Devices of workers that have equally many are said once: a variable has room for some ten thousand numbers.
func (d described) variables() []string {
	devices := d.devices
	if slices.Max(devices) == slices.Min(devices) {
		devices = devices[:1]
	}
	vars := []string{cluster.EnvNumWorkers + "=" + strconv.Itoa(len(d.devices)), cluster.EnvWorkerIndex + "=0",
		cluster.EnvDevicesPerWorker + "=" + strings.Join(devices, ",")}
	if d.hosts != nil {
		vars = append(vars, cluster.EnvWorkerHosts+"="+strings.Join(d.hosts, ","))
	}
	return vars
}
