package main

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/easyparallel/epl/cluster"
	"github.com/easyparallel/epl/internal/usage"
)

// described is a cluster that need not exist.
type described struct {
	devices []string // of each worker
	hosts   []string // of each worker; none if they are not said
	memory  string   // of a device; "" if it is not said
}

// clusterFile is the form of a file that describes a cluster.
type clusterFile struct {
	Workers []struct {
		Host    string `json:"host"`
		Devices int    `json:"devices"`
		Count   int    `json:"count"` // so many workers are like this; 0 means 1
	} `json:"workers"`
	DeviceMemory string `json:"device_memory"`
}

// describe reads --cluster: "8x8" are 8 workers with 8 devices each, "4+2" two workers with 4 and 2; anything else is a file.
func describe(spec string) (d described, err error) {
	if workers, devices, ok := strings.Cut(spec, "x"); ok && number(workers) > 0 && number(devices) > 0 {
		return described{devices: slices.Repeat([]string{devices}, number(workers))}, nil
	}
	if counts := strings.Split(spec, "+"); !slices.ContainsFunc(counts, func(n string) bool { return number(n) == 0 }) {
		return described{devices: counts}, nil
	}
	if strings.Trim(spec, "0123456789x+") == "" && spec != "" {
		return d, usage.Errorf("epl: --cluster %s: expected workers x devices of each, such as 8x8, or devices of each worker, such as 4+2, at least one of each", spec)
	}
	text, err := os.ReadFile(spec)
	if err != nil {
		return d, usage.Errorf("epl: --cluster %s: expected workers x devices of each, such as 8x8, or 4+2, or a file: %v", spec, err)
	}
	var file clusterFile
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return d, usage.Errorf("epl: --cluster %s: %v; docs/plans.md describes such files", spec, err)
	}
	d.memory = file.DeviceMemory
	for i, w := range file.Workers {
		if w.Devices < 1 || w.Count < 0 {
			return d, usage.Errorf("epl: --cluster %s: worker %d has no devices; write how many", spec, i)
		}
		for range max(w.Count, 1) {
			d.devices = append(d.devices, strconv.Itoa(w.Devices))
			if w.Host != "" {
				d.hosts = append(d.hosts, w.Host)
			}
		}
	}
	if len(d.devices) == 0 || len(d.hosts) > 0 && len(d.hosts) != len(d.devices) {
		return d, usage.Errorf("epl: --cluster %s: %d workers, %d hosts: describe at least one worker, and name the host of every one, or none",
			spec, len(d.devices), len(d.hosts))
	}
	return d, nil
}

// number is a number of workers or devices; 0 if it is none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1<<20 {
		return 0
	}
	return n
}

// variables describe the cluster to a program.
func (d described) variables() []string {
	vars := []string{cluster.EnvNumWorkers + "=" + strconv.Itoa(len(d.devices)), cluster.EnvWorkerIndex + "=0",
		cluster.EnvDevicesPerWorker + "=" + strings.Join(d.devices, ",")}
	if d.hosts != nil {
		vars = append(vars, cluster.EnvWorkerHosts+"="+strings.Join(d.hosts, ","))
	}
	return vars
}
