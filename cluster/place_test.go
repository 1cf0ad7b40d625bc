// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// parseCase reads the notation of the worked cases: a cluster as it prints itself, "2x4" or "4+2", then the device
// counts of the TaskGraphs, "(1,2)", each with a name before it if it has one, "(stage_0:1,stage_1:2)".
func parseCase(t *testing.T, text string) (*Cluster, []TaskGraph) {
	t.Helper()
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	machines, request, _ := strings.Cut(text, " ")
	var spec Spec
	if workers, devices, found := strings.Cut(machines, "x"); found {
		for range number(workers) {
			spec.Devices = append(spec.Devices, number(devices))
		}
	} else {
		for devices := range strings.SplitSeq(machines, "+") {
			spec.Devices = append(spec.Devices, number(devices))
		}
	}
	var tgs []TaskGraph
	if request = strings.Trim(request, "()"); request != "" {
		for one := range strings.SplitSeq(request, ",") {
			name, devices, found := strings.Cut(one, ":")
			if !found {
				name, devices = "", one
			}
			tgs = append(tgs, TaskGraph{Name: name, Devices: number(devices)})
		}
	}
	return must(t, spec), tgs
}

var (
	intraNode = Options{PreferIntraNode: true}
	acrossAll = Options{}
	colocated = Options{PreferIntraNode: true, Colocate: true}
)

// interleaved returns the options for v stages per device.
func interleaved(v int) Options { return Options{PreferIntraNode: true, StagesPerDevice: v} }

func TestDevicesAreDealtReplicaByReplicaAndTaskGraphByTaskGraph(t *testing.T) {
	for _, test := range []struct {
		in   string
		opts Options
		want string
	}{
		{"1x4 (1)", intraNode, "VD0=[g0][g1][g2][g3]"},
		{"1x4 (1,1)", intraNode, "VD0=[g0][g2] VD1=[g1][g3]"},
		{"1x4 (1,1,1,1)", intraNode, "VD0=[g0] VD1=[g1] VD2=[g2] VD3=[g3]"},
		{"2x4 (1,1)", intraNode, "VD0=[w0g0][w0g2][w1g0][w1g2] VD1=[w0g1][w0g3][w1g1][w1g3]"},
		{"2x4 (2,2)", intraNode, "VD0=[w0g0 w0g1][w1g0 w1g1] VD1=[w0g2 w0g3][w1g2 w1g3]"},
		{"1x6 (1,2)", intraNode, "VD0=[g0][g3] VD1=[g1 g2][g4 g5]"},
		{"2x1 (1,1)", intraNode, "VD0=[w0g0] VD1=[w1g0]"},
		{"4+2 (2)", intraNode, "VD0=[w0g0 w0g1][w0g2 w0g3][w1g0 w1g1]"},
		{"1+3 (2)", intraNode, "VD0=[w0g0 w1g0][w1g1 w1g2]"},

		{"1x4 (1,1)", acrossAll, "VD0=[g0][g2] VD1=[g1][g3]"},
		{"2x4 (1,1)", acrossAll, "VD0=[w0g0][w0g1][w0g2][w0g3] VD1=[w1g0][w1g1][w1g2][w1g3]"},
		{"2x4 (2,2)", acrossAll, "VD0=[w0g0 w1g0][w0g2 w1g2] VD1=[w0g1 w1g1][w0g3 w1g3]"},
		{"3+1+2 (3)", acrossAll, "VD0=[w0g0 w1g0 w2g0][w0g1 w2g1 w0g2]"},

		{"1x2 (1)", colocated, "VD0=[g0][g1]"},
		{"1x2 (1,1)", colocated, "VD0=[g0][g1] VD1=[g0][g1]"},
		{"2x2 (2,2,2)", colocated, "VD0=[w0g0 w0g1][w1g0 w1g1] VD1=[w0g0 w0g1][w1g0 w1g1] VD2=[w0g0 w0g1][w1g0 w1g1]"},
		{"2x2 (2,2)", Options{Colocate: true}, "VD0=[w0g0 w1g0][w0g1 w1g1] VD1=[w0g0 w1g0][w0g1 w1g1]"},

		{"1x4 (1,1)", interleaved(1), "VD0=[g0][g2] VD1=[g1][g3]"},
		{"1x4 (1,1,1,1)", interleaved(2), "VD0=[g0][g2] VD1=[g1][g3] VD2=[g0][g2] VD3=[g1][g3]"},
		{"1x3 (1,2,1,2)", interleaved(2), "VD0=[g0] VD1=[g1 g2] VD2=[g0] VD3=[g1 g2]"},
		{"1x2 (1,1,1)", interleaved(3), "VD0=[g0][g1] VD1=[g0][g1] VD2=[g0][g1]"},
	} {
		t.Run(fmt.Sprintf("%s %+v", test.in, test.opts), func(t *testing.T) {
			c, tgs := parseCase(t, test.in)
			p, err := Place(c, tgs, test.opts)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.String(); got != test.want {
				t.Errorf("got\n %s\nwant\n %s", got, test.want)
			}
			checkPlacement(t, c, tgs, test.opts, p)
		})
	}
}

