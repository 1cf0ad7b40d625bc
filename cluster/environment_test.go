// Copyright 2026 The EPL Authors. SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// variables is an environment for tests.
type variables map[string]string

func (v variables) lookup(name string) (string, bool) {
	value, found := v[name]
	return value, found
}

func TestTheEnvironmentDescribesTheCluster(t *testing.T) {
	for _, test := range []struct {
		name         string
		env          variables
		localDevices int
		visible      []int
		workerIndex  int
		want         string // all devices
	}{
		{name: "no cluster, 4 local devices: one worker, index 0, 4 devices in total",
			localDevices: 4, want: "1x4 [w0g0 w0g1 w0g2 w0g3]"},
		{name: "no cluster, nothing asked for: one device",
			want: "1x1 [w0g0]"},
		{name: "no cluster, visible devices",
			localDevices: 4, visible: []int{1, 3}, want: "1x2 [w0g1 w0g3]"},
		{name: "variables set to blanks are not set",
			env:          variables{EnvNumWorkers: "", EnvWorkerIndex: " ", EnvDevicesPerWorker: "", EnvWorkerHosts: ""},
			localDevices: 2, want: "1x2 [w0g0 w0g1]"},
		{name: "only the devices: one worker that has them",
			env: variables{EnvDevicesPerWorker: "2"}, want: "1x2 [w0g0 w0g1]"},
		{name: "only the devices, and they agree with the program's",
			env: variables{EnvDevicesPerWorker: "2"}, localDevices: 2, visible: []int{1}, want: "1x1 [w0g1]"},
		{name: "a job of torchrun with one worker",
			env: variables{"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, want: "1x1 [w0g0]"},
		{name: "a place to meet, and nobody to be met",
			env: variables{"PMI_RANK": "0", "PMI_SIZE": "1", "EPL_RDZV": "first://a:1"}, want: "1x1 [w0g0]"},
		{name: "one number of devices for all workers",
			env:         variables{EnvNumWorkers: "2", EnvWorkerIndex: "1", EnvDevicesPerWorker: "2"},
			workerIndex: 1, want: "2x2 [w0g0 w0g1 w1g0 w1g1]"},
		{name: "a number of devices for each worker, blanks allowed",
			env:         variables{EnvNumWorkers: " 3", EnvWorkerIndex: "2 ", EnvDevicesPerWorker: "2, 1 ,1"},
			workerIndex: 2, want: "2+1+1 [w0g0 w0g1 w1g0 w2g0]"},
		{name: "run_visible_devices 1 and 2 workers: one device per worker",
			env:     variables{EnvNumWorkers: "2", EnvWorkerIndex: "0", EnvDevicesPerWorker: "4"},
			visible: []int{1}, want: "2x1 [w0g1 w1g1]"},
		{name: "local devices that agree with the launcher",
			env:          variables{EnvNumWorkers: "2", EnvWorkerIndex: "1", EnvDevicesPerWorker: "1,2"},
			localDevices: 2, workerIndex: 1, want: "1+2 [w0g0 w1g0 w1g1]"},
		{name: "a launcher that leaves the devices to the program",
			env:          variables{EnvNumWorkers: "2", EnvWorkerIndex: "0"},
			localDevices: 2, want: "2x2 [w0g0 w0g1 w1g0 w1g1]"},
		{name: "nobody says how many devices: one per worker",
			env: variables{EnvNumWorkers: "2", EnvWorkerIndex: "0"}, want: "2x1 [w0g0 w1g0]"},
		{name: "a single worker needs no index",
			env: variables{EnvNumWorkers: "1", EnvDevicesPerWorker: "2"}, want: "1x2 [w0g0 w0g1]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := FromEnvironment(test.env.lookup, test.localDevices, test.visible)
			if err != nil {
				t.Fatal(err)
			}
			checkNumbering(t, c)
			if got := fmt.Sprint(c, " ", c.Devices()); got != test.want || c.WorkerIndex() != test.workerIndex {
				t.Errorf("worker %d of %s, want worker %d of %s", c.WorkerIndex(), got, test.workerIndex, test.want)
			}
		})
	}
}

func TestTheEnvironmentNamesTheHosts(t *testing.T) {
	env := variables{EnvNumWorkers: "2", EnvWorkerIndex: "0", EnvWorkerHosts: "node-a, node-b"}
	c, err := FromEnvironment(env.lookup, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Workers(); w[0].Host != "node-a" || w[1].Host != "node-b" {
		t.Errorf("hosts %q and %q", w[0].Host, w[1].Host)
	}
}

func TestBadEnvironmentsAreRefusedByName(t *testing.T) {
	for _, test := range []struct {
		env          variables
		localDevices int
		visible      []int
		want         string
	}{
		{env: variables{EnvNumWorkers: "two"},
			want: `epl: EPL_NUM_WORKERS="two": expected a number from 1 to 1048576`},
		{env: variables{EnvNumWorkers: "0"},
			want: `epl: EPL_NUM_WORKERS="0": expected a number from 1 to 1048576`},
		{env: variables{EnvNumWorkers: "1048577"},
			want: `epl: EPL_NUM_WORKERS="1048577": expected a number from 1 to 1048576`},
		{env: variables{EnvWorkerIndex: "1"},
			want: `epl: EPL_WORKER_INDEX="1" is set, but EPL_NUM_WORKERS is not; set both, or neither`},
		{env: variables{EnvDevicesPerWorker: "4,2"},
			want: `epl: EPL_DEVICES_PER_WORKER="4,2" has 2 numbers, but EPL_NUM_WORKERS is not set; set it to 2, or give 1 number`},
		{env: variables{EnvDevicesPerWorker: "4"}, localDevices: 2,
			want: `epl: WithLocalDevices(2) contradicts EPL_DEVICES_PER_WORKER="4", which gives worker 0 4 devices; make them equal, or leave WithLocalDevices out`},
		{env: variables{"EPL_RDZV": "first://a:1"},
			want: `epl: EPL_RDZV="first://a:1" is set, but EPL_NUM_WORKERS is not; set both, or neither`},
		{env: variables{"MASTER_ADDR": "a", "MASTER_PORT": "1"},
			want: `epl: MASTER_ADDR="a" is set, but RANK and WORLD_SIZE are not; torchrun sets all of them: set all, or none`},
		{env: variables{"MASTER_PORT": "1"},
			want: `epl: MASTER_PORT="1" is set, but RANK and WORLD_SIZE are not; torchrun sets all of them: set all, or none`},
		{env: variables{EnvWorkerHosts: "a,b"},
			want: `epl: EPL_WORKER_HOSTS="a,b" is set, but EPL_NUM_WORKERS is not; set both, or neither`},
		{env: variables{EnvNumWorkers: "2"},
			want: `epl: EPL_WORKER_INDEX is not set, but EPL_NUM_WORKERS is 2; set it to this worker's index, 0 or 1`},
		{env: variables{EnvNumWorkers: "2", EnvWorkerIndex: "2"},
			want: `epl: EPL_WORKER_INDEX="2": expected 0 or 1, because EPL_NUM_WORKERS is 2`},
		{env: variables{EnvNumWorkers: "4", EnvWorkerIndex: "-1"},
			want: `epl: EPL_WORKER_INDEX="-1": expected 0 to 3, because EPL_NUM_WORKERS is 4`},
		{env: variables{EnvNumWorkers: "1", EnvWorkerIndex: "first"},
			want: `epl: EPL_WORKER_INDEX="first": expected 0, because EPL_NUM_WORKERS is 1`},
		{env: variables{EnvNumWorkers: "2", EnvWorkerIndex: "0", EnvDevicesPerWorker: "4,4,4"},
			want: `epl: EPL_DEVICES_PER_WORKER="4,4,4" has 3 numbers: ` +
				`expected 1 for all workers, or 1 for each of the 2 in EPL_NUM_WORKERS`},
		{env: variables{EnvNumWorkers: "2", EnvWorkerIndex: "0", EnvDevicesPerWorker: "4,"},
			want: `epl: EPL_DEVICES_PER_WORKER="4,": expected numbers from 1 to 1024, got "" for worker 1`},
		{env: variables{EnvNumWorkers: "2", EnvWorkerIndex: "0", EnvDevicesPerWorker: "4, none"},
			want: `epl: EPL_DEVICES_PER_WORKER="4, none": expected numbers from 1 to 1024, got "none" for worker 1`},
		{env: variables{EnvNumWorkers: "2", EnvWorkerIndex: "0", EnvDevicesPerWorker: "0"},
			want: `epl: EPL_DEVICES_PER_WORKER="0": expected numbers from 1 to 1024, got "0" for worker 0`},
		{env: variables{EnvNumWorkers: "2", EnvWorkerIndex: "0", EnvDevicesPerWorker: "1025"},
			want: `epl: EPL_DEVICES_PER_WORKER="1025": expected numbers from 1 to 1024, got "1025" for worker 0`},
		{env: variables{EnvNumWorkers: "1025", EnvWorkerIndex: "0", EnvDevicesPerWorker: "1024"},
			want: "epl: the workers have more than 1048576 devices in total, the most a job can have; use fewer"},
		{env: variables{EnvNumWorkers: "2", EnvWorkerIndex: "0", EnvWorkerHosts: "a"},
			want: `epl: EPL_WORKER_HOSTS="a" names 1 host: expected 1 for each of the 2 in EPL_NUM_WORKERS`},
		{env: variables{EnvNumWorkers: "2", EnvWorkerIndex: "0", EnvWorkerHosts: "a, "},
			want: `epl: EPL_WORKER_HOSTS="a,": expected host names separated by commas, got an empty one for worker 1`},
		{env: variables{EnvNumWorkers: "3", EnvWorkerIndex: "0", EnvWorkerHosts: "a,,c"},
			want: `epl: EPL_WORKER_HOSTS="a,,c": expected host names separated by commas, got an empty one for worker 1`},
		{localDevices: -1,
			want: "epl: WithLocalDevices(-1): expected a number of at least 1"},
		{localDevices: 100000,
			want: "epl: WithLocalDevices(100000): a worker has at most 1024 devices, because each has threads and memory of its own; " +
				"ask for fewer, or use more workers"},
		{env: variables{EnvNumWorkers: "2", EnvWorkerIndex: "1", EnvDevicesPerWorker: "2,4"}, localDevices: 2,
			want: `epl: WithLocalDevices(2) contradicts EPL_DEVICES_PER_WORKER="2,4", which gives worker 1 4 devices; ` +
				`make them equal, or leave WithLocalDevices out`},
		{env: variables{EnvNumWorkers: "2", EnvWorkerIndex: "0", EnvDevicesPerWorker: "2,1"}, visible: []int{1},
			want: "epl: cluster.run_visible_devices names device 1, but worker 1 has 1 device; use 0"},
	} {
		t.Run(strings.TrimPrefix(test.want, "epl: "), func(t *testing.T) {
			_, err := FromEnvironment(test.env.lookup, test.localDevices, test.visible)
			checkError(t, err, test.want)
		})
	}
}

func FuzzAnyEnvironmentGivesAClusterOrASentence(f *testing.F) {
	f.Add("", "", "", "", 4, "")
	f.Add("2", "1", "4", "a,b", 0, "\x01")
	f.Add("3", "0", "4, 2,1", "", 4, "\x00\x00")
	f.Add("two", "-1", "0,", ",", -1, "\xff")
	f.Fuzz(func(t *testing.T, workers, index, devices, hosts string, localDevices int, visible string) {
		env := variables{EnvNumWorkers: workers, EnvWorkerIndex: index, EnvDevicesPerWorker: devices, EnvWorkerHosts: hosts}
		var indices []int
		for _, b := range []byte(visible) {
			indices = append(indices, int(int8(b)))
		}
		c, err := FromEnvironment(env.lookup, localDevices, indices)
		if err == nil {
			checkNumbering(t, c)
			return
		}
		if text := err.Error(); !strings.HasPrefix(text, "epl: ") || strings.Contains(text, "\n") {
			t.Errorf("not a sentence of ours: %q", text)
		}
	})
}

func TestAGenerationIsANumber(t *testing.T) {
	for text, want := range map[string]int{"": 1, " 3 ": 3, "0": -1, "x": -1} {
		n, err := Generation(func(string) (string, bool) { return text, true })
		if (err != nil) != (want < 0) || err == nil && n != want {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}
