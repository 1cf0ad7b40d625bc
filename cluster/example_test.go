// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"

	"github.com/easyparallel/epl/cluster"
)

// Two stages of two devices each: eight devices make two replicas, six devices do not divide.
func ExamplePlace() {
	stages := []cluster.TaskGraph{{Name: "stage_0", Devices: 2}, {Name: "stage_1", Devices: 2}}
	for _, devices := range [][]int{{4, 4}, {6}} {
		c, err := cluster.New(cluster.Spec{Devices: devices})
		if err != nil {
			fmt.Println(err)
			return
		}
		placement, err := cluster.Place(c, stages, cluster.Options{PreferIntraNode: true})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(placement.Replicas, "replicas:", placement)
	}
	// Output:
	// 2 replicas: VD0=[w0g0 w0g1][w1g0 w1g1] VD1=[w0g2 w0g3][w1g2 w1g3]
	// epl: 6 devices do not divide into replicas of 4 (stage_0: 2, stage_1: 2); use 4 or 8 devices, or change a device count
}

// What a worker finds in its environment when a launcher started it; a program would pass os.LookupEnv.
func ExampleFromEnvironment() {
	launcher := map[string]string{
		cluster.EnvNumWorkers:       "2",
		cluster.EnvWorkerIndex:      "1",
		cluster.EnvDevicesPerWorker: "4,2",
	}
	lookup := func(name string) (string, bool) {
		value, found := launcher[name]
		return value, found
	}
	c, err := cluster.FromEnvironment(lookup, 0, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: worker %d of %d has %v of %d devices\n",
		c, c.WorkerIndex(), c.WorkerNum(), c.LocalDevices(), c.TotalDevices())
	// Output: 4+2: worker 1 of 2 has [w1g0 w1g1] of 6 devices
}