func TestTheFirstTaskGraphsOfAReplicaGetTheDevicesWithMostMemory(t *testing.T) {
	for _, test := range []struct {
		in     string
		opts   Options
		memory []int64
		want   string
	}{
		{"1x4 (1,1)", intraNode, []int64{2, 2, 2, 2}, "VD0=[g0][g2] VD1=[g1][g3]"},
		{"1x4 (1,1)", intraNode, []int64{1, 2, 3, 2}, "VD0=[g1][g2] VD1=[g0][g3]"},
		{"1x4 (1,1,1,1)", intraNode, []int64{1, 2, 1, 2}, "VD0=[g1] VD1=[g3] VD2=[g0] VD3=[g2]"},
		{"1x4 (1,1,1,1)", interleaved(2), []int64{1, 2, 1, 2}, "VD0=[g1][g3] VD1=[g0][g2] VD2=[g1][g3] VD3=[g0][g2]"},
		{"1x3 (1,2)", intraNode, []int64{1, 2, 3}, "VD0=[g2] VD1=[g1 g0]"},
		{"2x2 (1,1,1,1)", acrossAll, []int64{1, 1, 2, 2}, "VD0=[w1g0] VD1=[w1g1] VD2=[w0g0] VD3=[w0g1]"},
		{"1x2 (1)", intraNode, []int64{1, 2}, "VD0=[g0][g1]"},
		{"1x2 (2,2)", colocated, []int64{1, 2}, "VD0=[g0 g1] VD1=[g0 g1]"},
	} {
		c, tgs := parseCase(t, test.in)
		test.opts.Memory = test.memory
		p, err := Place(c, tgs, test.opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.String(); got != test.want {
			t.Errorf("%s, memory %v: got\n %s\nwant\n %s", test.in, test.memory, got, test.want)
		}
	}
}

func TestAVirtualDevicePrintsItsGroupsWithTheirWorkers(t *testing.T) {
	c, tgs := parseCase(t, "2x2 (2)")
	p, err := Place(c, tgs, intraNode)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Virtual[0].String(), "[w0g0 w0g1][w1g0 w1g1]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOnlyVisibleDevicesAreDealt(t *testing.T) {
	c := must(t, Spec{Devices: []int{4, 4}, Visible: []int{1, 3}})
	for want, opts := range map[string]Options{
		"VD0=[w0g1][w1g1] VD1=[w0g3][w1g3]": intraNode,
		"VD0=[w0g1][w0g3] VD1=[w1g1][w1g3]": acrossAll,
	} {
		p, err := Place(c, []TaskGraph{{Devices: 1}, {Devices: 1}}, opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.String(); got != want {
			t.Errorf("%+v: got %s, want %s", opts, got, want)
		}
	}
}

func TestWhatCannotBePlacedIsRefusedWithTheNumbersAndTheWaysOut(t *testing.T) {
	for _, test := range []struct {
		in   string
		opts Options
		want string
	}{
		{"1x6 (stage_0:2,stage_1:2)", intraNode, "epl: 6 devices do not divide into replicas of 4 " +
			"(stage_0: 2, stage_1: 2); use 4 or 8 devices, or change a device count"},
		{"1x4 (1,1,1)", intraNode, "epl: 4 devices do not divide into replicas of 3 " +
			"(TaskGraph 0: 1, TaskGraph 1: 1, TaskGraph 2: 1); use 3 or 6 devices, or change a device count"},
		{"4+3 (head:2)", acrossAll, "epl: 7 devices do not divide into replicas of 2 " +
			"(head: 2); use 6 or 8 devices, or change a device count"},
		{"1x6 (a:4,b:4)", colocated, "epl: 6 devices do not divide into replicas of 4 (a: 4, b: 4; " +
			"devices shared by cluster.colocate_split_and_replicate); use 4 or 8 devices, or change the device counts"},
		{"1x5 (1,1,1,1)", interleaved(2), "epl: 5 devices do not divide into replicas of 2 " +
			"(TaskGraph 0: 1, TaskGraph 1: 1, TaskGraph 2: 1, TaskGraph 3: 1; " +
			"devices shared by pipeline.stages_per_device = 2); use 4 or 6 devices, or change the device counts"},

		{"1x2 (stage_0:2,stage_1:2)", intraNode, "epl: a replica needs 4 devices (stage_0: 2, stage_1: 2), " +
			"but the cluster has 2, so 2 are missing; use 4 devices, change a device count, or set " +
			"cluster.colocate_split_and_replicate so that all TaskGraphs of a replica share 2 devices"},
		{"2x1 (1,1,1)", intraNode, "epl: a replica needs 3 devices (TaskGraph 0: 1, TaskGraph 1: 1, TaskGraph 2: 1), " +
			"but the cluster has 2, so 1 is missing; use 3 devices, change a device count, or set " +
			"cluster.colocate_split_and_replicate so that all TaskGraphs of a replica share 1 device"},
		{"1x3 (a:2,b:2)", intraNode, "epl: a replica needs 4 devices (a: 2, b: 2), " +
			"but the cluster has 3, so 1 is missing; use 4 devices, or change a device count"},
		{"1x2 (a:1,b:2)", intraNode, "epl: a replica needs 3 devices (a: 1, b: 2), " +
			"but the cluster has 2, so 1 is missing; use 3 devices, or change a device count"},
		{"1x1 (a:4,b:4)", colocated, "epl: a replica needs 4 devices (a: 4, b: 4; " +
			"devices shared by cluster.colocate_split_and_replicate), " +
			"but the cluster has 1, so 3 are missing; use 4 devices, or change the device counts"},
		{"1x1 (1,1,1,1)", interleaved(2), "epl: a replica needs 2 devices " +
			"(TaskGraph 0: 1, TaskGraph 1: 1, TaskGraph 2: 1, TaskGraph 3: 1; " +
			"devices shared by pipeline.stages_per_device = 2), " +
			"but the cluster has 1, so 1 is missing; use 2 devices, or change the device counts"},

		{"1x6 (same:2,same:2,same:4)", colocated, "epl: cluster.colocate_split_and_replicate places " +
			"TaskGraph 0 (same) and TaskGraph 2 (same) on the same devices, but they ask for 2 and 4; " +
			"make their device counts equal, or change that setting"},
		{"1x6 (1,2,1,1)", interleaved(2), "epl: pipeline.stages_per_device = 2 places " +
			"TaskGraph 1 and TaskGraph 3 on the same devices, but they ask for 2 and 1; " +
			"make their device counts equal, or change that setting"},
		{"1x2 (1,1,1,1,1)", interleaved(2), "epl: 5 TaskGraphs cannot be placed 2 on each device; " +
			"use 4 or 6 TaskGraphs, or change pipeline.stages_per_device"},
		{"1x2 (1)", interleaved(2), "epl: 1 TaskGraph cannot be placed 2 on each device; " +
			"use 2 TaskGraphs, or change pipeline.stages_per_device"},
		{"1x2 (1,1)", interleaved(-1), "epl: pipeline.stages_per_device is -1; set it to a number of at least 1"},
		{"1x2 (1,1)", Options{Colocate: true, StagesPerDevice: 2}, "epl: cluster.colocate_split_and_replicate makes " +
			"one stage of all TaskGraphs, but pipeline.stages_per_device is 2; turn the first off, or set the second to 1"},

		{"1x2 (1,0)", intraNode, "epl: TaskGraph 1 asks for 0 devices; ask for a number from 1 to 1048576"},
		{"1x2 (head:-3)", colocated, "epl: TaskGraph 0 (head) asks for -3 devices; ask for a number from 1 to 1048576"},
		{"1x2 (9223372036854775807,1)", intraNode,
			"epl: TaskGraph 0 asks for 9223372036854775807 devices; ask for a number from 1 to 1048576"},
		{"1x2 ()", intraNode, "epl: there is no TaskGraph to place; a program has at least 1"},
	} {
		t.Run(fmt.Sprintf("%s %+v", test.in, test.opts), func(t *testing.T) {
			c, tgs := parseCase(t, test.in)
			_, err := Place(c, tgs, test.opts)
			checkError(t, err, test.want)
		})
	}
}

func TestRandomRequestsUseEveryDeviceOnceOrAreRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	placed, refused := 0, 0
	for range 20_000 {
		var opts Options
		opts.PreferIntraNode = rng.IntN(2) == 0
		tgs := make([]TaskGraph, 1+rng.IntN(4))
		for i := range tgs {
			tgs[i].Devices = 1 + rng.IntN(4)
		}
		size := 0
		for _, tg := range tgs {
			size += tg.Devices
		}
		switch rng.IntN(3) {
		case 0:
			opts.Colocate = true
			size = tgs[0].Devices
			for i := range tgs {
				tgs[i].Devices = size
			}
		case 1: // the same stages once more, on the same devices
			opts.StagesPerDevice = 1 + rng.IntN(3)
			once := tgs
			for range opts.StagesPerDevice - 1 {
				tgs = append(tgs, once...)
			}
		}

		spec := randomSpec(rng, size)
		c := must(t, spec)
		p, err := Place(c, tgs, opts)
		if divides := c.TotalDevices()%size == 0; divides != (err == nil) {
			t.Fatalf("%s, %+v, %+v: replicas of %d, error %v", c, tgs, opts, size, err)
		}
		if err != nil {
			refused++
			continue
		}
		placed++
		if p.Replicas*size != c.TotalDevices() {
			t.Fatalf("%s, %+v, %+v: %d replicas of %d", c, tgs, opts, p.Replicas, size)
		}
		checkPlacement(t, c, tgs, opts, p)
	}
	if placed < 5_000 || refused < 1_000 {
		t.Errorf("%d placed and %d refused: the requests are too much alike", placed, refused)
	}
}

// randomSpec returns a cluster of workers with any numbers of devices, with numbers that replicas of the given size
// divide, or with numbers that they divide only in total.
func randomSpec(rng *rand.Rand, size int) Spec {
	devices := make([]int, 1+rng.IntN(4))
	kind := rng.IntN(3)
	total := 0
	for i := range devices {
		devices[i] = 1 + rng.IntN(6)
		if kind == 0 {
			devices[i] *= size
		}
		total += devices[i]
	}
	if kind == 1 {
		devices[rng.IntN(len(devices))] += (size - total%size) % size
	}
	return Spec{Devices: devices, WorkerIndex: rng.IntN(len(devices))}
}

// checkPlacement fails the test unless p has the properties that every placement has. It derives them from the request
// alone, in other ways than Place does.
func checkPlacement(t *testing.T, c *Cluster, tgs []TaskGraph, opts Options, p *Placement) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s, %+v, %+v: %s: %s", c, tgs, opts, p, fmt.Sprintf(format, args...))
	}
	if len(p.Virtual) != len(tgs) {
		fail("%d virtual devices", len(p.Virtual))
	}
	uses := max(opts.StagesPerDevice, 1) // of each device, by TaskGraphs
	if opts.Colocate {
		uses = len(tgs)
	}
	used := make([]int, c.TotalDevices())
	members := make([]map[Device]bool, p.Replicas) // the devices of each replica
	for i, v := range p.Virtual {
		if len(v.Groups) != p.Replicas {
			fail("TaskGraph %d has %d groups", i, len(v.Groups))
		}
		// TaskGraphs share all their devices with those a period before them, and none with those in between.
		if period := len(tgs) / uses; i >= period && v.String() != p.Virtual[i-period].String() {
			fail("TaskGraphs %d and %d do not share their devices", i-period, i)
		}
		for r, group := range v.Groups {
			if len(group) != tgs[i].Devices {
				fail("TaskGraph %d has %d devices in replica %d", i, len(group), r)
			}
			for _, d := range group {
				if d != c.Device(d.Rank) {
					fail("%+v is not a device of the cluster", d)
				}
				used[d.Rank]++
				if members[r] == nil {
					members[r] = map[Device]bool{}
				}
				members[r][d] = true
			}
		}
	}
	for rank, n := range used {
		if n != uses {
			fail("%s is used %d times, not %d", c.Device(rank), n, uses)
		}
	}
	last := Device{Worker: -1, Index: -1, Rank: -1}
	for r := range p.Replicas {
		for _, v := range p.Virtual[:len(tgs)/uses] {
			for _, d := range v.Groups[r] {
				inOrder := d.Rank > last.Rank
				if !opts.PreferIntraNode {
					inOrder = d.Index > last.Index || d.Index == last.Index && d.Worker > last.Worker
				}
				if !inOrder {
					fail("%s is dealt after %s", d, last)
				}
				last = d
			}
		}
	}
	if !opts.PreferIntraNode {
		return
	}
	size := c.TotalDevices() / p.Replicas
	for _, w := range c.Workers() {
		if w.Devices[0].Rank%size != 0 || len(w.Devices)%size != 0 {
			continue // a replica has to cross into or out of this worker
		}
		for r := range members {
			inside := 0
			for d := range members[r] {
				if d.Worker == w.Index {
					inside++
				}
			}
			if inside != 0 && inside != size {
				fail("replica %d crosses the border of worker %d", r, w.Index)
			}
		}
	}
}
