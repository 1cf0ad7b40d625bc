// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// must returns the cluster of spec, which the test knows to be valid.
func must(t *testing.T, spec Spec) *Cluster {
	t.Helper()
	c, err := New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// checkError fails the test unless err has exactly the text want.
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", want)
	}
	if err.Error() != want {
		t.Fatalf("error\n %s\nwant\n %s", err, want)
	}
}

// checkNumbering fails the test unless ranks, workers and indices of c are consistent.
func checkNumbering(t *testing.T, c *Cluster) {
	t.Helper()
	if c.WorkerNum() < 1 || c.WorkerIndex() < 0 || c.WorkerIndex() >= c.WorkerNum() {
		t.Fatalf("worker %d of %d", c.WorkerIndex(), c.WorkerNum())
	}
	var all []Device
	for i, w := range c.Workers() {
		if w.Index != i || len(w.Devices) == 0 {
			t.Fatalf("worker %d is %+v", i, w)
		}
		for j, d := range w.Devices {
			if d.Worker != i || d.Rank != len(all) || c.Device(d.Rank) != d || j > 0 && d.Index <= w.Devices[j-1].Index {
				t.Fatalf("device %d of worker %d is %+v", j, i, d)
			}
			all = append(all, d)
		}
	}
	if !slices.Equal(all, c.Devices()) || len(all) != c.TotalDevices() {
		t.Fatalf("Devices() = %v, workers have %v", c.Devices(), all)
	}
	if local := c.Workers()[c.WorkerIndex()].Devices; !slices.Equal(local, c.LocalDevices()) {
		t.Fatalf("LocalDevices() = %v, want %v", c.LocalDevices(), local)
	}
}

func TestRanksCountDevicesWorkerByWorker(t *testing.T) {
	c := must(t, Spec{Devices: []int{2, 1, 3}, WorkerIndex: 2, Hosts: []string{"a", "b", "b"}})
	checkNumbering(t, c)
	if got, want := fmt.Sprint(c.Devices()), "[w0g0 w0g1 w1g0 w2g0 w2g1 w2g2]"; got != want {
		t.Errorf("Devices() = %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(c.LocalDevices()), "[w2g0 w2g1 w2g2]"; got != want {
		t.Errorf("LocalDevices() = %s, want %s", got, want)
	}
	if got, want := c.Device(4), (Device{Worker: 2, Index: 1, Rank: 4}); got != want {
		t.Errorf("Device(4) = %+v, want %+v", got, want)
	}
	if got := c.Workers()[2].Host; got != "b" {
		t.Errorf("worker 2 is on host %q, want b", got)
	}
}

func TestVisibleDevicesAreChosenOnEveryWorkerAndKeepTheirIndex(t *testing.T) {
	c := must(t, Spec{Devices: []int{4, 3}, Visible: []int{2, 0}})
	checkNumbering(t, c)
	if got, want := fmt.Sprint(c.Devices()), "[w0g0 w0g2 w1g0 w1g2]"; got != want {
		t.Errorf("Devices() = %s, want %s", got, want)
	}
	if got, want := c.Device(3), (Device{Worker: 1, Index: 2, Rank: 3}); got != want {
		t.Errorf("Device(3) = %+v, want %+v", got, want)
	}
}

func TestNamesOmitTheWorkerWhereThereIsOne(t *testing.T) {
	one, two := must(t, Spec{Devices: []int{2}}), must(t, Spec{Devices: []int{2, 2}})
	if got := one.DeviceName(one.Device(1)); got != "g1" {
		t.Errorf("one worker: %s, want g1", got)
	}
	if got := two.DeviceName(two.Device(1)); got != "w0g1" {
		t.Errorf("two workers: %s, want w0g1", got)
	}
	if got := one.Device(1).String(); got != "w0g1" {
		t.Errorf("String() = %s, want w0g1", got)
	}
}

func TestAClusterPrintsTheNumbersOfWorkersAndDevices(t *testing.T) {
	for want, spec := range map[string]Spec{
		"1x1":   {Devices: []int{1}},
		"2x4":   {Devices: []int{4, 4}},
		"4+2+4": {Devices: []int{4, 2, 4}},
		"2x1":   {Devices: []int{4, 2}, Visible: []int{1}},
	} {
		if got := must(t, spec).String(); got != want {
			t.Errorf("%+v prints as %s, want %s", spec, got, want)
		}
	}
}

func TestChangingReturnedSlicesDoesNotChangeTheCluster(t *testing.T) {
	c := must(t, Spec{Devices: []int{2, 2}})
	c.Devices()[0].Rank = 7
	c.LocalDevices()[0].Rank = 7
	c.Workers()[0].Devices[0].Rank = 7
	c.Workers()[0].Index = 7
	checkNumbering(t, c)
}

func TestImpossibleClustersAreRefused(t *testing.T) {
	for _, test := range []struct {
		spec Spec
		want string
	}{
		{Spec{}, "epl: the cluster has no workers; describe at least 1, with the number of its devices"},
		{Spec{Devices: []int{4, 0}}, "epl: worker 1 has 0 devices; give every worker at least 1"},
		{Spec{Devices: []int{-2}}, "epl: worker 0 has -2 devices; give every worker at least 1"},
		{Spec{Devices: []int{maxDevices, 1}},
			"epl: the workers have more than 1048576 devices in total, the most a job can have; use fewer"},
		{Spec{Devices: []int{1}, WorkerIndex: 1}, "epl: worker index 1 does not exist in a cluster of 1 worker; use 0"},
		{Spec{Devices: []int{1, 1}, WorkerIndex: 2},
			"epl: worker index 2 does not exist in a cluster of 2 workers; use 0 or 1"},
		{Spec{Devices: []int{1, 1, 1}, WorkerIndex: -1},
			"epl: worker index -1 does not exist in a cluster of 3 workers; use 0 to 2"},
		{Spec{Devices: []int{1, 1}, Hosts: []string{"a"}},
			"epl: 1 host for 2 workers; name the host of every worker, or none"},
		{Spec{Devices: []int{2}, Visible: []int{1, 0, 1}},
			"epl: cluster.run_visible_devices names device 1 twice; name each device once"},
		{Spec{Devices: []int{4, 1}, Visible: []int{0, 3}},
			"epl: cluster.run_visible_devices names device 3, but worker 1 has 1 device; use 0"},
		{Spec{Devices: []int{4}, Visible: []int{-1}},
			"epl: cluster.run_visible_devices names device -1, but worker 0 has 4 devices; use 0 to 3"},
	} {
		t.Run(strings.TrimPrefix(test.want, "epl: "), func(t *testing.T) {
			_, err := New(test.spec)
			checkError(t, err, test.want)
		})
	}
}
